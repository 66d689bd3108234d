package listing

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	device "github.com/sickbay-dev/sickbay/workflows/device"
)

const (
	// runsRead bounds the runs of a workflow whose histories are read, the newest
	// first. A case begins a new run with each stage.
	runsRead = 20
	// timelineLimit bounds the reading of them all.
	timelineLimit = 15 * time.Second
)

// ReadTimeline reads a workflow's decisions from its histories in Temporal: each
// was handed to the activity that announces it. No worker is needed, and cases
// that are over are found as long as the namespace retains them. The oldest comes
// first. The problem says what is missing.
func ReadTimeline(ctx context.Context, temporal client.Client, namespace, workflowID string) (notices []quarantine.Notice, problem string) {
	ctx, cancel := context.WithTimeout(ctx, timelineLimit)
	defer cancel()
	runs, err := temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: namespace, PageSize: runsRead,
		Query: fmt.Sprintf("WorkflowType = '%s' AND WorkflowId = %s", device.WorkflowType, quote(workflowID)),
	})
	if err != nil {
		return nil, fmt.Sprintf("Temporal is away, so the timeline is missing: %v", err)
	}
	for _, run := range runs.GetExecutions() {
		found, err := readCase(ctx, temporal, workflowID, run.GetExecution().GetRunId())
		for _, announced := range found {
			notices = append(notices, announced.Notices...)
		}
		if err != nil {
			return inOrder(notices), fmt.Sprintf("the timeline isn't complete: %v", err)
		}
	}
	return inOrder(notices), ""
}

// readCase reads what one run of a case handed over to be announced.
func readCase(ctx context.Context, temporal client.Client, workflowID, run string) (all []quarantine.Announce, err error) {
	senders := device.NewSenders(run)
	tasks, err := readAnnounced[device.Task[quarantine.Announce]](ctx, temporal, workflowID, run, device.ActivityAnnounce, senders.Note)
	for _, task := range tasks {
		senders.Tell(task.Command.Notices)
		all = append(all, task.Command)
	}
	return all, err
}

// readAnnounced reads what one run of a workflow handed over to the activity that
// announces its decisions. also is shown each event.
func readAnnounced[Task any](ctx context.Context, temporal client.Client, workflowID, run, activity string, also ...func(*historypb.HistoryEvent)) (all []Task, err error) {
	events := temporal.GetWorkflowHistory(ctx, workflowID, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return all, fmt.Errorf("read the history of workflow %s, run %s: %w", workflowID, run, err)
		}
		for _, note := range also {
			note(event)
		}
		scheduled := event.GetActivityTaskScheduledEventAttributes()
		if scheduled.GetActivityType().GetName() != activity {
			continue
		}
		var task Task
		if err := converter.GetDefaultDataConverter().FromPayloads(scheduled.GetInput(), &task); err != nil {
			return all, fmt.Errorf("read event %d of workflow %s, run %s: %w", event.GetEventId(), workflowID, run, err)
		}
		all = append(all, task)
	}
	return all, nil
}

// inOrder sorts notices by time and leaves each in once: one that was handed over
// and not taken is handed over again.
func inOrder(notices []quarantine.Notice) []quarantine.Notice {
	slices.SortFunc(notices, func(a, b quarantine.Notice) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Seq, b.Seq))
	})
	return slices.CompactFunc(notices, func(a, b quarantine.Notice) bool {
		return a.At.Equal(b.At) && a.Epoch == b.Epoch && a.Seq == b.Seq
	})
}
