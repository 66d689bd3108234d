package starter

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// O7: what the starter doesn't see is no evidence. Neither before it has listed
// everything, nor while its watches are broken, nor after any time of silence, does
// a device become Unknown or missing by it.
func TestTheStartersBlindnessIsNoNews(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newStandby(t)
	s.lead()
	s.report("train-0", key, device.Healthy, "")
	s.allocate("train-0", key)
	s.allocate("train-1", gpu("anvil-07", "gpu-2"))
	s.slice("anvil-07", 4, eight("anvil-07")[4:]...)
	s.pass(time.Hour)
	none(t, s.send(), "started, and not everything is listed")

	s.slice("anvil-07", 5, eight("anvil-07")...)
	s.tracker.listed()
	s.pass(time.Minute)
	none(t, s.send(), "everything listed")

	s.sender.settling.begin() // what a lost watch and a new list do
	s.pass(24 * time.Hour)
	none(t, s.send(), "a day of silence")
	s.sender.recheckAll(t.Context())
	none(t, s.send(), "and a round of checks")
}

// O7: until what the lists brought has come together, nothing is sent.
func TestNothingIsSentWhileListsComeIn(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newScene(t)
	s.sender.settling.begin()
	s.report("train-0", key, device.Unhealthy, xid79)
	if left := s.sender.settling.left(); left != s.sender.timing.Quiet {
		t.Errorf("%s left to wait after a change, want %s", left, s.sender.timing.Quiet)
	}
	s.clock.Step(s.sender.timing.Quiet / 2)
	s.report("train-1", key, device.Unhealthy, xid79)
	if left := s.sender.settling.left(); left != s.sender.timing.Quiet {
		t.Errorf("%s left to wait after another change, want %s", left, s.sender.timing.Quiet)
	}
	for range 100 {
		s.clock.Step(s.sender.timing.Quiet / 2)
		s.report("train-0", key, device.Unhealthy, fmt.Sprintf("%s, %s", xid79, s.clock.Now()))
	}
	if left := s.sender.settling.left(); left > 0 {
		t.Errorf("%s left to wait after the limit", left)
	}
	observed(t, s.send(), key, true)
}

// Once it is quiet, a fault isn't held back any more, however soon after the start
// it comes.
func TestAFaultSoonAfterTheStartIsNotHeldBack(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newScene(t)
	s.sender.settling.begin()
	s.clock.Step(s.sender.timing.Quiet)
	s.report("train-0", key, device.Unhealthy, xid79)
	if left := s.sender.settling.left(); left > 0 {
		t.Errorf("%s left to wait, want none", left)
	}
}

// A starter that takes over sends the present level of each device once: one signal
// for each that is bad, none for the others.
func TestTakingOverCostsOneSignalForEachOpenCase(t *testing.T) {
	s := newStandby(t)
	bad, recovered, silent := gpu("anvil-07", "gpu-0"), gpu("anvil-07", "gpu-1"), gpu("anvil-07", "gpu-2")
	for range 50 {
		s.report("train-0", bad, device.Healthy, "")
		s.report("train-0", bad, device.Unhealthy, xid79)
	}
	s.report("train-1", recovered, device.Unhealthy, xid79)
	s.pass(2 * time.Minute)
	s.report("train-1", recovered, device.Healthy, "")
	s.report("train-2", silent, device.Healthy, "")
	s.pass(2 * time.Minute)
	none(t, s.send(), "standing by")
	s.tracker.listed()
	s.lead()
	observed(t, s.send(), bad, true)
	none(t, s.send(), "afterwards")
}

// What the leader has told long ago, a standby doesn't tell again when it takes over;
// what the leader may have died with, it does.
func TestAStandbyRemembersOnlyWhatTheLeaderMayNotHaveTold(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	for name, tc := range map[string]struct {
		passed time.Duration
		want   int
	}{
		"the Pod ended just now": {time.Second, 1}, "the Pod ended long ago": {time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandby(t)
			s.pass(time.Hour)
			p := s.report("train-0", key, device.Unhealthy, xid79)
			s.tracker.podGone(p.Ref)
			s.pass(tc.passed)
			s.lead()
			if calls := s.send(); len(calls) != tc.want {
				t.Errorf("%d signals, want %d: %+v", len(calls), tc.want, calls)
			}
		})
	}
}

func TestLosingTheLeadStopsTheSendingAndNotTheWatching(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newScene(t)
	s.report("train-0", key, device.Unhealthy, xid79)
	observed(t, s.send(), key, true)
	s.tracker.detach()
	s.report("train-0", key, device.Healthy, "")
	s.report("train-1", gpu("anvil-07", "gpu-4"), device.Unhealthy, xid79)
	none(t, s.send(), "not leading")
	s.lead()
	calls := s.send()
	if len(calls) != 2 {
		t.Fatalf("%d signals after leading again, want 2: %+v", len(calls), calls)
	}
	// The fault goes before the improvement.
	observedIn(t, calls[0], gpu("anvil-07", "gpu-4"), true)
	observedIn(t, calls[1], key, false)
}

