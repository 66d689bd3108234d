package burst

import (
	"context"
	"crypto/rand"
	"fmt"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// Client has marks made ahead of their cases.
type Client struct {
	temporal client.Client
	queue    string
}

// NewClient returns a client that starts workflows on the given task queue.
func NewClient(temporal client.Client, queue string) *Client {
	return &Client{temporal: temporal, queue: queue}
}

// Mark has the marks of a batch made, and waits until it is known which were. An error
// says nothing of whether some were.
func (c *Client) Mark(ctx context.Context, faults []quarantine.Fault) ([]quarantine.MadeAhead, error) {
	run, err := c.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                       "burst/" + rand.Text(),
		TaskQueue:                c.queue,
		WorkflowExecutionTimeout: runLimit,
		// It stands before the tasks of cases, which are what it is to be ahead of.
		Priority:      temporal.Priority{PriorityKey: 1},
		StaticSummary: fmt.Sprintf("The first marks of %d devices, ahead of their cases", len(faults)),
	}, WorkflowType, Batch{Faults: faults})
	if err != nil {
		return nil, fmt.Errorf("start a workflow of type %s: %w", WorkflowType, err)
	}
	var marked Marked
	if err := run.Get(ctx, &marked); err != nil {
		return nil, fmt.Errorf("workflow %s: %w", run.GetID(), err)
	}
	return marked.Marks, nil
}
