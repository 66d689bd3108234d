package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// telling picks the first and the last runs of a test that made many: what is in
// between repeats itself.
func telling[E any](runs []E) []E {
	const each = 2
	if len(runs) <= 2*each {
		return runs
	}
	return slices.Concat(runs[:each], runs[len(runs)-each:])
}

// fewestEvents is how many a history has that can be replayed: by then its first task
// was begun.
const fewestEvents = 3

// record writes the histories of the workflows that the test made, for the replay
// corpora of the packages below workflows: `make record`. A corpus is what the version is
// called that records.
func (c *cluster) record(workflows, corpus string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	list, err := c.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{})
	if err != nil {
		c.t.Errorf("record: list workflows: %v", err)
		return
	}
	name := strings.ReplaceAll(strings.TrimPrefix(c.t.Name(), "Test"), "/", "-")
	byType := map[string][]*workflowpb.WorkflowExecutionInfo{}
	for _, info := range list.GetExecutions() {
		byType[info.GetType().GetName()] = append(byType[info.GetType().GetName()], info)
	}
	var all []*workflowpb.WorkflowExecutionInfo
	for kind, infos := range byType {
		if kind == devicewf.WorkflowType {
			infos = telling(infos)
		}
		all = append(all, infos...)
	}
	for i, info := range all {
		execution := info.GetExecution()
		folder := filepath.Join(workflows, info.GetType().GetName(), "testdata", corpus)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			c.t.Error(err)
			return
		}
		history := &historypb.History{}
		events := c.temporal.GetWorkflowHistory(ctx, execution.GetWorkflowId(), execution.GetRunId(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for events.HasNext() {
			event, err := events.Next()
			if err != nil {
				c.t.Errorf("record: history of %s: %v", execution.GetWorkflowId(), err)
				return
			}
			history.Events = append(history.Events, event)
		}
		if len(history.Events) < fewestEvents {
			continue
		}
		data, err := temporalproto.CustomJSONMarshalOptions{Indent: " "}.Marshal(history)
		if err != nil {
			c.t.Errorf("record: write history of %s: %v", execution.GetWorkflowId(), err)
			return
		}
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%s-%d.json", name, i)), data, 0o644); err != nil {
			c.t.Error(err)
		}
	}
}
