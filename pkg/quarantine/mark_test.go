package quarantine_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

var fatal = want{
	phase: quarantine.PhaseQuarantined, severity: reason.SeverityFatal, reason: "XidFallenOffBus",
}

// standing is a fatal fault whose mark is in that state, waiting for that.
func standing(mark quarantine.MarkState, waiting quarantine.Waiting, owes, notices string) want {
	w := fatal
	w.mark, w.waiting, w.owes, w.notices = mark, waiting, owes, notices
	return w
}

// marked are the steps to a device whose mark is in force and that train-0 holds.
func marked(more ...step) []step {
	return append([]step{
		{0, observed(MakeReading("train-0").Unhealthy(fatalFault))},
		{50 * time.Millisecond, inForce()},
		{2100 * time.Millisecond, MakeLooked().Reading(MakeReading("train-0").Unhealthy(fatalFault)).Answer()},
	}, more...)
}

// unheld are the steps to a device whose mark is in force and that nobody holds.
func unheld(more ...step) []step {
	return append([]step{
		{0, observed(MakeReading("train-0").Unhealthy(fatalFault))},
		{50 * time.Millisecond, inForce()},
		{2100 * time.Millisecond, MakeLooked().Ended("train-0").Answer()},
	}, more...)
}

// Q1, Q5: what becomes of a mark that was asked for.
func TestWhatBecomesOfAMark(t *testing.T) {
	fault := step{0, observed(MakeReading("train-0").Unhealthy(fatalFault))}
	later := func(c quarantine.Case) *quarantine.MarkFound {
		m := oldMark()
		m.Epoch = c.Epoch + 1000
		return &m
	}
	check(t, map[string]row{
		"in force: claims are listed once more, for one may have slipped through": {
			steps: []step{fault, {sec, inForce()}, {3 * sec, woke()}},
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "Look", ""),
		},
		"in force: not before every scheduler has seen the mark": {
			steps: []step{fault, {sec, inForce()}, {3*sec - 1, woke()}},
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "", ""),
		},
		"a look asked for before the mark was in force does not count as that": {
			policy: func(p *quarantine.Policy) { p.Lease = 2 * sec },
			steps: []step{
				fault, {sec, inForce()}, {sec, MakeLooked().Reading(MakeReading("train-0").Unhealthy(fatalFault)).Answer()},
				// The lease ends, a look is owed, and a rewrite of the mark overtakes it.
				{2 * sec, woke()}, {3 * sec, inForce()},
				{4 * sec, MakeLooked().Asked(2 * sec).Reading(MakeReading("train-0").Unhealthy(fatalFault)).Answer()},
				{5 * sec, woke()},
			},
			want: standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "PutMark Look", ""),
		},
		"refused: waits, and is tried again": {
			steps: []step{fault, {sec, reported(quarantine.OutcomeRefused, "forbidden")}},
			want:  standing(quarantine.MarkRefused, quarantine.WaitingForMark, "", "MarkRefused"),
		},
		"refused for the same cause once more: no second alert": {
			steps: []step{fault, {sec, reported(quarantine.OutcomeRefused, "forbidden")}, {12 * sec, reported(quarantine.OutcomeRefused, "forbidden")}},
			want:  standing(quarantine.MarkRefused, quarantine.WaitingForMark, "", ""),
		},
		"refused for another cause: a second alert": {
			steps: []step{fault, {sec, reported(quarantine.OutcomeRefused, "forbidden")}, {12 * sec, reported(quarantine.OutcomeRefused, "webhook says no")}},
			want:  standing(quarantine.MarkRefused, quarantine.WaitingForMark, "", "MarkRefused"),
		},
		"after ten seconds it is tried again": {
			steps: []step{fault, {sec, reported(quarantine.OutcomeRefused, "forbidden")}, {11 * sec, woke()}},
			want:  standing(quarantine.MarkWanted, quarantine.WaitingForMark, "PutMark", ""),
		},
		"a foreign object of that name is left alone, and tried again": {
			steps: []step{fault, {sec, reported(quarantine.OutcomeForeign, "DeviceTaintRule sickbay-gpu-3 isn't Sickbay's")}},
			want:  standing(quarantine.MarkRefused, quarantine.WaitingForMark, "", "MarkRefused"),
		},
		"an outcome that nobody knows counts as refused": {
			steps: []step{fault, {sec, reported("Exploded", "")}},
			want:  standing(quarantine.MarkRefused, quarantine.WaitingForMark, "", "MarkRefused"),
		},
		"no API to mark with: advisory, declared": {
			steps: []step{fault, {sec, reported(quarantine.OutcomeUnavailable, "no DeviceTaintRule")}},
			want:  standing(quarantine.MarkAdvisory, quarantine.WaitingForHealth, "Look", "AdvisoryOnly"),
		},
		"a later epoch's mark: this case's epoch rises above it": {
			steps: []step{fault, {sec, func(c quarantine.Case, now time.Time) quarantine.Event {
				return quarantine.MarkReported{Outcome: quarantine.OutcomeSuperseded, Epoch: c.Epoch, Revision: 1, Before: later(c)}
			}}},
			want: standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "PutMark Look", ""),
		},
		"superseded by nothing counts as refused": {
			steps: []step{fault, {sec, reported(quarantine.OutcomeSuperseded, "a later epoch's")}},
			want:  standing(quarantine.MarkRefused, quarantine.WaitingForMark, "", "MarkRefused"),
		},
		"an answer to an earlier epoch's command is ignored": {
			steps: []step{fault, {sec, always(quarantine.MarkReported{Outcome: quarantine.OutcomeInForce, Epoch: 1, Revision: 1})}},
			want:  standing(quarantine.MarkWanted, quarantine.WaitingForMark, "PutMark", ""),
		},
		"an older epoch's mark that was taken over carries its severity on": {
			steps: []step{
				{0, observed(MakeReading("train-0").Unhealthy(majorFault))},
				{sec, func(c quarantine.Case, _ time.Time) quarantine.Event {
					m := oldMark()
					return quarantine.MarkReported{Outcome: quarantine.OutcomeInForce, Epoch: c.Epoch, Revision: 1, Name: m.Name, Before: &m}
				}},
			},
			want: standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "PutMark", "SeverityRaised MarkInForce"),
		},
		"a rewrite that is refused leaves the mark in force": {
			steps: marked(step{hour, MakeLooked().Reading(MakeReading("train-0").Unhealthy(fatalFault)).Answer()},
				step{hour + minute, reported(quarantine.OutcomeRefused, "forbidden")}),
			want: standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "", "MarkRefused"),
		},
		"a rewrite for which the API has gone leaves the mark in force": {
			steps: marked(step{hour, MakeLooked().Reading(MakeReading("train-0").Unhealthy(fatalFault)).Answer()},
				step{hour + minute, reported(quarantine.OutcomeUnavailable, "no DeviceTaintRule")}),
			want: standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "", "MarkRefused"),
		},
		"a refused rewrite is tried again": {
			steps: marked(step{hour, MakeLooked().Reading(MakeReading("train-0").Unhealthy(fatalFault)).Answer()},
				step{hour + minute, reported(quarantine.OutcomeRefused, "forbidden")},
				step{hour + minute + 10*sec, woke()}),
			want: standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "PutMark", ""),
		},
	})
}

