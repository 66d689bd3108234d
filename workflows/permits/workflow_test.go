package permits_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
	permitswf "github.com/sickbay-dev/sickbay/workflows/permits"
)

// anything is what the SDK's environment takes for any value.
const anything = "mock.Anything"

// run is the workflow in the SDK's test environment, where time is skipped.
type run struct {
	*testsuite.TestWorkflowEnvironment
	t *testing.T

	mu      sync.Mutex
	limits  budget.Limits
	notices []budget.Notice
	offered []string
}

func newRun(t *testing.T, limits budget.Limits) *run {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	r := &run{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment(), t: t, limits: limits}
	r.SetStartTime(time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC))
	r.SetTestTimeout(20 * time.Second)
	r.RegisterWorkflowWithOptions(permitswf.New(func() permitswf.Knobs {
		r.mu.Lock()
		defer r.mu.Unlock()
		return permitswf.Knobs{Limits: r.limits}
	}).Run, workflow.RegisterOptions{Name: permitswf.WorkflowType})
	r.RegisterActivityWithOptions(func(_ context.Context, task permitswf.Announce) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.notices = append(r.notices, task.Notices...)
		return nil
	}, activity.RegisterOptions{Name: permitswf.ActivityAnnounce})
	r.OnSignalExternalWorkflow(anything, anything, "", devicewf.SignalPermit, anything).Return(
		func(_, id, _, _ string, arg any) error {
			if strings.Contains(id, "nobody") {
				return fmt.Errorf("workflow %s isn't there", id)
			}
			r.offered = append(r.offered, id)
			return nil
		})
	return r
}

func (r *run) at(after time.Duration, do func()) { r.RegisterDelayedCallback(do, after) }

// answer hands an update's answer on.
type answer struct{ done func(any, error) }

func (a *answer) Accept()                        {}
func (a *answer) Reject(err error)               { a.done(nil, err) }
func (a *answer) Complete(result any, err error) { a.done(result, err) }

func (r *run) update(name string, argument any, then func(result any, err error)) {
	r.UpdateWorkflow(name, "", &answer{then}, argument)
}

// ask asks for the devices by name, and hands on who got a permit.
func (r *run) ask(then func(granted string, first budget.Answer), devices ...string) {
	var asks []budget.Ask
	for _, name := range devices {
		asks = append(asks, budget.Ask{
			Device: "gpu.example.com/node-1/" + name, Epoch: 7, Purpose: budget.Mark, Severity: 3,
			Scopes: []budget.Scope{{Kind: budget.Class, Name: "gpu.example.com"}, {Kind: budget.Node, Name: "node-1"}},
		})
	}
	r.update(permitswf.UpdateAsk, budget.Asked{Asks: asks}, func(result any, err error) {
		if err != nil {
			r.t.Errorf("ask: %v", err)
			return
		}
		var granted []string
		answers := result.([]budget.Answer)
		for i, a := range answers {
			if a.Granted {
				granted = append(granted, devices[i])
			}
		}
		then(strings.Join(granted, " "), answers[0])
	})
}

func (r *run) tell(r2 budget.Counted) {
	r.update(permitswf.UpdateCount, r2, func(_ any, err error) {
		if err != nil {
			r.t.Errorf("count: %v", err)
		}
	})
}

func (r *run) giveBack(device string) {
	permits := []budget.Permit{{Device: "gpu.example.com/node-1/" + device, Epoch: 7, Purpose: budget.Mark}}
	r.update(permitswf.UpdateReturn, budget.Returned{Permits: permits}, func(_ any, err error) {
		if err != nil {
			r.t.Errorf("return: %v", err)
		}
	})
}

func (r *run) view() permitswf.View {
	r.t.Helper()
	value, err := r.QueryWorkflow(permitswf.QueryPermits)
	if err != nil {
		r.t.Fatalf("query: %v", err)
	}
	var view permitswf.View
	if err := value.Get(&view); err != nil {
		r.t.Fatal(err)
	}
	return view
}

func (r *run) start(lasts time.Duration) {
	r.SetWorkflowRunTimeout(lasts)
	r.ExecuteWorkflow(permitswf.WorkflowType, permitswf.State{Version: permitswf.StateVersion})
}

func two() budget.Limits {
	none := budget.Limit{None: true}
	return budget.Limits{Cluster: none, Class: budget.Limit{Min: 2}, Tenant: none, Node: none, Pace: 10}
}

