package device_test

// The Temporal server of a simulated life: it starts runs and continues them, hands
// out activities, lets attempts fail, time out, be lost, or write long after they
// timed out, and answers late. All of it in the time of the test environment, drawn
// from the life's seed.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// appointment is something that happens at a moment, whatever run is there then.
type appointment struct {
	at time.Time
	do func()
}

// in lets something happen after a while, at the start of a workflow task.
func (l *life) in(after time.Duration, do func()) {
	after = max(after, time.Nanosecond)
	l.agenda = append(l.agenda, appointment{l.clock().Add(after), do})
	if l.env != nil {
		l.env.RegisterDelayedCallback(l.keep, after)
	}
}

// keep does what is due, in the order in which it is.
func (l *life) keep() {
	for {
		now, next := l.clock(), -1
		for i, a := range l.agenda {
			if !a.at.After(now) && (next < 0 || a.at.Before(l.agenda[next].at)) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		do := l.agenda[next].do
		l.agenda = slices.Delete(l.agenda, next, next+1)
		do()
	}
}

// clock is the time of the run, or of the world while there is none.
func (l *life) clock() time.Time {
	if l.env != nil {
		return l.env.Now()
	}
	return l.now
}

// live goes from run to run until the life's time is over.
func (l *life) live() {
	for l.now.Before(l.endsAt) {
		if l.opening != nil {
			l.carry()
			continue
		}
		// Without a run time goes from appointment to appointment.
		next := l.endsAt
		for _, a := range l.agenda {
			if a.at.Before(next) {
				next = a.at
			}
		}
		l.now = next
		l.keep()
	}
}

// carry runs the workflow from the opening signals to the end of its case, through
// all its runs.
func (l *life) carry() {
	state, opening := devicewf.NewState(l.key), l.opening
	l.opening, l.last = nil, quarantine.Case{Device: l.key}
	for l.now.Before(l.endsAt) {
		next, again := l.runOnce(state, opening)
		if !again {
			return
		}
		state, opening = next, nil
	}
}

// runOnce is one run. It returns the state that the run handed on, if it did.
func (l *life) runOnce(state devicewf.State, opening []signal) (devicewf.State, bool) {
	l.begin()
	env := l.env
	for _, a := range l.agenda {
		env.RegisterDelayedCallback(l.keep, max(a.at.Sub(l.now), time.Nanosecond))
	}
	// The environment begins a run with the first workflow task after its start.
	if len(opening) > 0 {
		env.RegisterDelayedCallback(func() { l.hand(opening) }, 0)
	} else {
		env.RegisterDelayedCallback(func() { env.RegisterDelayedCallback(l.check, 0) }, time.Nanosecond)
	}
	env.ExecuteWorkflow(devicewf.WorkflowType, state)

	l.now = env.Now()
	l.check()
	l.runs++
	l.env, l.tasks, l.updating = nil, map[string]*task{}, map[string]string{}
	var continued *workflow.ContinueAsNewError
	switch err := env.GetWorkflowError(); {
	case err == nil:
		l.ended()
	case errors.As(err, &continued):
		var next devicewf.State
		if err := decode(continued.Input, &next); err != nil {
			l.fail("the state that was handed on can't be read: %v", err)
		}
		l.say("continued as new, run %d", next.Runs)
		l.handedOn(next)
		return next, true
	case l.now.Before(l.endsAt):
		l.fail("the run ended with %v", err)
	}
	return state, false
}

// begin makes the environment of a run.
func (l *life) begin() {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(warnings{l})))
	env := suite.NewTestWorkflowEnvironment()
	env.SetStartTime(l.now)
	env.SetTestTimeout(time.Minute)
	// The machine may be busy with other lives for longer than a second.
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute, Interceptors: []interceptor.WorkerInterceptor{&simServer{l: l}}})
	env.SetWorkflowRunTimeout(l.endsAt.Sub(l.now))
	env.RegisterWorkflowWithOptions(devicewf.New(func(device.Key, []string) devicewf.Knobs { return l.knobs }, reason.Builtin().Meaning).Run, workflow.RegisterOptions{Name: devicewf.WorkflowType})
	env.SetOnTimerFiredListener(func(string) { env.RegisterDelayedCallback(l.check, 0) })
	l.env, l.suggested, l.heard, l.wanted = env, time.Time{}, time.Time{}, time.Time{}
}

// simServer stands between the workflow and the environment: it takes the activities
// that the workflow starts, and answers them when the life lets it. The test
// environment would run each on a goroutine, and go by the machine's clock meanwhile.
type simServer struct {
	interceptor.WorkerInterceptorBase
	l *life
}

