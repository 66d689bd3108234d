package permits

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/workflows/operator"
)

// Names on the wire. They are part of what operators type and of recorded histories;
// none is ever changed.
const (
	// WorkflowType is the registered name of the workflow, and ID its only execution's.
	WorkflowType = "permits"
	ID           = "permits"
	// UpdateAsk carries asks, UpdateReturn permits that come back, and UpdateCount which
	// marks exist and how many devices there are. UpdateTurn carries devices that ask
	// whether it is their turn to be given back.
	UpdateAsk    = "ask"
	UpdateReturn = "return"
	UpdateCount  = "count"
	UpdateTurn   = "turn"
	// QueryPermits answers with the View.
	QueryPermits = "permits"
	// QueryUpgrades answers with the pauses that announce a driver's upgrade.
	QueryUpgrades = "upgrades"
)

// ErrNone is returned while no workflow hands out permits: nobody asked for one yet.
var ErrNone = errors.New("no permits workflow runs")

// ErrEnded is ErrNone where one ran, and somebody ended it.
var ErrEnded = fmt.Errorf("%w: it was ended", ErrNone)

// Client asks and tells the permits workflow.
type Client struct {
	temporal client.Client
	queue    string
}

// NewClient returns a client that starts the workflow on the given task queue.
func NewClient(temporal client.Client, queue string) *Client {
	return &Client{temporal: temporal, queue: queue}
}

// Ask asks for permits. There is an answer for each ask, in their order.
func (c *Client) Ask(ctx context.Context, asks []budget.Ask) ([]budget.Answer, error) {
	var answers []budget.Answer
	if err := c.begin(ctx, UpdateAsk, budget.Asked{Asks: asks}, &answers); err != nil {
		return nil, err
	}
	if len(answers) != len(asks) {
		return nil, fmt.Errorf("workflow %s answered %d of %d asks", ID, len(answers), len(asks))
	}
	return answers, nil
}

// Count tells which marks exist, and how many devices there are. tell asks for all
// marks of whoever only said that they are the same.
func (c *Client) Count(ctx context.Context, counted budget.Counted) (tell bool, err error) {
	return tell, c.begin(ctx, UpdateCount, counted, &tell)
}

// Return gives permits back. Where there is no workflow there is nothing to give back.
func (c *Client) Return(ctx context.Context, permits []budget.Permit) error {
	err := c.update(ctx, UpdateReturn, budget.Returned{Permits: permits}, nil)
	if errors.Is(err, ErrNone) {
		return nil
	}
	return err
}

// Turn asks whether it is a device's turn to be given back.
func (c *Client) Turn(ctx context.Context, ask budget.AskTurn) (budget.Turn, error) {
	var turns []budget.Turn
	if err := c.begin(ctx, UpdateTurn, budget.TurnsAsked{Asks: []budget.AskTurn{ask}}, &turns); err != nil {
		return budget.Turn{}, err
	}
	if len(turns) != 1 {
		return budget.Turn{}, fmt.Errorf("workflow %s gave %d answers to one ask", ID, len(turns))
	}
	return turns[0], nil
}

// Send delivers an operator's message and waits for the answer. A refusal comes back as
// an error that says why.
func (c *Client) Send(ctx context.Context, m budget.Message) (Accepted, error) {
	var accepted Accepted
	payload := Payload{Payload: operator.Payload{Actor: m.Actor, Reason: m.Reason, For: operator.Duration(m.For)}, Scope: m.Scope.String(), Upgrade: m.Upgrade}
	return accepted, c.begin(ctx, string(m.Verb), payload, &accepted)
}

// begin updates the workflow, which begins with it if there is none. It needs a worker
// that runs.
func (c *Client) begin(ctx context.Context, name string, argument, answer any) error {
	start := c.temporal.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
		ID:                       ID,
		TaskQueue:                c.queue,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary:            "Who may be kept out: budgets, and pauses",
		WorkflowTaskTimeout:      5 * time.Second,
	}, WorkflowType, State{Version: StateVersion})
	handle, err := c.temporal.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: start,
		UpdateOptions:          client.UpdateWorkflowOptions{WorkflowID: ID, UpdateName: name, Args: []any{argument}, WaitForStage: client.WorkflowUpdateStageCompleted},
	})
	if err != nil {
		return fmt.Errorf("update %s with start of workflow %s: %w", name, ID, err)
	}
	return handle.Get(ctx, answer)
}

func (c *Client) update(ctx context.Context, name string, argument, answer any) error {
	handle, err := c.temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: ID, UpdateName: name, Args: []any{argument}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	switch {
	case notFound(err):
		return ErrNone
	case err != nil:
		return fmt.Errorf("update %s of workflow %s: %w", name, ID, err)
	}
	return handle.Get(ctx, answer)
}

// View asks the workflow for its state and its limits. It needs a worker that runs.
func (c *Client) View(ctx context.Context) (View, error) {
	var view View
	return view, c.query(ctx, QueryPermits, &view)
}

// query asks the workflow that runs. One that was ended answers, too, and what it says
// holds no more.
func (c *Client) query(ctx context.Context, name string, answer any) error {
	response, err := c.temporal.QueryWorkflowWithOptions(ctx, &client.QueryWorkflowWithOptionsRequest{
		WorkflowID: ID, QueryType: name, QueryRejectCondition: enumspb.QUERY_REJECT_CONDITION_NOT_OPEN,
	})
	switch {
	case notFound(err):
		return ErrNone
	case err != nil:
		return fmt.Errorf("query workflow %s: %w", ID, err)
	case response.QueryRejected != nil:
		return ErrEnded
	}
	if err := response.QueryResult.Get(answer); err != nil {
		return fmt.Errorf("read what workflow %s answers to %s: %w", ID, name, err)
	}
	return nil
}

// Upgrades lists the pauses that announce a driver's upgrade. Without a workflow there
// are none. It needs a worker that runs.
func (c *Client) Upgrades(ctx context.Context) ([]budget.Pause, error) {
	var upgrades []budget.Pause
	if err := c.query(ctx, QueryUpgrades, &upgrades); err != nil && !errors.Is(err, ErrNone) {
		return nil, err
	}
	return upgrades, nil
}

func notFound(err error) bool {
	var none *serviceerror.NotFound
	return errors.As(err, &none)
}
