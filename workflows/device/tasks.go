package device

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/workflows/entity"
)

// Names of the activities. They are part of recorded histories.
const (
	ActivityPutMark  = "PutMark"
	ActivityLiftMark = "LiftMark"
	ActivityLook     = "Look"
	ActivityAnnounce = "Announce"

	ActivityAskRestriction = "AskRestriction"
	ActivityAskPermit      = "AskPermit"

	ActivityTend    = "Tend"
	ActivityCleanUp = "CleanUp"

	ActivityAskReturn = "AskReturn"
)

// Failures that no retry can mend; activities use them as error types.
const (
	ErrorRefused = "Refused"
	// ErrorNoCase is that of an operator's message to a device whose case is over.
	ErrorNoCase = "NoCase"
)

// Commands are those that activities perform.
type Commands interface {
	quarantine.PutMark | quarantine.LiftMark | quarantine.Look | quarantine.Announce | quarantine.AskRestriction | quarantine.AskPermit |
		quarantine.Tend | quarantine.CleanUp | quarantine.AskReturn
}

// Task is what an activity is given: a command, and the trace of its epoch.
type Task[C Commands] struct {
	Command     C         `json:"command"`
	TraceParent string    `json:"traceparent,omitempty"`
	TraceBegan  time.Time `json:"traceBegan,omitzero"`
	// Classes are the device's, where what is done goes by its mode: marks and Events.
	Classes []string `json:"classes,omitempty"`
}

// tasks are the activities under way, at most one of each kind.
type tasks struct {
	mark     *task
	look     *task
	announce *task
	ask      *task
	permit   *task
	// attempt tends to an attempt at recovery, or removes what was made for one: never
	// both at once, so that nothing is made behind the back of who removes it.
	attempt *task
	turn    *task
}

type task struct {
	future workflow.Future
	// done turns the activity's end into what the case learns from it.
	done func(workflow.Future) quarantine.Event
}

func (t *tasks) busy() bool {
	return t.mark != nil || t.look != nil || t.announce != nil || t.ask != nil || t.permit != nil || t.attempt != nil || t.turn != nil
}

// perform starts what is owed and not under way.
func (r *runner) perform(owed []quarantine.Command) {
	for _, command := range owed {
		switch c := command.(type) {
		case quarantine.PutMark:
			if r.tasks.mark == nil {
				r.tasks.mark = r.putMark(c)
			}
		case quarantine.LiftMark:
			if r.tasks.mark == nil {
				r.tasks.mark = r.liftMark(c)
			}
		case quarantine.Look:
			if r.tasks.look == nil {
				r.tasks.look = r.look(c)
			}
		case quarantine.AskRestriction:
			if r.tasks.ask == nil {
				r.tasks.ask = r.askRestriction(c)
			}
		case quarantine.AskPermit:
			if r.tasks.permit == nil {
				r.tasks.permit = r.askPermit(c)
			}
		case quarantine.Tend:
			if r.tasks.attempt == nil {
				r.tasks.attempt = r.tend(c)
			}
		case quarantine.CleanUp:
			if r.tasks.attempt == nil {
				r.tasks.attempt = r.cleanUp(c)
			}
		case quarantine.AskReturn:
			if r.tasks.turn == nil {
				r.tasks.turn = r.askReturn(c)
			}
		case quarantine.Announce:
			// Announcing waits for the mark, so that it says how that went and
			// never delays it, but not until decisions pile up.
			if r.tasks.announce == nil && (r.tasks.mark == nil || len(c.Notices) >= backlog/2) {
				r.tasks.announce = r.announce(c)
			}
		}
	}
}

// only are the commands of one kind among what is owed.
func only[C quarantine.Command](owed []quarantine.Command) []quarantine.Command {
	return slices.DeleteFunc(slices.Clone(owed), func(c quarantine.Command) bool {
		_, is := c.(C)
		return !is
	})
}

// await adds the ends of all tasks to a selector.
func (t *tasks) await(selector workflow.Selector, r *runner) {
	for _, slot := range []**task{&t.mark, &t.look, &t.announce, &t.ask, &t.permit, &t.attempt, &t.turn} {
		current := *slot
		if current == nil {
			continue
		}
		selector.AddFuture(current.future, func(f workflow.Future) {
			*slot = nil
			r.apply(current.done(f))
		})
	}
}

func (r *runner) putMark(c quarantine.PutMark) *task {
	summary := fmt.Sprintf("keep the device out: %s, epoch %d", c.Reason.Code, c.Epoch)
	future := workflow.ExecuteActivity(r.markOptions(summary), ActivityPutMark, Task[quarantine.PutMark]{Command: c, TraceParent: r.TraceParent, TraceBegan: r.TraceBegan, Classes: r.Case.Around.Classes})
	return &task{future, func(f workflow.Future) quarantine.Event { return r.markDone(f, c.Epoch, c.Revision) }}
}

func (r *runner) liftMark(c quarantine.LiftMark) *task {
	summary := fmt.Sprintf("remove the mark of epoch %d", c.Epoch)
	future := workflow.ExecuteActivity(r.markOptions(summary), ActivityLiftMark, Task[quarantine.LiftMark]{Command: c, TraceParent: r.TraceParent, TraceBegan: r.TraceBegan, Classes: r.Case.Around.Classes})
	return &task{future, func(f workflow.Future) quarantine.Event { return r.markDone(f, c.Epoch, 0) }}
}

