package starter

import (
	"fmt"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// offers lets the node say how many devices of the plugin's resource are on its
// list, and how many of them may be given out.
func (s *scene) offers(node string, listed, allocatable int64) {
	s.tracker.nodeSeen(node, node+"-uid", map[string]device.Offer{plugin: {Listed: listed, Allocatable: allocatable}})
}

// O4, O8, U1: where nothing of a resource is allocatable, nobody stands behind a
// Healthy of its devices: those in use become Unknown, each with a case that waits.
// What was Unhealthy stays so, and a plugin that is back is told at once.
func TestAPluginThatIsAwayMakesItsDevicesInUseUnknown(t *testing.T) {
	bad, well, other := replica("anvil-07", "GPU-1"), replica("anvil-07", "GPU-2"), replica("anvil-08", "GPU-2")
	s := newScene(t)
	s.offers("anvil-07", 4, 4)
	s.offers("anvil-08", 4, 4)
	s.report("train-0", bad, device.Unhealthy, "")
	s.report("train-1", well, device.Healthy, "")
	s.report("train-2", other, device.Healthy, "")
	observed(t, s.send(), bad, true)

	s.offers("anvil-07", 4, 0)
	none(t, s.send(), "a plugin that is away for a moment")
	s.pass(20 * time.Second)
	none(t, s.send(), "a plugin that is being replaced")
	s.pass(10 * time.Second)
	e := observed(t, s.send(), well, true)
	if r := e.Readings[0]; !e.Lost || r.Health != device.Healthy || r.Stale != device.PluginAbsent || r.Counts() != device.Unknown {
		t.Errorf("told as %+v, want a Healthy that isn't believed, and a loss", e)
	}
	s.report("train-0", bad, device.Unhealthy, "")
	s.report("train-1", well, device.Healthy, "")
	s.pass(time.Hour)
	none(t, s.send(), "the same said again")

	late := replica("anvil-07", "GPU-3")
	s.report("train-3", late, device.Healthy, "")
	if e := observed(t, s.send(), late, true); e.Readings[0].Stale != device.PluginAbsent {
		t.Errorf("a Pod that is seen later is told as %+v", e)
	}

	s.offers("anvil-07", 4, 3)
	calls := s.send()
	if len(calls) != 2 {
		t.Fatalf("%d signals, want one for each device that is believed again: %+v", len(calls), calls)
	}
	for i, key := range []device.Key{well, late} {
		if e := observedIn(t, calls[i], key, false); e.Readings[0].Stale != device.Fresh || e.Lost {
			t.Errorf("told as %+v, want a Healthy that may be believed", e)
		}
	}
}

// O7, O8: what isn't known of a node, or of a plugin that nobody has devices of, is
// concluded from nothing.
func TestOnlyWhatANodeSaysMakesAPluginAbsent(t *testing.T) {
	key := replica("anvil-07", "GPU-1")
	for name, happens := range map[string]func(*scene){
		"the node was never seen": func(s *scene) { s.report("train-0", key, device.Healthy, "") },
		"the plugin was away for less than a moment": func(s *scene) {
			s.report("train-0", key, device.Healthy, "")
			s.offers("anvil-07", 0, 0)
			s.pass(29 * time.Second)
			s.offers("anvil-07", 2, 2)
			s.pass(time.Second)
			s.offers("anvil-07", 0, 0)
			s.pass(29 * time.Second)
			s.offers("anvil-07", 2, 2)
		},
		"nobody has a device of it": func(s *scene) { s.offers("anvil-07", 4, 0) },
		"another resource has no plugin": func(s *scene) {
			s.report("train-0", key, device.Healthy, "")
			s.tracker.nodeSeen("anvil-07", "uid", map[string]device.Offer{plugin: {Listed: 2, Allocatable: 1}, "example.com/nic": {Listed: 2}})
		},
		"all others are Unhealthy, and it is the one that is allocatable": func(s *scene) {
			s.report("train-0", key, device.Healthy, "")
			s.offers("anvil-07", 8, 1)
		},
		"its Pod ended meanwhile": func(s *scene) {
			s.offers("anvil-07", 4, 0)
			p := s.report("train-0", key, device.Healthy, "")
			s.tracker.podGone(p.Ref)
		},
		"the node is deleted": func(s *scene) {
			s.offers("anvil-07", 4, 0)
			s.report("train-0", key, device.Healthy, "")
			s.tracker.nodeGone("anvil-07")
		},
		"the operator ignores its Unknown": func(s *scene) {
			s.tracker.drivers = map[string]DriverPolicy{plugin: {Unknown: UnknownIgnore}}
			s.report("train-0", key, device.Healthy, "")
			s.offers("anvil-07", 4, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			happens(s)
			s.pass(time.Hour)
			none(t, s.send(), name)
		})
	}
}

// O7: before everything was listed, a plugin isn't missed.
func TestAStarterThatHasJustStartedMissesNoPlugin(t *testing.T) {
	key := replica("anvil-07", "GPU-1")
	s := newStandby(t)
	s.lead()
	s.report("train-0", key, device.Healthy, "")
	s.offers("anvil-07", 4, 0)
	s.pass(time.Hour)
	none(t, s.send(), "not everything was listed yet")
	s.tracker.listed()
	s.pass(0)
	observed(t, s.send(), key, true)
}

// O8: a plugin that is known to list nothing is told to open cases, by its own
// reason; how many devices a plugin lists is told when that changes.
func TestOpenCasesHearOfWhatTheirNodeLists(t *testing.T) {
	key := replica("anvil-07", "GPU-1")
	s := newScene(t)
	s.offers("anvil-07", 2, 2)
	s.report("train-0", key, device.Unhealthy, "")
	observed(t, s.send(), key, true)
	s.offers("anvil-07", 2, 1)
	none(t, s.send(), "one device less may be given out, as the plugin said")
	s.offers("anvil-07", 2, 0)
	none(t, s.send(), "none may be given out, and the devices are listed")
	s.offers("anvil-07", 0, 0)
	if e := only[quarantine.Inventory](t, s.send(), key, false); e.Present || e.Missing != device.AllocatableDropped {
		t.Errorf("told as %+v", e)
	}
	for i, listed := range []int64{2, 1, 2} {
		s.offers("anvil-07", listed, 1)
		if e := only[quarantine.Inventory](t, s.send(), key, false); !e.Present || e.Listed != listed {
			t.Errorf("change %d told as %+v, want %d listed", i, e, listed)
		}
		s.offers("anvil-07", listed, 1)
		none(t, s.send(), fmt.Sprintf("%d listed still", listed))
	}
}
