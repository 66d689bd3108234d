package cmd

// This file says what it means that a word of an operator's got no answer.

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/client"
)

// unanswered adds to an error what whoever spoke has to know where nobody answered: it
// isn't known whether the word counts. Temporal keeps some until a worker runs. look is
// the command that shows it.
func unanswered(err error, look string) error {
	var late *client.WorkflowUpdateServiceTimeoutOrCanceledError
	if !errors.As(err, &late) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w; no worker answered: see that one runs. What was said may count all the same once one does: look with `%s` before you say it again", err, look)
}
