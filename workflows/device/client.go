package device

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// Names on the wire. They are part of what operators type and of recorded
// histories; none is ever changed.
const (
	// WorkflowType is the registered name of the workflow.
	WorkflowType = "device"
	// SignalObserved, SignalInventory and SignalMark carry what the starter saw.
	SignalObserved  = "observed"
	SignalInventory = "inventory"
	SignalMark      = "mark"
	// QueryCase answers with the State.
	QueryCase = "case"
)

// ErrNoCase is returned for a device that has no open case.
var ErrNoCase = quarantine.ErrNoCase

// ID is the ID of the workflow that owns the device's case.
func ID(key device.Key) string {
	if key.Path() == device.PathDRA {
		return "device/" + key.Driver + "/" + key.Pool + "/" + key.Device
	}
	return "device/" + key.Node + "/" + key.Resource + "/" + printable(key.ID)
}

// maxID is how much of a plugin's ID a workflow ID carries. Temporal takes 1,000
// characters in all; a node's name and a resource's have 570 at most.
const maxID = 400

// printable gives a plugin's ID as it is, if it is short and of printable ASCII: a
// workflow ID travels in a header. Any other has what isn't escaped, or its end
// replaced by a hash, and no two are alike: a tilde begins those, and is escaped.
func printable(id string) string {
	plain := func(r rune) bool { return r > ' ' && r < 0x7f && r != '%' && r != '~' }
	if len(id) <= maxID && !strings.ContainsFunc(id, func(r rune) bool { return !plain(r) }) {
		return id
	}
	var escaped strings.Builder
	for i := range len(id) {
		if plain(rune(id[i])) {
			escaped.WriteByte(id[i])
		} else {
			fmt.Fprintf(&escaped, "%%%02X", id[i])
		}
	}
	if escaped.Len() <= maxID {
		return escaped.String()
	}
	sum := sha256.Sum256([]byte(id))
	return "~" + hex.EncodeToString(sum[:16]) + "~" + escaped.String()[:maxID/2]
}

// Signal is what the starter sends: one event of the three kinds, and the trace
// of the Pod status change that caused it (W3C traceparent; empty without one).
type Signal[E quarantine.Observed | quarantine.Inventory | quarantine.MarkSeen] struct {
	Device      device.Key `json:"device"`
	Event       E          `json:"event"`
	TraceParent string     `json:"traceparent,omitempty"`
}

// Client starts, signals, asks and lists device workflows.
type Client struct {
	temporal client.Client
	queue    string
}

// NewClient returns a client that starts workflows on the given task queue.
func NewClient(temporal client.Client, queue string) *Client {
	return &Client{temporal: temporal, queue: queue}
}

// taskTimeout is how long a workflow task that was handed out and got lost keeps a
// fault waiting. A task itself takes milliseconds.
const taskTimeout = 5 * time.Second

// Open delivers an event to the device's workflow and starts the workflow if
// there is none. The caller retries what Retryable says.
func (c *Client) Open(ctx context.Context, key device.Key, event quarantine.Event, traceparent string) error {
	name, payload, err := signal(key, event, traceparent)
	if err != nil {
		return err
	}
	options := c.startOptions(key)
	_, err = c.temporal.SignalWithStartWorkflow(ctx, options.ID, name, payload, options, WorkflowType, NewState(key))
	if err != nil {
		return fmt.Errorf("signal %s with start of workflow %s: %w", name, options.ID, err)
	}
	return nil
}

// Tell delivers an event to the device's workflow if there is one, and returns
// ErrNoCase if not.
func (c *Client) Tell(ctx context.Context, key device.Key, event quarantine.Event, traceparent string) error {
	name, payload, err := signal(key, event, traceparent)
	if err != nil {
		return err
	}
	err = c.temporal.SignalWorkflow(ctx, ID(key), "", name, payload)
	if noCase(err) {
		return fmt.Errorf("%s: %w", key, ErrNoCase)
	}
	if err != nil {
		return fmt.Errorf("signal %s to workflow %s: %w", name, ID(key), err)
	}
	return nil
}

