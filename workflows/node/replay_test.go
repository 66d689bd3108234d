package node_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/isolation"
	nodewf "github.com/sickbay-dev/sickbay/workflows/node"
)

// A worker of this version can take over every node that an earlier one left isolated:
// recorded runs are replayed command by command, by other knobs than theirs. Proves a part
// of K4.
//
// The corpus has a folder for each version that runs may come from, as that of incidents
// has, and is never changed. Its runs have to show what becomes of a node: a corpus that
// lacks something proves nothing of it.
func TestRecordedNodesReplay(t *testing.T) {
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
			replayer.RegisterWorkflowWithOptions(nodewf.New(func() nodewf.Knobs { return nodewf.Knobs{Policy: isolation.DefaultPolicy()} }).Run,
				workflow.RegisterOptions{Name: nodewf.WorkflowType})
			history, err := client.HistoryFromJSON(bytes.NewReader(content), client.HistoryJSONOptions{})
			if err != nil {
				t.Fatal(err)
			}
			// A run goes on only under the ID that names its node.
			began := history.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes()
			if err := replayer.ReplayWorkflowHistoryWithOptions(nil, history, worker.ReplayWorkflowHistoryOptions{
				OriginalExecution: workflow.Execution{ID: began.GetWorkflowId(), RunID: began.GetOriginalExecutionRunId()},
			}); err != nil {
				t.Error(err)
			}
		})
	}
	for _, event := range []string{
		"EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW", "EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED", "EVENT_TYPE_TIMER_FIRED", "EVENT_TYPE_TIMER_CANCELED", "EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES",
		`"name": "report"`, `"name": "lift"`, `"name": "LookNode"`, `"name": "IsolateNode"`, `"name": "ReleaseNode"`, `"name": "AnnounceNode"`,
	} {
		if !strings.Contains(all.String(), event) {
			t.Errorf("no run of the corpus has %s", event)
		}
	}
}
