package incident_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/incident"
	incidentwf "github.com/sickbay-dev/sickbay/workflows/incident"
)

// run is a workflow in the SDK's test environment, where time is skipped.
type run struct {
	*testsuite.TestWorkflowEnvironment
	t *testing.T

	mu      sync.Mutex
	notices []incident.Notice
	// fail makes the next announcements fail.
	fail int
}

var scope = incident.OfDriver("gpu.example.com")

func newRun(t *testing.T) *run {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	r := &run{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment(), t: t}
	r.SetStartTime(time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC))
	r.SetTestTimeout(20 * time.Second)
	knobs := incidentwf.Knobs{Policy: incident.DefaultPolicy()}
	r.RegisterWorkflowWithOptions(incidentwf.New(func() incidentwf.Knobs { return knobs }).Run, workflow.RegisterOptions{Name: incidentwf.WorkflowType})
	r.RegisterActivityWithOptions(func(_ context.Context, task incidentwf.Announce) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.fail > 0 {
			r.fail--
			return context.DeadlineExceeded
		}
		r.notices = append(r.notices, task.Notices...)
		return nil
	}, activity.RegisterOptions{Name: incidentwf.ActivityAnnounce})
	return r
}

func (r *run) at(after time.Duration, do func()) { r.RegisterDelayedCallback(do, after) }

// answer takes an update's answer in.
type answer struct {
	t    *testing.T
	done func(any, error)
}

func (a *answer) Accept()                        {}
func (a *answer) Reject(err error)               { a.done(nil, err) }
func (a *answer) Complete(result any, err error) { a.done(result, err) }

// report sends a starter's count, and hands its answer on.
func (r *run) report(now, held int, then func(incident.Answer)) {
	levels := incident.Levels{Now: now, Held: held, Total: 100, Enough: 16, Nodes: 4, By: "a"}
	r.UpdateWorkflowNoRejection(incidentwf.UpdateReport, "", r.t, levels)
	if then != nil {
		r.UpdateWorkflow(incidentwf.UpdateReport, "", &answer{r.t, func(result any, err error) {
			if err != nil {
				r.t.Errorf("report: %v", err)
				return
			}
			then(result.(incident.Answer))
		}}, levels)
	}
}

func (r *run) say(verb incident.Verb, payload any, then func(any, error)) {
	r.UpdateWorkflow(string(verb), "", &answer{r.t, then}, payload)
}

func (r *run) state() incident.Incident {
	r.t.Helper()
	value, err := r.QueryWorkflow(incidentwf.QueryIncident)
	if err != nil {
		r.t.Fatalf("query: %v", err)
	}
	var state incidentwf.State
	if err := value.Get(&state); err != nil {
		r.t.Fatal(err)
	}
	return state.Incident
}

func (r *run) announced(kind incident.NoticeKind) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, notice := range r.notices {
		if notice.Kind == kind {
			n++
		}
	}
	return n
}

func (r *run) start() {
	r.ExecuteWorkflow(incidentwf.WorkflowType, incidentwf.NewState(scope))
}

var word = map[string]any{"actor": "oncall@example.com", "reason": "the driver is being upgraded"}

// U4. A storm that passes: it holds, says so once, and ends by itself. What can't be
// put on record at first is, in the end.
func TestAStormHoldsAndEndsByItself(t *testing.T) {
	r := newRun(t)
	r.fail = 2
	r.at(0, func() {
		r.report(40, 40, func(a incident.Answer) {
			if !a.Holds || a.Phase != incident.Holding {
				t.Errorf("answered %+v", a)
			}
		})
	})
	for i := range 20 {
		now := 40
		if i > 8 {
			now = 0
		}
		r.at(time.Duration(i+1)*15*time.Second, func() {
			if r.state().Open() {
				r.report(now, now, nil)
			}
		})
	}
	r.start()
	if err := r.GetWorkflowError(); err != nil || !r.IsWorkflowCompleted() {
		t.Fatalf("it doesn't end: %v", err)
	}
	if r.announced(incident.NoticeBegan) != 1 || r.announced(incident.NoticeClosed) != 1 {
		t.Errorf("on record: %+v", r.notices)
	}
}