func signal(key device.Key, event quarantine.Event, traceparent string) (string, any, error) {
	switch e := event.(type) {
	case quarantine.Observed:
		return SignalObserved, Signal[quarantine.Observed]{Device: key, Event: e, TraceParent: traceparent}, nil
	case quarantine.Inventory:
		return SignalInventory, Signal[quarantine.Inventory]{Device: key, Event: e, TraceParent: traceparent}, nil
	case quarantine.MarkSeen:
		return SignalMark, Signal[quarantine.MarkSeen]{Device: key, Event: e, TraceParent: traceparent}, nil
	}
	return "", nil, fmt.Errorf("event %T of %s isn't sent by signal", event, key)
}

// Running tells whether the device has an open case. A workflow that only remembers
// one that is over doesn't count, as far as the search attributes tell.
func (c *Client) Running(ctx context.Context, key device.Key) (bool, error) {
	description, err := c.temporal.DescribeWorkflow(ctx, ID(key), "")
	if noCase(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("describe workflow %s: %w", ID(key), err)
	}
	if phase, told := description.TypedSearchAttributes.GetKeyword(AttributePhase); told && phase == string(quarantine.PhaseClosed) {
		return false, nil
	}
	return description.Status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, nil
}

// OpenDevices lists the devices that have an open workflow, as far as Temporal's
// visibility knows: one that was opened or closed just now may be missing or
// still there. It is for comparing all at once, not for one device.
func (c *Client) OpenDevices(ctx context.Context) iter.Seq2[device.Key, error] {
	return func(yield func(device.Key, error) bool) {
		request := &workflowservice.ListWorkflowExecutionsRequest{
			Query: fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", WorkflowType), PageSize: 1000,
		}
		for {
			page, err := c.temporal.ListWorkflow(ctx, request)
			if err != nil {
				yield(device.Key{}, fmt.Errorf("list the open device workflows: %w", err))
				return
			}
			for _, execution := range page.GetExecutions() {
				key, err := c.deviceOf(ctx, execution.GetExecution().GetWorkflowId())
				if noCase(err) {
					continue // closed since it was listed
				}
				if !yield(key, err) || err != nil {
					return
				}
			}
			if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
				return
			}
		}
	}
}

// OpenCases returns what tells of a device whether it had an open case just now, as far
// as Temporal's visibility knows: one that was opened or closed a moment ago may be told
// wrongly. With the search attributes, a workflow that only remembers a case that is
// over doesn't count.
func (c *Client) OpenCases(ctx context.Context) (func(device.Key) bool, error) {
	open := map[string]struct{}{}
	request := &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", WorkflowType), PageSize: 1000,
	}
	for {
		page, err := c.temporal.ListWorkflow(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("list the open cases: %w", err)
		}
		for _, execution := range page.GetExecutions() {
			if phase := execution.GetSearchAttributes().GetIndexedFields()[AttributePhase.GetName()]; phase != nil {
				var told string
				if converter.GetDefaultDataConverter().FromPayload(phase, &told) == nil && told == string(quarantine.PhaseClosed) {
					continue
				}
			}
			open[execution.GetExecution().GetWorkflowId()] = struct{}{}
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			break
		}
	}
	return func(key device.Key) bool {
		_, there := open[ID(key)]
		return there
	}, nil
}

// Count counts the open workflows in a phase, of one driver or of all, as far as
// Temporal's visibility knows. It needs the search attributes.
func (c *Client) Count(ctx context.Context, phase quarantine.Phase, driver string) (int64, error) {
	query := fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running' AND %s = '%s'", WorkflowType, AttributePhase.GetName(), phase)
	if driver != "" {
		query += fmt.Sprintf(" AND %s = '%s'", AttributeDriver.GetName(), driver)
	}
	answer, err := c.temporal.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Query: query})
	if err != nil {
		return 0, fmt.Errorf("count device workflows: %w", err)
	}
	return answer.GetCount(), nil
}

// deviceOf finds the device of a workflow. An ID of three parts is a DRA device's.
// With more, a slash may belong to a pool or to a resource, and the workflow is
// asked.
func (c *Client) deviceOf(ctx context.Context, id string) (device.Key, error) {
	name := strings.TrimPrefix(id, "device/")
	if strings.Count(name, "/") == 2 {
		return device.ParseDRA(name)
	}
	value, err := c.temporal.QueryWorkflow(ctx, id, "", QueryCase)
	if err != nil {
		return device.Key{}, fmt.Errorf("query workflow %s: %w", id, err)
	}
	var state State
	if err := value.Get(&state); err != nil {
		return device.Key{}, fmt.Errorf("read the state of workflow %s: %w", id, err)
	}
	return state.Case.Device, nil
}

