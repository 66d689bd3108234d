package node_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/isolation"
	nodewf "github.com/sickbay-dev/sickbay/workflows/node"
)

// run is a workflow in the SDK's test environment, where time is skipped, with a node that
// its activities read and write.
type run struct {
	*testsuite.TestWorkflowEnvironment
	t *testing.T

	mu sync.Mutex
	// looked is what a look finds, held how many asks for a permit are refused.
	looked isolation.Looked
	held   int
	policy isolation.Policy
	// puts, lifts and looks count the calls, notices are what was announced.
	puts, lifts, looks int
	notices            []isolation.Notice
	// fail makes the next announcements fail.
	fail int
}

func newRun(t *testing.T) *run {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	r := &run{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment(), t: t, policy: isolation.DefaultPolicy()}
	r.policy.Mode, r.policy.Way = "enforce", isolation.Taint
	r.looked = isolation.Looked{Exists: true, UID: "uid", Ready: device.ReadyTrue, Faulty: []isolation.Faulty{{Device: "gpu.example.com/node-0/gpu-0", Marked: true}, {Device: "gpu.example.com/node-0/gpu-1", Marked: true}}}
	r.SetStartTime(time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC))
	r.SetTestTimeout(20 * time.Second)
	r.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: nodewf.ID("node-0")})
	knobs := func() nodewf.Knobs {
		r.mu.Lock()
		defer r.mu.Unlock()
		return nodewf.Knobs{Policy: r.policy}
	}
	r.RegisterWorkflowWithOptions(nodewf.New(knobs).Run, workflow.RegisterOptions{Name: nodewf.WorkflowType})
	register(r, nodewf.ActivityLook, func(isolation.Look) (isolation.Looked, error) {
		r.looks++
		return r.looked, nil
	})
	register(r, nodewf.ActivityIsolate, func(p isolation.Put) (isolation.Written, error) {
		r.puts++
		if r.held > 0 {
			r.held--
			return isolation.Written{Outcome: isolation.Held, Epoch: p.Epoch, Detail: "as many are out as may be", Again: 15 * time.Minute}, nil
		}
		r.looked.Found = &isolation.Found{Epoch: p.Epoch, Way: p.Way, Since: p.Since, Whole: true}
		return isolation.Written{Outcome: isolation.InForce, Epoch: p.Epoch, Way: p.Way}, nil
	})
	register(r, nodewf.ActivityRelease, func(l isolation.Lift) (isolation.Taken, error) {
		r.lifts++
		r.looked.Found = nil
		return isolation.Taken{Outcome: isolation.Lifted, Epoch: l.Epoch}, nil
	})
	register(r, nodewf.ActivityAnnounce, func(a nodewf.Announce) (string, error) {
		if r.fail > 0 {
			r.fail--
			return "", context.DeadlineExceeded
		}
		r.notices = append(r.notices, a.Notices...)
		return "", nil
	})
	return r
}

func register[A, B any](r *run, name string, do func(A) (B, error)) {
	r.RegisterActivityWithOptions(func(_ context.Context, a A) (B, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return do(a)
	}, activity.RegisterOptions{Name: name})
}

func (r *run) at(after time.Duration, do func()) { r.RegisterDelayedCallback(do, after) }

func (r *run) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// answer takes an update's answer in.
type answer struct{ done func(any, error) }

func (a *answer) Accept()                        {}
func (a *answer) Reject(err error)               { a.done(nil, err) }
func (a *answer) Complete(result any, err error) { a.done(result, err) }

func (r *run) report() {
	r.UpdateWorkflowNoRejection(nodewf.UpdateReport, "", r.t, isolation.Levels{Total: 4, Faulty: r.looked.Faulty, FaultyCount: len(r.looked.Faulty), Beat: device.HeartbeatAdvancing, By: "a"})
}

func (r *run) state() isolation.Isolation {
	r.t.Helper()
	value, err := r.QueryWorkflow(nodewf.QueryIsolation)
	if err != nil {
		r.t.Fatalf("query: %v", err)
	}
	var state nodewf.State
	if err := value.Get(&state); err != nil {
		r.t.Fatal(err)
	}
	return state.Isolation
}

func (r *run) announced(kind isolation.NoticeKind) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, notice := range r.notices {
		if notice.Kind == kind {
			n++
		}
	}
	return n
}

func (r *run) start() { r.ExecuteWorkflow(nodewf.WorkflowType, nodewf.NewState("node-0")) }

