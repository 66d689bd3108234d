package starter

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// The tests below are what reported cases come to in the starter: which signals go
// out, to which device's case. What the case makes of them is tested in
// pkg/quarantine.

// O3. Case 02, each row that shows in a Pod's status: two endpoints that overwrite
// each other make one case. What it is told is the level, the fault before what
// followed it.
func TestTwoEndpointsThatOverwriteEachOtherSignalOneCase(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	flap := []struct {
		atSeconds int
		health    device.Health
		open      bool
	}{
		{6, device.Unhealthy, true}, {7, device.Healthy, false}, {9, device.Unhealthy, true}, {12, device.Unknown, true}, {20, device.Unhealthy, true},
	}
	message := map[device.Health]string{device.Unhealthy: xid79}
	t.Run("signalled row by row", func(t *testing.T) {
		s := newScene(t)
		s.report("train-0", key, device.Healthy, "")
		for _, row := range flap {
			s.pass(startOfTime.Add(time.Duration(row.atSeconds) * time.Second).Sub(s.clock.Now()))
			s.report("train-0", key, row.health, message[row.health])
			if e := observed(t, s.send(), key, row.open); len(e.Readings) != 1 || e.Readings[0].Health != row.health {
				t.Errorf("t=%d: sent %+v", row.atSeconds, e.Readings)
			}
		}
		if len(s.cases.running) != 1 {
			t.Errorf("%d cases, want one", len(s.cases.running))
		}
	})
	t.Run("signalled after the flap", func(t *testing.T) {
		s := newScene(t)
		s.report("train-0", key, device.Healthy, "")
		for _, row := range flap[:4] {
			s.report("train-0", key, row.health, message[row.health])
		}
		e := observed(t, s.send(), key, true)
		if len(e.Readings) != 2 || e.Readings[0].Health != device.Unhealthy || e.Readings[1].Health != device.Unknown {
			t.Errorf("sent %+v, want the fault and the level", e.Readings)
		}
	})
}

// O1, U1. Case 04, rows t=0, t=300 and t=24:00:00: a device whose driver has no
// health service is a gap in coverage and no fault, and the GPU in the same Pod is
// left alone.
func TestADriverWithoutAHealthServiceIsAGapInCoverage(t *testing.T) {
	channel := device.Key{Driver: "compute-domain.example.com", Pool: "anvil-07", Device: "channel-0"}
	s := newScene(t)
	s.slice("anvil-07", 1, listed("gpu-3", "GPU-a"))
	p := podOn("anvil-07", "mpi-0", entry(channel, device.Unknown, ""), entry(gpu("anvil-07", "gpu-3"), device.Healthy, ""))
	for _, after := range []time.Duration{0, 300 * time.Second, 24 * time.Hour} {
		s.pass(startOfTime.Add(after).Sub(s.clock.Now()))
		s.see(p)
		none(t, s.send(), after.String())
		if gaps := s.tracker.coverage(); len(gaps) != 1 || gaps[channel.Driver] != 1 {
			t.Errorf("%s: gaps in coverage: %v", after, gaps)
		}
	}
}

// Q7. Case 10, rows t=0 and t=10: what isn't the device's fault is noted against
// the Pod that had it, with its rule, and contained errors are counted.
func TestWhatTheCatalogueForgivesIsNoted(t *testing.T) {
	var log bytes.Buffer
	s := newScene(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.tracker.metrics.noted)
	noted := func(code, action string) float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				labels := map[string]string{}
				for _, l := range metric.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				if family.GetName() == "sickbay_noted_faults_total" && labels["reason"] == code && labels["action"] == action {
					return metric.GetCounter().GetValue()
				}
			}
		}
		return 0
	}
	key := gpu("anvil-07", "gpu-3")
	s.report("notebook", key, device.Unhealthy, "XID 31: MMU fault")
	none(t, s.send(), "31")
	if n := noted("XidMemoryPageFault", "blameWorkload"); n != 1 {
		t.Errorf("31 noted %v times", n)
	}
	for _, text := range []string{"pod=team-kestrel/notebook", "rule=nvidia/xid-31", "action=blameWorkload", key.String()} {
		if !strings.Contains(log.String(), text) {
			t.Errorf("the note doesn't say %q:\n%s", text, log.String())
		}
	}
	for range 2 {
		s.report("notebook", key, device.Unhealthy, xid94)
		s.report("notebook", key, device.Healthy, "")
	}
	none(t, s.send(), "94")
	if n := noted("XidContainedMemoryError", "watch"); n != 2 {
		t.Errorf("94 noted %v times, want 2", n)
	}
	if !strings.Contains(log.String(), "watched=2") {
		t.Errorf("the device's count of contained errors isn't said:\n%s", log.String())
	}
}

