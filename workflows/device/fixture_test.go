package device_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// world stands behind the activities of a workflow under test: a cluster with
// one device, whose mark and health the test sets. The real cluster has its
// tests under tests/e2e.
type world struct {
	mu    sync.Mutex
	key   device.Key
	now   func() time.Time
	mark  *quarantine.MarkFound
	pods  []device.Report
	puts  []quarantine.PutMark
	looks int
	// refuse makes PutMark answer with a refusal.
	refuse string
	// fail makes the next PutMark calls fail, as an API server that is away does.
	fail int
	// hang makes looks go without an answer.
	hang    bool
	notices []quarantine.Notice
	// asked counts the questions whether the device may be restricted; held is why it
	// may not be, and askFails makes the next answers fail.
	asked    int
	held     string
	askFails int
}

func (w *world) put(_ context.Context, task devicewf.Task[quarantine.PutMark]) (quarantine.MarkReported, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := task.Command
	w.puts = append(w.puts, c)
	report := quarantine.MarkReported{Epoch: c.Epoch, Revision: c.Revision, Name: kube.MarkName(c.Device)}
	switch {
	case w.fail > 0:
		w.fail--
		return report, context.DeadlineExceeded
	case w.refuse != "":
		report.Outcome, report.Detail = quarantine.OutcomeRefused, w.refuse
		return report, nil
	}
	report.Outcome = quarantine.OutcomeInForce
	w.mark = &quarantine.MarkFound{
		Name: report.Name, Epoch: c.Epoch, Severity: c.Severity, Reason: c.Reason.Code, Restricted: c.Restricted,
	}
	return report, nil
}

func (w *world) lift(_ context.Context, task devicewf.Task[quarantine.LiftMark]) (quarantine.MarkReported, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mark = nil
	return quarantine.MarkReported{Epoch: task.Command.Epoch, Outcome: quarantine.OutcomeLifted}, nil
}

func (w *world) look(_ context.Context, task devicewf.Task[quarantine.Look]) (quarantine.Looked, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	if w.hang {
		return quarantine.Looked{}, activity.ErrResultPending
	}
	looked := quarantine.Looked{
		Asked: task.Command.Asked, Node: "anvil-07", NodeReady: true,
		NodeLease: w.now().Format(time.RFC3339Nano), Mark: w.mark, MarkIntact: w.mark != nil,
		Presence: &quarantine.Inventory{Present: true},
	}
	for _, known := range task.Command.Known {
		ended := true
		for _, pod := range w.pods {
			ended = ended && pod.Pod.UID != known.UID
		}
		if ended {
			looked.Ended = append(looked.Ended, known.UID)
		}
	}
	for _, pod := range w.pods {
		looked.Readings = append(looked.Readings, classified(pod))
		looked.Holders = append(looked.Holders, quarantine.Holder{Pod: pod.Pod})
	}
	return looked, nil
}

func (w *world) announce(_ context.Context, task devicewf.Task[quarantine.Announce]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notices = append(w.notices, task.Command.Notices...)
	return nil
}

func (w *world) ask(_ context.Context, task devicewf.Task[quarantine.AskRestriction]) (quarantine.RestrictionAnswered, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if w.askFails > 0 {
		w.askFails--
		return quarantine.RestrictionAnswered{}, context.DeadlineExceeded
	}
	if w.held != "" {
		return quarantine.RestrictionAnswered{Epoch: task.Command.Epoch, Again: time.Minute, Incident: w.held, Why: "many devices are Unknown"}, nil
	}
	return quarantine.RestrictionAnswered{Epoch: task.Command.Epoch, Granted: true}, nil
}

// set makes the device look like this in the Pod's live status.
func (w *world) set(reports ...device.Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods = reports
}

// noticed counts the announced notices of a kind.
func (w *world) noticed(kind quarantine.NoticeKind) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	count := 0
	for _, n := range w.notices {
		if n.Kind == kind {
			count++
		}
	}
	return count
}

