package starter

import (
	"errors"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// setWall gives a time as a process reads it whose wall clock was set: the monotonic
// reading goes on as if nothing had happened. No constructor makes such a time, so its
// seconds are changed where package time keeps them, in 33 bits above 30.
func setWall(t *testing.T, now time.Time, by time.Duration) time.Time {
	t.Helper()
	set := now
	wall := reflect.ValueOf(&set).Elem().FieldByName("wall")
	*(*uint64)(unsafe.Pointer(wall.UnsafeAddr())) += uint64(int64(by/time.Second)) << 30
	if set.Sub(now) != 0 || set.Round(0).Sub(now.Round(0)) != by {
		t.Fatalf("%s isn't %s with its wall clock set by %s", set, now, by)
	}
	return set
}

// O7: an hour more or less on the wall clock makes nothing old: no node silent, no
// plugin or driver away, no reading dated to another time than it was taken at.
func TestAWallClockThatIsSetConcludesNothing(t *testing.T) {
	dra, plugged := gpu("anvil-07", "gpu-3"), replica("anvil-07", "GPU-1")
	for name, by := range map[string]time.Duration{"an hour on": time.Hour, "an hour back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.clock.SetTime(time.Now()) // with a monotonic reading
			k := s.kubelets("anvil-07")
			s.offers("anvil-07", 4, 4)
			s.slice("anvil-07", 1, listed("gpu-3", "GPU-a"))
			s.report("train-0", dra, device.Healthy, "")
			s.report("train-1", plugged, device.Healthy, "")
			k.live(time.Minute, "anvil-07")
			// All of it has just begun to be away.
			s.offers("anvil-07", 4, 0)
			s.tracker.sliceGone("anvil-07-gpus")
			s.pass(time.Second)
			s.clock.SetTime(setWall(t, s.clock.Now(), by))
			s.pass(time.Second)
			k.list("anvil-07")
			s.pass(10 * time.Second)
			k.list() // one that is late for this kubelet, and not silent
			none(t, s.send(), "the clock was set")
			s.stale(plugged, device.PluginAbsent, "what is away shows as that, and not as a silent node")

			s.report("train-0", dra, device.Unhealthy, xid79)
			s.clock.SetTime(setWall(t, s.clock.Now(), -by))
			s.pass(3 * time.Second)
			e := observed(t, s.send(), dra, true)
			if age := e.Sent.Round(0).Sub(e.Readings[0].Observed.Round(0)); age != 3*time.Second {
				t.Errorf("the reading is sent as %s old, want 3 s", age)
			}
			if !e.Sent.Equal(s.clock.Now()) {
				t.Errorf("sent at %s, want %s", e.Sent, s.clock.Now())
			}
			// What has lasted counts, by the time that really passed.
			s.pass(20 * time.Second)
			if e := observed(t, s.send(), plugged, true); e.Readings[0].Stale != device.PluginAbsent {
				t.Errorf("told as %+v", e)
			}
		})
	}
}

// O7: what is missing at the moment at which the starter goes blind, and for however
// long it stays so, isn't away: it may be back long since. It has to last while it can
// be seen.
func TestNothingGoesAwayWhileTheStarterIsBlind(t *testing.T) {
	dra, plugged := gpu("anvil-07", "gpu-3"), replica("anvil-07", "GPU-1")
	s := newScene(t)
	s.kubelets("anvil-07")
	s.offers("anvil-07", 4, 4)
	s.slice("anvil-07", 1, listed("gpu-3", "GPU-a"))
	s.report("train-0", dra, device.Healthy, "")
	s.report("train-1", plugged, device.Healthy, "")
	s.offers("anvil-07", 4, 0)
	s.tracker.sliceGone("anvil-07-gpus")
	s.pass(25 * time.Second)
	for range 1000 {
		s.tracker.sees(false)
		s.pass(time.Second)
	}
	none(t, s.send(), "25 s and then blind")
	s.tracker.sees(true)
	s.pass(25 * time.Second)
	none(t, s.send(), "seeing again for 25 s")
	s.offers("anvil-07", 4, 4)
	s.slice("anvil-07", 2, listed("gpu-3", "GPU-a"))
	s.pass(time.Hour)
	none(t, s.send(), "and all was back")
	s.offers("anvil-07", 4, 0)
	s.pass(30 * time.Second)
	observed(t, s.send(), plugged, true)
}

// O7: a storm of relists brings the same over and over, and the API server that is away
// brings nothing; neither is news.
func TestRelistsAndAnAPIServerThatIsAwayAreNoNews(t *testing.T) {
	well, bad := gpu("anvil-07", "gpu-3"), gpu("anvil-07", "gpu-4")
	s := newScene(t)
	k := s.kubelets("anvil-07")
	s.slice("anvil-07", 1, listed("gpu-3", "GPU-a"), listed("gpu-4", "GPU-b"))
	first := s.report("train-0", well, device.Healthy, "")
	second := s.report("train-1", bad, device.Unhealthy, xid79)
	k.live(time.Minute, "anvil-07")
	observed(t, s.send(), bad, true)
	for range 1000 {
		s.sender.settling.begin()
		s.tracker.podSeen(first)
		s.tracker.podSeen(second)
		s.slice("anvil-07", 1, listed("gpu-3", "GPU-a"), listed("gpu-4", "GPU-b"))
		s.node("anvil-07", true, nil)
		s.pass(time.Second)
	}
	none(t, s.send(), "a thousand relists")
	for range 1000 {
		s.tracker.sees(false)
		s.tracker.leasesMissed()
		s.pass(15 * time.Second)
	}
	s.tracker.sees(true)
	k.list()
	s.pass(15 * time.Second)
	none(t, s.send(), "an API server that was away for four hours")
}

// O7: what can't be seen is named, by what it is; and by nothing once it is seen again.
func TestBlindnessIsNamed(t *testing.T) {
	s := newScene(t)
	eyes := newEyes(s.sender.log, newMetrics(), s.clock)
	eyes.opened("pods")
	if why := eyes.blind(); len(why) != 0 || eyes.err() != nil {
		t.Errorf("blind to %v: %v", why, eyes.err())
	}
	eyes.failed("pods", "watch", errors.New("connection refused"))
	eyes.missed(leases, leaseTrouble(errors.New("connection refused")))
	if why := eyes.blind(); !reflect.DeepEqual(why, []string{"leases", "pods"}) {
		t.Errorf("blind to %v", why)
	}
	eyes.opened("pods")
	eyes.closed(leases)
	if why := eyes.blind(); len(why) != 0 || eyes.err() != nil {
		t.Errorf("blind to %v: %v", why, eyes.err())
	}
}
