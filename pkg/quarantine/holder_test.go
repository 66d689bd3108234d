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
