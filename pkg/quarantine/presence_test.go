package quarantine_test

import (
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

var (
	goneFatal = want{
		phase: quarantine.PhaseGone, waiting: quarantine.WaitingForReturn, mark: quarantine.MarkInForce,
		severity: reason.SeverityFatal, reason: "XidFallenOffBus",
	}
	stillMissing = MakeLooked().Ended("train-0").Missing(device.MissingFromPool).Answer()
)

// gone are the steps to a quarantined device that is missing past its settling
// time, found so by a live look. It is gone at 1 h 2 min, and forgotten 72 h later.
func gone(more ...step) []step {
	return unheld(append([]step{
		{hour, MakeLooked().Answer()},
		{hour + sec, inForce()},
		{hour + 3*sec, MakeLooked().Answer()},
		{hour + minute, missing(device.MissingFromPool)},
		{hour + 2*minute, stillMissing},
	}, more...)...)
}

const forgotten = 73*hour + 2*minute

// O8, Q10: a device that is missing settles first, and is looked for before it
// counts as gone.
func TestAMissingDeviceSettlesBeforeItIsGone(t *testing.T) {
	suspected := want{phase: quarantine.PhaseSuspect, severity: reason.SeverityMajor, reason: reason.DeviceMissing}
	goneMarked := want{
		phase: quarantine.PhaseGone, waiting: quarantine.WaitingForReturn, mark: quarantine.MarkWanted,
		severity: reason.SeverityMajor, reason: reason.DeviceMissing, owes: "PutMark", notices: "PhaseChanged",
	}
	lostIt := step{0, missing(device.MissingFromPool)}
	look := func(at time.Duration, why device.MissingReason) step {
		return step{at, MakeLooked().Missing(why).Answer()}
	}
	check(t, map[string]row{
		"a look is owed once it has settled": {
			steps: []step{lostIt, {10 * sec, MakeLooked().Missing(device.MissingFromPool).Answer()}, {minute, woke()}},
			want:  suspected.but(func(w *want) { w.owes = "Look" }),
		},
		"missing still: gone, and marked for its return": {
			steps: []step{lostIt, look(minute, device.MissingFromPool)},
			want:  goneMarked,
		},
		"not before it has settled": {
			steps: []step{lostIt, look(minute-1, device.MissingFromPool)},
			want:  suspected,
		},
		"reported missing twice is one absence, from the first": {
			steps: []step{lostIt, {50 * sec, missing(device.MissingFromPool)}, look(minute, device.MissingFromPool)},
			want:  goneMarked,
		},
		"listed again before that: the case is over": {
			steps: []step{lostIt, {50 * sec, listed(oldCard)}},
			want: want{
				phase: quarantine.PhaseClosed, end: quarantine.EndHealthBack, severity: reason.SeverityMajor,
				reason: reason.DeviceMissing, notices: "CaseClosed",
			},
		},
		"listed again on the live look: the case is over": {
			steps: []step{lostIt, {minute, MakeLooked().Answer()}},
			want: want{
				phase: quarantine.PhaseClosed, end: quarantine.EndHealthBack, severity: reason.SeverityMajor,
				reason: reason.DeviceMissing, notices: "CaseClosed",
			},
		},
		"listed again and Unknown: the window runs on, with looks": {
			steps: []step{lostIt, {10 * sec, lost(MakeReading("train-0").Unknown())}, {20 * sec, listed(oldCard)}, {30 * sec, woke()}},
			want:  suspected.but(func(w *want) { w.owes = "Look" }),
		},
		"an incomplete pool confirms nothing": {
			steps: []step{lostIt, {minute, MakeLooked().Presence(nil).Answer()}},
			want:  suspected,
		},
		"a complete pool after an incomplete one does": {
			steps: []step{lostIt, {minute, MakeLooked().Presence(nil).Answer()}, look(3*minute, device.MissingFromPool)},
			want:  goneMarked,
		},
		"a look asked for before it went missing does not bring it back": {
			steps: []step{{0, lost(MakeReading("train-0").Unknown())}, {10 * sec, woke()}, {11 * sec, missing(device.MissingFromPool)},
				{12 * sec, MakeLooked().Asked(10 * sec).Reading(MakeReading("train-0").Unknown()).Answer()},
				look(71*sec, device.MissingFromPool)},
			want: want{
				phase: quarantine.PhaseGone, waiting: quarantine.WaitingForReturn, mark: quarantine.MarkWanted,
				severity: reason.SeverityMajor, reason: reason.DeviceMissing, owes: "PutMark", notices: "SeverityRaised PhaseChanged",
			},
		},
		"a suspect whose whole pool went settles for five minutes": {
			steps: []step{{0, lost(MakeReading("train-0").Unknown())}, {sec, missing(device.PoolGone)}, look(5*minute, device.PoolGone)},
			want:  suspectedUnknown,
		},
		"a suspect whose whole pool is gone is unmarked": {
			steps: []step{{0, lost(MakeReading("train-0").Unknown())}, {sec, missing(device.PoolGone)}, look(5*minute+sec, device.PoolGone)},
			want: want{
				phase: quarantine.PhaseGone, waiting: quarantine.WaitingForReturn, severity: reason.SeverityMinor,
				reason: reason.HealthUnknown, notices: "PhaseChanged",
			},
		},
		"a suspect whose node is deleted is unmarked": {
			steps: []step{{0, lost(MakeReading("train-0").Unknown())}, {sec, missing(device.NodeDeleted)}, look(61*sec, device.NodeDeleted)},
			want: want{
				phase: quarantine.PhaseGone, waiting: quarantine.WaitingForReturn, severity: reason.SeverityMinor,
				reason: reason.HealthUnknown, notices: "PhaseChanged",
			},
		},
		"a plugin's device is gone by what the watch says alone": {
			device: plugged,
			steps: []step{{0, lost(MakeReading("train-0").Unknown())}, {sec, missing(device.AllocatableDropped)},
				{5*minute + sec, MakeLooked().Presence(nil).Ended("train-0").Answer()}},
			want: want{
				phase: quarantine.PhaseGone, waiting: quarantine.WaitingForReturn, severity: reason.SeverityMinor,
				reason: reason.HealthUnknown, notices: "PhaseChanged",
			},
		},
		"a quarantined device keeps its mark": {
			steps: gone(),
			want:  goneFatal.but(func(w *want) { w.notices = "PhaseChanged" }),
		},
		"a quarantined device that is missing for less": {
			steps: gone()[:len(gone())-1],
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForRecovery, "", ""),
		},
	})
}

