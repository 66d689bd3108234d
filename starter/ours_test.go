package starter

import (
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

const probes = "sickbay-probe"

func withProbes(o *Options) { o.Ours = probes }

// tried delivers Sickbay's own claim on a device, by a class.
func (s *scene) tried(key device.Key) {
	s.tracker.claimSeen(device.Claim{
		Namespace: probes, Name: "probe-accel", UID: "claim-probe",
		Results:     []device.Allocated{{Request: "device", Device: key, Class: "probing"}},
		ReservedFor: []device.PodRef{{Namespace: probes, Name: "probe", UID: "uid-probe"}},
	})
}

// trying is Sickbay's own Pod on a device, which says something of it.
func trying(key device.Key, health device.Health, message string) device.Pod {
	node := key.Pool
	if key.Path() == device.PathPlugin {
		node = key.Node
	}
	p := podOn(node, "probe", entry(key, health, message))
	p.Ref.Namespace = probes
	return p
}

// Proves a part of R1: what tries a device before it is given back says how the device is, and
// is nobody who holds it, uses it, or is its tenant.
func TestWhatTriesADeviceSaysHowItIsAndHoldsNothing(t *testing.T) {
	s := newScene(t, withProbes)
	key := gpu("anvil-07", "gpu-0")
	s.node("anvil-07", true, nil)
	s.slice("anvil-07", 1, listed("gpu-0", "GPU-a"))
	s.tried(key)
	s.see(trying(key, device.Healthy, ""))
	none(t, s.send(), "it is well")
	seen := func(when string) {
		t.Helper()
		if got := s.seenOf(key); len(got.Holders) != 0 || len(got.Classes) != 0 {
			t.Errorf("%s: shown with holders %v of classes %v, want none", when, got.Holders, got.Classes)
		}
		if gaps := s.tracker.coverage(); len(gaps) != 0 {
			t.Errorf("%s: in use and not watched are %v", when, gaps)
		}
	}
	seen("its claim is known")
	s.see(trying(key, device.Unhealthy, xid79))
	said := observed(t, s.send(), key, true)
	if len(said.Readings) != 1 || !said.Readings[0].Monitor || !said.Readings[0].Fault {
		t.Errorf("told as %+v, want a fault that somebody who holds nothing saw", said.Readings)
	}
	if tenants := s.tracker.tenants(s.tracker.devices[key]); len(tenants) != 0 {
		t.Errorf("its tenants are %v", tenants)
	}
	s.tracker.claimGone(probes, "probe-accel")
	s.see(trying(key, device.Healthy, ""))
	if said := observed(t, s.send(), key, false); !said.Readings[0].Monitor {
		t.Error("with its claim deleted, the Pod counts as one that holds the device")
	}
	seen("its claim is gone")

	// A tenant's claim and Pod beside it count as ever, in a namespace of any other name.
	s.hold("train", "gpu.example.com", key, false)
	if got := s.seenOf(key); len(got.Holders) != 1 || len(got.Classes) != 1 {
		t.Errorf("shown as %+v, want the tenant", got)
	}
	replicated := replica("anvil-07", "GPU-b")
	s.see(trying(replicated, device.Healthy, ""))
	if got := s.seenOf(replicated); got == nil || len(got.Holders) != 0 {
		t.Errorf("a plugin's device is shown as %+v, want no holder", got)
	}
}

// Without the namespace being named nothing in it is Sickbay's: its Pods hold what they
// have.
func TestWhereNoNamespaceIsSickbaysEveryPodHoldsWhatItHas(t *testing.T) {
	s := newScene(t)
	key := gpu("anvil-07", "gpu-0")
	s.slice("anvil-07", 1, listed("gpu-0", "GPU-a"))
	s.tried(key)
	s.see(trying(key, device.Unhealthy, xid79))
	if said := observed(t, s.send(), key, true); said.Readings[0].Monitor {
		t.Errorf("told as %+v", said.Readings)
	}
	if got := s.seenOf(key); len(got.Holders) != 1 {
		t.Errorf("shown with holders %v, want the Pod", got.Holders)
	}
}

// An attempt sees by itself what becomes of its Pods. It is no tenant's trouble.
func TestWhatTriesADeviceRaisesNothingItself(t *testing.T) {
	s := newScene(t, withProbes)
	key := gpu("anvil-07", "gpu-0")
	s.node("anvil-07", true, nil)
	s.slice("anvil-07", 1, listed("gpu-0", "GPU-a"))
	nameless := trying(key, device.Unhealthy, xid79)
	nameless.Containers[0].Entries[0].ResourceID = "k8s.gpu.nvidia.com/claim=c1-gpu-0"
	s.see(nameless)
	s.pass(2 * time.Second)
	if all := s.tracker.unmappedFaults(); len(all) != 0 {
		t.Errorf("raised as faults that lead to no device: %+v", all)
	}
	s.tried(key)
	waiting := trying(key, device.Healthy, "")
	waiting.Pending, waiting.Containers = true, nil
	s.see(waiting)
	s.tracker.sliceGone("anvil-07-gpus")
	s.pass(time.Second)
	s.pass(5 * time.Minute)
	if count, _ := s.tracker.unpreparedClaims(); count[driver] != 0 {
		t.Errorf("%d claims of tenants can't be prepared", count[driver])
	}
}

// A device that Sickbay tries isn't in use: gone from its slices, it is gone. Only where
// the driver hides whatever is allocated it says nothing.
func TestADeviceThatIsTriedAndNotListedIsMissing(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	seven := append(eight("anvil-07")[:3], eight("anvil-07")[4:]...)
	for name, hides := range map[string]bool{"the driver lists what is allocated": false, "the driver hides what is allocated": true} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, withProbes, func(o *Options) {
				o.Drivers = map[string]DriverPolicy{driver: {HidesAllocated: hides}}
			})
			s.slice("anvil-07", 11, eight("anvil-07")...)
			s.pass(2 * time.Second)
			s.tried(key)
			s.see(trying(key, device.Healthy, ""))
			s.slice("anvil-07", 12, seven...)
			s.pass(2 * time.Second)
			if hides {
				none(t, s.send(), "hidden")
				return
			}
			calls := s.send()
			if len(calls) == 0 {
				t.Fatal("nobody is told that the device is gone")
			}
			if e, ok := calls[0].event.(quarantine.Inventory); !ok || calls[0].key != key || e.Missing != device.MissingFromPool {
				t.Errorf("told as %+v", calls[0])
			}
		})
	}
}