// Q1: what a mark says, and until when.
func TestAMarkSaysWhatTheCaseKnows(t *testing.T) {
	l := live(t, gpu, enforce())
	l.run([]step{{0, observed(MakeReading("train-0").Unhealthy(fatalFault))}})
	got := commandOf[quarantine.PutMark](t, l.owed)
	want := quarantine.PutMark{
		Device: gpu, Node: "anvil-07", Epoch: start.UnixMilli(), Revision: 1,
		Reason: catalogue.Match(gpu.Driver, fatalFault), Message: fatalFault, Severity: reason.SeverityFatal,
		Actor: "sickbay", Since: start, Until: start.Add(hour), Hardware: oldCard,
		FirstNotGood: start, Tenants: []string{"team-kestrel"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the mark says\n%+v, want\n%+v", got, want)
	}
}

// Q1: pauses between tries at a refused mark grow to a minute and not further.
func TestARefusedMarkIsTriedAtAGrowingPace(t *testing.T) {
	l := live(t, gpu, enforce())
	l.run([]step{{0, observed(MakeReading("train-0").Unhealthy(fatalFault))}})
	var pauses []time.Duration
	for range 5 {
		l.tell(reported(quarantine.OutcomeRefused, "forbidden"))
		pauses = append(pauses, l.c.Mark.RetryAt.Sub(l.now))
		l.reach(l.c.Mark.RetryAt.Sub(start))
		commandOf[quarantine.PutMark](t, l.owed)
	}
	if got, want := fmt.Sprint(pauses), "[10s 20s 40s 1m0s 1m0s]"; got != want {
		t.Errorf("pauses are %s, want %s", got, want)
	}
}

// Q5: a mark that somebody deleted or changed by hand is put back and reported
// while the case is open; nothing else is.
func TestAMarkThatSomebodyTouchedIsPutBack(t *testing.T) {
	foreign := func(c quarantine.Case, _ time.Time) quarantine.Event {
		return quarantine.MarkSeen{Mark: quarantine.MarkFound{Name: "sickbay-gpu-3", Epoch: c.Epoch - 1}}
	}
	check(t, map[string]row{
		"deleted, as the watch saw": {
			steps: marked(step{minute, markDeleted()}),
			want:  standing(quarantine.MarkWanted, quarantine.WaitingForMark, "PutMark", "MarkRestored"),
		},
		"deleted, as a live look saw": {
			steps: marked(step{minute, MakeLooked().Reading(MakeReading("train-0").Unhealthy(fatalFault)).NoMark()}),
			want:  standing(quarantine.MarkWanted, quarantine.WaitingForMark, "PutMark", "MarkRestored"),
		},
		"a look asked for before the mark was confirmed may have missed it": {
			steps: marked(step{minute, MakeLooked().Asked(10 * time.Millisecond).Reading(MakeReading("train-0").Unhealthy(fatalFault)).NoMark()}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "", ""),
		},
		"changed, as the watch saw": {
			steps: marked(step{minute, markChanged()}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "PutMark", "MarkRestored"),
		},
		"changed, as a live look saw": {
			steps: marked(step{minute, func(c quarantine.Case, now time.Time) quarantine.Event {
				return MakeLooked().Reading(MakeReading("train-0").Unhealthy(fatalFault)).Mark(quarantine.MarkFound{Name: "sickbay-gpu-3", Epoch: c.Epoch}, false).Answer()(c, now)
			}}),
			want: standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "PutMark", "MarkRestored"),
		},
		"what the watch tells of an older object is looked at first": {
			steps: marked(
				step{minute, func(c quarantine.Case, _ time.Time) quarantine.Event {
					return quarantine.MarkReported{Outcome: quarantine.OutcomeInForce, Epoch: c.Epoch, Revision: c.Mark.Revision, Name: c.Mark.Name, Version: "267"}
				}},
				step{minute + sec, MakeLooked().Reading(MakeReading("train-0").Unhealthy(fatalFault)).Answer()},
				step{minute + 2*sec, func(c quarantine.Case, _ time.Time) quarantine.Event {
					return quarantine.MarkSeen{Present: true, Mark: quarantine.MarkFound{Name: c.Mark.Name, Epoch: c.Epoch, Version: "264"}}
				}},
			),
			want: standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "Look", ""),
		},
		"of the object that was written it is believed": {
			steps: marked(
				step{minute, func(c quarantine.Case, _ time.Time) quarantine.Event {
					return quarantine.MarkReported{Outcome: quarantine.OutcomeInForce, Epoch: c.Epoch, Revision: c.Mark.Revision, Name: c.Mark.Name, Version: "267"}
				}},
				step{minute + 2*sec, func(c quarantine.Case, _ time.Time) quarantine.Event {
					return quarantine.MarkSeen{Mark: quarantine.MarkFound{Name: c.Mark.Name, Epoch: c.Epoch, Version: "267"}}
				}},
			),
			want: standing(quarantine.MarkWanted, quarantine.WaitingForMark, "PutMark Look", "MarkRestored"),
		},
		"changed and seen twice is one report": {
			steps: marked(step{minute, markChanged()}, step{minute, markChanged()}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "PutMark", ""),
		},
		"edited to look like an earlier epoch's, as the watch saw": {
			steps: marked(step{minute, func(c quarantine.Case, _ time.Time) quarantine.Event {
				return quarantine.MarkSeen{Present: true, Mark: quarantine.MarkFound{Name: c.Mark.Name, Epoch: 5}}
			}}),
			want: standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "PutMark", "MarkRestored"),
		},
		"edited first and then deleted is looked at": {
			steps: unheld(step{minute, func(c quarantine.Case, _ time.Time) quarantine.Event {
				return quarantine.MarkSeen{Mark: quarantine.MarkFound{Name: c.Mark.Name, Epoch: 5}}
			}}),
			want: standing(quarantine.MarkInForce, quarantine.WaitingForCoolDown, "Look", ""),
		},
		"deleted and put back": {
			steps: marked(step{minute, markDeleted()}, step{minute + sec, inForce()}, step{minute + 3*sec, woke()}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "Look", ""),
		},
		"a mark of an earlier epoch that goes is no loss": {
			steps: marked(step{minute, foreign}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "Look", ""),
		},
		"in mode observe a mark that goes is reported and not put back": {
			steps: marked(step{minute, markDeleted()}),
			policy: func(p *quarantine.Policy) {
				p.Mode = quarantine.ModeObserve
			},
			want: standing(quarantine.MarkObserved, quarantine.WaitingForHealth, "Look AskPermit", "MarkRestored"),
		},
		"in mode observe a mark that was changed stays the case's": {
			steps:  marked(step{minute, markChanged()}),
			policy: observe,
			want:   standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "", "MarkRestored"),
		},
	})
}

