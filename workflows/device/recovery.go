package device

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// The activities of an attempt at recovery. Tending may wait for news, and tells by its
// heartbeats that its worker lives; one that dies in it costs no more than those.

func (r *runner) tend(c quarantine.Tend) *task {
	ctx := workflow.WithActivityOptions(r.ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute,
		HeartbeatTimeout:    10 * time.Second,
		Summary:             fmt.Sprintf("attempt %d, gate %s: what it needs, and how it stands", c.Attempt, c.Gate),
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:        500 * time.Millisecond,
			BackoffCoefficient:     2,
			MaximumAttempts:        3,
			NonRetryableErrorTypes: []string{ErrorRefused},
		},
	})
	future := workflow.ExecuteActivity(ctx, ActivityTend, Task[quarantine.Tend]{Command: c, TraceParent: r.TraceParent, TraceBegan: r.TraceBegan, Classes: r.Case.Around.Classes})
	return &task{future, func(f workflow.Future) quarantine.Event {
		var answer quarantine.Tended
		if err := f.Get(r.ctx, &answer); err != nil {
			r.log.Warn("attempt not tended to", "attempt", c.Attempt, "gate", string(c.Gate), "error", err)
			return quarantine.Tended{Token: c.Token, Gate: c.Gate, Asked: c.Asked, Failed: cause(err)}
		}
		return answer
	}}
}

func (r *runner) cleanUp(c quarantine.CleanUp) *task {
	ctx := workflow.WithActivityOptions(r.ctx, workflow.ActivityOptions{
		// A worker that dies in it costs this much of a release.
		StartToCloseTimeout: 10 * time.Second,
		Summary:             "remove what was made for attempts",
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:        500 * time.Millisecond,
			BackoffCoefficient:     2,
			MaximumAttempts:        3,
			NonRetryableErrorTypes: []string{ErrorRefused},
		},
	})
	future := workflow.ExecuteActivity(ctx, ActivityCleanUp, Task[quarantine.CleanUp]{Command: c, TraceParent: r.TraceParent, TraceBegan: r.TraceBegan})
	return &task{future, func(f workflow.Future) quarantine.Event {
		var answer quarantine.Cleaned
		if err := f.Get(r.ctx, &answer); err != nil {
			r.log.Warn("attempts not cleaned up", "error", err)
			return quarantine.Cleaned{UpTo: c.UpTo, Failed: cause(err)}
		}
		return answer
	}}
}

func (r *runner) askReturn(c quarantine.AskReturn) *task {
	ctx := workflow.WithActivityOptions(r.ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 10 * time.Second,
		Summary:             "whether it is the device's turn to come back",
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: 500 * time.Millisecond, BackoffCoefficient: 2, MaximumAttempts: 3},
	})
	future := workflow.ExecuteActivity(ctx, ActivityAskReturn, Task[quarantine.AskReturn]{Command: c, TraceParent: r.TraceParent, TraceBegan: r.TraceBegan, Classes: r.Case.Around.Classes})
	return &task{future, func(f workflow.Future) quarantine.Event {
		var answer quarantine.ReturnAnswered
		if err := f.Get(r.ctx, &answer); err != nil {
			// It is asked again; a release is late by that and not lost.
			r.log.Warn("can't tell whether it is the device's turn", "error", err)
			return quarantine.ReturnAnswered{Token: c.Token, Again: time.Minute, Why: "it can't be told whether it is its turn: " + cause(err)}
		}
		return answer
	}}
}
