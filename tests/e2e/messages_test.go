package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/stack"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// trail collects the audit trail, which is structured log lines.
type trail struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (l *trail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

// actors counts the decisions by the operator whose word led to them.
func (l *trail) actors(t testing.TB, kind quarantine.NoticeKind) map[string]int {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	actors := map[string]int{}
	for line := range strings.SplitSeq(strings.TrimSpace(l.lines.String()), "\n") {
		var decision struct {
			Msg, Kind, Actor string
		}
		if err := json.Unmarshal([]byte(line), &decision); err != nil {
			t.Fatalf("audit line %q: %v", line, err)
		}
		if decision.Msg == "decision" && decision.Kind == string(kind) {
			actors[decision.Actor]++
		}
	}
	return actors
}

// Signals and updates that the server acknowledged are acted on, however often
// the workflow continues as new between them. Case 49 on a real server, whose
// limit is set so low that a run ends every few signals.
func TestNoAcknowledgedMessageIsLostAcrossRuns(t *testing.T) {
	c := start(t, stack.Options{
		Kubernetes: "1.37", Temporal: true,
		DynamicConfig: map[string]any{"limit.historyCount.suggestContinueAsNew": 20},
	}, 1, 4)
	audit := &trail{}
	c.workLogging(fastPolicy(), slog.New(slog.NewJSONHandler(audit, nil)))
	key, _ := device.NewDRA("gpu.example.com", "node-0", "gpu-3")
	if err := c.cases.Open(t.Context(), key, c.fault(key, "train-0", "XID 79", "41"), ""); err != nil {
		t.Fatal(err)
	}
	c.awaitCase(key, "in force", func(s quarantine.Case) error {
		if s.Mark.State != quarantine.MarkInForce {
			return fmt.Errorf("mark %s", s.Mark.State)
		}
		return nil
	})

	const senders, each = 4, 25
	var acknowledged sync.Map
	var group sync.WaitGroup
	for sender := range senders {
		group.Go(func() {
			for i := range each {
				actor := fmt.Sprintf("ops-%d-%d@example.com", sender, i)
				if err := c.extend(t.Context(), key, actor, sender%2 == 0); err != nil {
					t.Errorf("%s: %v", actor, err)
					return
				}
				acknowledged.Store(actor, true)
			}
		})
	}
	group.Wait()

	c.eventually("every acknowledged message is in the audit trail", 60*time.Second, func(context.Context) error {
		seen := audit.actors(t, quarantine.NoticeMessage)
		missing := 0
		acknowledged.Range(func(actor, _ any) bool {
			if seen[actor.(string)] == 0 {
				missing++
			}
			return true
		})
		if missing > 0 {
			state, err := c.cases.State(t.Context(), key)
			return fmt.Errorf("%d of %d are missing; run %d, notice %d, waiting %d, %v", missing, senders*each, state.Runs, state.Case.NoticeSeq, len(state.Case.Notices), err)
		}
		return nil
	})
	state, err := c.cases.State(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if state.Runs < 3 {
		t.Errorf("the workflow continued as new %d times; with fewer than 3 this test shows nothing", state.Runs)
	}
	t.Logf("%d messages over %d runs", senders*each, state.Runs+1)
}

// extend sends an operator's message by signal or by update, and tries again
// while the workflow is just ending a run.
func (c *cluster) extend(ctx context.Context, key device.Key, actor string, bySignal bool) error {
	for {
		var err error
		if bySignal {
			err = c.temporal.SignalWorkflow(ctx, devicewf.ID(key), "", "extend", devicewf.OperatorPayload{Actor: actor, Reason: "test"})
		} else {
			_, err = c.cases.Send(ctx, key, quarantine.Message{Verb: quarantine.VerbExtend, Actor: actor, Reason: "test"})
		}
		if err == nil || !devicewf.Retryable(err) {
			return err
		}
		c.t.Logf("%s: %v; again", actor, err)
	}
}
