package quarantine_test

import (
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// O5: a Pod that gets hold of a quarantined device, past the mark or by a
// toleration, is a holder, and looks follow it until it leaves.
func TestAHolderThatSlippedPastTheMarkIsWatchedUntilItLeaves(t *testing.T) {
	slipped := step{minute, observed(MakeReading("train-1").Unhealthy(fatalFault))}
	check(t, map[string]row{
		"it is looked at": {
			steps: unheld(slipped),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "Look", ""),
		},
		"and once it has left the device rests": {
			steps: unheld(slipped, step{minute + sec, MakeLooked().Ended("train-0", "train-1").Answer()}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForCoolDown, "", ""),
		},
	})
}

// O3, O5: a fault that was said, and heard only when its Pod had ended, is a fault, also
// where another Pod that has the device calls it healthy.
func TestAFaultThatIsHeardWhenItsPodHasEndedIsOne(t *testing.T) {
	for rules, phase := range map[int]quarantine.Phase{quarantine.Rules: quarantine.PhaseQuarantined, 1: quarantine.PhaseSuspect} {
		p := enforce()
		p.Rules = rules
		l := live(t, gpu, p)
		l.tell(lost(MakeReading("train-0").Unknown(), MakeReading("infer-0").Healthy()))
		l.must(l.c.Phase == quarantine.PhaseSuspect, "one of two doesn't know")
		l.tell(observed(MakeReading("train-0").Unhealthy(fatalFault).Version("2").Ended(), MakeReading("infer-0").Healthy()))
		l.must(l.c.Phase == phase && l.c.Confirmed == (phase == quarantine.PhaseQuarantined), "by rules %d it is %s", rules, phase)
		l.tell(MakeLooked().Reading(MakeReading("infer-0").Healthy()).Ended("train-0").Answer())
		l.must(l.c.Phase == phase, "and stays so: a healthy word takes back no fault")
	}
}
