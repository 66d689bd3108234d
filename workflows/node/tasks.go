package node

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/workflows/entity"
)

// Names of the activities. They are part of recorded histories.
const (
	// ActivityAnnounce publishes decisions, ActivityLook reads the node live,
	// ActivityIsolate keeps it out, and ActivityRelease gives it back.
	ActivityAnnounce = "AnnounceNode"
	ActivityLook     = "LookNode"
	ActivityIsolate  = "IsolateNode"
	ActivityRelease  = "ReleaseNode"
)

// Announce is what the first of them is given.
type Announce struct {
	Node    string             `json:"node"`
	Epoch   int64              `json:"epoch,omitempty"`
	Notices []isolation.Notice `json:"notices"`
}

// backlog is how many decisions may wait to be announced before operators' messages are
// left in their channels: no word may be missing from the trail.
const backlog = 12

// callLimit bounds one call of an activity; after a failure it is tried again.
const callLimit = 15 * time.Second

func (r *runner) activity(limit time.Duration, summary string) workflow.Context {
	return workflow.WithActivityOptions(r.ctx, workflow.ActivityOptions{
		StartToCloseTimeout: limit,
		Summary:             summary,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	})
}

// announce publishes the decisions that wait, unless some are being published.
func (r *runner) announce() {
	if r.announcing != nil || len(r.Isolation.Notices) == 0 {
		return
	}
	notices := r.Isolation.Notices
	ctx := r.activity(10*time.Second, entity.Announcement(len(notices), notices[len(notices)-1].Text))
	r.announcing = workflow.ExecuteActivity(ctx, ActivityAnnounce, Announce{Node: r.Isolation.Node, Epoch: r.Isolation.Epoch, Notices: notices})
	r.announcedTo = notices[len(notices)-1].Seq
}

// announced takes in that the activity ended.
func (r *runner) announced() {
	done := r.announcing
	r.announcing = nil
	if err := done.Get(r.ctx, nil); err != nil {
		// Only a terminated workflow ends it early; the state keeps the notices.
		r.log.Warn("decisions not announced", "error", err)
		r.apply(isolation.Woke{})
		return
	}
	r.apply(isolation.Announced{UpTo: r.announcedTo})
}

// step begins what is to be done now, unless something is under way.
func (r *runner) step() {
	if r.doing != nil {
		return
	}
	switch step := isolation.Due(r.Isolation, workflow.Now(r.ctx), r.knobs.Policy).(type) {
	case isolation.Look:
		r.doing = workflow.ExecuteActivity(r.activity(callLimit, "look at the node, its Lease and its devices"), ActivityLook, step)
		r.done = func(f workflow.Future) (isolation.Event, error) { return result[isolation.Looked](r.ctx, f) }
	case isolation.Put:
		summary := fmt.Sprintf("isolate it by a %s, if there is a permit", step.Way)
		if step.Observe {
			summary = "ask whether there would be a permit; mode observe isolates nothing"
		}
		r.doing = workflow.ExecuteActivity(r.activity(callLimit, summary), ActivityIsolate, step)
		r.done = func(f workflow.Future) (isolation.Event, error) { return result[isolation.Written](r.ctx, f) }
	case isolation.Lift:
		r.doing = workflow.ExecuteActivity(r.activity(callLimit, "give it back"), ActivityRelease, step)
		r.done = func(f workflow.Future) (isolation.Event, error) { return result[isolation.Taken](r.ctx, f) }
	}
}

func result[E isolation.Event](ctx workflow.Context, f workflow.Future) (isolation.Event, error) {
	var e E
	err := f.Get(ctx, &e)
	return e, err
}

// did takes in what came of the step.
func (r *runner) did() {
	f, done := r.doing, r.done
	r.doing, r.done = nil, nil
	event, err := done(f)
	if err != nil {
		// Only a terminated workflow, or a payload that can't be read, ends it early.
		r.log.Warn("a step failed", "error", err)
		return
	}
	r.apply(event)
}