// State asks the device's workflow for its state. It needs a worker that runs.
func (c *Client) State(ctx context.Context, key device.Key) (State, error) {
	value, err := c.temporal.QueryWorkflow(ctx, ID(key), "", QueryCase)
	if noCase(err) {
		return State{}, fmt.Errorf("%s: %w", key, ErrNoCase)
	}
	if err != nil {
		return State{}, fmt.Errorf("query workflow %s: %w", ID(key), err)
	}
	var state State
	if err := value.Get(&state); err != nil {
		return State{}, fmt.Errorf("read the state of workflow %s: %w", ID(key), err)
	}
	return state, nil
}

// Send delivers an operator's message and waits for the answer. A refusal comes
// back as an error that says why.
func (c *Client) Send(ctx context.Context, key device.Key, m quarantine.Message) (Answer, error) {
	handle, err := c.temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID:   ID(key),
		UpdateName:   string(m.Verb),
		Args:         []any{payloadOf(m)},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if noCase(err) {
		return Answer{}, fmt.Errorf("%s: %w", key, ErrNoCase)
	}
	if err != nil {
		return Answer{}, fmt.Errorf("send %s to workflow %s: %w", m.Verb, ID(key), err)
	}
	return answerOf(ctx, handle)
}

// RefusedError is the answer to an operator's message that the case refuses: what it says,
// and nothing of how it came.
type RefusedError struct {
	Text  string
	cause error
}

func (e *RefusedError) Error() string { return e.Text }

func (e *RefusedError) Unwrap() error { return e.cause }

// Is tells of a refusal that it is one because the case is over.
func (e *RefusedError) Is(target error) bool {
	var refused *temporal.ApplicationError
	return target == ErrNoCase && errors.As(e.cause, &refused) && refused.Type() == ErrorNoCase
}

// answerOf waits for the answer to an operator's message.
func answerOf(ctx context.Context, handle client.WorkflowUpdateHandle) (Answer, error) {
	var answer Answer
	err := handle.Get(ctx, &answer)
	if refused := (*temporal.ApplicationError)(nil); errors.As(err, &refused) {
		return Answer{}, &RefusedError{refused.Message(), err}
	}
	return answer, err
}

// Begin delivers an operator's message that a device without a case takes too: its
// workflow begins with it if there is none. It needs a worker that runs.
func (c *Client) Begin(ctx context.Context, key device.Key, m quarantine.Message) (Answer, error) {
	start := c.temporal.NewWithStartWorkflowOperation(c.startOptions(key), WorkflowType, NewState(key))
	handle, err := c.temporal.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: start,
		UpdateOptions: client.UpdateWorkflowOptions{
			WorkflowID: ID(key), UpdateName: string(m.Verb), WaitForStage: client.WorkflowUpdateStageCompleted,
			Args: []any{payloadOf(m)},
		},
	})
	if err != nil {
		return Answer{}, fmt.Errorf("send %s with start of workflow %s: %w", m.Verb, ID(key), err)
	}
	return answerOf(ctx, handle)
}

// startOptions are those of each device's workflow.
func (c *Client) startOptions(key device.Key) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID:                       ID(key),
		TaskQueue:                c.queue,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary:            "Health of " + key.String(),
		WorkflowTaskTimeout:      taskTimeout,
	}
}

func noCase(err error) bool {
	var notFound *serviceerror.NotFound
	return errors.As(err, &notFound)
}

// Retryable tells whether sending again may help: the service is away or busy,
// the workflow is just closing. What the service calls wrong, stays wrong; but for
// the namespace, which may be about to be made, and which Temporal goes on denying
// for some seconds then if it was asked before.
func Retryable(err error) bool {
	if err == nil || errors.Is(err, ErrNoCase) || errors.Is(err, context.Canceled) {
		return false
	}
	var invalid *serviceerror.InvalidArgument
	var denied *serviceerror.PermissionDenied
	var refused *temporal.ApplicationError
	return !errors.As(err, &invalid) && !errors.As(err, &denied) && !errors.As(err, &refused)
}