// Q4, R7: the end of a lease never frees a device: the case looks again and extends.
func TestTheEndOfALeaseNeverFreesADevice(t *testing.T) {
	bad := MakeLooked().Reading(MakeReading("train-0").Unhealthy(fatalFault)).Answer()
	check(t, map[string]row{
		"a look is owed": {
			steps: unheld(step{hour, woke()}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForRecovery, "Look", ""),
		},
		"still bad: extended, with the reason, and the mark says so": {
			steps: marked(step{hour, bad}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "PutMark", "LeaseExtended"),
		},
		"healthy now: extended all the same, for health is not enough": {
			steps: marked(step{hour, MakeLooked().Reading(MakeReading("train-0").Healthy().Version("2")).Answer()}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "PutMark", "LeaseExtended"),
		},
		"nobody there to ask: extended": {
			steps: unheld(step{hour, MakeLooked().Answer()}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForRecovery, "PutMark", "LeaseExtended"),
		},
		"the API is away: the mark stays and the look is tried again later": {
			steps: unheld(step{hour, lookFailed("connection refused")}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForRecovery, "", ""),
		},
		"the API is away for a day": {
			steps: unheld(step{hour, lookFailed("connection refused")}, step{24 * hour, MakeLooked().Answer()}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForRecovery, "PutMark", "LeaseExtended"),
		},
		"advisory: the API is asked for once more, it may be served by now": {
			steps: []step{
				{0, observed(MakeReading("train-0").Unhealthy(fatalFault))},
				{sec, reported(quarantine.OutcomeUnavailable, "no DeviceTaintRule")},
				{hour, bad},
			},
			want: standing(quarantine.MarkWanted, quarantine.WaitingForMark, "PutMark", "LeaseExtended"),
		},
	})
}

