package quarantine_test

import (
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

const (
	sec    = time.Second
	minute = time.Minute
	hour   = time.Hour
)

var (
	suspectedUnknown = want{
		phase: quarantine.PhaseSuspect, severity: reason.SeverityMinor, reason: reason.HealthUnknown,
	}
	healthBack = want{
		phase: quarantine.PhaseClosed, end: quarantine.EndHealthBack, severity: reason.SeverityMinor,
		reason: reason.HealthUnknown, notices: "CaseClosed",
	}
)

func (w want) but(change func(*want)) want { change(&w); return w }

// Q1, U1: what opens a case, and as what.
func TestWhatOpensACase(t *testing.T) {
	check(t, map[string]row{
		"a fault that quarantines at once is marked at once": {
			steps: []step{{0, observed(MakeReading("train-0").Unhealthy(fatalFault))}},
			want: want{
				phase: quarantine.PhaseQuarantined, waiting: quarantine.WaitingForMark, mark: quarantine.MarkWanted,
				severity: reason.SeverityFatal, reason: "XidFallenOffBus", owes: "PutMark", notices: "CaseOpened",
			},
		},
		"a fault without a message is believed": {
			device: plugged,
			steps:  []step{{0, observed(MakeReading("train-0").Unhealthy(""))}},
			want: want{
				phase: quarantine.PhaseQuarantined, waiting: quarantine.WaitingForMark, mark: quarantine.MarkWanted,
				severity: reason.SeverityMajor, reason: reason.UnhealthyWithoutMessage, owes: "PutMark", notices: "CaseOpened",
			},
		},
		"a fault that only raises suspicion waits out the grace window": {
			steps: []step{{0, observed(MakeReading("train-0").Unhealthy(suspectFault))}},
			want: want{
				phase: quarantine.PhaseSuspect, severity: reason.SeverityMajor, reason: reason.XidUnrecognized, notices: "CaseOpened",
			},
		},
		"an application's error opens nothing": {
			steps: []step{{0, observed(MakeReading("train-0").Unhealthy(appError))}},
			want:  want{},
		},
		"Unknown after a known health is suspected": {
			steps: []step{{0, lost(MakeReading("train-0").Unknown())}},
			want:  suspectedUnknown.but(func(w *want) { w.notices = "CaseOpened" }),
		},
		"Unknown that was never anything else opens nothing": {
			steps: []step{{0, observed(MakeReading("train-0").Unknown())}},
			want:  want{},
		},
		"Healthy opens nothing": {
			steps: []step{{0, observed(MakeReading("train-0").Healthy())}},
			want:  want{},
		},
		"a fault after the application's error is the device's": {
			steps: []step{
				{0, observed(MakeReading("train-0").Unhealthy(appError).Version("1"))},
				{sec, observed(MakeReading("train-0").Unhealthy(fatalFault).Version("2"))},
			},
			want: want{
				phase: quarantine.PhaseQuarantined, waiting: quarantine.WaitingForMark, mark: quarantine.MarkWanted,
				severity: reason.SeverityFatal, reason: "XidFallenOffBus", owes: "PutMark", notices: "CaseOpened",
			},
		},
		"Unknown after an application's error is a loss": {
			steps: []step{
				{0, observed(MakeReading("train-0").Unhealthy(appError).Version("1"))},
				{sec, lost(MakeReading("train-0").Unknown().Version("2").SeenAt(sec))},
			},
			want: suspectedUnknown.but(func(w *want) { w.notices = "CaseOpened" }),
		},
		"of several readings the gravest opens": {
			steps: []step{{0, observed(MakeReading("a").Unhealthy(suspectFault), MakeReading("b").Unhealthy(fatalFault), MakeReading("c").Unhealthy(majorFault))}},
			want: want{
				phase: quarantine.PhaseQuarantined, waiting: quarantine.WaitingForMark, mark: quarantine.MarkWanted,
				severity: reason.SeverityFatal, reason: "XidFallenOffBus", owes: "PutMark", notices: "CaseOpened",
			},
		},
		"the last word of a Pod that died with its device faulty": {
			steps: []step{{0, observed(MakeReading("train-0").Unhealthy(fatalFault).Ended())}},
			want: want{
				phase: quarantine.PhaseQuarantined, waiting: quarantine.WaitingForMark, mark: quarantine.MarkWanted,
				severity: reason.SeverityFatal, reason: "XidFallenOffBus", owes: "PutMark", notices: "CaseOpened",
			},
		},
		"a live Pod's Healthy outweighs what a dead one said before there was a case": {
			steps: []step{{0, observed(MakeReading("serve-1").Healthy(), MakeReading("train-0").Unhealthy(fatalFault).Ended())}},
			want:  want{},
		},
		"the fault that a dead Pod told of is back when the last live one goes": {
			steps: []step{
				{0, observed(MakeReading("serve-1").Healthy(), MakeReading("train-0").Unhealthy(fatalFault).Ended())},
				{sec, observed(MakeReading("serve-1").Healthy().Version("2").Ended())},
			},
			want: want{
				phase: quarantine.PhaseQuarantined, waiting: quarantine.WaitingForMark, mark: quarantine.MarkWanted,
				severity: reason.SeverityMajor, reason: reason.UnrecognizedMessage, owes: "PutMark", notices: "CaseOpened",
			},
		},
		"a device missing from a complete pool is suspected": {
			steps: []step{{0, missing(device.MissingFromPool)}},
			want: want{
				phase: quarantine.PhaseSuspect, severity: reason.SeverityMajor, reason: reason.DeviceMissing, notices: "CaseOpened",
			},
		},
		"a pool that went as a whole says nothing of a device": {
			steps: []step{{0, missing(device.PoolGone)}},
			want:  want{},
		},
		"a deleted node says nothing of a device": {
			steps: []step{{0, missing(device.NodeDeleted)}},
			want:  want{},
		},
		"in mode observe a fault is a case and no mark": {
			policy: observe,
			steps:  []step{{0, observed(MakeReading("train-0").Unhealthy(fatalFault))}},
			want: want{
				phase: quarantine.PhaseQuarantined, waiting: quarantine.WaitingForHealth, mark: quarantine.MarkObserved,
				severity: reason.SeverityFatal, reason: "XidFallenOffBus", owes: "Look AskPermit", notices: "CaseOpened",
			},
		},
	})
}

// U1, U2, U3: a suspect inside its grace window, at its end, and when its health is
// back.
func TestASuspectWaitsOutItsWindow(t *testing.T) {
	unknown := step{0, lost(MakeReading("train-0").Unknown())}
	good := func(at time.Duration) step {
		return step{at, MakeLooked().Reading(MakeReading("train-0").Healthy().Version("2")).Answer()}
	}
	check(t, map[string]row{
		"a live look is owed after ten seconds": {
			steps: []step{unknown, {10 * sec, woke()}},
			want:  suspectedUnknown.but(func(w *want) { w.owes = "Look" }),
		},
		"Unknown once more changes nothing": {
			steps: []step{unknown, {sec, lost(MakeReading("train-0").Unknown())}},
			want:  suspectedUnknown,
		},
		"Unknown of a device that nobody holds any more waits for evidence": {
			steps: []step{
				unknown,
				{10 * sec, MakeLooked().Ended("train-0").Answer()},
				{5 * minute, MakeLooked().Answer()},
			},
			want: suspectedUnknown.but(func(w *want) { w.waiting, w.notices = quarantine.WaitingForEvidence, "GraceOver" }),
		},
		"a first good look only takes the node's Lease down": {
			steps: []step{unknown, good(10 * sec), {2*minute + 10*sec - 1, woke()}},
			want:  suspectedUnknown.but(func(w *want) { w.owes = "Look" }),
		},
		"health back for two minutes on live looks ends the case": {
			steps: []step{unknown, good(10 * sec), good(30 * sec), good(2*minute + 30*sec)},
			want:  healthBack,
		},
		"health back a moment less is not enough": {
			steps: []step{unknown, good(10 * sec), good(30 * sec), good(2*minute + 30*sec - 1)},
			want:  suspectedUnknown,
		},
		"health back after the window ends the case all the same": {
			steps: []step{unknown, good(10 * minute), good(11 * minute), good(13 * minute)},
			want:  healthBack,
		},
		"a look at which the Lease stood still starts the two minutes anew": {
			steps: []step{
				unknown, good(10 * sec), good(30 * sec),
				{2 * minute, MakeLooked().Lease(start.Add(30 * sec).Format(time.RFC3339Nano)).Reading(MakeReading("train-0").Healthy().Version("2")).Answer()},
				good(2*minute + 30*sec),
			},
			want: suspectedUnknown.but(func(w *want) { w.notices = "NodeBack" }),
		},
		"Healthy from a node that isn't ready is no evidence": {
			steps: []step{
				unknown, good(10 * sec), good(30 * sec),
				{2*minute + 30*sec, MakeLooked().NotReady().Reading(MakeReading("train-0").Healthy().Version("2")).Answer()},
			},
			want: suspectedUnknown.but(func(w *want) { w.waiting, w.notices = quarantine.WaitingForNode, "NodeOut" }),
		},
		"Unknown in between starts the two minutes anew": {
			steps: []step{
				unknown, good(10 * sec), good(30 * sec),
				{minute, lost(MakeReading("train-0").Unknown().Version("3"))},
				good(2*minute + 30*sec), good(2*minute + 40*sec),
			},
			want: suspectedUnknown,
		},
		"Healthy from the watch alone is doubted and asks for a look": {
			steps: []step{unknown, {sec, observed(MakeReading("train-0").Healthy().Version("2"))}, {2 * sec, woke()}},
			want:  suspectedUnknown.but(func(w *want) { w.owes = "Look" }),
		},
		"one holder's Healthy does not outweigh another's Unknown": {
			steps: []step{
				unknown,
				{10 * sec, MakeLooked().Reading(MakeReading("a").Healthy()).Reading(MakeReading("train-0").Unknown()).Answer()},
				{30 * sec, MakeLooked().Reading(MakeReading("a").Healthy()).Reading(MakeReading("train-0").Unknown()).Answer()},
				{149 * sec, MakeLooked().Reading(MakeReading("a").Healthy()).Reading(MakeReading("train-0").Unknown()).Answer()},
			},
			want: suspectedUnknown,
		},
		"an application's error is as good as Healthy for a suspect": {
			steps: []step{
				unknown,
				{10 * sec, MakeLooked().Reading(MakeReading("train-0").Unhealthy(appError).Version("2")).Answer()},
				{30 * sec, MakeLooked().Reading(MakeReading("train-0").Unhealthy(appError).Version("2")).Answer()},
				{150 * sec, MakeLooked().Reading(MakeReading("train-0").Unhealthy(appError).Version("2")).Answer()},
			},
			want: healthBack,
		},
		"a confirmed fault inside the window quarantines in the same case": {
			steps: []step{unknown, {minute, observed(MakeReading("train-0").Unhealthy(fatalFault).Version("2"))}},
			want: want{
				phase: quarantine.PhaseQuarantined, waiting: quarantine.WaitingForMark, mark: quarantine.MarkWanted,
				severity: reason.SeverityFatal, reason: "XidFallenOffBus", owes: "PutMark Look", notices: "SeverityRaised PhaseChanged",
			},
		},
		"a suspicious fault that lasts past the window quarantines": {
			steps: []step{
				{0, observed(MakeReading("train-0").Unhealthy(suspectFault))},
				{5*minute - 1, MakeLooked().Reading(MakeReading("train-0").Unhealthy(suspectFault)).Answer()},
				{5 * minute, woke()},
			},
			want: want{
				phase: quarantine.PhaseQuarantined, waiting: quarantine.WaitingForMark, mark: quarantine.MarkWanted,
				severity: reason.SeverityMajor, reason: reason.XidUnrecognized, owes: "PutMark", notices: "PhaseChanged",
			},
		},
		"a suspicious fault a moment before the end of the window does not": {
			steps: []step{
				{0, observed(MakeReading("train-0").Unhealthy(suspectFault))},
				{5*minute - 1, MakeLooked().Reading(MakeReading("train-0").Unhealthy(suspectFault)).Answer()},
			},
			want: want{phase: quarantine.PhaseSuspect, severity: reason.SeverityMajor, reason: reason.XidUnrecognized},
		},
		"reasons that take turns do not start the window anew": {
			steps: []step{
				{0, observed(MakeReading("train-0").Unhealthy(suspectFault))},
				{minute, observed(MakeReading("train-0").Unhealthy("critical XID 9998 reported by NVML").Version("2").SeenAt(minute))},
				{4 * minute, observed(MakeReading("train-0").Unhealthy(suspectFault).Version("3").SeenAt(4 * minute))},
				{5 * minute, woke()},
			},
			want: want{
				phase: quarantine.PhaseQuarantined, waiting: quarantine.WaitingForMark, mark: quarantine.MarkWanted,
				severity: reason.SeverityMajor, reason: reason.XidUnrecognized, owes: "PutMark Look", notices: "PhaseChanged",
			},
		},
		"a missing device that turns up with a suspicious fault gets its window": {
			steps: []step{
				{0, missing(device.MissingFromPool)},
				{30 * sec, listed(oldCard)},
			},
			want: want{
				phase: quarantine.PhaseClosed, end: quarantine.EndHealthBack, severity: reason.SeverityMajor,
				reason: reason.DeviceMissing, notices: "CaseClosed",
			},
		},
		"a missing device of which something suspicious is said gets the whole window": {
			steps: []step{
				{0, missing(device.MissingFromPool)},
				{30 * sec, observed(MakeReading("train-0").Unhealthy(suspectFault).SeenAt(30 * sec))},
			},
			want: want{phase: quarantine.PhaseSuspect, severity: reason.SeverityMajor, reason: reason.XidUnrecognized, owes: "Look"},
		},
	})
}

// U1: the window runs from the moment at which the readings that opened the case
// were first seen, and no earlier episode dates it back.
func TestAnEarlierEpisodeDoesNotDateTheWindowBack(t *testing.T) {
	l := live(t, gpu, enforce())
	l.run([]step{
		{0, lost(MakeReading("old").Unknown())},
		{10 * sec, MakeLooked().Ended("old").Reading(MakeReading("new").Healthy()).Answer()},
		{30 * sec, MakeLooked().Reading(MakeReading("new").Healthy()).Answer()},
		{3 * minute, MakeLooked().Reading(MakeReading("new").Healthy()).Answer()},
	})
	if l.c.End != quarantine.EndHealthBack {
		t.Fatalf("the first case is %s %s, want it closed", l.c.Phase, l.c.End)
	}
	first := l.c.Epoch
	l.run([]step{{hour, lost(MakeReading("new").Unknown().Version("2").SeenAt(hour))}})
	switch {
	case l.c.Phase != quarantine.PhaseSuspect || l.c.Epoch <= first:
		t.Fatalf("the second case is %s with epoch %d after %d", l.c.Phase, l.c.Epoch, first)
	case !l.c.FirstNotGood.Equal(start.Add(hour)):
		t.Errorf("first not good at %s, want %s", l.c.FirstNotGood, start.Add(hour))
	case !l.c.GraceUntil.Equal(start.Add(hour + 5*minute)):
		t.Errorf("grace until %s, want %s", l.c.GraceUntil, start.Add(hour+5*minute))
	}
}

// U1: live looks at a suspect come after 10, 20, 40, 80 and then 120 seconds, give or
// take a fifth, so that devices that went Unknown together aren't looked at together.
func TestLooksAtASuspectBackOff(t *testing.T) {
	first := map[time.Duration]bool{}
	for i := range 8 {
		key := gpu
		key.Device = "gpu-" + itoa(i)
		first[looksBackOff(t, key)] = true
	}
	if len(first) < 6 {
		t.Errorf("eight devices are looked at after %d different pauses, want at least 6", len(first))
	}
}

func looksBackOff(t *testing.T, key device.Key) time.Duration {
	t.Helper()
	l := live(t, key, enforce())
	l.run([]step{{0, lost(MakeReading("train-0").Unknown())}})
	var pauses []time.Duration
	for range 5 {
		before := l.now
		l.reach(l.c.LookAt.Sub(start))
		pauses = append(pauses, l.now.Sub(before))
		if l.owes() != "Look" {
			t.Fatalf("at %s %q is owed", l.now, l.owes())
		}
		l.tell(MakeLooked().Reading(MakeReading("train-0").Unknown()).Answer())
	}
	want := []time.Duration{10 * sec, 10 * sec, 20 * sec, 40 * sec, 80 * sec}
	for i := range want {
		if off := pauses[i] - want[i]; off.Abs() > want[i]/5+time.Nanosecond {
			t.Fatalf("pauses are %s, want %s give or take a fifth", pauses, want)
		}
	}
	return pauses[0]
}

// R7, U3: health that comes back after a long Unknown ends the case soon, whatever
// the pace of looks had become, and with looks that follow each other faster than
// the node renews its Lease.
func TestHealthThatIsBackAfterLongEndsTheCaseSoon(t *testing.T) {
	for name, hysteresis := range map[string]time.Duration{"the default": 2 * minute, "shorter than the pause between two renewals": 3 * sec} {
		t.Run(name, func(t *testing.T) {
			p := enforce()
			p.Hysteresis = hysteresis
			l := live(t, gpu, p)
			lease := func() string { return l.now.Truncate(10 * sec).Format(time.RFC3339) }
			l.run([]step{{0, lost(MakeReading("train-0").Unknown())}})
			unknown := func() *LookedBuilder { return MakeLooked().Lease(lease()).Reading(MakeReading("train-0").Unknown()) }
			l.follow(6*hour, unknown)
			l.tell(granted())
			l.follow(6*hour, unknown)
			if l.c.Phase != quarantine.PhaseRestricted || l.c.Waiting != quarantine.WaitingForHealth {
				t.Fatalf("after six hours it is %s, waiting for %s", l.c.Phase, l.c.Waiting)
			}
			back := l.now
			l.tell(observed(MakeReading("train-0").Healthy().Version("2")))
			looks := 0
			l.follow(12*hour, func() *LookedBuilder {
				looks++
				return MakeLooked().Lease(lease()).Reading(MakeReading("train-0").Healthy().Version("2"))
			})
			if took := l.now.Sub(back); l.c.Mark.State != quarantine.MarkLifting || took > hysteresis+minute || looks > 6 {
				t.Errorf("after %s and %d looks it is %s %s; want its mark on the way out within a minute of the window, and few looks", took, looks, l.c.Phase, l.c.Mark.State)
			}
		})
	}
}

// A node that stops in the window that its health has to stay good is found out
// by its Lease, however good its Pods look.
func TestANodeThatDiesInTheWindowEndsNoCase(t *testing.T) {
	l := live(t, gpu, enforce())
	good := MakeReading("train-0").Healthy().Version("2")
	l.run([]step{
		{0, lost(MakeReading("train-0").Unknown())},
		{10 * sec, MakeLooked().Lease("1").Reading(good).Answer()},
		{30 * sec, MakeLooked().Lease("2").Reading(good).Answer()},
	})
	if l.c.GoodSince.IsZero() {
		t.Fatal("the second look finds the Lease moved, and yet the window hasn't begun")
	}
	for range 20 {
		l.reach(l.c.LookAt.Sub(start))
		l.tell(MakeLooked().Lease("2").Reading(good).Answer())
		if !l.c.Open() {
			t.Fatalf("%s after the Lease stopped the case is closed: %s", l.now.Sub(start), l.c.End)
		}
	}
	if !l.c.GoodSince.IsZero() {
		t.Error("the window runs on a dead node")
	}
}
