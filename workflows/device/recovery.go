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

// attemptRetry tries again what failed, a few times; after that the case goes on at its own
// pace.
func attemptRetry() *temporal.RetryPolicy {
	return &temporal.RetryPolicy{
		InitialInterval:        500 * time.Millisecond,
		BackoffCoefficient:     2,
		MaximumAttempts:        3,
		NonRetryableErrorTypes: []string{ErrorRefused},
	}
}

func (r *runner) tend(c quarantine.Tend) *task {
	return attempt(r, ActivityTend, c, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute,
		HeartbeatTimeout:    10 * time.Second,
		Summary:             fmt.Sprintf("attempt %d, gate %s: what it needs, and how it stands", c.Attempt, c.Gate),
		RetryPolicy:         attemptRetry(),
	}, func(err error) quarantine.Tended {
		return quarantine.Tended{Token: c.Token, Gate: c.Gate, Asked: c.Asked, Failed: cause(err)}
	})
}

func (r *runner) cleanUp(c quarantine.CleanUp) *task {
	return attempt(r, ActivityCleanUp, c, workflow.ActivityOptions{
		// A worker that dies in it costs this much of a release.
		StartToCloseTimeout: 10 * time.Second,
		Summary:             "remove what was made for attempts",
		RetryPolicy:         attemptRetry(),
	}, func(err error) quarantine.Cleaned {
		return quarantine.Cleaned{UpTo: c.UpTo, Failed: cause(err)}
	})
}

func (r *runner) askReturn(c quarantine.AskReturn) *task {
	return attempt(r, ActivityAskReturn, c, workflow.ActivityOptions{
		StartToCloseTimeout: 10 * time.Second,
		Summary:             "whether it is the device's turn to come back",
		RetryPolicy:         attemptRetry(),
	}, func(err error) quarantine.ReturnAnswered {
		// It is asked again; a release is late by that and not lost.
		return quarantine.ReturnAnswered{Token: c.Token, Again: time.Minute, Why: "it can't be told whether it is its turn: " + cause(err)}
	})
}

// attempt starts an activity that answers with what the case learns; failed is what it
// learns where there is no answer.
func attempt[C Commands, E quarantine.Event](r *runner, name string, c C, options workflow.ActivityOptions, failed func(error) E) *task {
	future := workflow.ExecuteActivity(workflow.WithActivityOptions(r.ctx, options), name,
		Task[C]{Command: c, TraceParent: r.TraceParent, TraceBegan: r.TraceBegan, Classes: r.Case.Around.Classes})
	return &task{future, func(f workflow.Future) quarantine.Event {
		var answer E
		if err := f.Get(r.ctx, &answer); err != nil {
			r.log.Warn("an activity of an attempt failed", "activity", name, "error", err)
			return failed(err)
		}
		return answer
	}}
}