func (s *simServer) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &simInbound{interceptor.WorkflowInboundInterceptorBase{Next: next}, s.l}
}

type simInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	l *life
}

func (s *simInbound) Init(out interceptor.WorkflowOutboundInterceptor) error {
	return s.Next.Init(&simOutbound{interceptor.WorkflowOutboundInterceptorBase{Next: out}, s.l})
}

type simOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	l *life
}

// MutableSideEffect records the settings of the worker that carries the run now.
func (s *simOutbound) MutableSideEffect(ctx workflow.Context, id string, _ func(workflow.Context) any, equals func(a, b any) bool) converter.EncodedValue {
	return s.Next.MutableSideEffect(ctx, id, func(workflow.Context) any { return s.l.knobs }, equals)
}

func (s *simOutbound) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	future, answer := workflow.NewFuture(ctx)
	//workflowcheck:ignore this is the server's part
	s.l.schedule(&task{name: name, command: wired(args[0]), options: workflow.GetActivityOptions(ctx), answer: answer})
	return future
}

// wired is a task's command as it comes out of the wire.
func wired(input any) any {
	switch input := input.(type) {
	case devicewf.Task[quarantine.PutMark]:
		return rewire(input.Command)
	case devicewf.Task[quarantine.LiftMark]:
		return rewire(input.Command)
	case devicewf.Task[quarantine.Look]:
		return rewire(input.Command)
	case devicewf.Task[quarantine.Announce]:
		return rewire(input.Command)
	case devicewf.Task[quarantine.AskRestriction]:
		return rewire(input.Command)
	case devicewf.Task[quarantine.AskPermit]:
		return rewire(input.Command)
	case devicewf.Task[quarantine.Tend]:
		return rewire(input.Command)
	case devicewf.Task[quarantine.CleanUp]:
		return rewire(input.Command)
	case devicewf.Task[quarantine.AskReturn]:
		return rewire(input.Command)
	}
	panic(violation{fmt.Sprintf("an activity is given %T", input)})
}

func rewire[C any](command C) C {
	var read C
	if err := json.Unmarshal([]byte(brief(command)), &read); err != nil {
		panic(violation{fmt.Sprintf("%T can't be read back: %v", command, err)})
	}
	return read
}

// task is an activity under way.
type task struct {
	name    string
	command any
	options workflow.ActivityOptions
	answer  workflow.Settable
	// workflow numbers the workflow that it is of, run the run.
	workflow, run int
	// expires is when it is given up; zero is never.
	expires  time.Time
	attempts int
}

// queued is how long a task waits for a worker.
const queued = 37 * time.Millisecond

// schedule takes in what the workflow starts.
func (l *life) schedule(t *task) {
	if l.tasks[t.name] != nil {
		l.fail("%s was started while one was under way", t.name)
	}
	t.workflow, t.run = l.workflow, l.runs
	if limit := t.options.ScheduleToCloseTimeout; limit > 0 {
		t.expires = l.clock().Add(limit)
	}
	l.tasks[t.name] = t
	l.scheduled(t)
	l.attempted(t)
	l.in(queued, func() { l.attempt(t) })
}

// attempt lets one attempt run. In a fair world it takes a moment. Else it may never
// run, take longer than it may, and write when nobody waits for it any more.
func (l *life) attempt(t *task) {
	if t.run != l.runs {
		return
	}
	t.attempts++
	runs, answers := 20*time.Millisecond, 50*time.Millisecond
	if !l.fair {
		runs, answers = l.fate(t)
	} else if ask, ok := t.command.(quarantine.Tend); ok && l.cluster.waits(ask) {
		answers = 20 * time.Second
	}
	var result any
	var failed error
	if runs >= 0 {
		l.in(runs, func() {
			result, failed = l.execute(t)
			l.say("%s attempt %d: %s", t.name, t.attempts, outcome(result, failed))
		})
	}
	ends := min(answers, t.options.StartToCloseTimeout)
	if runs < 0 || answers > t.options.StartToCloseTimeout {
		ends = t.options.StartToCloseTimeout
	}
	if !t.expires.IsZero() {
		ends = min(ends, max(t.expires.Sub(l.clock()), time.Millisecond))
	}
	l.in(ends+time.Microsecond, func() {
		if runs < 0 || answers > ends {
			l.retry(t, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_START_TO_CLOSE, nil))
			return
		}
		if failed != nil {
			l.retry(t, failed)
			return
		}
		l.complete(t, result, nil)
	})
}

