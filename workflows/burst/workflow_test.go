package burst_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/workflows/burst"
)

func run(t *testing.T, mark func(context.Context, burst.Task) (burst.Marked, error), batch burst.Batch) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetStartTime(time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC))
	env.RegisterWorkflowWithOptions(burst.Run, workflow.RegisterOptions{Name: burst.WorkflowType})
	env.RegisterActivityWithOptions(mark, activity.RegisterOptions{Name: burst.ActivityMark})
	env.ExecuteWorkflow(burst.WorkflowType, batch)
	return env
}

// All marks of a batch are made under the one epoch at which it began, by one activity,
// and the answer says which were.
func TestABatchHasOneEpoch(t *testing.T) {
	key := device.Key{Driver: "gpu.example.com", Pool: "anvil-07", Device: "gpu-3"}
	batch := burst.Batch{Faults: []quarantine.Fault{{Device: key, Event: quarantine.Observed{Node: "anvil-07"}}, {Device: device.Key{Driver: "gpu.example.com", Pool: "anvil-07", Device: "gpu-4"}}}}
	var given []burst.Task
	env := run(t, func(_ context.Context, task burst.Task) (burst.Marked, error) {
		given = append(given, task)
		return burst.Marked{Marks: []quarantine.MadeAhead{{Device: key, Made: quarantine.Made{Epoch: task.Epoch, Name: "mark", Version: "7"}}}}, nil
	}, batch)
	var marked burst.Marked
	if err := env.GetWorkflowResult(&marked); err != nil {
		t.Fatal(err)
	}
	want := time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC).UnixMilli()
	if len(given) != 1 || len(given[0].Faults) != 2 || given[0].Epoch != want || given[0].Faults[0].Event.Node != "anvil-07" {
		t.Errorf("the activity was given %+v", given)
	}
	if len(marked.Marks) != 1 || marked.Marks[0].Device != key || marked.Marks[0].Made.Epoch != want {
		t.Errorf("the answer is %+v", marked)
	}
}

// A batch is tried once: who asked for it goes on without.
func TestABatchThatFailsIsNotTriedAgain(t *testing.T) {
	tries := 0
	env := run(t, func(context.Context, burst.Task) (burst.Marked, error) {
		tries++
		return burst.Marked{}, errors.New("the worker is told to end")
	}, burst.Batch{})
	if err := env.GetWorkflowError(); err == nil || tries != 1 {
		t.Errorf("%d tries, %v; want one that fails", tries, err)
	}
}