// Q10: a gone device comes back as the same, an unprovable or a new one, or
// somebody deletes its mark meanwhile.
func TestAGoneDeviceComesBack(t *testing.T) {
	back := step{2 * hour, listed(oldCard)}
	check(t, map[string]row{
		"the same hardware: its former phase": {
			steps: gone(back),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForCoolDown, "PutMark Look", "PhaseChanged"),
		},
		"hardware that can't be told apart: its former phase": {
			steps: gone(step{2 * hour, listed(device.Incarnation{})}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForCoolDown, "PutMark Look", "PhaseChanged"),
		},
		"proven new hardware: a new case, all gates": {
			steps: gone(step{2 * hour, listed(newCard)}),
			want: want{
				phase: quarantine.PhaseQuarantined, waiting: quarantine.WaitingForCoolDown, mark: quarantine.MarkInForce,
				severity: reason.SeverityMajor, reason: reason.HardwareReplaced, owes: "PutMark Look",
				notices: "PhaseChanged HardwareReplaced CaseOpened",
			},
		},
		"a retired device is retired again": {
			steps: append(unheld(step{minute, says(quarantine.VerbRetire)}),
				step{2 * minute, missing(device.MissingFromPool)}, step{3 * minute, stillMissing}, back),
			want: standing(quarantine.MarkInForce, quarantine.WaitingForOperator, "PutMark Look", "PhaseChanged").but(func(w *want) { w.phase = quarantine.PhaseRetired }),
		},
		"a suspect is suspected again, with a window": {
			steps: []step{{0, lost(MakeReading("train-0").Unknown())}, {sec, missing(device.NodeDeleted)},
				{61 * sec, MakeLooked().Missing(device.NodeDeleted).Answer()}, back},
			want: suspectedUnknown.but(func(w *want) { w.owes, w.notices = "Look", "PhaseChanged" }),
		},
		"seen by a live look: its former phase": {
			steps: gone(step{hour + 2*minute + hour, MakeLooked().Answer()}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForCoolDown, "PutMark", "PhaseChanged"),
		},
		"its mark is deleted by hand while it is gone: put back": {
			steps: gone(step{2 * hour, markDeleted()}),
			want:  goneFatal.but(func(w *want) { w.mark, w.owes, w.notices = quarantine.MarkWanted, "PutMark", "MarkRestored" }),
		},
		"reported missing once more": {
			steps: gone(step{2 * hour, missing(device.NodeDeleted)}),
			want:  goneFatal,
		},
		"a fault of it while it is gone condemns a suspect": {
			steps: []step{{0, lost(MakeReading("train-0").Unknown())}, {sec, missing(device.NodeDeleted)},
				{61 * sec, MakeLooked().Missing(device.NodeDeleted).Answer()},
				{2 * minute, observed(MakeReading("train-0").Unhealthy(fatalFault).Version("2"))}},
			want: goneFatal.but(func(w *want) { w.mark, w.owes, w.notices = quarantine.MarkWanted, "PutMark", "SeverityRaised" }),
		},
		"an earlier case's mark of a gone suspect is adopted": {
			steps: []step{{0, lost(MakeReading("train-0").Unknown())}, {sec, missing(device.NodeDeleted)},
				{61 * sec, MakeLooked().Missing(device.NodeDeleted).Answer()}, {2 * minute, markSeen(oldMark())},
				{3 * minute, MakeLooked().Missing(device.NodeDeleted).Mark(oldMark(), true).Answer()}},
			want: goneFatal.but(func(w *want) {
				w.mark, w.owes, w.notices = quarantine.MarkInForce, "PutMark", "SeverityRaised MarkInForce"
			}),
		},
	})
}