// Q4: looks that fail at the end of a lease come at a growing pause, and other
// events meanwhile don't shorten it.
func TestFailedLooksAreNotRepeatedAtOnce(t *testing.T) {
	l := live(t, gpu, enforce())
	l.run(unheld(step{hour, lookFailed("connection refused")}))
	l.run([]step{{hour + sec, observed(MakeReading("serve-0").Healthy())}})
	if l.owes() != "" {
		t.Errorf("a second after the look failed %q is owed", l.owes())
	}
	l.reach(hour + minute)
	if l.owes() != "Look" {
		t.Errorf("a minute after the look failed %q is owed, want a look", l.owes())
	}
}

// Q6: severity only rises, and of two reasons as severe one stands, whatever the
// order.
func TestAMildEventNeverHidesAGraveOne(t *testing.T) {
	check(t, map[string]row{
		"a mild fault after a fatal one": {
			steps: marked(step{minute, observed(MakeReading("train-0").Unhealthy(majorFault).Version("2"))}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "", ""),
		},
		"an application's error after a fatal fault": {
			steps: marked(step{minute, observed(MakeReading("train-0").Unhealthy(appError).Version("2"))}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "", ""),
		},
		"Healthy after a fatal fault": {
			steps: marked(step{minute, MakeLooked().Reading(MakeReading("train-0").Healthy().Version("2")).Answer()}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "", ""),
		},
		"a fatal fault after a mild one: the mark is written anew": {
			steps: []step{
				{0, observed(MakeReading("train-0").Unhealthy(majorFault))},
				{sec, inForce()},
				{3 * sec, MakeLooked().Reading(MakeReading("train-0").Unhealthy(majorFault)).Answer()},
				{minute, observed(MakeReading("train-0").Unhealthy(fatalFault).Version("2"))},
			},
			want: standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "PutMark", "SeverityRaised"),
		},
		"a fatal fault that a mild one has overtaken on the way": {
			steps: []step{
				{0, observed(MakeReading("train-0").Unhealthy(majorFault))},
				{sec, inForce()},
				{3 * sec, MakeLooked().Reading(MakeReading("train-0").Unhealthy("critical XID 48 reported by NVML").Version("3")).Answer()},
				{minute, observed(MakeReading("train-0").Unhealthy(fatalFault).Version("2").SeenAt(sec))},
			},
			want: standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "PutMark", "SeverityRaised"),
		},
		"Unknown of another holder": {
			steps: marked(step{minute, lost(MakeReading("serve-0").Unknown())}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "", ""),
		},
	})
	equals := []string{majorFault, "critical XID 48 reported by NVML", ""}
	for i := range equals {
		for j := range equals {
			l := live(t, gpu, enforce())
			l.run([]step{
				{0, observed(MakeReading("a").Unhealthy(equals[i]))},
				{0, observed(MakeReading("b").Unhealthy(equals[j]))},
			})
			other := live(t, gpu, enforce())
			other.run([]step{
				{0, observed(MakeReading("b").Unhealthy(equals[j]))},
				{0, observed(MakeReading("a").Unhealthy(equals[i]))},
			})
			if l.c.Reason != other.c.Reason || l.c.Message != other.c.Message {
				t.Errorf("%q then %q is %s, the other way round %s", equals[i], equals[j], l.c.Reason.Rule, other.c.Reason.Rule)
			}
		}
	}
}