// marked delivers a mark of ours.
func (s *scene) marked(key device.Key, epoch int64, intact bool) {
	s.tracker.markSeen(key, mark{
		rule: "sickbay-" + key.Device, node: key.Pool, intact: intact,
		found: quarantine.MarkFound{
			Name: "sickbay-" + key.Device, Epoch: epoch, Severity: reason.SeverityFatal, Reason: "XidFallenOffBus",
			Hardware: device.Incarnation{UUID: "GPU-old"},
		},
	})
}

// Q4: with an empty Temporal every mark gets its case back, and with its own epoch,
// before anything else is said of the device.
func TestMarksWithoutACaseGetTheirsBack(t *testing.T) {
	key, lone := gpu("anvil-07", "gpu-3"), gpu("anvil-07", "gpu-4")
	s := newStandby(t)
	s.marked(key, 1700, true)
	s.marked(lone, 1800, true)
	s.report("train-0", key, device.Unhealthy, xid79)
	s.tracker.listed()
	s.lead()
	calls := s.send()
	if len(calls) != 2 {
		t.Fatalf("%d signals, want the mark and the readings: %+v", len(calls), calls)
	}
	if m, ok := calls[0].event.(quarantine.MarkSeen); !ok || !calls[0].open || !m.Present || !m.Intact || m.Mark.Epoch != 1700 {
		t.Errorf("first signal %+v, want the mark", calls[0])
	}
	observedIn(t, calls[1], key, true)

	s.sender.recheckAll(t.Context())
	if m := only[quarantine.MarkSeen](t, s.send(), lone, true); m.Mark.Epoch != 1800 || m.Node != "anvil-07" {
		t.Errorf("adopted as %+v", m)
	}
	s.sender.recheckAll(t.Context())
	none(t, s.send(), "both have their case")

	s.cases.end(key)
	s.cases.end(lone)
	s.sender.recheckAll(t.Context())
	if calls := s.send(); len(calls) != 3 {
		t.Errorf("%d signals after Temporal lost everything, want two marks and one device's readings: %+v", len(calls), calls)
	}
}

// A device that came back while nobody watched is told to its case, once.
func TestAMarkedDeviceThatIsListedIsToldOnceAfterARestart(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newStandby(t)
	s.cases.running[key] = true
	s.marked(key, 1700, true)
	s.slice("anvil-07", 1, listed("gpu-3", "GPU-old"))
	s.tracker.listed()
	s.lead()
	s.pass(2 * time.Second)
	e := only[quarantine.Inventory](t, s.send(), key, false)
	if !e.Present || e.Now.UUID != "GPU-old" || e.MovedTo != "" {
		t.Errorf("told as %+v", e)
	}
	s.slice("anvil-07", 2, listed("gpu-3", "GPU-old"))
	s.pass(2 * time.Second)
	none(t, s.send(), "afterwards")
}

// A bad device without a mark (observing, or nothing to mark with) gets its case back
// as well.
func TestABadDeviceWithoutAMarkGetsItsCaseBack(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newScene(t)
	p := s.report("train-0", key, device.Unhealthy, xid79)
	observed(t, s.send(), key, true)
	s.cases.end(key)
	s.sender.recheckAll(t.Context())
	observed(t, s.send(), key, true)
	// Once its Pod is gone nothing says that it is bad still.
	s.tracker.podGone(p.Ref)
	s.send()
	s.cases.end(key)
	s.sender.recheckAll(t.Context())
	none(t, s.send(), "only history is left")
}

// Q5: a mark that somebody deletes or changes is told to its case, which puts it back.
func TestAMarkDeletedOrChangedByHandIsToldToItsCase(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newScene(t)
	s.report("train-0", key, device.Unhealthy, xid79)
	observed(t, s.send(), key, true)
	s.marked(key, 1700, true)
	none(t, s.send(), "its own case's mark")
	s.marked(key, 1700, false)
	if m := only[quarantine.MarkSeen](t, s.send(), key, false); !m.Present || m.Intact || m.Mark.Epoch != 1700 {
		t.Errorf("changed, told as %+v", m)
	}
	s.marked(key, 1700, true)
	s.tracker.markGone("sickbay-gpu-3")
	if m := only[quarantine.MarkSeen](t, s.send(), key, false); m.Present || m.Mark.Epoch != 1700 || m.Mark.Name != "sickbay-gpu-3" {
		t.Errorf("deleted, told as %+v", m)
	}
	// Deleted while the rules weren't watched.
	s.marked(key, 1701, true)
	s.tracker.marksListed(map[string]struct{}{})
	if m := only[quarantine.MarkSeen](t, s.send(), key, false); m.Present || m.Mark.Epoch != 1701 {
		t.Errorf("deleted unseen, told as %+v", m)
	}
	// Deleted by its own case on the way out.
	s.marked(key, 1702, true)
	s.cases.end(key)
	s.tracker.podGone(device.PodRef{Namespace: "team-kestrel", Name: "train-0", UID: "uid-train-0"})
	s.tracker.markGone("sickbay-gpu-3")
	none(t, s.send(), "lifted and closed")
	if left := len(s.tracker.devices); left != 0 {
		t.Errorf("%d devices are still remembered", left)
	}
}