// Q2 in part. A node is looked at, isolated, watched, and given back; what can't be put on
// record at first is, in the end; and the run ends then.
func TestANodesWorkflowIsolatesItAndGivesItBack(t *testing.T) {
	r := newRun(t)
	r.fail = 2
	for i := range 40 {
		r.at(time.Duration(i)*time.Minute, func() {
			if i == 20 {
				r.set(func() { r.looked.Faulty = nil })
			}
			r.report()
		})
	}
	r.at(10*time.Minute, func() {
		if s := r.state(); s.Phase != isolation.Isolated || !strings.Contains(nodewf.Details(s), "by a taint of Sickbay's") {
			t.Errorf("after ten minutes: %s\n%s", s.Phase, nodewf.Details(s))
		}
	})
	r.start()
	if err := r.GetWorkflowError(); err != nil || !r.IsWorkflowCompleted() {
		t.Fatalf("completed %t: %v", r.IsWorkflowCompleted(), err)
	}
	if r.puts != 1 || r.lifts != 1 || r.announced(isolation.NoticeIsolated) != 1 || r.announced(isolation.NoticeLifted) != 1 {
		t.Errorf("%d puts, %d lifts, announced %+v", r.puts, r.lifts, r.notices)
	}
}

// Q2 in part. Held by the budgets it waits, and goes on when the permits workflow tells it,
// after another look; the signal of another epoch is nothing.
func TestANodesWorkflowGoesOnWithItsPermit(t *testing.T) {
	r := newRun(t)
	r.held = 1
	r.at(0, r.report)
	r.at(time.Minute, func() {
		if s := r.state(); s.Waiting != isolation.WaitsPermit || r.puts != 1 {
			t.Errorf("waits for %q after %d asks", s.Waiting, r.puts)
		}
		r.SignalWorkflow(nodewf.SignalPermit, nodewf.PermitSignal{Epoch: 1})
	})
	r.at(90*time.Second, func() {
		if r.puts != 1 {
			t.Errorf("asked %d times by another's signal", r.puts)
		}
		r.SignalWorkflow(nodewf.SignalPermit, nodewf.PermitSignal{Epoch: r.state().Epoch})
	})
	r.at(2*time.Minute, func() {
		if s := r.state(); s.Phase != isolation.Isolated || r.puts != 2 {
			t.Errorf("%s after %d asks", s.Phase, r.puts)
		}
		r.set(func() { r.policy.Way = isolation.Off })
		r.report()
	})
	r.start()
	if err := r.GetWorkflowError(); err != nil || r.lifts != 1 {
		t.Fatalf("%d lifts: %v", r.lifts, err)
	}
}

// Q2 in part. An operator's word is answered at once; one that makes no sense is refused with
// the reason; a signal that can't be read, and a request to cancel, are refused on record.
func TestAnOperatorHasAWordWithANodesWorkflow(t *testing.T) {
	r := newRun(t)
	r.at(0, r.report)
	r.at(time.Minute, func() {
		r.UpdateWorkflow("lift", "", &answer{func(_ any, err error) {
			if err == nil || !strings.Contains(err.Error(), "lift refused for node node-0: reason is empty") {
				t.Errorf("without a reason: %v", err)
			}
		}}, map[string]any{"actor": "oncall@example.com"})
		r.SignalWorkflow("lift", 7)
		r.CancelWorkflow()
	})
	r.at(2*time.Minute, func() {
		if n := r.announced(isolation.NoticeUnheard); n != 2 || r.lifts != 0 {
			t.Errorf("%d refusals on record, %d lifts", n, r.lifts)
		}
		r.UpdateWorkflow("lift", "", &answer{func(result any, err error) {
			if err != nil || !strings.Contains(result.(nodewf.Accepted).Text, "lift accepted for node node-0") {
				t.Errorf("answered %+v, %v", result, err)
			}
		}}, map[string]any{"actor": "oncall@example.com", "reason": "the riser is swapped"})
	})
	r.at(3*time.Minute, func() {
		if s := r.state(); s.Phase != isolation.Spared || r.lifts != 1 {
			t.Errorf("%s after %d lifts", s.Phase, r.lifts)
		}
		r.set(func() { r.looked.Exists = false })
		r.report()
	})
	r.start()
	if err := r.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	if last := r.notices[len(r.notices)-1]; last.Kind != isolation.NoticeClosed {
		t.Errorf("ended with %+v", last)
	}
}

// One that nobody reports to ends, and one of another name than its ID is none.
func TestANodesWorkflowThatIsNoneEnds(t *testing.T) {
	r := newRun(t)
	r.start()
	if err := r.GetWorkflowError(); err != nil || r.looks != 0 {
		t.Errorf("without a report: %d looks, %v", r.looks, err)
	}
	r = newRun(t)
	r.ExecuteWorkflow(nodewf.WorkflowType, nodewf.NewState("node-7"))
	if err := r.GetWorkflowError(); err == nil || !strings.Contains(err.Error(), "without the node that its ID names") {
		t.Errorf("of another name: %v", err)
	}
}
