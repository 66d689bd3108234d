package doctor

// This file looks at Temporal: the server, the namespace, and who polls.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/sickbay-dev/sickbay/pkg/temporal"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// Temporal is the service that is asked.
type Temporal struct {
	Client    client.Client
	Address   string
	Namespace string
	TaskQueue string
}

const (
	// testedServer is the Temporal server that Sickbay is tested with.
	testedServer = "1.32"
	// leastRetention keeps the history of a case that is over through a long weekend.
	leastRetention = 7 * 24 * time.Hour
	// pollsWithin is how old a worker's last poll may be; one waits a minute at the
	// server.
	pollsWithin = 2 * time.Minute

	setUp = "Run `sickbay setup temporal`."
)

// Reach reads the server's version and what the namespace is like.
func (t Temporal) Reach() Check {
	return Check{Name: "temporal/namespace", Lost: "what Temporal is like", Ask: func(ctx context.Context) ([]Finding, error) {
		state, err := temporal.Inspect(ctx, t.Client, t.Namespace)
		return t.judge(state, err), nil
	}}
}

func (t Temporal) judge(state temporal.State, err error) []Finding {
	server := Finding{Check: "temporal/server", State: OK, Found: state.Server, Needed: testedServer + ", with which it is tested, or later"}
	namespace := Finding{Check: "temporal/namespace", State: OK, Needed: "namespace " + t.Namespace + ", which keeps closed workflows for " + days(leastRetention) + " or longer"}
	if state.Server == "" {
		server.State = Missing
		server.Found = fmt.Sprintf("Temporal at %s doesn't answer: %v", t.Address, err)
		server.Without = "no case is opened and none goes on, and nothing else of Temporal was looked at; marks stay as they are"
		server.Remedy = "See that SICKBAY_TEMPORAL_ADDRESS leads to its frontend, and that SICKBAY_TEMPORAL_TLS_* and SICKBAY_TEMPORAL_API_KEY_FILE are what it asks for."
		server.stops = true
		return []Finding{server}
	}
	if older(state.Server, testedServer) {
		server.State = Degraded
		server.Without = "nothing is known of what it lacks"
		server.Remedy = "Upgrade the Temporal server, minor version by minor version."
	}
	if !state.Exists && err == nil {
		namespace.State, namespace.Found = Missing, "there is no such namespace"
		namespace.Without = "no case is opened and none goes on"
		namespace.Remedy, namespace.stops = setUp, true
		return []Finding{server, namespace}
	}
	if !state.Exists {
		namespace.State, namespace.Found = Missing, err.Error()
		namespace.Without = "no case is opened and none goes on"
		namespace.Remedy, namespace.stops = "Give this caller the roles read and write in the namespace.", true
		return []Finding{server, namespace}
	}
	namespace.Found = fmt.Sprintf("%s, kept for %s", state.Status, days(state.Retention))
	switch {
	case state.Status != enumspb.NAMESPACE_STATE_REGISTERED:
		namespace.State, namespace.Without = Missing, "no case is opened and none goes on"
		namespace.Remedy = "Set SICKBAY_TEMPORAL_NAMESPACE to one that isn't on its way out, and run `sickbay setup temporal`."
	case state.Retention < leastRetention:
		namespace.State, namespace.Without = Degraded, "the history of a case is gone "+days(state.Retention)+" after it is over"
		namespace.Remedy = "Run `sickbay setup temporal --retention 30d`."
	}
	attributes := Finding{Check: "temporal/search-attributes", State: OK, Needed: "search attributes " + strings.Join(attributeNames(), ", ")}
	if err != nil {
		attributes.State, attributes.Found = Unknown, err.Error()
		attributes.Without, attributes.Remedy = "whether cases can be searched isn't known", "Give this caller the role read in the namespace."
		return []Finding{server, namespace, attributes}
	}
	return []Finding{server, namespace, judgeAttributes(attributes, state)}
}

