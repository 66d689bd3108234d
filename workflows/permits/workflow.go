package permits

import (
	"fmt"
	"reflect"
	"slices"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/workflows/entity"
	"github.com/sickbay-dev/sickbay/workflows/operator"
)

// longHistory is the history length at which a run ends: some 300 updates, where the
// server takes 2,000 of one run and suggests an end at 4,096 events.
const longHistory = 1500

// Knobs are the worker's settings as far as the workflow depends on them. They reach it
// through a recorded side effect only.
type Knobs struct {
	Limits budget.Limits `json:"limits"`
}

// Workflow runs the permits workflow with a worker's knobs.
type Workflow struct{ knobs func() Knobs }

// New returns a Workflow to register under WorkflowType. knobs is asked at each
// decision, and what it says is recorded where it differs.
func New(knobs func() Knobs) *Workflow { return &Workflow{knobs: knobs} }

// Run is the workflow. It never ends: it continues as new.
func (w *Workflow) Run(ctx workflow.Context, state State) error {
	if state.Version > StateVersion {
		// A panic blocks the task until a newer worker takes it; an error would end the
		// workflow, and its successor would know less.
		panic(fmt.Sprintf("state version %d of workflow %s is newer than this worker's %d; upgrade the worker", state.Version, ID, StateVersion))
	}
	// It can't be cancelled: whoever asks would only begin it anew. The request is
	// refused on record, and everything runs on a context of its own.
	own, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	r := &runner{
		State:   state,
		ctx:     own,
		asked:   ctx,
		log:     workflow.GetLogger(ctx),
		own:     w.knobs,
		changed: workflow.NewBufferedChannel(own, 1),
	}
	r.mailbox = operator.OpenMailbox(r.ctx, budget.Verbs[:], r.room, r.take)
	if err := r.handle(); err != nil {
		return err
	}
	return r.run()
}

// runner is one run of the workflow. State is what it would hand to the next one.
type runner struct {
	State
	ctx workflow.Context
	// asked is the context that a cancellation request reaches; nil once one came.
	asked workflow.Context
	log   log.Logger
	// own gives the settings of the worker that carries the run now, and knobs are those
	// that were recorded last, by which it decides.
	own   func() Knobs
	knobs Knobs

	mailbox *operator.Mailbox[budget.Verb]
	// changed wakes the main loop after an update.
	changed workflow.Channel

	// announcing is the activity under way, or nil, and announcedTo the last notice that
	// it was given.
	announcing  workflow.Future
	announcedTo int64
	// offering are the cases that are being told, lost the offers that reach nobody.
	offering []offering
	lost     []budget.Offer
	timer    entity.Timer
}

func (r *runner) run() error {
	r.apply(budget.Woke{})
	for {
		r.mailbox.Drain(r.ctx)
		r.takeBack()
		ending := r.long()
		if !ending || len(r.Book.Notices) >= backlog {
			r.announce()
		}
		workflow.SetCurrentDetails(r.ctx, Details(View{r.State, r.knobs.Limits}, workflow.Now(r.ctx)))
		if ending && r.quiet() {
			r.Runs++
			r.Version = StateVersion
			return workflow.NewContinueAsNewError(r.ctx, WorkflowType, r.State)
		}
		r.wait()
	}
}

// apply feeds one event to the book, and offers what comes of it.
func (r *runner) apply(event budget.Event) budget.Outcome {
	r.refreshKnobs()
	var out budget.Outcome
	r.Book, out = budget.Decide(r.Book, event, workflow.Now(r.ctx), r.knobs.Limits)
	r.offer(out.Offers)
	return out
}

// refreshKnobs takes over a change of the worker's settings. It is recorded when it
// differs, so that a replay decides as the run did.
func (r *runner) refreshKnobs() {
	encoded := workflow.MutableSideEffect(r.ctx, "knobs",
		func(workflow.Context) any { return r.own() },
		func(a, b any) bool { return reflect.DeepEqual(a, b) })
	var knobs Knobs
	if err := encoded.Get(&knobs); err != nil {
		panic(fmt.Sprintf("read the recorded knobs: %v", err))
	}
	r.knobs = knobs
}

// wait blocks until something happens, and takes it in.
func (r *runner) wait() {
	selector := workflow.NewSelector(r.ctx)
	r.mailbox.Await(r.ctx, selector)
	selector.AddReceive(r.changed, func(c workflow.ReceiveChannel, _ bool) { c.Receive(r.ctx, nil) })
	if r.asked != nil {
		selector.AddReceive(r.asked.Done(), func(workflow.ReceiveChannel, bool) {
			r.asked = nil
			r.apply(budget.Message{Verb: "cancel", Malformed: "budgets aren't cancelled; pause a scope or change its limit"})
		})
	}
	if current := r.announcing; current != nil {
		selector.AddFuture(current, func(workflow.Future) { r.announced() })
	}
	for _, o := range r.offering {
		selector.AddFuture(o.sent, func(workflow.Future) {
			r.offering = slices.DeleteFunc(r.offering, func(other offering) bool { return other.sent == o.sent })
			r.offered(o)
		})
	}
	r.timer.Await(r.ctx, selector, r.Book.NextWake(workflow.Now(r.ctx)),
		func() string { return "the next that waits, or the end of a pause or of a permit that nobody used" },
		func() { r.apply(budget.Woke{}) })
	selector.Select(r.ctx)
}

// quiet tells that nothing is pending: no activity or offer under way, no message unread
// or being handled.
func (r *runner) quiet() bool {
	return r.announcing == nil && len(r.offering)+len(r.lost) == 0 && !r.mailbox.Unread() && r.changed.Len() == 0 && workflow.AllHandlersFinished(r.ctx)
}

// long tells that this run's history is long enough.
func (r *runner) long() bool {
	info := workflow.GetInfo(r.ctx)
	return info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() >= longHistory
}
