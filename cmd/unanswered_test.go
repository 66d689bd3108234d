package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.temporal.io/sdk/client"
)

// A word that nobody answered may count later; one that was refused doesn't.
func TestAWordWithoutAnAnswerMayCountLater(t *testing.T) {
	late := fmt.Errorf("update pause: %w", client.NewWorkflowUpdateServiceTimeoutOrCanceledError(context.DeadlineExceeded))
	for err, want := range map[error]bool{late: true, fmt.Errorf("send: %w", context.DeadlineExceeded): true, errors.New("pause refused"): false} {
		got := unanswered(err, "sickbay budgets")
		if !errors.Is(got, err) || strings.Contains(got.Error(), "may count all the same once one does: look with `sickbay budgets`") != want {
			t.Errorf("%v becomes %q", err, got)
		}
	}
	if unanswered(nil, "") != nil {
		t.Error("an answer becomes an error")
	}
}