func judgeAttributes(f Finding, state temporal.State) Finding {
	var wrong []string
	if missing := state.Missing(devicewf.SearchAttributes()); len(missing) > 0 {
		wrong = append(wrong, "missing: "+strings.Join(missing, ", "))
		f.Remedy = setUp
	}
	for _, mistyped := range state.Mistyped(devicewf.SearchAttributes()) {
		wrong = append(wrong, mistyped.String())
		f.Remedy = "Mend the types as said, and run `sickbay setup temporal`."
	}
	if len(wrong) == 0 {
		f.Found = "all"
		return f
	}
	f.State, f.Found = Degraded, strings.Join(wrong, "; ")
	f.Without = "cases can't be searched by node, driver, phase, reason or epoch, and sickbay_open_cases counts none; workers that run already go on without until they are restarted"
	return f
}

func attributeNames() []string {
	return slices.Sorted(maps.Keys(devicewf.SearchAttributes()))
}

// Workers asks whether anybody polls the task queue.
func (t Temporal) Workers() Check {
	name := "temporal/workers"
	return Check{Name: name, Lost: "whether workers run", Ask: func(ctx context.Context) ([]Finding, error) {
		// A queue has partitions, and an idle worker waits at a few of them.
		partitions, err := t.Client.WorkflowService().ListTaskQueuePartitions(ctx, &workflowservice.ListTaskQueuePartitionsRequest{
			Namespace: t.Namespace, TaskQueue: &taskqueuepb.TaskQueue{Name: t.TaskQueue},
		})
		if err != nil {
			return nil, fmt.Errorf("list the partitions of task queue %s: %w", t.TaskQueue, err)
		}
		workflows, err := t.polling(ctx, enumspb.TASK_QUEUE_TYPE_WORKFLOW, partitions.GetWorkflowTaskQueuePartitions())
		if err != nil {
			return nil, err
		}
		activities, err := t.polling(ctx, enumspb.TASK_QUEUE_TYPE_ACTIVITY, partitions.GetActivityTaskQueuePartitions())
		if err != nil {
			return nil, err
		}
		both := slices.DeleteFunc(unique(workflows), func(worker string) bool { return !slices.Contains(activities, worker) })
		return []Finding{judgeWorkers(name, t.TaskQueue, both)}, nil
	}}
}

// polling are those who polled one of these partitions lately.
func (t Temporal) polling(ctx context.Context, kind enumspb.TaskQueueType, partitions []*taskqueuepb.TaskQueuePartitionMetadata) ([]string, error) {
	var all []string
	for _, partition := range partitions {
		queue, err := t.Client.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
			Namespace: t.Namespace, TaskQueue: &taskqueuepb.TaskQueue{Name: partition.GetKey()}, TaskQueueType: kind,
		})
		if err != nil {
			return nil, fmt.Errorf("describe task queue %s: %w", partition.GetKey(), err)
		}
		for _, poller := range queue.GetPollers() {
			if time.Since(poller.GetLastAccessTime().AsTime()) < pollsWithin {
				all = append(all, poller.GetIdentity())
			}
		}
	}
	return all, nil
}

// judgeWorkers is given those who take both workflows and activities.
func judgeWorkers(name, queue string, polling []string) Finding {
	f := Finding{Check: name, State: OK, Needed: "two workers or more on task queue " + queue}
	f.Found = fmt.Sprintf("%d: %s", len(polling), names(polling))
	switch len(polling) {
	case 0:
		f.State, f.Found = Missing, "nobody polls task queue "+queue
		f.Without = "cases are opened, and nothing is decided or marked"
		f.Remedy = "Start workers; see that their SICKBAY_TEMPORAL_NAMESPACE and SICKBAY_TEMPORAL_TASK_QUEUE are these."
	case 1:
		f.State, f.Without = Degraded, "cases stand still while that one is restarted"
		f.Remedy = "Run at least two workers (deploy/base runs two)."
	}
	return f
}

// older compares versions; one that can't be read isn't older.
func older(found, than string) bool {
	v, err := utilversion.ParseGeneric(found)
	least, leastErr := utilversion.ParseGeneric(than)
	return errors.Join(err, leastErr) == nil && v.LessThan(least)
}

func days(d time.Duration) string {
	if d >= 24*time.Hour && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	return d.String()
}
