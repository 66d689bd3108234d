package burst

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// Names on the wire. They are part of recorded histories; none is ever changed.
const (
	// WorkflowType is the registered name of the workflow.
	WorkflowType = "burst"
	// ActivityMark is the name of the activity that makes the marks.
	ActivityMark = "MarkAhead"
)

// StateVersion is the version of Batch that this code writes and reads.
const StateVersion = 1

const (
	// MarkLimit is how long the activity goes on making marks before it answers with those
	// that it has made.
	MarkLimit = 4 * time.Second
	// answerLimit is how long it may take for that answer, and runLimit how long a run may
	// wait for a worker: its caller is long gone by then.
	answerLimit = MarkLimit + 4*time.Second
	runLimit    = 15 * time.Second
)

// Batch is the argument of the workflow.
type Batch struct {
	Faults []quarantine.Fault `json:"faults"`
}

// Task is what the activity is given.
type Task struct {
	Faults []quarantine.Fault `json:"faults"`
	// Epoch is that of all cases that these faults open.
	Epoch int64 `json:"epoch"`
}

// Marked is what the workflow answers: the marks that were made.
type Marked struct {
	Marks []quarantine.MadeAhead `json:"marks"`
}

// Run is the workflow.
func Run(ctx workflow.Context, batch Batch) (Marked, error) {
	activity := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout:    answerLimit,
		ScheduleToCloseTimeout: answerLimit,
		// What one attempt has made, a second one would take too long to find.
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
	task := Task{Faults: batch.Faults, Epoch: workflow.Now(ctx).UnixMilli()}
	var marked Marked
	err := workflow.ExecuteActivity(activity, ActivityMark, task).Get(ctx, &marked)
	return marked, err
}