// B2, Q5: mode observe makes no mark and removes none; a switch of mode carries
// over into open cases.
func TestModeObserveWritesNothing(t *testing.T) {
	fault := []step{{0, observed(MakeReading("train-0").Unhealthy(fatalFault))}}
	l := live(t, gpu, enforce())
	l.p.Mode = quarantine.ModeObserve
	l.run(fault)
	l.check(standing(quarantine.MarkObserved, quarantine.WaitingForHealth, "Look AskPermit", "CaseOpened"))
	l.p.Mode = quarantine.ModeEnforce
	l.run([]step{{sec, woke()}})
	l.check(standing(quarantine.MarkWanted, quarantine.WaitingForMark, "PutMark Look", ""))
	l.run([]step{{2 * sec, inForce()}, {4 * sec, MakeLooked().Reading(MakeReading("train-0").Unhealthy(fatalFault)).Answer()}})
	l.p.Mode = quarantine.ModeObserve
	l.run([]step{{4 * sec, woke()}})
	l.check(standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "", ""))
	l.run([]step{{hour + 4*sec, MakeLooked().Reading(MakeReading("train-0").Unhealthy(fatalFault)).Answer()}})
	l.check(standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "", "LeaseExtended"))
	l.p.Mode = quarantine.ModeEnforce
	l.run([]step{{hour + 5*sec, woke()}})
	l.check(standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "PutMark", ""))
}