// Q10: what is gone for good does not stay marked, and nothing but its own mark is
// removed.
func TestWhatIsGoneForGoodIsForgotten(t *testing.T) {
	over := want{
		phase: quarantine.PhaseClosed, end: quarantine.EndGone, severity: reason.SeverityFatal,
		reason: "XidFallenOffBus", notices: "MarkLifted CaseClosed",
	}
	lifting := goneFatal.but(func(w *want) { w.mark = quarantine.MarkLifting })
	answer := func(outcome quarantine.MarkOutcome, detail string) event {
		return func(c quarantine.Case, _ time.Time) quarantine.Event {
			return quarantine.MarkReported{Outcome: outcome, Epoch: c.Epoch, Name: "sickbay-gpu-3", Detail: detail}
		}
	}
	check(t, map[string]row{
		"after three days its mark is lifted": {
			steps: gone(step{forgotten, stillMissing}),
			want:  lifting.but(func(w *want) { w.owes = "LiftMark" }),
		},
		"not a moment before": {
			steps: gone(step{forgotten - 1, stillMissing}),
			want:  goneFatal,
		},
		"lifted: the case is over": {
			steps: gone(step{forgotten, stillMissing}, step{forgotten + sec, answer(quarantine.OutcomeLifted, "")}),
			want:  over,
		},
		"refused: waits for an operator and tries again": {
			steps: gone(step{forgotten, stillMissing}, step{forgotten + sec, answer(quarantine.OutcomeRefused, "forbidden")}),
			want: lifting.but(func(w *want) {
				w.waiting, w.notices = quarantine.WaitingForOperator, "MarkRefused"
			}),
		},
		"refused, ten seconds later": {
			steps: gone(step{forgotten, stillMissing}, step{forgotten + sec, answer(quarantine.OutcomeRefused, "forbidden")}, step{forgotten + 11*sec, woke()}),
			want: lifting.but(func(w *want) {
				w.waiting, w.owes = quarantine.WaitingForOperator, "LiftMark"
			}),
		},
		"changed by somebody: it stays, and is asked after seldom": {
			steps: gone(step{forgotten, stillMissing}, step{forgotten + sec, answer(quarantine.OutcomeChanged, "changed by somebody else")}, step{forgotten + 59*minute, woke()}),
			want:  lifting.but(func(w *want) { w.waiting = quarantine.WaitingForOperator }),
		},
		"foreign: it stays": {
			steps: gone(step{forgotten, stillMissing}, step{forgotten + sec, answer(quarantine.OutcomeForeign, "isn't Sickbay's")}),
			want: lifting.but(func(w *want) {
				w.waiting, w.notices = quarantine.WaitingForOperator, "MarkRefused"
			}),
		},
		"no API any more: tried again": {
			steps: gone(step{forgotten, stillMissing}, step{forgotten + sec, answer(quarantine.OutcomeUnavailable, "no DeviceTaintRule")}),
			want: lifting.but(func(w *want) {
				w.waiting, w.notices = quarantine.WaitingForOperator, "MarkRefused"
			}),
		},
		"a PutMark's late answer is none to the LiftMark": {
			steps: gone(step{forgotten, stillMissing}, step{forgotten + sec, inForce()}),
			want:  lifting.but(func(w *want) { w.owes = "LiftMark" }),
		},
		"a later epoch's mark is written anew before it is lifted": {
			steps: gone(step{forgotten, stillMissing}, step{forgotten + sec, func(c quarantine.Case, _ time.Time) quarantine.Event {
				m := oldMark()
				m.Epoch = c.Epoch + 1000
				return quarantine.MarkReported{Outcome: quarantine.OutcomeSuperseded, Epoch: c.Epoch, Before: &m}
			}}),
			want: goneFatal.but(func(w *want) { w.owes = "PutMark Look" }),
		},
		"in mode observe nothing is lifted and the case stays": {
			policy: observe,
			steps:  gone(step{forgotten, stillMissing}),
			want:   goneFatal,
		},
		"what was never marked is just forgotten": {
			steps: []step{{0, lost(MakeReading("train-0").Unknown())}, {sec, missing(device.NodeDeleted)},
				{61 * sec, MakeLooked().Missing(device.NodeDeleted).Answer()}, {72*hour + 61*sec, woke()}},
			want: want{
				phase: quarantine.PhaseClosed, end: quarantine.EndGone, severity: reason.SeverityMinor,
				reason: reason.HealthUnknown, notices: "CaseClosed",
			},
		},
		"back while its mark is being lifted: marked anew": {
			steps: gone(step{forgotten, stillMissing}, step{forgotten + sec, listed(oldCard)}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForCoolDown, "PutMark Look", "PhaseChanged"),
		},
		"back, and then the answer that its mark was lifted": {
			steps: gone(step{forgotten, stillMissing}, step{forgotten + sec, listed(oldCard)}, step{forgotten + 2*sec, answer(quarantine.OutcomeLifted, "")}),
			want:  standing(quarantine.MarkWanted, quarantine.WaitingForMark, "PutMark Look", "MarkRestored"),
		},
	})
}

