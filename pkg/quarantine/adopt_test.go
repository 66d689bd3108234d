package quarantine_test

import (
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// Q4: a mark without a case gets its case back, with all that the mark says, and
// is confirmed by a live look before anything else.
func TestAMarkWithoutACaseIsAdopted(t *testing.T) {
	bad := MakeReading("train-0").Unhealthy(fatalFault)
	foundAgain := MakeLooked().Reading(bad).Mark(oldMark(), true).Answer()
	check(t, map[string]row{
		"found: quarantined, a live look is owed, nothing is written": {
			steps: []step{{0, markSeen(oldMark())}},
			want:  standing(quarantine.MarkAdopted, quarantine.WaitingForLook, "Look", "CaseOpened"),
		},
		"found twice": {
			steps: []step{{0, markSeen(oldMark())}, {sec, markSeen(oldMark())}},
			want:  standing(quarantine.MarkAdopted, quarantine.WaitingForLook, "Look", ""),
		},
		"confirmed: in force, as it is": {
			steps: []step{{0, markSeen(oldMark())}, {sec, foundAgain}},
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "", "MarkInForce"),
		},
		"confirmed, and nobody holds the device": {
			steps: []step{{0, markSeen(oldMark())}, {sec, MakeLooked().Mark(oldMark(), true).Answer()}},
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForCoolDown, "", "MarkInForce"),
		},
		"confirmed, but somebody had changed it: written anew": {
			steps: []step{{0, markSeen(oldMark())}, {sec, MakeLooked().Reading(bad).Mark(oldMark(), false).Answer()}},
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "PutMark", "MarkInForce"),
		},
		"the API is away: it stays adopted": {
			steps: []step{{0, markSeen(oldMark())}, {sec, lookFailed("connection refused")}},
			want:  standing(quarantine.MarkAdopted, quarantine.WaitingForLook, "", ""),
		},
		"a look asked for before it was seen does not say that it is gone": {
			steps: []step{{minute, markSeen(oldMark())}, {minute + sec, MakeLooked().Asked(30 * sec).Reading(bad).NoMark()}},
			want:  standing(quarantine.MarkAdopted, quarantine.WaitingForLook, "Look", ""),
		},
		"it turns out to be gone and the device is healthy: the case is over": {
			steps: []step{{0, markSeen(oldMark())}, {sec, MakeLooked().Reading(MakeReading("train-0").Healthy()).NoMark()}},
			want: want{
				phase: quarantine.PhaseClosed, end: quarantine.EndMarkGone, severity: reason.SeverityFatal,
				reason: "XidFallenOffBus", notices: "CaseClosed",
			},
		},
		"it turns out to be gone and the device is faulty: marked anew": {
			steps: []step{{0, markSeen(oldMark())}, {sec, MakeLooked().Reading(bad).NoMark()}},
			want:  standing(quarantine.MarkWanted, quarantine.WaitingForMark, "PutMark", ""),
		},
		"it turns out to be gone and so is the device: missing, as it would be": {
			steps: []step{{0, markSeen(oldMark())}, {sec, MakeLooked().Missing(device.MissingFromPool).NoMark()}},
			want: want{
				phase: quarantine.PhaseSuspect, severity: reason.SeverityFatal, reason: reason.DeviceMissing, notices: "PhaseChanged",
			},
		},
		"in mode observe it is adopted too and stays in force": {
			policy: observe,
			steps:  []step{{0, markSeen(oldMark())}, {sec, foundAgain}, {hour + sec, foundAgain}},
			want:   standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "", "LeaseExtended"),
		},
		"deleted by hand before it was confirmed": {
			steps: []step{{0, markSeen(oldMark())}, {sec, markDeleted()}},
			want:  standing(quarantine.MarkAdopted, quarantine.WaitingForLook, "Look", ""),
		},
		"a mark that says nothing is adopted as what it is": {
			steps: []step{{0, markSeen(quarantine.MarkFound{Name: "sickbay-gpu-3"})}},
			want: want{
				phase: quarantine.PhaseQuarantined, waiting: quarantine.WaitingForLook, mark: quarantine.MarkAdopted,
				severity: reason.SeverityMajor, reason: reason.Adopted, owes: "Look", notices: "CaseOpened",
			},
		},
	})
}

// Q4: an adopted case has the mark's epoch, severity, attempts and start.
func TestAnAdoptedCaseCarriesOnWhatTheMarkSays(t *testing.T) {
	l := live(t, gpu, enforce())
	l.run([]step{{0, markSeen(oldMark())}})
	c, m := l.c, oldMark()
	began := start.Add(-time.Hour)
	if c.Epoch != m.Epoch || c.Severity != m.Severity || c.Attempt != m.Attempt || c.Message != m.Message ||
		c.Actor != m.Actor || !c.Since.Equal(began) || !c.FirstNotGood.Equal(began) || c.Incarnation != m.Hardware ||
		c.Reason.Code != m.Reason || c.Reason.Closes != m.Closes || c.Node != "anvil-07" {
		t.Errorf("the case is\n%s\nfrom a mark that says\n%+v", encode(t, c), m)
	}
}