// markOptions keep a write short and retry it fast; what doesn't succeed within
// two minutes is reported, and the case tries again at its own pace.
func (r *runner) markOptions(summary string) workflow.Context {
	return workflow.WithActivityOptions(r.ctx, workflow.ActivityOptions{
		// A worker that dies with the write in its hands costs this much.
		StartToCloseTimeout:    5 * time.Second,
		ScheduleToCloseTimeout: 2 * time.Minute,
		Summary:                summary,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:        100 * time.Millisecond,
			BackoffCoefficient:     2,
			MaximumInterval:        10 * time.Second,
			NonRetryableErrorTypes: []string{ErrorRefused},
		},
	})
}

func (r *runner) markDone(f workflow.Future, epoch, revision int64) quarantine.Event {
	var report quarantine.MarkReported
	if err := f.Get(r.ctx, &report); err != nil {
		r.log.Warn("mark not written", "epoch", epoch, "error", err)
		return quarantine.MarkReported{Outcome: quarantine.OutcomeRefused, Epoch: epoch, Revision: revision, Detail: cause(err)}
	}
	return report
}

func (r *runner) look(c quarantine.Look) *task {
	ctx := workflow.WithActivityOptions(r.ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 30 * time.Second,
		Summary:             "live read of the device, its Pods, its node and its mark",
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:        500 * time.Millisecond,
			BackoffCoefficient:     2,
			MaximumAttempts:        3,
			NonRetryableErrorTypes: []string{ErrorRefused},
		},
	})
	future := workflow.ExecuteActivity(ctx, ActivityLook, Task[quarantine.Look]{Command: c, TraceParent: r.TraceParent, TraceBegan: r.TraceBegan})
	return &task{future, func(f workflow.Future) quarantine.Event {
		var looked quarantine.Looked
		if err := f.Get(r.ctx, &looked); err != nil {
			r.log.Warn("live look failed", "error", err)
			return quarantine.Looked{Asked: c.Asked, Failed: cause(err)}
		}
		return looked
	}}
}

func (r *runner) askRestriction(c quarantine.AskRestriction) *task {
	ctx := workflow.WithActivityOptions(r.ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 10 * time.Second,
		Summary:             "whether the device may be restricted, or is a part of something larger",
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:        500 * time.Millisecond,
			BackoffCoefficient:     2,
			MaximumAttempts:        3,
			NonRetryableErrorTypes: []string{ErrorRefused},
		},
	})
	future := workflow.ExecuteActivity(ctx, ActivityAskRestriction, Task[quarantine.AskRestriction]{Command: c, TraceParent: r.TraceParent, TraceBegan: r.TraceBegan})
	return &task{future, func(f workflow.Future) quarantine.Event {
		var answer quarantine.RestrictionAnswered
		if err := f.Get(r.ctx, &answer); err != nil {
			// What isn't known to be allowed isn't done.
			r.log.Warn("can't tell whether the device may be restricted", "error", err)
			return quarantine.RestrictionAnswered{Epoch: c.Epoch, Again: time.Minute, Why: "it can't be told whether it may be: " + cause(err)}
		}
		return answer
	}}
}

func (r *runner) askPermit(c quarantine.AskPermit) *task {
	ctx := workflow.WithActivityOptions(r.ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 5 * time.Second,
		Summary:             "whether its mark would have a permit; nothing is made",
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumAttempts: 3},
	})
	future := workflow.ExecuteActivity(ctx, ActivityAskPermit, Task[quarantine.AskPermit]{Command: c, TraceParent: r.TraceParent, TraceBegan: r.TraceBegan})
	return &task{future, func(f workflow.Future) quarantine.Event {
		answer := quarantine.PermitAnswered{Epoch: c.Epoch}
		if err := f.Get(r.ctx, &answer); err != nil {
			r.log.Warn("can't tell whether its mark would have a permit", "error", err)
			return quarantine.PermitAnswered{Epoch: c.Epoch, Again: time.Minute, Why: "it can't be told: " + cause(err)}
		}
		return answer
	}}
}

func (r *runner) announce(c quarantine.Announce) *task {
	ctx := workflow.WithActivityOptions(r.ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 10 * time.Second,
		Summary:             entity.Announcement(len(c.Notices), c.Notices[len(c.Notices)-1].Text),
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	})
	future := workflow.ExecuteActivity(ctx, ActivityAnnounce, Task[quarantine.Announce]{Command: c, TraceParent: r.TraceParent, TraceBegan: r.TraceBegan, Classes: r.Case.Around.Classes})
	last := c.Notices[len(c.Notices)-1].Seq
	return &task{future, func(f workflow.Future) quarantine.Event {
		if err := f.Get(r.ctx, nil); err != nil {
			// Only a cancelled workflow ends it early; the state keeps the notices.
			r.log.Warn("decisions not announced", "error", err)
			return quarantine.Woke{}
		}
		return quarantine.Announced{UpTo: last}
	}}
}

// cause gives the innermost text of an activity's failure, for people.
func cause(err error) string {
	for {
		wrapped, ok := err.(interface{ Unwrap() error })
		if !ok || wrapped.Unwrap() == nil {
			return err.Error()
		}
		err = wrapped.Unwrap()
	}
}
