package incident_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/incident"
	incidentwf "github.com/sickbay-dev/sickbay/workflows/incident"
)

// A worker of this version can take over every incident that an earlier one left behind:
// recorded runs are replayed command by command, by other knobs than theirs. Proves a
// part of K4.
//
// The corpus has a folder for each version that incidents may come from, under the first
// seven digits of its commit or its number, which that version recorded by
// `make record CORPUS=…`; it is never changed. Its runs have to show all that becomes of
// an incident: a corpus that lacks something proves nothing of it.
func TestRecordedIncidentsReplay(t *testing.T) {
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
			replayer.RegisterWorkflowWithOptions(incidentwf.New(func() incidentwf.Knobs { return incidentwf.Knobs{Policy: incident.DefaultPolicy()} }).Run,
				workflow.RegisterOptions{Name: incidentwf.WorkflowType})
			if err := replayer.ReplayWorkflowHistoryFromJSONFile(nil, file); err != nil {
				t.Error(err)
			}
		})
	}
	for _, event := range []string{
		"EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW", "EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED", "EVENT_TYPE_TIMER_FIRED", "EVENT_TYPE_TIMER_CANCELED",
		"EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED", "EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED", "EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES",
		`"name": "report"`, `"name": "ask"`, `"name": "wait"`, `"name": "admit"`, `"name": "close"`,
	} {
		if !strings.Contains(all.String(), event) {
			t.Errorf("no run of the corpus has %s", event)
		}
	}
}
