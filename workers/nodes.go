package workers

import (
	"context"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"github.com/sickbay-dev/sickbay/activities"
	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
	nodewf "github.com/sickbay-dev/sickbay/workflows/node"
)

// registerNodes registers what isolates whole nodes.
func (w *Worker) registerNodes(sdk worker.Worker) {
	o := w.options
	n := &activities.Nodes{
		Writer: w.nodes, Marks: w.marks, Cases: devicewf.NewClient(o.Temporal, o.TaskQueue),
		Enforce: func() bool { return o.Policy().Isolation().Mode == quarantine.ModeEnforce },
		Permits: w.permits, Logger: o.Logger,
	}
	sdk.RegisterActivityWithOptions(n.LookNode, activity.RegisterOptions{Name: nodewf.ActivityLook})
	sdk.RegisterActivityWithOptions(n.IsolateNode, activity.RegisterOptions{Name: nodewf.ActivityIsolate})
	sdk.RegisterActivityWithOptions(n.ReleaseNode, activity.RegisterOptions{Name: nodewf.ActivityRelease})
	sdk.RegisterActivityWithOptions(w.announceNode, activity.RegisterOptions{Name: nodewf.ActivityAnnounce})
}

// announceNode publishes a node's notices: into the log at once, and into the directory and
// as Events as soon as can be.
func (w *Worker) announceNode(ctx context.Context, task nodewf.Announce) error {
	if err := w.audit.AnnounceNode(ctx, task); err != nil {
		return err
	}
	if w.options.Policy().Enforces() {
		// Observing changes nothing in the cluster, and an Event is something in it.
		w.events.AnnounceNode(task.Node, task.Notices)
	}
	if w.trail != nil {
		for _, n := range task.Notices {
			w.trail.Add(directory.NodeDecision(task.Node, task.Epoch, n))
		}
	}
	return nil
}

// standing lists all marks that exist: of devices, and of whole nodes where the policy
// isolates any. Others would be counted by a starter a moment later.
type standing struct{ *Worker }

// Standing implements activities.MarkLister.
func (s standing) Standing(ctx context.Context) ([]budget.Standing, error) {
	all, err := s.marks.Standing(ctx)
	if err != nil || s.options.Policy().Isolation().Way == isolation.Off {
		return all, err
	}
	nodes, err := s.nodes.Standing(ctx)
	return append(all, nodes...), err
}
