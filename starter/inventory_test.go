package starter

import (
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

func eight(node string) []device.Listed {
	var all []device.Listed
	for _, n := range []string{"0", "1", "2", "3", "4", "5", "6", "7"} {
		all = append(all, listed("gpu-"+n, "GPU-"+node+"-"+n))
	}
	return all
}

// O8: a device that a complete pool doesn't list any more is missing; a pool that
// is rewritten, incomplete or gone as a whole says nothing of single devices.
func TestADeviceThatLeavesItsPoolIsMissing(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newScene(t)
	s.tracker.nodeSeen("anvil-07", "node-uid", nil)
	s.slice("anvil-07", 11, eight("anvil-07")...)
	s.pass(2 * time.Second)
	none(t, s.send(), "a complete pool")

	s.tracker.sliceGone("anvil-07-gpus")
	s.pass(2 * time.Second)
	none(t, s.send(), "a kubelet that starts wipes its slices")

	seven := append(eight("anvil-07")[:3], eight("anvil-07")[4:]...)
	s.slice("anvil-07", 12, seven...)
	none(t, s.send(), "before the pool has come to rest")
	s.pass(2 * time.Second)
	e := only[quarantine.Inventory](t, s.send(), key, true)
	if e.Present || e.Missing != device.MissingFromPool || e.Node != "anvil-07" {
		t.Errorf("told as %+v", e)
	}
	s.slice("anvil-07", 13, seven...)
	s.pass(2 * time.Second)
	none(t, s.send(), "still missing")

	s.tracker.sliceGone("anvil-07-gpus")
	s.pass(2 * time.Second)
	if e := only[quarantine.Inventory](t, s.send(), key, false); e.Missing != device.PoolGone {
		t.Errorf("the pool is gone, told as %+v", e)
	}
	s.slice("anvil-07", 1, eight("anvil-07")...)
	s.pass(2 * time.Second)
	e = only[quarantine.Inventory](t, s.send(), key, false)
	if !e.Present || e.Now.UUID != "GPU-anvil-07-3" {
		t.Errorf("listed again, told as %+v", e)
	}
	s.pass(time.Hour)
	none(t, s.send(), "afterwards")
}

// O8: a half-written pool calls nothing missing, and one that starts again at
// generation 1 is believed.
func TestOnlyCompletePoolsAreBelieved(t *testing.T) {
	s := newScene(t)
	write := func(name string, generation, count int64, devices ...device.Listed) {
		s.tracker.sliceSeen(name, device.Slice{
			Driver: driver, Pool: "anvil-07", Node: "anvil-07", Generation: generation, SliceCount: count, Devices: devices,
		})
	}
	all := eight("anvil-07")
	write("a", 7, 2, all[:4]...)
	write("b", 7, 2, all[4:]...)
	s.pass(2 * time.Second)
	write("a", 8, 3, all[:2]...)
	s.pass(2 * time.Second)
	write("c", 8, 3, all[2:4]...)
	s.pass(time.Hour)
	none(t, s.send(), "two of three slices")
	write("b", 8, 3, all[4:]...)
	s.pass(2 * time.Second)
	none(t, s.send(), "complete again")
	for _, name := range []string{"a", "b", "c"} {
		s.tracker.sliceGone(name)
	}
	s.pass(time.Minute)
	write("d", 1, 1, all...)
	s.pass(2 * time.Second)
	none(t, s.send(), "a reset generation")
}

// O8: what is missing after a restart is found by what claims hold and what is
// marked, since nothing else remembers it.
func TestAfterARestartAHeldDeviceThatIsNotListedIsMissing(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	seven := append(eight("anvil-07")[:3], eight("anvil-07")[4:]...)
	hides := func(o *Options) { o.Drivers = map[string]DriverPolicy{driver: {HidesAllocated: true}} }
	t.Run("nobody contradicts", func(t *testing.T) {
		s := newScene(t)
		s.allocate("train-0", key)
		s.slice("anvil-07", 12, seven...)
		s.pass(2 * time.Second)
		if e := only[quarantine.Inventory](t, s.send(), key, true); e.Missing != device.MissingFromPool {
			t.Errorf("told as %+v", e)
		}
	})
	t.Run("its holder reports it healthy: in use, not listed", func(t *testing.T) {
		s := newScene(t)
		s.allocate("train-0", key)
		p := s.report("train-0", key, device.Healthy, "")
		s.slice("anvil-07", 12, seven...)
		s.pass(2 * time.Second)
		none(t, s.send(), "in use")
		// Once it is given back and still not listed, it is missing.
		s.tracker.podGone(p.Ref)
		s.tracker.claimGone("team-kestrel", "train-0-accel")
		s.pass(2 * time.Second)
		none(t, s.send(), "given back just now")
		s.pass(time.Minute)
		if e := only[quarantine.Inventory](t, s.send(), key, true); e.Missing != device.MissingFromPool {
			t.Errorf("told as %+v", e)
		}
	})
	t.Run("listed again after it was given back", func(t *testing.T) {
		s := newScene(t)
		s.slice("anvil-07", 11, eight("anvil-07")...)
		s.pass(2 * time.Second)
		s.allocate("train-0", key)
		p := s.report("train-0", key, device.Healthy, "")
		s.slice("anvil-07", 12, seven...)
		s.pass(2 * time.Second)
		none(t, s.send(), "in use")
		s.tracker.podGone(p.Ref)
		s.tracker.claimGone("team-kestrel", "train-0-accel")
		s.pass(5 * time.Second)
		s.slice("anvil-07", 13, eight("anvil-07")...)
		s.pass(time.Minute)
		none(t, s.send(), "listed again")
	})
	t.Run("a driver without a health service leaves it open", func(t *testing.T) {
		s := newScene(t)
		s.allocate("train-0", key)
		s.report("train-0", key, device.Unknown, "")
		s.slice("anvil-07", 12, seven...)
		s.pass(2 * time.Second)
		none(t, s.send(), "can't be told")
	})
	t.Run("a driver that is known to hide what is allocated", func(t *testing.T) {
		s := newScene(t, hides)
		s.allocate("train-0", key)
		s.slice("anvil-07", 12, seven...)
		s.pass(2 * time.Second)
		none(t, s.send(), "hidden")
	})
	t.Run("before everything was listed", func(t *testing.T) {
		s := newStandby(t)
		s.lead()
		s.allocate("train-0", key)
		s.slice("anvil-07", 12, seven...)
		s.pass(2 * time.Second)
		none(t, s.send(), "not everything was listed yet")
	})
}

// O8: an index that moved at a reboot is no missing device and no replacement; a
// new card under a known name is told to the case that the old one has. Case 25,
// row t=24:01:00.
func TestRenamedAndReplacedHardware(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	t.Run("renamed without a case", func(t *testing.T) {
		s := newScene(t)
		s.slice("anvil-07", 1, listed("gpu-3", "GPU-old"))
		s.pass(2 * time.Second)
		s.slice("anvil-07", 2, listed("gpu-4", "GPU-old"))
		s.pass(2 * time.Second)
		none(t, s.send(), "another name for the same card")
	})
	t.Run("replaced while its case is open", func(t *testing.T) {
		s := newScene(t)
		s.slice("anvil-07", 20, listed("gpu-3", "GPU-old"))
		s.pass(2 * time.Second)
		s.report("train-0", key, device.Unhealthy, xid79)
		if e := observed(t, s.send(), key, true); e.Incarnation.UUID != "GPU-old" {
			t.Errorf("sent as %+v", e)
		}
		s.slice("anvil-07", 21, listed("gpu-3", "GPU-new"))
		s.pass(2 * time.Second)
		e := only[quarantine.Inventory](t, s.send(), key, false)
		if !e.Present || e.Now.UUID != "GPU-new" || e.MovedTo != "" {
			t.Errorf("told as %+v", e)
		}
		s.slice("anvil-07", 22, listed("gpu-3", "GPU-new"))
		s.pass(2 * time.Second)
		none(t, s.send(), "afterwards")
	})
	t.Run("renumbered while its case is open", func(t *testing.T) {
		s := newScene(t)
		s.slice("anvil-07", 20, listed("gpu-3", "GPU-old"), listed("gpu-4", "GPU-other"))
		s.pass(2 * time.Second)
		s.report("train-0", key, device.Unhealthy, xid79)
		observed(t, s.send(), key, true)
		s.slice("anvil-07", 21, listed("gpu-3", "GPU-other"), listed("gpu-4", "GPU-old"))
		s.pass(2 * time.Second)
		e := only[quarantine.Inventory](t, s.send(), key, false)
		if !e.Present || e.MovedTo != gpu("anvil-07", "gpu-4").String() {
			t.Errorf("told as %+v", e)
		}
		s.slice("anvil-07", 22, listed("gpu-3", "GPU-other"), listed("gpu-4", "GPU-old"))
		s.pass(2 * time.Second)
		none(t, s.send(), "afterwards")
	})
}

// O8: a deleted node is told to the cases on it, and one made anew under the same
// name is another node.
func TestANodeMadeAnewUnderTheSameName(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newScene(t)
	s.tracker.nodeSeen("anvil-07", "first", nil)
	s.slice("anvil-07", 1, eight("anvil-07")...)
	s.pass(2 * time.Second)
	s.report("train-0", key, device.Unhealthy, xid79)
	observed(t, s.send(), key, true)

	s.tracker.nodeGone("anvil-07")
	if e := only[quarantine.Inventory](t, s.send(), key, false); e.Missing != device.NodeDeleted {
		t.Errorf("told as %+v", e)
	}
	s.tracker.podGone(device.PodRef{Namespace: "team-kestrel", Name: "train-0", UID: "uid-train-0"})
	if e := observed(t, s.send(), key, false); !e.Readings[0].Ended {
		t.Errorf("told as %+v", e)
	}
	s.tracker.sliceGone("anvil-07-gpus")
	s.pass(2 * time.Second)
	none(t, s.send(), "the node's slices are collected")

	// The new node has four cards. The other four of the first aren't missing from it.
	s.tracker.nodeSeen("anvil-07", "second", nil)
	s.slice("anvil-07", 1, eight("second")[:4]...)
	s.pass(2 * time.Second)
	if e := only[quarantine.Inventory](t, s.send(), key, false); !e.Present || e.Now.UUID != "GPU-second-3" {
		t.Errorf("told as %+v", e)
	}
	// What was known of the driver's health on the first node is not known of this one.
	s.report("train-1", gpu("anvil-07", "gpu-1"), device.Unknown, "")
	none(t, s.send(), "never known on the new node")
}

func TestANodeReplacedInOneEventIsAnotherNode(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newScene(t)
	s.tracker.nodeSeen("anvil-07", "first", nil)
	s.slice("anvil-07", 1, eight("anvil-07")...)
	s.pass(2 * time.Second)
	s.report("train-0", key, device.Unhealthy, xid79)
	observed(t, s.send(), key, true)
	s.tracker.nodeSeen("anvil-07", "second", nil)
	if e := only[quarantine.Inventory](t, s.send(), key, false); e.Missing != device.NodeDeleted {
		t.Errorf("told as %+v", e)
	}
	s.pass(2 * time.Second)
	if e := only[quarantine.Inventory](t, s.send(), key, false); !e.Present {
		t.Errorf("listed on the new node, told as %+v", e)
	}
}

// Q10: a device in a pool that isn't on a node was only seen from one; that this node
// is deleted says nothing of it.
func TestADeviceOnNoNodeOutlivesTheNodeItWasSeenFrom(t *testing.T) {
	key := gpu("fabric", "nic-0")
	s := newScene(t)
	s.tracker.nodeSeen("anvil-07", "node-uid", nil)
	s.tracker.sliceSeen("fabric-1", device.Slice{
		Driver: key.Driver, Pool: key.Pool, Generation: 1, SliceCount: 1,
		Devices: []device.Listed{listed("nic-0", "NIC-0")},
	})
	s.see(podOn("anvil-07", "train-0", entry(key, device.Unhealthy, xid79)))
	observed(t, s.send(), key, true)
	s.clock.Step(s.sender.timing.InventoryQuiet)
	s.send()
	s.tracker.nodeGone("anvil-07")
	for _, sent := range s.send() {
		if e, ok := sent.event.(quarantine.Inventory); ok && e.Missing != "" {
			t.Errorf("told as %+v: the device is still listed", e)
		}
	}
}
