package device

import (
	"fmt"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/workflows/entity"
)

const (
	// stageEvents is the history length from which a run ends with its stage: a
	// new run is the upgrade point, but a case's first minutes stay in one history.
	stageEvents = 60
	// longHistory is the history length at which a run ends in any case, well
	// below the server's own suggestion at 4,096 events.
	longHistory = 2000
	// rulesOfRecovery are the first by which a run that ends says what it decided while
	// something slow is under way.
	rulesOfRecovery = 5
)

// Knobs are the worker's settings as far as the workflow depends on them. They
// reach it through a recorded side effect only.
type Knobs struct {
	Policy quarantine.Policy `json:"policy"`
	// SearchAttributes is set when the namespace has Sickbay's search attributes;
	// upserting one that it doesn't have would block the workflow.
	SearchAttributes bool `json:"searchAttributes"`
}

// Settings are a worker's knobs for a device of these classes, as they are now.
type Settings func(key device.Key, classes []string) Knobs

// Always are settings that are the same for every device, and never change.
func Always(knobs Knobs) Settings { return func(device.Key, []string) Knobs { return knobs } }

// Workflow runs device workflows with a worker's settings.
type Workflow struct {
	settings Settings
	meaning  func(reason.Code) string
}

// New returns a Workflow to register under WorkflowType. settings is asked at each
// decision, so that a change reaches open cases with their next one; what it says is
// recorded where it differs. meaning puts reasons into words for people; nothing is
// decided by it, so that it may differ in a replay.
func New(settings Settings, meaning func(reason.Code) string) *Workflow {
	return &Workflow{settings: settings, meaning: meaning}
}

// Run is the workflow. It ends when the case is over, nothing is pending, and nothing
// has to be remembered of it.
func (w *Workflow) Run(ctx workflow.Context, state State) error {
	if state.Version > StateVersion {
		// A panic blocks the task until a newer worker takes it; an error would
		// end the case.
		panic(fmt.Sprintf("state version %d of %s is newer than this worker's %d; upgrade the worker",
			state.Version, state.Case.Device, StateVersion))
	}
	if err := state.Case.Device.Validate(); err != nil {
		// Nobody of ours starts such a workflow, and nothing could come of it.
		return temporal.NewNonRetryableApplicationError("started without a device that can be one; start none by hand, the starter does", ErrorRefused, err)
	}
	// A case can't be cancelled: its device would be left marked by nobody. The
	// request is refused on record, and everything runs on a context of its own.
	own, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	r := &runner{
		State:   state,
		ctx:     own,
		asked:   ctx,
		log:     log.With(workflow.GetLogger(ctx), "device", state.Case.Device.String()),
		own:     w.settings,
		meaning: w.meaning,
		phase:   state.Case.Phase,
		changed: workflow.NewBufferedChannel(own, 1),
		came:    map[quarantine.Sent]int{},
	}
	r.signals = r.subscribe()
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
	own   Settings
	knobs Knobs
	// meaning puts reasons into words.
	meaning func(reason.Code) string
	// phase is the phase in which the run, or its present stage, began.
	phase quarantine.Phase
	// shown are the search attributes as last written.
	shown attributes

	signals []subscription
	// came counts the operators' messages of this run, by name and way.
	came map[quarantine.Sent]int
	// changed wakes the main loop after an update changed the case.
	changed workflow.Channel

	owed  []quarantine.Command
	tasks tasks
	timer entity.Timer
}

func (r *runner) run() error {
	if r.Runs > 0 && r.Case.Open() {
		// The level is read anew in each run, so that an edge lost anywhere heals.
		r.Case.LookAt = workflow.Now(r.ctx)
	}
	r.apply(quarantine.Woke{})
	for {
		r.drain()
		ending := r.Case.Lives() && r.stageOver()
		// What is owed is a level: the next run finds it again. So a run that is
		// about to end starts nothing more, or a stream of messages could keep it
		// from ever ending. Only decisions that pile up have to go out first.
		switch {
		case !ending || len(r.Case.Notices) >= backlog:
			r.perform(r.owed)
		case r.knobs.Policy.Rules > 0 && r.tasks.busy() && r.Case.Mark.State == quarantine.MarkWanted:
			// A device that has yet to be kept out doesn't wait for the end of a look.
			r.perform(only[quarantine.PutMark](r.owed))
		case r.knobs.Policy.Rules >= rulesOfRecovery && (r.tasks.look != nil || r.tasks.attempt != nil):
			// What an operator said is on record soon, however long it takes to read.
			r.perform(only[quarantine.Announce](r.owed))
		}
		r.show()
		if r.quiet() {
			if !r.Case.Lives() && len(r.owed) == 0 {
				return nil
			}
			if ending {
				r.Runs++
				r.Version = StateVersion
				return workflow.NewContinueAsNewError(r.ctx, WorkflowType, r.State)
			}
		}
		r.wait()
	}
}

// apply feeds one event to the case.
func (r *runner) apply(event quarantine.Event) {
	opened := r.Case.Epoch
	r.refreshKnobs(r.classes(event))
	r.Case, r.owed = quarantine.Decide(r.Case, event, workflow.Now(r.ctx), r.knobs.Policy)
	if r.Case.Epoch != opened {
		r.log.Info("case opened", "epoch", r.Case.Epoch, "phase", string(r.Case.Phase), "reason", string(r.Case.Reason.Code))
	}
}

// classes are the device's, by the event if it says so: that an event opens a case is
// decided by them already.
func (r *runner) classes(event quarantine.Event) []string {
	if seen, ok := event.(quarantine.Observed); ok && len(seen.Around.Classes) > 0 {
		return seen.Around.Classes
	}
	return r.Case.Around.Classes
}

// refreshKnobs takes over a change of the worker's settings. It is recorded when
// it differs, so that a replay decides as the run did.
func (r *runner) refreshKnobs(classes []string) {
	encoded := workflow.MutableSideEffect(r.ctx, "knobs",
		func(workflow.Context) any { return r.own(r.Case.Device, classes) },
		func(a, b any) bool { return a == b })
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
	for _, s := range r.signals {
		if !r.roomFor(s) {
			continue
		}
		selector.AddReceive(s.channel, func(workflow.ReceiveChannel, bool) { r.receive(s) })
	}
	selector.AddReceive(r.changed, func(c workflow.ReceiveChannel, _ bool) { c.Receive(r.ctx, nil) })
	if r.asked != nil {
		selector.AddReceive(r.asked.Done(), func(workflow.ReceiveChannel, bool) {
			r.asked = nil
			r.apply(quarantine.Message{Verb: "cancel", Malformed: "a case ends by its gates and not by a cancellation"})
		})
	}
	r.tasks.await(selector, r)
	next := r.Case.NextWake(workflow.Now(r.ctx))
	r.timer.Await(r.ctx, selector, next, func() string { return nextStep(r.Case, next) }, func() { r.apply(quarantine.Woke{}) })
	selector.Select(r.ctx)
}

// quiet tells that nothing is pending: no task under way, no message unread or
// being handled.
func (r *runner) quiet() bool {
	return !r.tasks.busy() && !r.unread() && r.changed.Len() == 0 && workflow.AllHandlersFinished(r.ctx)
}

// stageOver tells that this run has done its part.
func (r *runner) stageOver() bool {
	info := workflow.GetInfo(r.ctx)
	events := info.GetCurrentHistoryLength()
	return info.GetContinueAsNewSuggested() || events >= longHistory ||
		r.Case.Phase != r.phase && events >= stageEvents
}