// A rule of somebody else that selects devices across pools is counted and said.
// Case 33, row t=0.
func TestForeignRulesThatSelectEverythingAreCounted(t *testing.T) {
	s := newScene(t)
	s.tracker.foreignRule("do-not-apply-empty-selector", "every device of the cluster", true)
	s.tracker.foreignRule("too-wide-device-only", "device gpu-3 of every pool", true)
	s.tracker.foreignRule("one-device", "one pool or device", false)
	if n := s.tracker.wideRules(); n != 2 {
		t.Errorf("%d wide rules, want 2", n)
	}
	s.tracker.foreignRule("too-wide-device-only", "one pool or device", false)
	s.tracker.markGone("do-not-apply-empty-selector")
	if n := s.tracker.wideRules(); n != 0 {
		t.Errorf("%d wide rules after they were narrowed and deleted", n)
	}
	none(t, s.send(), "rules of others")
}

// Temporal away loses nothing: what is sent later is the level at that time, and no
// fault in between is forgotten.
func TestWhatTemporalDoesNotAcceptIsSentLater(t *testing.T) {
	key, other := gpu("anvil-07", "gpu-3"), gpu("anvil-07", "gpu-4")
	for name, fail := range map[string]struct {
		err   error
		after time.Duration
	}{
		"away":    {errAway, 5 * time.Second},
		"refused": {errRefused, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.cases.failWith(fail.err)
			s.report("train-0", key, device.Unhealthy, xid79)
			p := s.report("train-1", other, device.Unhealthy, xid79)
			none(t, s.send(), name)
			s.report("train-0", key, device.Healthy, "")
			none(t, s.send(), "still "+name)
			s.tracker.podGone(p.Ref)
			none(t, s.send(), "still "+name)
			s.cases.failWith(nil)
			calls := s.sendWithin(fail.after, 2)
			for _, c := range calls {
				e := observedIn(t, c, c.key, true)
				if e.Readings[0].Health != device.Unhealthy {
					t.Errorf("the fault of %s was lost: %+v", c.key, e.Readings)
				}
				if c.key == key && e.Readings[1].Health != device.Healthy {
					t.Errorf("the level of %s isn't the present one: %+v", key, e.Readings)
				}
			}
		})
	}
}

// sendWithin steps the clock until so many signals were received, for at most so long.
func (s *scene) sendWithin(limit time.Duration, want int) []call {
	s.t.Helper()
	var calls []call
	deadline := s.clock.Now().Add(limit)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for len(calls) < want {
		select {
		case <-s.t.Context().Done():
			s.t.Fatal("the test ended while signals were waited for")
		case <-tick.C:
		}
		// The queue's own goroutine puts what was delayed back; give it its timers.
		if s.clock.HasWaiters() && s.clock.Now().Before(deadline) {
			s.clock.Step(limit / 50)
		}
		calls = append(calls, s.send()...)
	}
	return calls
}

func TestFaultsOvertakeWhatIsLessUrgent(t *testing.T) {
	s := newScene(t)
	for i := range 100 {
		key := gpu(fmt.Sprintf("node-%d", i), "gpu-0")
		s.report(fmt.Sprintf("a-%d", i), key, device.Healthy, "")
		s.report(fmt.Sprintf("a-%d", i), key, device.Unknown, "")
	}
	late := gpu("node-50", "gpu-0")
	s.report("a-50", late, device.Unhealthy, xid79)
	calls := s.send()
	if len(calls) != 100 || calls[0].key != late {
		t.Fatalf("%d signals, the first of %s; want 100, the fault of %s first", len(calls), calls[0].key, late)
	}
	if calls[1].key != gpu("node-0", "gpu-0") {
		t.Errorf("the second is of %s, want the one that waited longest", calls[1].key)
	}
}

func TestOptionsNameEverythingThatIsWrong(t *testing.T) {
	_, err := New(Options{
		Workers: -1, Drivers: map[string]DriverPolicy{driver: {Unknown: "panic"}}, Timing: Timing{Lease: time.Second, Renew: 2 * time.Second},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) || len(joined.Unwrap()) < 10 {
		t.Errorf("not everything is named: %v", err)
	}
}
