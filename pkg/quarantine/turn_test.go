package quarantine_test

import (
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// A device that passed all other gates stays out, marked and held by our claim, for as
// long as it isn't its turn, and asks again and again; only its turn gives it back. A
// fault that comes meanwhile ends the attempt. Proves a part of R3.
func TestADeviceWaitsForItsTurn(t *testing.T) {
	r := keptOut(t, majorFault)
	r.w.proof.waiting = true
	r.follow(3*time.Hour, "it waits for its turn", func(c quarantine.Case) bool { return c.Waiting == quarantine.WaitingForTurn })
	r.passes(2 * time.Hour)
	r.settle()
	if r.c.Waiting != quarantine.WaitingForTurn || r.c.Attempt != 1 || r.c.Recovery.Wait == "" {
		t.Fatalf("hours later: %s", encode(t, r.c))
	}
	if r.w.mark == nil || r.c.Mark.State != quarantine.MarkInForce || len(r.w.proof.made) == 0 {
		t.Fatalf("while it waits its mark is %+v, and there is %v of the attempt", r.c.Mark, r.w.proof.made)
	}
	r.w.proof.waiting = false
	r.comesBack(time.Hour)
	if passed := r.c.Last.Passed; len(passed) != len(quarantine.Gates) || passed[5].Gate != quarantine.GateReturn || passed[5].Ended.Sub(passed[5].Began) < 2*time.Hour {
		t.Errorf("passed %+v", passed)
	}

	r = keptOut(t, majorFault)
	r.w.proof.waiting = true
	r.follow(3*time.Hour, "it waits for its turn", func(c quarantine.Case) bool { return c.Waiting == quarantine.WaitingForTurn })
	r.attemptSays(device.Unhealthy, majorFault)
	if r.c.Phase != quarantine.PhaseQuarantined || r.w.mark == nil {
		t.Errorf("bad again while it waited: %s", encode(t, r.c))
	}
}
