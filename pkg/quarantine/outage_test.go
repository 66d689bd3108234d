package quarantine_test

import (
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// O6: while its node is out a suspect's window stands still, whatever the entries of
// its Pods say, and the device is read anew when it returns.
func TestAnOutageOfTheNodeSuspendsJudgement(t *testing.T) {
	dead := func(what func() *LookedBuilder) func() *LookedBuilder {
		return func() *LookedBuilder { return what().Lease("1") }
	}
	faulty := func() *LookedBuilder {
		return MakeLooked().Reading(MakeReading("train-0").Unhealthy(fatalFault).Version("2"))
	}
	begin := func(t *testing.T) *life {
		l := live(t, gpu, enforce())
		l.tell(lost(MakeReading("train-0").Unknown()))
		l.follow(2*minute, stillUnknown)
		return l
	}
	t.Run("its frozen entries are no evidence", func(t *testing.T) {
		l := begin(t)
		l.follow(6*minute, dead(stillUnknown))
		l.must(l.c.Outage != nil && l.c.Outage.Why == device.NodeSilent, "the node is out")
		l.follow(3*hour, dead(faulty))
		l.must(l.c.Phase == quarantine.PhaseSuspect && !l.c.Confirmed, "what a dead kubelet wrote is no fault")
		l.follow(6*hour, dead(backAgain))
		l.must(l.c.Phase == quarantine.PhaseSuspect && l.c.GoodSince.IsZero(), "and no health")
	})
	t.Run("the node isn't ready", func(t *testing.T) {
		l := begin(t)
		l.follow(4*hour, func() *LookedBuilder { return faulty().NotReady() })
		l.must(l.c.Phase == quarantine.PhaseSuspect && l.c.Outage.Why == device.NodeNotReady, "nothing is judged")
	})
	t.Run("its condition Ready says why, as anywhere else", func(t *testing.T) {
		for ready, why := range map[device.Readiness]device.Staleness{
			device.ReadyUnknown: device.NodeSilent, "": device.NodeNotReady, device.ReadyFalse: device.NodeNotReady,
		} {
			l := live(t, gpu, enforce())
			l.tell(lost(MakeReading("train-0").Unknown()))
			l.tell(stillUnknown().NotReady().Ready(ready).Answer())
			l.must(l.c.Outage != nil && l.c.Outage.Why == why, "Ready %q is %s", ready, why)
		}
	})
	t.Run("the window goes on with what was left of it", func(t *testing.T) {
		l := begin(t)
		l.follow(4*hour, dead(stillUnknown))
		left := l.c.Outage.Left
		l.must(left > 0 && left < 3*minute, "%s of the window were left", left)
		for l.c.Outage != nil && l.now.Before(start.Add(6*hour)) {
			l.follow(l.now.Sub(start)+sec, stillUnknown)
		}
		back := l.now
		l.must(l.c.Outage == nil && l.c.GraceUntil.Sub(back.Add(max(left, 2*minute))).Abs() <= sec, "the window ends %s after the node is back, not at %s", left, l.c.GraceUntil)
		l.follow(8*hour, stillUnknown)
		l.must(l.c.Asking && !l.now.Before(back.Add(left)), "it asks past its window")
	})
	t.Run("a fault that is there when it returns counts", func(t *testing.T) {
		l := begin(t)
		l.follow(hour, dead(stillUnknown))
		l.follow(2*hour, faulty)
		l.must(l.c.Phase == quarantine.PhaseQuarantined, "read anew")
	})
	t.Run("a restricted device stays out and isn't judged", func(t *testing.T) {
		l := restricted(t, enforce())
		l.follow(5*hour, dead(backAgain))
		l.must(l.c.Phase == quarantine.PhaseRestricted && l.c.Waiting == quarantine.WaitingForNode && l.c.Mark.State == quarantine.MarkInForce, "it waits for the node")
	})
}