// Q4: what an operator said of the device outlives the case's workflow: that it is
// retired, and how long its record is valid; and no edit makes that last for ever.
func TestAnAdoptedCaseKeepsAnOperatorsWord(t *testing.T) {
	usual := start.Add(enforce().Lease)
	for name, tc := range map[string]struct {
		retired bool
		until   time.Time
		phase   quarantine.Phase
		lease   time.Time
	}{
		"nothing was said":            {false, time.Time{}, quarantine.PhaseQuarantined, usual},
		"retired":                     {true, start.Add(time.Minute), quarantine.PhaseRetired, usual},
		"extended by two days":        {false, start.Add(48 * time.Hour), quarantine.PhaseQuarantined, start.Add(48 * time.Hour)},
		"extended by a hundred years": {false, start.AddDate(100, 0, 0), quarantine.PhaseQuarantined, usual},
	} {
		t.Run(name, func(t *testing.T) {
			m := oldMark()
			m.Retired = tc.retired
			if !tc.until.IsZero() {
				m.Until = tc.until.UnixMilli()
			}
			for _, before := range [][]step{nil, {{0, lost(MakeReading("train-0").Unknown())}}} {
				l := live(t, gpu, enforce())
				l.run(append(before, step{0, markSeen(m)}))
				if l.c.Phase != tc.phase || !l.c.LeaseUntil.Equal(tc.lease) {
					t.Errorf("after %d steps adopted as %s until %s, want %s until %s", len(before), l.c.Phase, l.c.LeaseUntil, tc.phase, tc.lease)
				}
			}
		})
	}
}

// Q4, Q5: a mark found while the device is only suspected, or while its case has no
// mark of its own, becomes that case's, and doesn't outlive it.
func TestAMarkFoundBesideACaseIsTheCases(t *testing.T) {
	unknown := step{0, lost(MakeReading("train-0").Unknown())}
	bad := MakeReading("train-0").Unhealthy(majorFault)
	check(t, map[string]row{
		"seen into a suspicion: quarantined, to be confirmed": {
			steps: []step{unknown, {sec, markSeen(oldMark())}},
			want:  standing(quarantine.MarkAdopted, quarantine.WaitingForLook, "Look", "SeverityRaised PhaseChanged"),
		},
		"confirmed: written anew with the suspect's later epoch": {
			steps: []step{unknown, {sec, markSeen(oldMark())}, {2 * sec, MakeLooked().Reading(MakeReading("train-0").Unknown()).Mark(oldMark(), true).Answer()}},
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "PutMark", "MarkInForce"),
		},
		"found by a suspect's look": {
			steps: []step{unknown, {10 * sec, MakeLooked().Reading(MakeReading("train-0").Unknown()).Mark(oldMark(), true).Answer()}},
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "PutMark", "SeverityRaised PhaseChanged MarkInForce"),
		},
		"gone, and still Unknown: suspected as before": {
			steps: []step{unknown, {sec, markSeen(oldMark())}, {2 * sec, MakeLooked().Reading(MakeReading("train-0").Unknown()).NoMark()}},
			want: want{
				phase: quarantine.PhaseSuspect, severity: reason.SeverityFatal, reason: "XidFallenOffBus", notices: "PhaseChanged",
			},
		},
		"gone, and Unknown for longer than the window": {
			steps: []step{unknown, {6 * minute, markSeen(oldMark())}, {6*minute + sec, MakeLooked().Reading(MakeReading("train-0").Unknown()).NoMark()}},
			want: want{
				phase: quarantine.PhaseSuspect, waiting: quarantine.WaitingForRestriction, severity: reason.SeverityFatal,
				reason: "XidFallenOffBus", notices: "PhaseChanged",
			},
		},
		"gone, and healthy": {
			steps: []step{unknown, {sec, markSeen(oldMark())}, {2 * sec, MakeLooked().Reading(MakeReading("train-0").Healthy().Version("2")).NoMark()}},
			want: want{
				phase: quarantine.PhaseClosed, end: quarantine.EndMarkGone, severity: reason.SeverityFatal,
				reason: "XidFallenOffBus", notices: "CaseClosed",
			},
		},
		"gone, and faulty": {
			steps: []step{unknown, {sec, markSeen(oldMark())}, {2 * sec, MakeLooked().Reading(MakeReading("train-0").Unhealthy(majorFault).Version("2")).NoMark()}},
			want:  standing(quarantine.MarkWanted, quarantine.WaitingForMark, "PutMark", ""),
		},
		"in mode observe an earlier case's mark is adopted": {
			policy: observe,
			steps:  []step{{0, observed(bad)}, {sec, markSeen(oldMark())}},
			want:   standing(quarantine.MarkAdopted, quarantine.WaitingForLook, "Look", "SeverityRaised"),
		},
		"in mode observe an earlier case's mark found by a look is in force": {
			policy: observe,
			steps:  []step{{0, observed(bad)}, {sec, MakeLooked().Reading(bad).Mark(oldMark(), true).Answer()}},
			want:   standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "", "SeverityRaised MarkInForce"),
		},
		"in mode observe it is gone after all: advisory as before": {
			policy: observe,
			steps:  []step{{0, observed(bad)}, {sec, markSeen(oldMark())}, {2 * sec, MakeLooked().Reading(MakeReading("train-0").Healthy().Version("2")).NoMark()}},
			want:   standing(quarantine.MarkObserved, quarantine.WaitingForHealth, "AskPermit", ""),
		},
		"a later epoch's mark: this case's epoch rises above it and writes it anew": {
			steps: []step{{0, observed(bad)}, {sec, inForce()}, {2 * sec, MakeLooked().Reading(bad).Answer()}, {minute, func(c quarantine.Case, _ time.Time) quarantine.Event {
				m := oldMark()
				m.Epoch = c.Epoch + 1000
				return quarantine.MarkSeen{Present: true, Intact: true, Mark: m}
			}}},
			want: standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "PutMark Look", "SeverityRaised"),
		},
		"an earlier epoch's mark while this case's own is in force is old news": {
			steps: marked(step{minute, markSeen(oldMark())}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "", ""),
		},
	})
}