// Q5: while a mark waits for its first write, a switch to observe gives it up,
// and an answer to a write that was under way is taken in all the same.
func TestAWriteUnderWayWhileTheModeChanges(t *testing.T) {
	l := live(t, gpu, enforce())
	l.run([]step{{0, observed(MakeReading("train-0").Unhealthy(fatalFault))}})
	l.p.Mode = quarantine.ModeObserve
	l.run([]step{{sec, woke()}})
	l.check(standing(quarantine.MarkObserved, quarantine.WaitingForHealth, "AskPermit", ""))
	l.run([]step{{2 * sec, inForce()}})
	l.check(standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "", "MarkInForce"))
}

// R1 (the advisory part): a device that can't be kept out is given up only after
// it was healthy on live looks for the whole stability window.
func TestAnAdvisoryCaseEndsAfterItsStabilityWindow(t *testing.T) {
	good := func(at time.Duration) step {
		return step{at, MakeLooked().Reading(MakeReading("train-0").Healthy().Version("2")).Answer()}
	}
	begin := []step{
		{0, observed(MakeReading("train-0").Unhealthy(fatalFault))},
		{sec, reported(quarantine.OutcomeUnavailable, "no DeviceTaintRule")},
		good(minute), good(2 * minute),
	}
	after := func(more ...step) []step { return append(begin[:len(begin):len(begin)], more...) }
	closed := want{
		phase: quarantine.PhaseClosed, end: quarantine.EndAdvisory, mark: quarantine.MarkAdvisory,
		severity: reason.SeverityFatal, reason: "XidFallenOffBus", notices: "CaseClosed",
	}
	waits := standing(quarantine.MarkAdvisory, quarantine.WaitingForHealth, "", "")
	check(t, map[string]row{
		"after fifteen minutes":           {steps: after(good(17 * minute)), want: closed},
		"not a moment before":             {steps: after(good(17*minute - 1)), want: waits},
		"not when a fault lies between":   {steps: after(step{10 * minute, observed(MakeReading("train-0").Unhealthy(majorFault).Version("3"))}, good(17*minute)), want: waits},
		"not on an application's error":   {steps: after(step{17 * minute, MakeLooked().Reading(MakeReading("train-0").Unhealthy(appError).Version("2")).Answer()}), want: waits},
		"not when nobody holds it":        {steps: after(step{17 * minute, MakeLooked().Ended("train-0").Answer()}), want: waits},
		"not on a node that is not ready": {steps: after(step{17 * minute, MakeLooked().NotReady().Reading(MakeReading("train-0").Healthy().Version("2")).Answer()}), want: waits},
		"in mode observe likewise": {
			policy: observe,
			steps:  []step{begin[0], good(minute), good(2 * minute), good(17 * minute)},
			want:   closed.but(func(w *want) { w.mark = quarantine.MarkObserved }),
		},
	})
}

// Q5: a device whose mark is in force is not given up on health, however long.
// Case 22, row t=100.
func TestHealthAloneNeverEndsACaseWhoseMarkIsInForce(t *testing.T) {
	l := live(t, gpu, enforce())
	l.run(marked())
	for at := minute; at < 30*hour; at += 20 * minute {
		l.run([]step{{at, MakeLooked().Reading(MakeReading("train-0").Healthy().Version("2")).Answer()}})
		if !l.c.Open() || l.c.Mark.State != quarantine.MarkInForce {
			t.Fatalf("at %s the case is %s with its mark %s", l.now, l.c.Phase, l.c.Mark.State)
		}
	}
}