// O1, O5. Case 35, its three rows: a Pod that has its device through plain limits
// is no news until its status says something, and then its device's fault is.
func TestAFaultSeenThroughAnExtendedResourceOpensItsCase(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	const claim = "legacy-1-extended-resources-x7k2p"
	s := newScene(t)
	p := device.Pod{Ref: device.PodRef{Namespace: "team-kestrel", Name: "legacy-1", UID: "uid-legacy-1"}, Node: "anvil-07"}
	s.see(p)
	none(t, s.send(), "t=0: limits, and no claim in the spec")
	p.ExtendedClaim = claim
	s.tracker.claimSeen(device.Claim{Namespace: "team-kestrel", Name: claim, UID: "claim-legacy-1", ReservedFor: []device.PodRef{p.Ref},
		Results: []device.Allocated{{Request: "container-0-request-0", Device: key}}})
	s.see(p)
	none(t, s.send(), "t=1: the status names the claim")
	// Once by the device's own name, once by a CDI ID that only the claim explains.
	for i, id := range []string{key.String(), "gpu.example.com/claim=0a4d-gpu-0"} {
		p.Containers = []device.Container{{Name: "app", Entries: []device.Entry{
			{Name: "claim:" + claim + "/container-0-request-0", ResourceID: id, Health: device.Unhealthy, Message: xid79}}}}
		s.see(p)
		if i > 0 {
			none(t, s.send(), "the same said through a CDI ID")
			continue
		}
		e := observed(t, s.send(), key, true)
		if r := e.Readings[0]; r.Pod != p.Ref || r.Claim != claim || r.Monitor || !r.Fault {
			t.Errorf("t=5: sent %+v", r)
		}
	}
	if n := len(s.tracker.unmappedFaults()); n != 0 {
		t.Errorf("%d unmapped faults", n)
	}
}

// O8. Case 12, rows t=100 and t=160: a node that boots anew wipes its slices, and
// of the seven that come back none is suspected; gpu-3's case alone hears of it,
// and goes on hearing of it.
func TestACardThatDoesNotComeBackFromABootIsMissing(t *testing.T) {
	s := newScene(t)
	s.tracker.nodeSeen("anvil-07", "node-uid", nil)
	s.slice("anvil-07", 11, eight("anvil-07")...)
	s.pass(100 * time.Second)
	none(t, s.send(), "t=0: eight devices")
	s.tracker.sliceGone("anvil-07-gpus")
	s.tracker.nodeSeen("anvil-07", "node-uid", nil)
	s.pass(60 * time.Second)
	none(t, s.send(), "t=100: the node boots")
	s.slice("anvil-07", 12, append(eight("anvil-07")[:3], eight("anvil-07")[4:]...)...)
	s.pass(time.Minute)
	if e := only[quarantine.Inventory](t, s.send(), gpu("anvil-07", "gpu-3"), true); e.Present || e.Missing != device.MissingFromPool {
		t.Errorf("t=160: told as %+v", e)
	}
	s.slice("anvil-07", 13, eight("anvil-07")...)
	s.pass(time.Minute)
	if e := only[quarantine.Inventory](t, s.send(), gpu("anvil-07", "gpu-3"), false); !e.Present {
		t.Errorf("listed again, told as %+v", e)
	}
}

// O4, O8. Case 38, each row, and "never: eight Unhealthy devices": a driver dies, and a
// claim is allocated from the slice that it left behind. That the kubelet wipes the
// slice is no fault of any device in it; the Pod that can't start is shown, with its
// age, until the driver is back or the Pod is gone.
func TestCase38AClaimAllocatedFromASliceThatWasWiped(t *testing.T) {
	const node = "anvil-07"
	key, held := gpu(node, "gpu-2"), gpu(node, "gpu-1")
	s := newScene(t)
	at := func(seconds int) {
		t.Helper()
		s.pass(startOfTime.Add(time.Duration(seconds) * time.Second).Sub(s.clock.Now()))
	}
	stuck := func(want int, age time.Duration, when string) {
		t.Helper()
		if count, longest := s.tracker.unpreparedClaims(); count[driver] != want || longest[driver] != age {
			t.Errorf("%s: %d claims can't be prepared, the first for %s; want %d, for %s", when, count[driver], longest[driver], want, age)
		}
	}
	s.node(node, true, nil)
	s.slice(node, 4, eight(node)...)
	s.hold("earlier", "", held, false)
	s.report("earlier", held, device.Healthy, "")
	at(12)
	s.hold("w-1", "", key, false)
	waiting := podOn(node, "w-1")
	waiting.Pending = true
	s.see(waiting)
	at(29)
	stuck(0, 0, "t=12, the slice is still there")
	at(30)
	s.tracker.sliceGone(node + "-gpus")
	at(31)
	none(t, s.send(), "t=30, eight devices are gone from the API")
	stuck(0, 0, "t=31, a kubelet that restarts looks the same")
	at(149)
	none(t, s.send(), "t=149")
	at(151)
	stuck(1, 120*time.Second, "t=151")
	// Of the device that is in use nothing is known any more. That is all.
	if e := observed(t, s.send(), held, true); e.Readings[0].Stale != device.DriverAbsent {
		t.Errorf("told as %+v", e)
	}
	at(900)
	none(t, s.send(), "t=900, the driver is away still")
	stuck(1, 869*time.Second, "t=900")
	if s.seenOf(key) == nil || len(s.seenOf(key).Holders) != 1 {
		t.Errorf("the device of the claim is shown as %+v; want its holder", s.seenOf(key))
	}

	s.slice(node, 5, eight(node)...)
	stuck(0, 0, "must: the driver is back")
	observed(t, s.send(), held, false)
	s.pass(time.Second)
	s.tracker.sliceGone(node + "-gpus")
	s.pass(time.Second)
	s.pass(2 * time.Minute)
	stuck(1, 2*time.Minute, "the driver is gone again")
	s.tracker.podGone(waiting.Ref)
	s.pass(time.Second)
	stuck(0, 0, "the Pod is gone")
}