func (w *world) count() (puts, looks int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.puts), w.looks
}

// run is a workflow in the SDK's test environment, where time is skipped.
type run struct {
	*testsuite.TestWorkflowEnvironment
	t     *testing.T
	world *world
	key   device.Key
}

func newRun(t *testing.T) *run {
	t.Helper()
	key, err := device.NewDRA("gpu.example.com", "anvil-07", "gpu-3")
	if err != nil {
		t.Fatal(err)
	}
	policy := quarantine.DefaultPolicy()
	policy.Mode = quarantine.ModeEnforce
	return newRunOf(t, key, devicewf.Knobs{Policy: policy})
}

func newRunOf(t *testing.T, key device.Key, knobs devicewf.Knobs) *run {
	t.Helper()
	return newRunWith(t, key, devicewf.Always(knobs))
}

// newRunWith is newRunOf by a worker with these settings.
func newRunWith(t *testing.T, key device.Key, settings devicewf.Settings) *run {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	r := &run{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment(), t: t, key: key}
	r.world = &world{key: key, now: r.Now}
	r.SetStartTime(time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC))
	r.SetTestTimeout(20 * time.Second)
	r.RegisterWorkflowWithOptions(devicewf.New(settings, reason.Builtin().Meaning).Run, workflow.RegisterOptions{Name: devicewf.WorkflowType})
	register := func(name string, fn any) {
		r.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	register(devicewf.ActivityPutMark, r.world.put)
	register(devicewf.ActivityLiftMark, r.world.lift)
	register(devicewf.ActivityLook, r.world.look)
	register(devicewf.ActivityAnnounce, r.world.announce)
	register(devicewf.ActivityAskRestriction, r.world.ask)
	register(devicewf.ActivityAskPermit, func(_ context.Context, task devicewf.Task[quarantine.AskPermit]) (quarantine.PermitAnswered, error) {
		return quarantine.PermitAnswered{Epoch: task.Command.Epoch, Granted: true}, nil
	})
	return r
}

// at does something at a moment of the workflow's time.
func (r *run) at(after time.Duration, do func()) { r.RegisterDelayedCallback(do, after) }

func (r *run) observe(reports ...device.Report) {
	readings := make([]quarantine.Reading, len(reports))
	for i, report := range reports {
		readings[i] = classified(report)
	}
	r.SignalWorkflow(devicewf.SignalObserved, devicewf.Signal[quarantine.Observed]{
		Device: r.key, Event: quarantine.Observed{Node: "anvil-07", Lost: true, Readings: readings},
	})
}

// state asks the workflow for its case.
func (r *run) state() quarantine.Case {
	r.t.Helper()
	value, err := r.QueryWorkflow(devicewf.QueryCase)
	if err != nil {
		r.t.Fatalf("query: %v", err)
	}
	var state devicewf.State
	if err := value.Get(&state); err != nil {
		r.t.Fatalf("read the state: %v", err)
	}
	return state.Case
}

// shown is the page of a case.
func shown(c quarantine.Case) string { return devicewf.Details(c, reason.Builtin().Meaning) }

// stop ends a workflow that would wait for ever.
func (r *run) stop(after time.Duration) { r.SetWorkflowRunTimeout(after) }

func classified(report device.Report) quarantine.Reading {
	reading := quarantine.Reading{Report: report}
	if report.Health == device.Unhealthy {
		reading.Reason = reason.Builtin().Match("gpu.example.com", report.Message)
		reading.Fault = reading.Reason.DeviceFault()
	}
	return reading
}

func report(pod string, health device.Health, message, version string) device.Report {
	return device.Report{
		Pod:  device.PodRef{Namespace: "team-kestrel", Name: pod, UID: "uid-" + pod},
		Node: "anvil-07", Health: health, Message: message, Version: device.Version(version),
		Observed: time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC),
	}
}
