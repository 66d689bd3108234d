package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/workflows/operator"
)

// Names on the wire. They are part of what operators type and of recorded
// histories; none is ever changed.
const (
	// WorkflowType is the registered name of the workflow.
	WorkflowType = "node"
	// UpdateReport carries what a starter counts.
	UpdateReport = "report"
	// SignalPermit tells one that waits that there is a permit now.
	SignalPermit = "permit"
	// QueryIsolation answers with the State.
	QueryIsolation = "isolation"

	prefix = "node/"
)

// ErrNone is returned for a node that nothing isolates or is about to.
var ErrNone = errors.New("nothing isolates the node")

// ID is the ID of the workflow that isolates the node.
func ID(node string) string { return prefix + node }

// PermitSignal is what SignalPermit carries.
type PermitSignal struct {
	Epoch int64 `json:"epoch"`
}

// Offer tells a node's workflow, from another workflow, that there is a permit now. It
// fails where none runs.
func Offer(ctx workflow.Context, node string, epoch int64) workflow.Future {
	return workflow.SignalExternalWorkflow(ctx, ID(node), "", SignalPermit, PermitSignal{epoch})
}

// Client reports to, asks and lists node workflows.
type Client struct {
	temporal client.Client
	queue    string
}

// NewClient returns a client that starts workflows on the given task queue.
func NewClient(temporal client.Client, queue string) *Client {
	return &Client{temporal: temporal, queue: queue}
}

// Report delivers what a starter counts to the node's workflow, which begins with it if
// there is none. It needs a worker that runs.
func (c *Client) Report(ctx context.Context, node string, levels isolation.Levels) (isolation.Answer, error) {
	start := c.temporal.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
		ID:                       ID(node),
		TaskQueue:                c.queue,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary:            "The whole node " + node,
		WorkflowTaskTimeout:      5 * time.Second,
	}, WorkflowType, NewState(node))
	handle, err := c.temporal.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: start,
		UpdateOptions: client.UpdateWorkflowOptions{
			WorkflowID: ID(node), UpdateName: UpdateReport, Args: []any{levels}, WaitForStage: client.WorkflowUpdateStageCompleted,
		},
	})
	if err != nil {
		return isolation.Answer{}, fmt.Errorf("update %s with start of workflow %s: %w", UpdateReport, ID(node), err)
	}
	var answer isolation.Answer
	if err := handle.Get(ctx, &answer); err != nil {
		return isolation.Answer{}, fmt.Errorf("update %s of workflow %s: %w", UpdateReport, ID(node), err)
	}
	return answer, nil
}

// Send delivers an operator's message and waits for the answer. A refusal comes back as
// an error that says why.
func (c *Client) Send(ctx context.Context, node string, m isolation.Message) (Accepted, error) {
	var accepted Accepted
	handle, err := c.temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: ID(node), UpdateName: string(m.Verb), WaitForStage: client.WorkflowUpdateStageCompleted,
		Args: []any{operator.Payload{Actor: m.Actor, Reason: m.Reason, For: operator.Duration(m.For)}},
	})
	switch {
	case none(err):
		return accepted, fmt.Errorf("%s: %w", node, ErrNone)
	case err != nil:
		return accepted, fmt.Errorf("update %s of workflow %s: %w", m.Verb, ID(node), err)
	}
	return accepted, handle.Get(ctx, &accepted)
}

// State asks the node's workflow for its state: of the one that runs, or of the last one
// while Temporal keeps it. It needs a worker that runs.
func (c *Client) State(ctx context.Context, node string) (State, error) {
	value, err := c.temporal.QueryWorkflow(ctx, ID(node), "", QueryIsolation)
	if none(err) {
		return State{}, fmt.Errorf("%s: %w", node, ErrNone)
	}
	if err != nil {
		return State{}, fmt.Errorf("query workflow %s: %w", ID(node), err)
	}
	var state State
	if err := value.Get(&state); err != nil {
		return State{}, fmt.Errorf("read the state of workflow %s: %w", ID(node), err)
	}
	return state, nil
}

// Open lists the nodes that have a workflow, as far as Temporal's visibility knows: one
// that began or ended just now may be missing or still there.
func (c *Client) Open(ctx context.Context) ([]string, error) {
	request := &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", WorkflowType), PageSize: 1000,
	}
	var nodes []string
	for {
		page, err := c.temporal.ListWorkflow(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("list the nodes that are isolated: %w", err)
		}
		for _, execution := range page.GetExecutions() {
			if name, ours := strings.CutPrefix(execution.GetExecution().GetWorkflowId(), prefix); ours {
				nodes = append(nodes, name)
			}
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return nodes, nil
		}
	}
}

func none(err error) bool {
	var notFound *serviceerror.NotFound
	return errors.As(err, &notFound)
}
