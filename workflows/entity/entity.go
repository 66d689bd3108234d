// Package entity is what the workflows share that each own one thing for long: the one
// timer of a run, and how decisions are told in one line. What is decided belongs to
// each of them.
package entity

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"
)

// Timer is the one timer of a run, armed for the next deadline. The zero value is armed
// for none.
type Timer struct {
	at     time.Time
	future workflow.Future
	cancel workflow.CancelFunc
}

// Await arms the timer for the next deadline, zero for none, cancels one that was armed
// for another, and adds it to the selector. summary is asked only where one is armed;
// woke is called when the deadline is reached.
func (t *Timer) Await(ctx workflow.Context, selector workflow.Selector, next time.Time, summary func() string, woke func()) {
	if !next.Equal(t.at) {
		if t.cancel != nil {
			t.cancel()
		}
		*t = Timer{at: next}
		if !next.IsZero() {
			own, cancel := workflow.WithCancel(ctx)
			t.cancel = cancel
			t.future = workflow.NewTimerWithOptions(own, max(next.Sub(workflow.Now(ctx)), 0), workflow.TimerOptions{Summary: summary()})
		}
	}
	if t.future == nil {
		return
	}
	future := t.future
	selector.AddFuture(future, func(workflow.Future) {
		if t.future != future {
			return
		}
		*t = Timer{}
		woke()
	})
}

// maxSummary bounds a summary in bytes; the UI shows it in one line.
const maxSummary = 160

// Announcement tells the last of so many decisions, so that the history of a run reads
// as a story, and how many others go with it.
func Announcement(decisions int, last string) string {
	if decisions > 1 {
		last = fmt.Sprintf("%d decisions, the last: %s", decisions, last)
	}
	if len(last) > maxSummary {
		last = strings.ToValidUTF8(last[:maxSummary], "") + "…"
	}
	return last
}