// B1, B2 in part: nothing is granted before it is known which marks exist; who waited is
// told that it is its turn, one by one; an offer that reaches nobody comes back; and all of
// it is on the page and on record.
func TestPermitsAreHandedOutAndOffered(t *testing.T) {
	r := newRun(t, two())
	r.at(0, func() {
		r.ask(func(granted string, first budget.Answer) {
			if granted != "" || !first.Unknown {
				t.Errorf("before it knows: %q, %+v", granted, first)
			}
		}, "gpu-0")
	})
	r.at(time.Second, func() { r.tell(budget.Counted{By: "worker"}) })
	r.at(2*time.Second, func() {
		r.ask(func(granted string, _ budget.Answer) {
			if granted != "gpu-0 gpu-1" {
				t.Errorf("granted %q", granted)
			}
		}, "gpu-0", "gpu-1", "gpu-2-nobody", "gpu-3")
	})
	r.at(3*time.Second, func() {
		page := permitswf.Details(r.view(), r.Now())
		for _, text := range []string{"2 devices wait", "`class/gpu.example.com`", "2 of 2 kept out, 2 wait", "gpu-2-nobody", "sickbay pause"} {
			if !strings.Contains(page, text) {
				t.Errorf("the page doesn't say %q:\n%s", text, page)
			}
		}
		r.giveBack("gpu-0")
	})
	r.at(4*time.Minute, func() {
		if got := fmt.Sprint(r.offered); got != "[device/gpu.example.com/node-1/gpu-3]" {
			t.Errorf("offered to %s", got)
		}
		if book := r.view().Book; len(book.Marks.Waiters) != 0 || len(book.Marks.Grants) != 2 {
			t.Errorf("%+v", book.Marks)
		}
	})
	r.start(5 * time.Minute)
	r.mu.Lock()
	defer r.mu.Unlock()
	kinds := map[budget.NoticeKind]int{}
	for _, n := range r.notices {
		kinds[n.Kind]++
	}
	if kinds[budget.NoticeHeld] != 1 || kinds[budget.NoticeFree] != 1 {
		t.Errorf("on record: %+v", r.notices)
	}
}

// B4 in part. Operators pause by update, which answers, and by signal; what makes no sense
// is refused with its reason, and a payload that can't be read is on record. A cancellation
// ends nothing.
func TestOperatorsPauseByUpdateAndBySignal(t *testing.T) {
	r := newRun(t, two())
	pause := map[string]any{"scope": "node/node-1", "for": "1h", "actor": "oncall@example.com", "reason": "the riser"}
	r.at(0, func() { r.tell(budget.Counted{By: "worker"}) })
	r.at(time.Second, func() {
		r.update(string(budget.VerbPause), pause, func(result any, err error) {
			if err != nil || !result.(permitswf.Accepted).Until.Equal(r.Now().Add(time.Hour)) {
				t.Errorf("pause: %+v, %v", result, err)
			}
		})
		for misspelt, want := range map[string]string{"fro": `unknown field "fro"`, "scope": "want cluster, driver/NAME", "for": "want a duration"} {
			wrong := map[string]any{"scope": "node/node-1", "actor": "x", "reason": "x", misspelt: "rack/7"}
			r.update(string(budget.VerbPause), wrong, func(_ any, err error) {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q", misspelt, err, want)
				}
			})
		}
		r.CancelWorkflow()
	})
	r.at(2*time.Second, func() {
		r.ask(func(granted string, first budget.Answer) {
			if granted != "" || !strings.Contains(first.Why, "node/node-1 is paused until 2026-11-02T09:00:01Z by oncall@example.com (the riser)") {
				t.Errorf("paused: %q, %+v", granted, first)
			}
		}, "gpu-0")
	})
	r.at(time.Minute, func() {
		r.SignalWorkflow(string(budget.VerbResume), "no object")
		r.SignalWorkflow(string(budget.VerbResume), map[string]any{"scope": "node/node-1", "actor": "x", "reason": "done"})
	})
	r.at(2*time.Minute, func() {
		if got := fmt.Sprint(r.offered); got != "[device/gpu.example.com/node-1/gpu-0]" {
			t.Errorf("after the resume %s was offered its permit", got)
		}
	})
	r.start(3 * time.Minute)
	refused := 0
	for _, n := range r.notices {
		if n.Kind == budget.NoticeRefused {
			refused++
		}
	}
	if refused != 2 { // the signal that can't be read, and the cancellation
		t.Errorf("%d refusals on record: %+v", refused, r.notices)
	}
}

// turn asks whether it is the devices' turn to be given back, and hands on whose it is.
func (r *run) turn(then func(granted string), devices ...string) {
	asked := budget.TurnsAsked{}
	for _, name := range devices {
		asked.Asks = append(asked.Asks, budget.AskTurn{
			Device: "gpu.example.com/node-1/" + name, Epoch: 7, Token: int64(name[len(name)-1]),
			Scopes: []budget.Scope{{Kind: budget.Class, Name: "gpu.example.com"}, {Kind: budget.Node, Name: "node-1"}},
		})
	}
	r.update(permitswf.UpdateTurn, asked, func(result any, err error) {
		if err != nil {
			r.t.Errorf("turn: %v", err)
			return
		}
		var granted []string
		for i, turn := range result.([]budget.Turn) {
			if turn.Granted {
				granted = append(granted, devices[i])
			}
		}
		then(strings.Join(granted, " "))
	})
}