// Q10: once its case is over as gone, the device may be seen again without a case.
func TestAForgottenDeviceThatComesBackStartsAnew(t *testing.T) {
	l := live(t, gpu, enforce())
	l.run(gone(step{forgotten, stillMissing}, step{forgotten + sec, func(c quarantine.Case, _ time.Time) quarantine.Event {
		return quarantine.MarkReported{Outcome: quarantine.OutcomeLifted, Epoch: c.Epoch}
	}}, step{forgotten + hour, listed(newCard)}))
	if l.c.Phase != quarantine.PhaseClosed || l.c.Incarnation != newCard {
		t.Errorf("the case is %s and the hardware %s, want closed and %s", l.c.Phase, l.c.Incarnation, newCard)
	}
}

// Q10, R1: another card in the device's place without an absence in between; a
// card that stands under another name is not replaced.
func TestAnotherCardBehindTheSameName(t *testing.T) {
	moved := func(to string) event {
		return always(quarantine.Inventory{Present: true, Now: newCard, MovedTo: to})
	}
	elsewhere := "gpu.example.com/anvil-07/gpu-7"
	check(t, map[string]row{
		"proven new: the old case ends as replaced, the new one has all gates before it": {
			steps: unheld(step{minute, listed(newCard)}),
			want: want{
				phase: quarantine.PhaseQuarantined, waiting: quarantine.WaitingForCoolDown, mark: quarantine.MarkInForce,
				severity: reason.SeverityMajor, reason: reason.HardwareReplaced, owes: "PutMark Look",
				notices: "HardwareReplaced CaseOpened",
			},
		},
		"proven new by a live look, faulty at once": {
			steps: unheld(step{hour, MakeLooked().Reading(MakeReading("train-1").Unhealthy(fatalFault)).Presence(&quarantine.Inventory{Present: true, Now: newCard}).Answer()}),
			want: standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "PutMark",
				"HardwareReplaced CaseOpened SeverityRaised"),
		},
		"proven new and retired: quarantined": {
			steps: unheld(step{minute, says(quarantine.VerbRetire)}, step{2 * minute, listed(newCard)}),
			want: want{
				phase: quarantine.PhaseQuarantined, waiting: quarantine.WaitingForCoolDown, mark: quarantine.MarkInForce,
				severity: reason.SeverityMajor, reason: reason.HardwareReplaced, owes: "PutMark Look",
				notices: "HardwareReplaced CaseOpened",
			},
		},
		"a suspect's new card: the suspicion goes on": {
			steps: []step{{0, lost(MakeReading("train-0").Unknown())}, {sec, listed(newCard)}},
			want:  suspectedUnknown,
		},
		"the card stands under another name: only an operator can tell": {
			steps: unheld(step{minute, moved(elsewhere)}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForOperator, "", "HardwareMoved"),
		},
		"told twice": {
			steps: unheld(step{minute, moved(elsewhere)}, step{minute, moved(elsewhere)}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForOperator, "", ""),
		},
		"moved back": {
			steps: unheld(step{minute, moved(elsewhere)}, step{2 * minute, listed(oldCard)}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForCoolDown, "", ""),
		},
		"moved, and an operator says repaired": {
			steps: unheld(step{minute, moved(elsewhere)}, step{2 * minute, says(quarantine.VerbRepaired)}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForCoolDown, "", "OperatorMessage"),
		},
	})
}