// O6. Case 38 on a node that is out: its Pods wait for the node, and not for a driver.
func TestCase38APodOfANodeThatIsOutWaitsForItsNode(t *testing.T) {
	key := gpu("anvil-07", "gpu-2")
	s := newScene(t)
	s.node("anvil-07", true, nil)
	s.slice("anvil-07", 4, eight("anvil-07")...)
	s.hold("w-1", "", key, false)
	waiting := podOn("anvil-07", "w-1")
	waiting.Pending = true
	s.see(waiting)
	s.tracker.nodeReady("anvil-07", device.ReadyFalse)
	s.tracker.sliceGone("anvil-07-gpus")
	s.pass(time.Hour)
	if count, _ := s.tracker.unpreparedClaims(); count[driver] != 0 {
		t.Errorf("%d claims are said to lack their driver", count[driver])
	}
	none(t, s.send(), "a node that is out")
}

// O8. Case 40, each row, and "never: raise a fault at t=8": a device that leaves the
// slice because it is in use is no fault, neither where the operator says that its
// driver does so nor where its holder calls it Healthy; one that nobody has and that
// isn't listed is missing, once that has settled.
func TestCase40ADeviceLeavesTheSliceBecauseItIsInUse(t *testing.T) {
	eth1 := device.Key{Driver: "net.example.com", Pool: "harbor-12", Device: "eth1"}
	publish := func(s *scene, generation int64, names ...string) {
		var devices []device.Listed
		for _, name := range names {
			devices = append(devices, listed(name, "NIC-"+name))
		}
		s.tracker.sliceSeen("harbor-12-net", device.Slice{
			Driver: eth1.Driver, Pool: "harbor-12", Node: "harbor-12", Generation: generation, SliceCount: 1, Devices: devices,
		})
	}
	trait := func(o *Options) { o.Drivers = map[string]DriverPolicy{eth1.Driver: {HidesAllocated: true}} }
	for name, tc := range map[string]struct {
		options []func(*Options)
		reports bool
	}{
		"the operator says that its driver hides what is allocated": {options: []func(*Options){trait}},
		"its holder calls it Healthy":                               {reports: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, tc.options...)
			at := func(seconds int) {
				t.Helper()
				s.pass(startOfTime.Add(time.Duration(seconds) * time.Second).Sub(s.clock.Now()))
			}
			s.node("harbor-12", true, nil)
			publish(s, 3, "eth1", "eth2")
			at(5)
			s.hold("rdma", "", eth1, false)
			var pod device.Pod
			if tc.reports {
				pod = s.report("rdma", eth1, device.Healthy, "")
			}
			at(8)
			publish(s, 4, "eth2")
			at(10)
			none(t, s.send(), "t=8")
			at(3599)
			none(t, s.send(), "in use for an hour")
			if got := s.seenOf(eth1); got == nil || got.Listed || len(got.Holders) != 1 || got.Stale != device.Fresh {
				t.Errorf("shown as %+v, want it in use and not listed, and what is said of it believed", got)
			}
			at(3600)
			if tc.reports {
				s.tracker.podGone(pod.Ref)
			}
			s.tracker.claimGone("team-kestrel", "rdma-accel")
			at(3605)
			none(t, s.send(), "t=01:00:00, given back and not listed yet")
			publish(s, 5, "eth1", "eth2")
			at(4000)
			none(t, s.send(), "t=01:00:05, listed again")
			publish(s, 6, "eth2")
			s.pass(2 * time.Second)
			if e := only[quarantine.Inventory](t, s.send(), eth1, true); e.Missing != device.MissingFromPool {
				t.Errorf("must: absent and not allocated is missing; told as %+v", e)
			}
		})
	}
}
