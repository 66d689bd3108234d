package quarantine_test

import (
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// What a plugin's device is called, in the order in which these stories tell it.
func badPlugged() *ReadingBuilder { return MakeReading("train-0").Unhealthy("").Version("2") }
func wellAgain() *ReadingBuilder  { return MakeReading("train-0").Healthy().Version("3") }
func unvouched() *ReadingBuilder {
	return MakeReading("train-0").Healthy().Version("1").Stale(device.PluginAbsent)
}

var (
	advisory = want{
		phase: quarantine.PhaseQuarantined, waiting: quarantine.WaitingForHealth, mark: quarantine.MarkAdvisory,
		severity: reason.SeverityMajor, reason: reason.UnhealthyWithoutMessage,
	}
	advisoryOver = advisory.but(func(w *want) {
		w.phase, w.waiting, w.end, w.notices = quarantine.PhaseClosed, quarantine.WaitingForNothing, quarantine.EndAdvisory, "CaseClosed"
	})
	advisoryGone = advisory.but(func(w *want) {
		w.phase, w.waiting, w.notices = quarantine.PhaseGone, quarantine.WaitingForReturn, "PhaseChanged"
	})
	pluginSuspect = want{phase: quarantine.PhaseSuspect, severity: reason.SeverityMinor, reason: reason.PluginAbsent}
)

// pluginFault are the steps to a case of a plugin's device that its plugin calls
// Unhealthy, one of four on its list, and what follows on them.
func pluginFault(more ...step) []step {
	return append([]step{
		{0, observed(badPlugged())},
		{sec, reported(quarantine.OutcomeUnavailable, "no API")},
		{2 * sec, MakeLooked().Listed(4).Reading(badPlugged()).Answer()},
	}, more...)
}

// finds is a look that finds a reading where so many devices are listed.
func finds(at time.Duration, listed int64, r *ReadingBuilder) step {
	return step{at, MakeLooked().Listed(listed).Reading(r).Answer()}
}

// U1, O4: what no plugin stands behind is waited out like any Unknown, under a
// reason of its own, and ends soon after the plugin is back.
func TestADeviceWhosePluginIsAwayIsSuspect(t *testing.T) {
	away := step{0, lost(unvouched())}
	check(t, map[string]row{
		"it opens a case that only alerts": {
			device: plugged, steps: []step{away},
			want: pluginSuspect.but(func(w *want) { w.notices = "CaseOpened" }),
		},
		"a driver that never reported any health is no loss": {
			device: plugged, steps: []step{{0, observed(unvouched())}}, want: want{},
		},
		"it outlasts the window, and has a name": {
			device: plugged, steps: []step{away, finds(4*minute, 4, unvouched()), {5 * minute, woke()}},
			want: pluginSuspect.but(func(w *want) {
				w.waiting, w.owes, w.notices = quarantine.WaitingForRestriction, "Look", ""
			}),
		},
		"the plugin is back, and the case is over after its window": {
			device: plugged,
			steps: []step{away, finds(10*sec, 4, unvouched()), {minute, observed(wellAgain())}, finds(70*sec, 4, wellAgain()),
				finds(190*sec, 4, wellAgain())},
			want: pluginSuspect.but(func(w *want) {
				w.phase, w.end, w.notices = quarantine.PhaseClosed, quarantine.EndHealthBack, "CaseClosed"
			}),
		},
		"not before that": {
			device: plugged,
			steps:  []step{away, finds(10*sec, 4, unvouched()), finds(70*sec, 4, wellAgain()), finds(189*sec, 4, wellAgain())},
			want:   pluginSuspect,
		},
		"back for a moment only begins anew": {
			device: plugged,
			steps: []step{away, finds(10*sec, 4, wellAgain()), finds(70*sec, 4, wellAgain().Stale(device.PluginAbsent)),
				finds(80*sec, 4, wellAgain()), finds(130*sec, 4, wellAgain())},
			want: pluginSuspect,
		},
		"the plugin is back and calls it Unhealthy: the same case, in full": {
			device: plugged, steps: []step{away, {minute, observed(badPlugged())}},
			want: want{
				phase: quarantine.PhaseQuarantined, waiting: quarantine.WaitingForMark, mark: quarantine.MarkWanted,
				severity: reason.SeverityMajor, reason: reason.UnhealthyWithoutMessage, owes: "PutMark Look",
				notices: "SeverityRaised PhaseChanged",
			},
		},
		"a plugin that lists fewer devices than before is back all the same": {
			// Which one it left out can't be told; no case of it is open on a fault.
			device: plugged,
			steps:  []step{away, finds(10*sec, 4, unvouched()), finds(70*sec, 3, wellAgain()), finds(190*sec, 3, wellAgain())},
			want: pluginSuspect.but(func(w *want) {
				w.phase, w.end, w.notices = quarantine.PhaseClosed, quarantine.EndHealthBack, "CaseClosed"
			}),
		},
	})
}

// O4, O8: a Healthy ends the case of a plugin's device only while the plugin is
// there and has not become short of a device since it called this one Unhealthy.
func TestAHealthyEndsAPluginsCaseOnlyIfItIsOnTheList(t *testing.T) {
	check(t, map[string]row{
		"Unhealthy: advisory, and looked at": {
			device: plugged, steps: pluginFault(), want: advisory,
		},
		"healthy again: over after the window, and never as released": {
			device: plugged, steps: pluginFault(finds(hour-minute, 4, wellAgain()), finds(hour+14*minute, 4, wellAgain())),
			want: advisoryOver,
		},
		"healthy for less than the window": {
			device: plugged, steps: pluginFault(finds(10*minute, 4, wellAgain()), finds(25*minute-sec, 4, wellAgain())),
			want: advisory,
		},
		"one device less is listed: the Healthy is the kubelet's default": {
			device: plugged, steps: pluginFault(finds(10*minute, 3, wellAgain())),
			want: advisory,
		},
		"the node's status comes later than the Pod's": {
			device: plugged, steps: pluginFault(finds(10*minute, 4, wellAgain()), finds(12*minute, 3, wellAgain()), finds(14*minute, 3, wellAgain())),
			want: advisory,
		},
		"off the list for its settling time: gone": {
			device: plugged, steps: pluginFault(finds(10*minute, 3, wellAgain()), finds(15*minute, 3, wellAgain())),
			want: advisoryGone,
		},
		"gone for good: forgotten like any device": {
			device: plugged, steps: pluginFault(finds(10*minute, 3, wellAgain()), finds(15*minute, 3, wellAgain()), step{72*hour + 15*minute, woke()}),
			want: advisoryGone.but(func(w *want) {
				w.phase, w.waiting, w.end, w.notices = quarantine.PhaseClosed, quarantine.WaitingForNothing, quarantine.EndGone, "CaseClosed"
			}),
		},
		"gone, and another device joins: as many as before, so it may be back": {
			device: plugged,
			steps:  pluginFault(finds(10*minute, 3, wellAgain()), finds(15*minute, 3, wellAgain()), step{20 * minute, counted(4)}),
			want: advisory.but(func(w *want) {
				w.waiting, w.mark, w.owes, w.notices = quarantine.WaitingForMark, quarantine.MarkWanted, "PutMark Look", "PhaseChanged"
			}),
		},
		"gone, and the list changes without growing back": {
			device: plugged,
			steps:  pluginFault(finds(10*minute, 2, wellAgain()), finds(15*minute, 2, wellAgain()), step{20 * minute, counted(3)}),
			want:   advisoryGone.but(func(w *want) { w.owes, w.notices = "Look", "" }),
		},
		"gone, and called Unhealthy again: only a look is owed, and it finds it": {
			device: plugged,
			steps: pluginFault(finds(10*minute, 3, wellAgain()), finds(15*minute, 3, wellAgain()),
				step{20 * minute, observed(MakeReading("train-0").Unhealthy("").Version("4"))},
				finds(20*minute+sec, 3, MakeReading("train-0").Unhealthy("").Version("4"))),
			want: advisory.but(func(w *want) {
				w.waiting, w.mark, w.owes, w.notices = quarantine.WaitingForMark, quarantine.MarkWanted, "PutMark", "PhaseChanged"
			}),
		},
		"the list became shorter before its Pod's status said so": {
			device: plugged,
			steps: pluginFault(step{10 * minute, counted(3)}, finds(10*minute+sec, 3, badPlugged()), finds(11*minute+30*sec, 3, wellAgain()),
				finds(16*minute+30*sec, 3, wellAgain())),
			want: advisoryGone,
		},
		"another device left the list, and this one is still called Unhealthy two minutes later": {
			device: plugged,
			steps: pluginFault(step{10 * minute, counted(3)}, finds(10*minute+sec, 3, badPlugged()), finds(12*minute+sec, 3, badPlugged()),
				finds(20*minute, 3, wellAgain()), finds(35*minute, 3, wellAgain())),
			want: advisoryOver,
		},
		"that is looked for then": {
			device: plugged,
			steps:  pluginFault(step{10 * minute, counted(3)}, finds(10*minute+sec, 3, badPlugged()), step{12*minute + sec, woke()}),
			want:   advisory.but(func(w *want) { w.owes = "Look" }),
		},
		"another one left, and then this one": {
			device: plugged,
			steps: pluginFault(step{10 * minute, counted(3)}, finds(10*minute+sec, 3, badPlugged()), finds(12*minute+sec, 2, badPlugged()),
				finds(13*minute, 2, wellAgain()), finds(18*minute, 2, wellAgain())),
			want: advisoryGone,
		},
		"a list that was shorter for a moment": {
			device: plugged,
			steps: pluginFault(finds(10*minute, 3, badPlugged()), finds(11*minute, 4, badPlugged()), finds(13*minute, 3, badPlugged()),
				finds(14*minute, 3, wellAgain()), finds(19*minute, 3, wellAgain())),
			want: advisoryGone,
		},
		"the list became shorter: a look is owed at once": {
			device: plugged, steps: pluginFault(step{20 * sec, counted(3)}),
			want: advisory.but(func(w *want) { w.owes = "Look" }),
		},
		"the list is as long as it was: nothing new": {
			device: plugged, steps: pluginFault(step{20 * sec, counted(4)}),
			want: advisory,
		},
	})
}

// O4, O8: a plugin that dies takes no fault with it, nor does a kubelet that starts
// and calls everything Healthy until the plugin registers.
func TestAFaultOutlivesItsPluginAndItsKubelet(t *testing.T) {
	nothing := func(at time.Duration, r *ReadingBuilder) step {
		return step{at, MakeLooked().Missing(device.AllocatableDropped).Reading(r).Answer()}
	}
	healthyByDefault := func() *ReadingBuilder { return wellAgain().Stale(device.PluginAbsent) }
	check(t, map[string]row{
		"plugin killed: the last word stands": {
			device: plugged, steps: pluginFault(finds(10*minute, 4, badPlugged()), finds(40*minute, 4, badPlugged())),
			want: advisory,
		},
		"plugin killed and its list given up: gone after its settling time": {
			device: plugged, steps: pluginFault(nothing(10*minute, badPlugged()), nothing(15*minute, badPlugged())),
			want: advisoryGone,
		},
		"kubelet restarted: Healthy at once, and the case goes on": {
			device: plugged,
			steps: pluginFault(step{10 * minute, observed(wellAgain())}, step{10*minute + sec, missing(device.AllocatableDropped)},
				nothing(10*minute+2*sec, healthyByDefault()), nothing(13*minute, healthyByDefault())),
			want: advisory,
		},
		"and if the plugin is back and says so again, still": {
			device: plugged,
			steps: pluginFault(step{10*minute + sec, missing(device.AllocatableDropped)}, nothing(10*minute+2*sec, healthyByDefault()),
				step{12 * minute, observed(MakeReading("train-0").Unhealthy("").Version("4"))}, step{12*minute + sec, counted(4)},
				finds(12*minute+2*sec, 4, MakeReading("train-0").Unhealthy("").Version("4"))),
			want: advisory,
		},
		"and if it calls it Healthy, over after the window": {
			device: plugged,
			steps: pluginFault(step{10*minute + sec, missing(device.AllocatableDropped)}, nothing(10*minute+2*sec, healthyByDefault()),
				step{12 * minute, counted(4)}, finds(12*minute+2*sec, 4, wellAgain()), finds(28*minute, 4, wellAgain())),
			want: advisoryOver,
		},
		"and if it leaves it out, it isn't": {
			device: plugged,
			steps: pluginFault(step{10*minute + sec, missing(device.AllocatableDropped)}, nothing(10*minute+2*sec, healthyByDefault()),
				step{12 * minute, counted(3)}, finds(12*minute+2*sec, 3, wellAgain()), finds(13*minute, 3, wellAgain())),
			want: advisory,
		},
	})
}