// U4. Past its maximum it asks, by a timer of its own, and cases that ask are let
// through at its pace.
func TestPastItsMaximumCasesAreLetThroughAtThePace(t *testing.T) {
	r := newRun(t)
	var granted []time.Time
	r.at(0, func() { r.report(40, 0, nil) })
	ask := func() {
		r.UpdateWorkflow(incidentwf.UpdateAsk, "", &answer{t, func(result any, err error) {
			if err != nil {
				t.Errorf("ask: %v", err)
			} else if result.(incident.Answer).Granted() {
				granted = append(granted, r.Now())
			}
		}}, "gpu.example.com/node-0/gpu-0")
	}
	r.at(59*time.Minute, ask)
	r.at(time.Hour+time.Second, func() {
		if i := r.state(); i.Phase != incident.Pacing || r.announced(incident.NoticeAsks) != 1 {
			t.Errorf("%s, asked %d times", i.Phase, r.announced(incident.NoticeAsks))
		}
	})
	for i := range 60 {
		r.at(time.Hour+2*time.Second+time.Duration(i)*5*time.Second, ask)
	}
	r.SetWorkflowRunTimeout(2 * time.Hour)
	r.start()
	if len(granted) != 10 {
		t.Errorf("%d let through in five minutes at a pace of 30 s: %v", len(granted), granted)
	}
	for i := 1; i < len(granted); i++ {
		if gap := granted[i].Sub(granted[i-1]); gap < 30*time.Second {
			t.Errorf("two within %s", gap)
		}
	}
}

// R4 in part: operators speak by update, which answers, and by signal; what makes no
// sense is refused with its reason, and a payload that can't be read is on record.
func TestOperatorsSpeakToAnIncident(t *testing.T) {
	r := newRun(t)
	r.at(0, func() { r.report(40, 40, nil) })
	r.at(time.Minute, func() {
		r.say(incident.VerbClose, word, func(_ any, err error) {
			if err == nil || !strings.Contains(err.Error(), "40 devices are still Unknown; send admit") {
				t.Errorf("close: %v", err)
			}
		})
		r.say(incident.VerbWait, map[string]any{"actor": "x", "reason": "x", "fro": "4h"}, func(_ any, err error) {
			if err == nil || !strings.Contains(err.Error(), `unknown field "fro"`) {
				t.Errorf("a misspelt field: %v", err)
			}
		})
		r.say(incident.VerbWait, map[string]any{"actor": "x", "reason": "x", "for": "4h"}, func(result any, err error) {
			if err != nil || !result.(incidentwf.Accepted).Until.Equal(r.Now().Add(4*time.Hour)) {
				t.Errorf("wait: %+v, %v", result, err)
			}
		})
	})
	r.at(2*time.Minute, func() {
		r.SignalWorkflow(string(incident.VerbAdmit), word)
		r.SignalWorkflow(string(incident.VerbAdmit), "no object")
	})
	r.at(3*time.Minute, func() {
		i := r.state()
		if i.Phase != incident.Admitted || len(i.Words) != 2 || r.announced(incident.NoticeRefused) == 0 {
			t.Errorf("%s after %+v; on record %+v", i.Phase, i.Words, i.Story)
		}
		page := incidentwf.Details(i)
		for _, text := range []string{"an operator let all through", "`driver/gpu.example.com`", "40 of 100 devices", "the driver is being upgraded", "Last report"} {
			if !strings.Contains(page, text) {
				t.Errorf("the page doesn't say %q:\n%s", text, page)
			}
		}
		r.CancelWorkflow()
	})
	r.at(4*time.Minute, func() {
		if i := r.state(); !i.Open() {
			t.Errorf("a cancellation ended it: %s", i.Phase)
		}
	})
	r.SetWorkflowRunTimeout(5 * time.Minute)
	r.start()
}

// An incident goes on over many runs with all that it knows.
func TestALongIncidentContinuesAsNew(t *testing.T) {
	r := newRun(t)
	r.at(0, func() { r.report(40, 40, nil) })
	r.at(time.Minute, func() { r.SetCurrentHistoryLength(5000) })
	r.at(2*time.Minute, func() { r.report(41, 41, nil) })
	r.start()
	var next *workflow.ContinueAsNewError
	if err := r.GetWorkflowError(); err == nil || !strings.Contains(err.Error(), "continue as new") {
		t.Fatalf("ended with %v, want it to continue as new (%v)", err, next)
	}
}

// A run that somebody starts by hand ends soon; one of a scope that can't be is refused.
func TestAnIncidentThatNobodyReportsEnds(t *testing.T) {
	r := newRun(t)
	r.start()
	if err := r.GetWorkflowError(); err != nil || !r.IsWorkflowCompleted() {
		t.Errorf("ended with %v", err)
	}
	r = newRun(t)
	r.ExecuteWorkflow(incidentwf.WorkflowType, incidentwf.NewState(incident.Scope{}))
	if err := r.GetWorkflowError(); err == nil || !strings.Contains(err.Error(), "start none by hand") {
		t.Errorf("a scope that can't be: %v", err)
	}
}