// Q4: adopting a mark into a suspicion moves neither its epoch down nor its first
// not-good moment.
func TestAdoptingIntoASuspicionKeepsItsEpochAndItsClock(t *testing.T) {
	l := live(t, gpu, enforce())
	l.run([]step{{0, lost(MakeReading("train-0").Unknown())}})
	before := l.c
	l.run([]step{{sec, markSeen(oldMark())}})
	if l.c.Epoch != before.Epoch || !l.c.FirstNotGood.Equal(before.FirstNotGood) || l.c.Attempt != 2 {
		t.Errorf("epoch %d, first not good %s, attempt %d; want %d, %s and 2",
			l.c.Epoch, l.c.FirstNotGood, l.c.Attempt, before.Epoch, before.FirstNotGood)
	}
}

// R5: a fault after the end of a case is a new case with a higher epoch, even
// where the clock stands still or goes back, and answers that are still on their
// way to the old one change nothing.
func TestANewFaultIsANewEpoch(t *testing.T) {
	l := live(t, gpu, enforce())
	l.run([]step{
		{0, lost(MakeReading("train-0").Unknown())},
		{10 * sec, MakeLooked().Reading(MakeReading("train-0").Healthy().Version("2")).Answer()},
		{30 * sec, MakeLooked().Reading(MakeReading("train-0").Healthy().Version("2")).Answer()},
		{3 * minute, MakeLooked().Reading(MakeReading("train-0").Healthy().Version("2")).Answer()},
	})
	old := l.c
	if old.Phase != quarantine.PhaseClosed {
		t.Fatalf("the first case is %s", old.Phase)
	}
	l.now = start.Add(-hour)
	l.tell(observed(MakeReading("train-0").Unhealthy(fatalFault).Version("3")))
	if l.c.Phase != quarantine.PhaseQuarantined || l.c.Epoch <= old.Epoch {
		t.Fatalf("the new case is %s with epoch %d, after %d", l.c.Phase, l.c.Epoch, old.Epoch)
	}
	again := l.c
	l.tell(always(quarantine.MarkReported{Outcome: quarantine.OutcomeLifted, Epoch: old.Epoch}))
	l.tell(always(quarantine.MarkReported{Outcome: quarantine.OutcomeUnavailable, Epoch: old.Epoch, Revision: 1}))
	l.tell(MakeLooked().Asked(-2 * hour).Reading(MakeReading("train-0").Healthy().Version("9")).Answer())
	if a, b := encode(t, again), encode(t, l.c); string(a) != string(b) {
		t.Errorf("the old epoch's answers changed the case\nfrom %s\nto   %s", a, b)
	}
}

// O3: readings of a case that is over, delivered once more, don't open another.
func TestOldReadingsOfAClosedCaseOpenNothing(t *testing.T) {
	l := live(t, plugged, enforce())
	bad := MakeReading("train-0").Unhealthy(fatalFault).Version("1")
	l.run([]step{
		{0, observed(bad)},
		{sec, reported(quarantine.OutcomeUnavailable, "no API")},
		{minute, MakeLooked().Presence(nil).Reading(MakeReading("train-0").Healthy().Version("2")).Answer()},
		{2 * minute, MakeLooked().Presence(nil).Reading(MakeReading("train-0").Healthy().Version("2")).Answer()},
		{17 * minute, MakeLooked().Presence(nil).Reading(MakeReading("train-0").Healthy().Version("2")).Answer()},
		{18 * minute, observed(bad)},
	})
	if l.c.Phase != quarantine.PhaseClosed || l.c.End != quarantine.EndAdvisory {
		t.Errorf("the case is %s %s, want closed", l.c.Phase, l.c.End)
	}
}
