package burst_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/workflows/burst"
)

// A worker of this version can take over every batch that an earlier one has under way:
// recorded runs are replayed command by command. Proves a part of K4.
//
// The corpus has a folder for each version that batches may come from, as that of budgets
// has, and is never changed.
func TestRecordedBatchesReplay(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
		t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
			replayer := worker.NewWorkflowReplayer()
			replayer.RegisterWorkflowWithOptions(burst.Run, workflow.RegisterOptions{Name: burst.WorkflowType})
			if err := replayer.ReplayWorkflowHistoryFromJSONFile(nil, file); err != nil {
				t.Error(err)
			}
		})
	}
	for _, event := range []string{`"name": "MarkAhead"`, "EVENT_TYPE_ACTIVITY_TASK_COMPLETED", "EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED"} {
		if !strings.Contains(all.String(), event) {
			t.Errorf("no run of the corpus has %s", event)
		}
	}
}
