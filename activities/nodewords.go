package activities

// This file publishes what was decided about whole nodes.

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"github.com/sickbay-dev/sickbay/pkg/isolation"
	nodewf "github.com/sickbay-dev/sickbay/workflows/node"
)

// AnnounceNode publishes a node's notices, as Announce does a case's.
func (a *Audit) AnnounceNode(ctx context.Context, task nodewf.Announce) error {
	for _, n := range task.Notices {
		level, alert := slog.LevelInfo, "false"
		if n.Alert {
			level, alert = slog.LevelWarn, "true"
		}
		a.decisions.WithLabelValues(string(n.Kind), "", alert).Inc()
		a.logger.LogAttrs(ctx, level, "decision",
			slog.String("node", task.Node), slog.Int64("epoch", task.Epoch), slog.Int64("seq", n.Seq), slog.Time("at", n.At),
			slog.String("kind", string(n.Kind)), slog.Bool("alert", n.Alert), slog.String("phase", string(n.Phase)),
			slog.String("actor", n.Actor), slog.String("seen", n.Seen), slog.String("text", n.Text))
	}
	return nil
}

// nodeWords are what an Event says of each kind of decision about a whole node.
var nodeWords = map[isolation.NoticeKind]string{
	isolation.NoticeConsidered: "the policy isolates it",
	isolation.NoticeWouldBe:    "mode enforce would isolate it",
	isolation.NoticeHeld:       "it is NOT isolated yet: there is no permit for all its devices now",
	isolation.NoticeIsolated:   "it is isolated: nothing new is scheduled there",
	isolation.NoticeAdopted:    "it was found isolated by Sickbay, and stays so",
	isolation.NoticePutBack:    "what isolates it was taken away from outside while it is justified",
	isolation.NoticeOut:        "it is out, which is no fault: it is not isolated",
	isolation.NoticeOthers:     "somebody else keeps it out, and that stays with them",
	isolation.NoticeRefused:    "what isolates it could not be written",
	isolation.NoticeCalm:       "nothing justifies any more that it is isolated",
	isolation.NoticeLifted:     "it is given back",
	isolation.NoticeMessage:    "an operator's message about it was taken",
	isolation.NoticeUnheard:    "an operator's message about it was refused",
	isolation.NoticeClosed:     "its isolation is over",
}

// eventOfNode is the Event of a decision about a whole node.
func eventOfNode(node string, n isolation.Notice) (kind, reason, message string) {
	kind = corev1.EventTypeNormal
	if n.Alert {
		kind = corev1.EventTypeWarning
	}
	what := nodeWords[n.Kind]
	if what == "" {
		what = "something was decided about it"
	}
	return kind, string(n.Kind), fmt.Sprintf("node %s: %s; %s", node, what, n.Phase)
}

// AnnounceNode takes a node's decisions in. It never blocks.
func (e *Events) AnnounceNode(node string, notices []isolation.Notice) {
	var all []announced
	for _, n := range notices {
		all = append(all, announced{node: node, whole: &n})
	}
	e.announce(all)
}