// fate draws when an attempt runs, never if below zero, and when its answer comes.
func (l *life) fate(t *task) (runs, answers time.Duration) {
	switch l.rng.IntN(12) {
	case 0: // its worker dies first
		return -1, 0
	case 1: // its worker dies after it
		return l.upTo(t.options.StartToCloseTimeout), time.Hour
	case 2: // it runs when nobody waits for it any more
		return t.options.StartToCloseTimeout + l.upTo(time.Minute), time.Hour
	case 3, 4:
		runs = l.upTo(t.options.StartToCloseTimeout)
		return runs, runs + l.upTo(t.options.StartToCloseTimeout)
	}
	runs = l.upTo(300 * time.Millisecond)
	return runs, runs + l.upTo(300*time.Millisecond)
}

// retry tries again as the policy says, or gives up.
func (l *life) retry(t *task, failed error) {
	policy := t.options.RetryPolicy
	pause := policy.InitialInterval
	longest := policy.MaximumInterval
	if longest == 0 {
		longest = 100 * policy.InitialInterval // as the server does
	}
	for range t.attempts - 1 {
		pause = min(time.Duration(float64(pause)*policy.BackoffCoefficient), longest)
	}
	spent := !t.expires.IsZero() && !l.clock().Add(pause).Before(t.expires)
	if spent || policy.MaximumAttempts > 0 && t.attempts >= int(policy.MaximumAttempts) {
		l.complete(t, nil, failed)
		return
	}
	l.in(pause, func() { l.attempt(t) })
}

func (l *life) complete(t *task, result any, failed error) {
	if t.run != l.runs {
		return
	}
	delete(l.tasks, t.name)
	if failed != nil {
		l.say("%s failed: %v", t.name, failed)
	}
	if failed != nil || result == nil {
		t.answer.Set(nil, failed)
	} else {
		payloads, err := converter.GetDefaultDataConverter().ToPayloads(result)
		if err != nil {
			l.fail("write the answer of %s: %v", t.name, err)
		}
		t.answer.Set(payloads, nil)
	}
	l.env.RegisterDelayedCallback(l.check, 0)
}

// execute does in the cluster what an attempt does.
func (l *life) execute(t *task) (any, error) {
	switch c := t.command.(type) {
	case quarantine.PutMark:
		before := l.cluster.mark
		report, err := l.cluster.put(c)
		l.marked(before, report)
		return report, err
	case quarantine.LiftMark:
		before := l.cluster.mark
		report, err := l.cluster.lift(c)
		l.marked(before, report)
		return report, err
	case quarantine.Look:
		return l.cluster.look(c, l.clock())
	case quarantine.AskRestriction:
		answer, err := l.cluster.may(c)
		if answer.Granted {
			l.granted[c.Epoch] = true
		}
		return answer, err
	case quarantine.AskPermit:
		return l.cluster.permits(c)
	case quarantine.Tend:
		return l.cluster.tend(c, l.clock())
	case quarantine.CleanUp:
		return l.cluster.cleanUp(c)
	case quarantine.AskReturn:
		return l.cluster.turn(c)
	case quarantine.Announce:
		if l.mute {
			return nil, errAway
		}
		l.announced(t, c.Notices)
		return nil, nil
	}
	l.fail("nothing executes %T", t.command)
	return nil, nil
}

// upTo draws a duration. Its nanoseconds keep two things from falling on one moment
// by accident, where their order would be the test environment's.
func (l *life) upTo(limit time.Duration) time.Duration {
	return time.Duration(l.rng.Int64N(int64(limit)) + 1)
}

// warnings takes what the SDK warns of for what it is: a run that ended with a
// signal unread, or an update unanswered.
type warnings struct{ l *life }

func (w warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (w warnings) WithAttrs([]slog.Attr) slog.Handler               { return w }
func (w warnings) WithGroup(string) slog.Handler                    { return w }
func (w warnings) Handle(_ context.Context, record slog.Record) error {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	w.l.warned = append(w.l.warned, record.Message)
	return nil
}

// life is one simulated life of a device and its cases.
type life struct {
	seed    uint64
	rng     *rand.Rand
	cluster *cluster
	knobs   devicewf.Knobs
	keyed
	// chaosUntil is when the world becomes a fair one, endsAt when the life is over.
	now, chaosUntil, endsAt time.Time
	fair                    bool

	env       *testsuite.TestWorkflowEnvironment
	agenda    []appointment
	tasks     map[string]*task
	opening   []signal
	suggested time.Time
	runs      int

	mu     sync.Mutex
	warned []string

	record
}
