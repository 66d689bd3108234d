package device_test

import (
	"slices"
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

const sick = "gpu.example.com/anvil-07/gpu-3"

// O1, O3. Case 01, the rows in which something reaches Sickbay: t=0, t=600 and
// t=900 (at t=10 and t=40 the kubelet writes nothing). An unchanged Healthy is no
// new evidence, and Unknown counts from when it could be seen.
func TestAnUnchangedHealthyIsNoNewEvidence(t *testing.T) {
	s := load(t, "cases/01-health-deadline-not-pushed")
	var known device.Report
	for i, step := range s.Steps {
		pod := s.Pods[0]
		pod.ResourceVersion = step.Version
		pod.Containers[0].Entries[0].Health = step.Health
		seen, unmapped := device.Observe(pod, s.lookup)
		digest := device.Digest(seen, after(step.AtSeconds))
		if len(digest) != 1 || len(unmapped) != 0 || digest[0].Device != dra(t, sick) {
			t.Fatalf("t=%d: %v, unmapped %v", step.AtSeconds, digest, unmapped)
		}
		if i == 0 {
			known = digest[0].Report
		}
		known = device.Keep(known, digest[0].Report)
		switch step.AtSeconds {
		case 0, 600:
			if known.Health != device.Healthy || known.Version != "88123" || known.Observed != after(0) {
				t.Errorf("t=%d: %s since %s at %s; nothing new was said since t=0", step.AtSeconds, known.Health, known.Observed, known.Version)
			}
		case 900:
			if known.Health != device.Unknown || known.Version != "90411" || known.Observed != after(900) {
				t.Errorf("t=900: %s since %s at %s; it became visible at t=900", known.Health, known.Observed, known.Version)
			}
		}
	}
	silent := device.Surroundings{WatchCurrent: true, PoolComplete: true, Node: device.JudgeNode(device.HeartbeatStopped, device.ReadyTrue)}
	if got := silent.Freshness(device.PathDRA); got != device.NodeSilent {
		t.Errorf("with a silent node the Healthy is %q", got)
	}
}

// O3. Case 02, each row that shows in a Pod's status (t=6, 7, 9, 12, 20): the
// flap is one piece of evidence, Unhealthy since t=6.
func TestTwoEndpointsThatOverwriteEachOtherGiveOneEvidence(t *testing.T) {
	s := load(t, "cases/02-two-plugin-endpoints-clobber")
	beliefs := map[string]device.Belief{"believed": device.Believed, "doubted": device.Doubted, "repeated": device.Repeated}
	var known []device.Report
	for _, step := range s.Steps {
		r := report("train-0", step.Version, step.Health, "")
		r.Observed = after(step.AtSeconds)
		var belief device.Belief
		known, belief = device.Believe(known, r, false)
		if want, ok := beliefs[step.Belief]; !ok || belief != want {
			t.Errorf("t=%d: belief %d, want %s", step.AtSeconds, belief, step.Belief)
		}
		e := device.Fuse(known)
		if e.Value != device.Unhealthy || len(e.Reports) != 1 || e.Reports[0].Version != "206" || e.Reports[0].Observed != after(6) {
			t.Errorf("t=%d: believed %+v, want Unhealthy since t=6", step.AtSeconds, e)
		}
	}
}

// O1. Case 04, row t=0 (and t=86400, which says the same): the device of a
// driver without a health service is Unknown, and the GPU in the same container
// stays Healthy.
func TestADeviceThatIsNeverKnownDoesNotDragAnotherAlong(t *testing.T) {
	s := load(t, "cases/04-driver-without-health-service")
	seen, unmapped := device.Observe(s.Pods[0], s.lookup)
	got := map[string]device.Health{}
	for _, d := range device.Digest(seen, after(0)) {
		got[d.Device.String()] = d.Report.Health
	}
	if len(unmapped) != 0 || len(got) != 2 || got["compute-domain.example.com/anvil-07/channel-0"] != device.Unknown || got[sick] != device.Healthy {
		t.Errorf("got %v, unmapped %v", got, unmapped)
	}
}

// O1, O2. Case 06, its three rows and both nevers.
func TestEachIDOfTheMixedPodLeadsToItsDevice(t *testing.T) {
	s := load(t, "cases/06-resource-id-shapes")
	seen, unmapped := device.Observe(s.Pods[0], s.lookup)
	want := []string{
		"sidecar anvil-07|example.com/nic|nic-0000:3b:00.0 Unhealthy",
		"trainer dra.cpu/anvil-07/cpudevnuma000 Healthy (prepared successfully)",
		"trainer gpu.example.com/rack4/anvil-07/gpu-3 Healthy",
	}
	if got := told(seen); !slices.Equal(got, want) || len(unmapped) != 0 {
		t.Errorf("got %q, unmapped %q", got, toldUnmapped(unmapped))
	}
	gpu := seen[2].Device
	if gpu.Driver != "gpu.example.com" || gpu.Pool != "rack4/anvil-07" || gpu.Device != "gpu-3" {
		t.Errorf("the GPU was read as %+v", gpu)
	}

	elsewhere := s.Pods[0]
	elsewhere.Node = "harbor-12"
	onOther, _ := device.Observe(elsewhere, s.lookup)
	if onOther[0].Device == seen[0].Device {
		t.Errorf("the NICs of two nodes are one: %s", seen[0].Device)
	}

	s.Pods[0].Containers[0].Entries[1].Health = device.Unhealthy
	_, unmapped = device.Observe(s.Pods[0], claims())
	if got := toldUnmapped(unmapped); !slices.Equal(got, []string{"trainer claim:cores dra.k8s.io/cpu=claim-6b0f3a52-1f0e-4c1b-9d0c-3f7a1b2c4d5e Unhealthy: ClaimUnknown"}) {
		t.Errorf("without the claims the Unhealthy is shown as %q", got)
	}
}

// O5, O3. Case 07, its four rows: three containers of one Pod and a second Pod
// are one device with one evidence; the second Pod's older Healthy lifts nothing;
// both holders are known.
func TestOneDeviceInManyStatusesGivesOneEvidenceAndAllItsHolders(t *testing.T) {
	s := load(t, "cases/07-one-device-many-statuses")
	rows := []struct {
		at, pod int
		belief  device.Belief
		holders int
	}{
		{0, 0, device.Believed, 1}, // containers mps-sidecar, app and metrics of serve-a
		{1, 1, device.Believed, 2}, // serve-b, written before the fault
		{8, 2, device.Believed, 2}, // serve-b again
	}
	var known []device.Report
	for _, row := range rows {
		seen, unmapped := device.Observe(s.Pods[row.pod], s.lookup)
		digest := device.Digest(seen, after(row.at))
		if len(unmapped) != 0 || len(digest) != 1 || digest[0].Device != dra(t, sick) {
			t.Fatalf("t=%d: %v, unmapped %v", row.at, digest, unmapped)
		}
		var belief device.Belief
		known, belief = device.Believe(known, digest[0].Report, false)
		e := device.Fuse(known)
		if belief != row.belief || e.Value != device.Unhealthy || !e.Held || len(e.Reports) != row.holders {
			t.Errorf("t=%d: belief %d, %s, %d holders; want Unhealthy and %d", row.at, belief, e.Value, len(e.Reports), row.holders)
		}
	}
	seen, _ := device.Observe(s.Pods[0], s.lookup)
	if !slices.ContainsFunc(seen, func(o device.Observation) bool { return o.Container == "mps-sidecar" }) {
		t.Error("the restartable init container isn't read")
	}
	e := device.Fuse(known)
	if e.Reports[0].Observed != after(0) || e.Reports[1].Observed != after(8) {
		t.Errorf("the reporters' times are %s and %s", e.Reports[0].Observed, e.Reports[1].Observed)
	}
	claim, _ := s.lookup("team-kestrel", "shared-gpu")
	for i, holder := range claim.ReservedFor {
		if e.Reports[i].Pod != holder {
			t.Errorf("holder %s of the claim isn't among the reports", holder)
		}
	}
}

// O8. Case 12, rows t=0 and t=160: the complete newer generation without gpu-3
// makes that one missing, and the other seven not.
func TestAGPUThatVanishesWithoutAWordIsMissing(t *testing.T) {
	s := load(t, "cases/12-gpu-gone-without-xid")
	before, now := s.pool(anvil, 0), s.pool(anvil, 1)
	if len(before.Devices) != 8 || !now.Complete || now.Generation != 12 {
		t.Fatalf("before %v, now %+v", names(before.Devices), now)
	}
	if got := names(device.Missing(before, now)); !slices.Equal(got, []string{"gpu-3"}) {
		t.Errorf("missing %v, want gpu-3 alone", got)
	}
	if got := device.Missing(before, before); len(got) != 0 {
		t.Errorf("at t=0 %v is missing", names(got))
	}
	// The slice of the new generation that isn't all there says nothing.
	s.Slices[1].SliceCount = 2
	if got := device.Missing(before, s.pool(anvil, 1)); len(got) != 0 {
		t.Errorf("an incomplete pool makes %v missing", names(got))
	}
}

// O10. Case 15, rows t=0 and t=20 (the inventories), t=10, t=30 and t=40 (the faults).
func TestEachFaultOfTheSharedChipsConcernsTheRightSubset(t *testing.T) {
	s := load(t, "cases/15-shared-gpu-and-mig-mapping")
	harbor := device.PoolKey{Driver: "gpu.example.com", Pool: "harbor-12"}
	pool := s.pool(harbor, 0)
	var replicas []device.Key
	for _, id := range s.Replicas {
		replicas = append(replicas, plugin(t, "anvil-07", "example.com/gpu.shared", id))
	}
	if len(s.Faults) != 3 || len(pool.Devices) != 4 || len(replicas) != 5 {
		t.Fatal("the case isn't whole")
	}
	for _, f := range s.Faults {
		var got []string
		if f.Replica != "" {
			got = keyNames(device.Replicas(plugin(t, "anvil-07", "example.com/gpu.shared", f.Replica), replicas))
		} else {
			got = keyNames(device.Concerned(pool, dra(t, "gpu.example.com/harbor-12/"+f.Device), f.Scope))
		}
		if !slices.Equal(got, f.Concerned) {
			t.Errorf("t=%d, %s: concerns %v, want %v", f.AtSeconds, f.Message, got, f.Concerned)
		}
	}
}

// Q10. Case 25, rows t=0 and t=24:01:00: another card in the slot is new hardware
// under the old name, and the old card would be known again elsewhere.
func TestTheSwappedCardIsNewHardwareUnderTheOldName(t *testing.T) {
	s := load(t, "cases/25-replacement-gpu-new-uuid")
	before, now := s.pool(anvil, 0), s.pool(anvil, 1)
	was, _ := before.Find("gpu-3")
	is, ok := now.Find("gpu-3")
	if !ok || was.Incarnation.Slot != is.Incarnation.Slot || was.Incarnation.Compare(is.Incarnation) != device.NewHardware {
		t.Errorf("gpu-3 was %+v and is %+v", was.Incarnation, is.Incarnation)
	}
	if missing := device.Missing(before, now); len(missing) != 0 {
		t.Errorf("%v is missing", names(missing))
	}
	if key, ok := device.Renamed(now, was.Key, was.Incarnation); ok {
		t.Errorf("GPU-old was taken for %s", key)
	}
	other, _ := before.Find("gpu-2")
	same, _ := now.Find("gpu-2")
	if other.Incarnation.Compare(same.Incarnation) != device.SameHardware {
		t.Error("gpu-2 was swapped too")
	}
	// GPU-old turns up in another machine, under another index.
	elsewhere := device.AssemblePool(device.PoolKey{Driver: "gpu.example.com", Pool: "harbor-12"}, []device.Slice{
		{Driver: "gpu.example.com", Pool: "harbor-12", Node: "harbor-12", Generation: 1, SliceCount: 1, Devices: []device.Listed{listed("gpu-0", "uuid", "GPU-old")}}})
	if key, ok := device.Renamed(elsewhere, was.Key, was.Incarnation); !ok || key.String() != "gpu.example.com/harbor-12/gpu-0" {
		t.Errorf("GPU-old in another machine was found as %s", key)
	}
}

// O1. Case 35, its three rows: a Pod that has its device through plain limits is
// read, and it holds the device.
func TestAPodWithAnExtendedResourceHoldsItsDevice(t *testing.T) {
	s := load(t, "cases/35-extended-resource-claims-unseen")
	if len(s.Pods[0].Claims) != 0 {
		t.Fatal("the Pod's spec has claims")
	}
	seen, unmapped := device.Observe(s.Pods[0], s.lookup)
	if got := told(seen); !slices.Equal(got, []string{"app " + sick + " Unhealthy"}) || len(unmapped) != 0 || seen[0].Claim != s.Pods[0].ExtendedClaim {
		t.Fatalf("got %q, unmapped %q", got, toldUnmapped(unmapped))
	}
	digest := device.Digest(seen, after(5))
	e := device.Fuse([]device.Report{digest[0].Report})
	claim, _ := s.lookup("team-osprey", s.Pods[0].ExtendedClaim)
	if !e.Held || len(claim.ReservedFor) != 1 || e.Reports[0].Pod != claim.ReservedFor[0] {
		t.Errorf("held=%t by %v, reserved for %v", e.Held, e.Reports, claim.ReservedFor)
	}
	// The same behind a CDI ID goes through the claim.
	s.Pods[0].Containers[0].Entries[0].ResourceID = "gpu.example.com/claim=0a4d-gpu-3"
	seen, _ = device.Observe(s.Pods[0], s.lookup)
	if got := told(seen); !slices.Equal(got, []string{"app " + sick + " Unhealthy"}) {
		t.Errorf("behind a CDI ID: %q", got)
	}
}
