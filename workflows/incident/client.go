package incident

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

	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/workflows/operator"
)

// Names on the wire. They are part of what operators type and of recorded
// histories; none is ever changed.
const (
	// WorkflowType is the registered name of the workflow.
	WorkflowType = "incident"
	// UpdateReport carries what a starter counts, UpdateAsk what a case asks.
	UpdateReport = "report"
	UpdateAsk    = "ask"
	// QueryIncident answers with the State.
	QueryIncident = "incident"

	prefix = "incident/"
)

// ErrNoIncident is returned for a scope that has no open incident.
var ErrNoIncident = errors.New("there is no open incident of that scope")

// ID is the ID of the workflow that owns the scope's incident.
func ID(scope incident.Scope) string { return prefix + scope.String() }

// Client reports to, asks and lists incident workflows.
type Client struct {
	temporal client.Client
	queue    string
}

// NewClient returns a client that starts workflows on the given task queue.
func NewClient(temporal client.Client, queue string) *Client {
	return &Client{temporal: temporal, queue: queue}
}

// Report delivers what a starter counts to the scope's incident, which begins with
// it if there is none. It needs a worker that runs.
func (c *Client) Report(ctx context.Context, scope incident.Scope, levels incident.Levels) (incident.Answer, error) {
	start := c.temporal.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
		ID:                       ID(scope),
		TaskQueue:                c.queue,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary:            "Many devices at once: " + scope.String(),
		WorkflowTaskTimeout:      5 * time.Second,
	}, WorkflowType, NewState(scope))
	handle, err := c.temporal.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: start,
		UpdateOptions: client.UpdateWorkflowOptions{
			WorkflowID: ID(scope), UpdateName: UpdateReport, Args: []any{levels}, WaitForStage: client.WorkflowUpdateStageCompleted,
		},
	})
	if err != nil {
		return incident.Answer{}, fmt.Errorf("update %s with start of workflow %s: %w", UpdateReport, ID(scope), err)
	}
	var answer incident.Answer
	if err := handle.Get(ctx, &answer); err != nil {
		return incident.Answer{}, fmt.Errorf("update %s of workflow %s: %w", UpdateReport, ID(scope), err)
	}
	return answer, nil
}

// Ask asks the scope's incident whether a case may restrict its device. Without an
// incident it returns ErrNoIncident.
func (c *Client) Ask(ctx context.Context, scope incident.Scope, asked incident.Asked) (incident.Answer, error) {
	var answer incident.Answer
	return answer, c.update(ctx, scope, UpdateAsk, &answer, asked.Device, asked.Since)
}

// Send delivers an operator's message and waits for the answer. A refusal comes
// back as an error that says why.
func (c *Client) Send(ctx context.Context, scope incident.Scope, m incident.Message) (Accepted, error) {
	var accepted Accepted
	return accepted, c.update(ctx, scope, string(m.Verb), &accepted, operator.Payload{Actor: m.Actor, Reason: m.Reason, For: operator.Duration(m.For)})
}

func (c *Client) update(ctx context.Context, scope incident.Scope, name string, answer any, arguments ...any) error {
	handle, err := c.temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: ID(scope), UpdateName: name, Args: arguments, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	switch {
	case noIncident(err):
		return fmt.Errorf("%s: %w", scope, ErrNoIncident)
	case err != nil:
		return fmt.Errorf("update %s of workflow %s: %w", name, ID(scope), err)
	}
	return handle.Get(ctx, answer)
}

// State asks the scope's workflow for its state: of the open incident, or of the
// last one while Temporal keeps it. It needs a worker that runs.
func (c *Client) State(ctx context.Context, scope incident.Scope) (State, error) {
	value, err := c.temporal.QueryWorkflow(ctx, ID(scope), "", QueryIncident)
	if noIncident(err) {
		return State{}, fmt.Errorf("%s: %w", scope, ErrNoIncident)
	}
	if err != nil {
		return State{}, fmt.Errorf("query workflow %s: %w", ID(scope), err)
	}
	var state State
	if err := value.Get(&state); err != nil {
		return State{}, fmt.Errorf("read the state of workflow %s: %w", ID(scope), err)
	}
	return state, nil
}

// Open lists the scopes that have an open incident, as far as Temporal's visibility
// knows: one that began or ended just now may be missing or still there.
func (c *Client) Open(ctx context.Context) ([]incident.Scope, error) {
	request := &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", WorkflowType), PageSize: 1000,
	}
	var scopes []incident.Scope
	for {
		page, err := c.temporal.ListWorkflow(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("list the open incidents: %w", err)
		}
		for _, execution := range page.GetExecutions() {
			// Somebody may have started one by hand under another name: that is none.
			if scope, err := incident.ParseScope(strings.TrimPrefix(execution.GetExecution().GetWorkflowId(), prefix)); err == nil {
				scopes = append(scopes, scope)
			}
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return scopes, nil
		}
	}
}

func noIncident(err error) bool {
	var notFound *serviceerror.NotFound
	return errors.As(err, &notFound)
}