// Devices come back one after the other, each when the one before has settled, although
// nothing is known of marks and everything is paused. One that fails again stops the others,
// which is on record; who comes back and who waits is on the page, and survives that the
// workflow continues as new. Proves a part of R3.
func TestDevicesComeBackOneAfterTheOther(t *testing.T) {
	limits := two()
	limits.Returns = budget.ReturnLimits{Node: 1, Class: 4, Cluster: 8, Settle: 600}
	r := newRun(t, limits)
	wants := func(what, want string) func(string) {
		return func(granted string) {
			if granted != want {
				t.Errorf("%s: it is the turn of %q, want %q", what, granted, want)
			}
		}
	}
	r.at(0, func() {
		pause := map[string]any{"scope": "cluster", "for": "1h", "actor": "oncall@example.com", "reason": "we look into it"}
		r.update(string(budget.VerbPause), pause, func(any, error) {})
		r.turn(wants("at first", "gpu-0"), "gpu-0", "gpu-1")
	})
	r.at(9*time.Minute, func() { r.turn(wants("too early", "gpu-0"), "gpu-0", "gpu-1") })
	r.at(11*time.Minute, func() {
		page := permitswf.Details(r.view(), r.Now())
		if strings.Contains(page, "gpu-0") || !strings.Contains(page, "`gpu.example.com/node-1/gpu-1` waits for its turn") {
			t.Errorf("the page once the first has settled:\n%s", page)
		}
		r.turn(wants("once it has settled", "gpu-1"), "gpu-1")
	})
	r.at(12*time.Minute, func() {
		r.update(permitswf.UpdateAsk, budget.Asked{Asks: []budget.Ask{{Device: "gpu.example.com/node-1/gpu-1", Epoch: 8, Purpose: budget.Mark}}}, func(any, error) {})
		r.turn(wants("after a relapse", ""), "gpu-2")
	})
	r.at(12*time.Minute+time.Second, func() {
		page := permitswf.Details(r.view(), r.Now())
		for _, text := range []string{"Coming back", "`gpu.example.com/node-1/gpu-1` failed again at 2026-11-02 08:12:00 UTC", "`gpu.example.com/node-1/gpu-2` waits for its turn"} {
			if !strings.Contains(page, text) {
				t.Errorf("the page doesn't say %q:\n%s", text, page)
			}
		}
	})
	r.at(13*time.Minute, func() {
		r.SetCurrentHistoryLength(5000)
		r.tell(budget.Counted{By: "worker"})
	})
	r.start(time.Hour)
	var next *workflow.ContinueAsNewError
	if err := r.GetWorkflowError(); !errors.As(err, &next) {
		t.Fatalf("ended with %v, want it to continue as new", err)
	}
	var state permitswf.State
	if err := converter.GetDefaultDataConverter().FromPayloads(next.Input, &state); err != nil {
		t.Fatal(err)
	}
	if back := state.Book.Returns; len(back.Coming) != 1 || back.Coming[0].Relapsed.IsZero() || len(back.Line) != 1 {
		t.Errorf("the next run begins with %+v", back)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(r.notices, func(n budget.Notice) bool { return n.Kind == budget.NoticeReturnsStopped && n.Alert }) {
		t.Errorf("on record: %+v", r.notices)
	}
}

// A changed limit applies at the next decision, and a long history continues as new with
// all that is known.
func TestALongHistoryContinuesAsNewAndAChangedLimitApplies(t *testing.T) {
	r := newRun(t, two())
	r.at(0, func() { r.tell(budget.Counted{By: "worker"}) })
	r.at(time.Second, func() { r.ask(func(string, budget.Answer) {}, "gpu-0", "gpu-1", "gpu-2") })
	r.at(2*time.Second, func() {
		r.mu.Lock()
		r.limits.Class.Min = 3
		r.mu.Unlock()
		r.ask(func(granted string, _ budget.Answer) {
			if granted != "gpu-2" {
				t.Errorf("with a limit of 3: %q", granted)
			}
		}, "gpu-2")
	})
	r.at(time.Minute, func() {
		r.SetCurrentHistoryLength(5000)
		r.tell(budget.Counted{Same: true, By: "worker"})
	})
	r.start(5 * time.Minute)
	if err := r.GetWorkflowError(); err == nil || !strings.Contains(err.Error(), "continue as new") {
		t.Fatalf("ended with %v, want it to continue as new", err)
	}
}