// Q10: the record of a replaced card is clean: a new epoch, no attempts, no
// readings, no operator's words of the old one.
func TestANewCardHasACleanRecord(t *testing.T) {
	l := live(t, gpu, enforce())
	l.run([]step{{0, markSeen(oldMark())}, {sec, MakeLooked().Reading(MakeReading("train-0").Unhealthy(fatalFault)).Mark(oldMark(), true).Answer()},
		{minute, says(quarantine.VerbExtend)}})
	old := l.c
	l.run([]step{{2 * minute, listed(newCard)}})
	c := l.c
	if c.Epoch <= old.Epoch || c.Attempt != 0 || c.Reports != nil || c.Words != nil || c.Confirmed || c.Incarnation != newCard ||
		!c.FirstNotGood.Equal(l.now) {
		t.Errorf("the new card's case is\n%s\nafter\n%s", encode(t, c), encode(t, old))
	}
	if mark := commandOf[quarantine.PutMark](t, l.owed); mark.Epoch != c.Epoch || mark.Hardware != newCard {
		t.Errorf("the mark is asked for with epoch %d and hardware %s", mark.Epoch, mark.Hardware)
	}
}

// Q10: a mark that is written while its device is gone says until when it is kept.
func TestAGoneDevicesMarkSaysUntilWhenItIsKept(t *testing.T) {
	l := live(t, gpu, enforce())
	l.run(gone(step{2 * hour, markDeleted()}))
	if until := commandOf[quarantine.PutMark](t, l.owed).Until; !until.Equal(start.Add(forgotten)) {
		t.Errorf("the mark says until %s, want %s", until, start.Add(forgotten))
	}
}
