package node

import (
	"fmt"
	"reflect"
	"time"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/workflows/entity"
	"github.com/sickbay-dev/sickbay/workflows/operator"
)

const (
	// longHistory is the history length at which a run ends: some 300 reports, where
	// the server takes 2,000 updates of one run and suggests an end at 4,096 events.
	longHistory = 1500
	// beginLimit is how long a run waits for its first report. It comes with the
	// start; a run that was started by hand gets none.
	beginLimit = time.Minute
	// errorRefused is the type of the failure of a run that can't be one.
	errorRefused = "Refused"
)

// Knobs are the worker's settings as far as the workflow depends on them. They
// reach it through a recorded side effect only.
type Knobs struct {
	Policy isolation.Policy `json:"policy"`
	// SearchAttributes is set when the namespace has Sickbay's search attributes.
	SearchAttributes bool `json:"searchAttributes"`
}

// Workflow runs node workflows with a worker's knobs.
type Workflow struct{ knobs func() Knobs }

// New returns a Workflow to register under WorkflowType. knobs is asked at each
// decision, and what it says is recorded where it differs.
func New(knobs func() Knobs) *Workflow { return &Workflow{knobs: knobs} }

// Run is the workflow. It ends when nothing isolates the node and nothing is pending.
func (w *Workflow) Run(ctx workflow.Context, state State) error {
	if state.Version > StateVersion {
		// A panic blocks the task until a newer worker takes it; an error would
		// end the workflow, and leave the node as it is.
		panic(fmt.Sprintf("state version %d of node %s is newer than this worker's %d; upgrade the worker",
			state.Version, state.Isolation.Node, StateVersion))
	}
	if node := state.Isolation.Node; node == "" || workflow.GetInfo(ctx).WorkflowExecution.ID != ID(node) {
		return temporal.NewNonRetryableApplicationError("started without the node that its ID names; start none by hand, the starter does", errorRefused, nil)
	}
	// It can't be cancelled: the node would stay isolated, and nobody's. The request is
	// refused on record, and everything runs on a context of its own.
	own, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	r := &runner{
		State:   state,
		ctx:     own,
		asked:   ctx,
		log:     log.With(workflow.GetLogger(ctx), "node", state.Isolation.Node),
		own:     w.knobs,
		changed: workflow.NewBufferedChannel(own, 1),
		began:   workflow.Now(ctx),
	}
	r.mailbox = operator.OpenMailbox(r.ctx, append(isolation.Verbs[:], SignalPermit), r.room, r.take)
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
	began time.Time
	// shown is the phase as last written into the search attributes.
	shown isolation.Phase

	mailbox *operator.Mailbox[isolation.Verb]
	// changed wakes the main loop after an update changed the isolation.
	changed workflow.Channel

	// announcing is the activity under way, or nil, and announcedTo the last notice
	// that it was given.
	announcing  workflow.Future
	announcedTo int64
	// doing is the step under way, or nil, and done reads what came of it.
	doing workflow.Future
	done  func(workflow.Future) (isolation.Event, error)
	timer entity.Timer
}

func (r *runner) run() error {
	r.apply(isolation.Woke{})
	for {
		r.mailbox.Drain(r.ctx)
		ending := r.Isolation.Open() && r.long()
		if !ending || len(r.Isolation.Notices) >= backlog {
			r.announce()
		}
		if !ending {
			r.step()
		}
		r.show()
		if r.quiet() {
			switch {
			case r.Isolation.Open() && ending:
				r.Runs++
				r.Version = StateVersion
				return workflow.NewContinueAsNewError(r.ctx, WorkflowType, r.State)
			case r.Isolation.Phase == isolation.Closed && len(r.Isolation.Notices) == 0:
				return nil
			case r.Isolation.Phase == isolation.PhaseNone && !workflow.Now(r.ctx).Before(r.began.Add(beginLimit)):
				r.log.Warn("nobody reported; it ends without having begun")
				return nil
			}
		}
		r.wait()
	}
}

// apply feeds one event to the isolation.
func (r *runner) apply(event isolation.Event) isolation.Answer {
	r.refreshKnobs()
	var answer isolation.Answer
	r.Isolation, answer = isolation.Decide(r.Isolation, event, workflow.Now(r.ctx), r.knobs.Policy)
	return answer
}

// refreshKnobs takes over a change of the worker's settings. It is recorded when
// it differs, so that a replay decides as the run did.
func (r *runner) refreshKnobs() {
	encoded := workflow.MutableSideEffect(r.ctx, "knobs",
		func(workflow.Context) any { return r.own() },
		func(a, b any) bool { return reflect.DeepEqual(a, b) })
	// What a run recorded without a value has none, and not this worker's.
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
			r.apply(isolation.Message{Verb: "cancel", Malformed: "it can't be cancelled; send lift to have the node given back"})
		})
	}
	if current := r.announcing; current != nil {
		selector.AddFuture(current, func(workflow.Future) { r.announced() })
	}
	if current := r.doing; current != nil {
		selector.AddFuture(current, func(workflow.Future) { r.did() })
	}
	next, summary := time.Time{}, "look at the node again, or try again what was refused"
	if r.doing == nil {
		next = isolation.NextWake(r.Isolation, workflow.Now(r.ctx), r.knobs.Policy)
	}
	if r.Isolation.Phase == isolation.PhaseNone {
		next, summary = r.began.Add(beginLimit), "nobody has reported"
	}
	r.timer.Await(r.ctx, selector, next, func() string { return summary }, func() { r.apply(isolation.Woke{}) })
	selector.Select(r.ctx)
}

// quiet tells that nothing is pending: no activity under way, no message unread or
// being handled.
func (r *runner) quiet() bool {
	return r.announcing == nil && r.doing == nil && !r.mailbox.Unread() && r.changed.Len() == 0 && workflow.AllHandlersFinished(r.ctx)
}

// long tells that this run's history is long enough.
func (r *runner) long() bool {
	info := workflow.GetInfo(r.ctx)
	return info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() >= longHistory
}
