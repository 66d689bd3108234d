package permits_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	permitswf "github.com/sickbay-dev/sickbay/workflows/permits"
)

// A worker of this version can take over the budgets that an earlier one left behind:
// recorded runs are replayed command by command, by other limits than theirs. Proves a
// part of K4.
//
// The corpus has a folder for each version that budgets may come from, under the first
// seven digits of its commit or its number, which that version recorded by
// `make record CORPUS=…`; it is never changed. Its runs have to show all that becomes of
// a permit: a corpus that lacks something proves nothing of it.
func TestRecordedBudgetsReplay(t *testing.T) {
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
			none := budget.Limit{None: true}
			replayer.RegisterWorkflowWithOptions(permitswf.New(func() permitswf.Knobs {
				return permitswf.Knobs{Limits: budget.Limits{Cluster: none, Class: none, Tenant: none, Node: none}}
			}).Run, workflow.RegisterOptions{Name: permitswf.WorkflowType})
			if err := replayer.ReplayWorkflowHistoryFromJSONFile(nil, file); err != nil {
				t.Error(err)
			}
		})
	}
	for _, event := range []string{
		"EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW",
		"EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED", "EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED", "EVENT_TYPE_TIMER_STARTED", "EVENT_TYPE_TIMER_FIRED",
		"EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED", "EVENT_TYPE_EXTERNAL_WORKFLOW_EXECUTION_SIGNALED", "EVENT_TYPE_ACTIVITY_TASK_COMPLETED",
		`"name": "ask"`, `"name": "count"`, `"name": "return"`, `"name": "pause"`, `"name": "resume"`,
	} {
		if !strings.Contains(all.String(), event) {
			t.Errorf("no run of the corpus has %s", event)
		}
	}
}
