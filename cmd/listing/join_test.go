package listing

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	workflow "github.com/sickbay-dev/sickbay/workflows/device"
)

var now = time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)

func gpu(t *testing.T, number string) device.Key {
	t.Helper()
	key, err := device.NewDRA("gpu.example.com", "node-1", "gpu-"+number)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// twoGPUs is a node whose gpu-0 is held by a Pod that reports on it, and whose
// gpu-1 nobody has.
func twoGPUs(t *testing.T, health device.Health, message string) Cluster {
	t.Helper()
	ref := device.PodRef{Namespace: "team-a", Name: "train", UID: "uid-train"}
	return Cluster{
		Nodes:  []Node{{Name: "node-1", Ready: corev1.ConditionTrue, Since: now.Add(-time.Hour)}},
		Delays: func(string) time.Duration { return 2 * time.Minute },
		Slices: []device.Slice{{
			Driver: "gpu.example.com", Pool: "node-1", Node: "node-1", Generation: 1, SliceCount: 1,
			Devices: []device.Listed{{Name: "gpu-0"}, {Name: "gpu-1"}},
		}},
		Claims: []device.Claim{{
			Namespace: "team-a", Name: "claim", UID: "uid-claim", ReservedFor: []device.PodRef{ref},
			Results: []device.Allocated{{Request: "gpu", Device: gpu(t, "0")}},
		}},
		Pods: []device.Pod{{
			Ref: ref, Node: "node-1", ResourceVersion: "7",
			Claims: []device.PodClaim{{Name: "gpu", Claim: "claim"}},
			Containers: []device.Container{{Name: "main", Entries: []device.Entry{{
				Name: "claim:gpu", ResourceID: "gpu.example.com/node-1/gpu-0", Health: health, Message: message,
			}}}},
		}},
	}
}

func find(t *testing.T, l Listing, name string) Device {
	t.Helper()
	for _, d := range l.Devices {
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("%s isn't listed", name)
	return Device{}
}

func TestHealthyDevicesAreListedHeldOrNot(t *testing.T) {
	l := Join(twoGPUs(t, device.Healthy, ""), nil, now)
	held := find(t, l, "gpu.example.com/node-1/gpu-0")
	if held.Health != device.Healthy || held.Node != "node-1" || !held.Listed || held.Faulty() {
		t.Errorf("the held device is %+v, want it Healthy on node-1", held)
	}
	if len(held.Holders) != 1 || held.Holders[0].String() != "team-a/train" || held.Holders[0].Claim != "claim" {
		t.Errorf("holders %v, want team-a/train by claim", held.Holders)
	}
	free := find(t, l, "gpu.example.com/node-1/gpu-1")
	if free.Health != "" || len(free.Holders) != 0 || !free.Listed || free.Faulty() {
		t.Errorf("the device that nobody has is %+v, want no health and no holder", free)
	}
	if len(l.Devices) != 2 || len(l.Unmapped) != 0 {
		t.Errorf("%d devices and %d unmapped, want 2 and 0", len(l.Devices), len(l.Unmapped))
	}
}

func TestACaseIsShownAsItsWorkflowTellsIt(t *testing.T) {
	key := gpu(t, "0")
	state := workflow.State{Case: quarantine.Case{
		Device: key, Phase: quarantine.PhaseQuarantined, Waiting: quarantine.WaitingForHolder,
		Epoch: now.Add(-time.Hour).UnixMilli(), Since: now.Add(-time.Hour), FirstNotGood: now.Add(-61 * time.Minute), Attempt: 2,
		Reason: reason.Match{Code: "XidFallenOffTheBus"}, Severity: reason.SeverityFatal, Message: "Xid 79",
		Mark: quarantine.Mark{State: quarantine.MarkInForce, Name: "sickbay-node-1-gpu-0"},
	}}
	l := Join(twoGPUs(t, device.Unhealthy, "Xid 79"), []Case{{Workflow: workflow.ID(key), State: &state}}, now)
	d := find(t, l, key.String())
	want := Device{
		Name: key.String(), Path: device.PathDRA, Key: key, Node: "node-1", Listed: true,
		Health: device.Unhealthy, Message: "Xid 79", Age: &Age{Confirmed: moment(now.Add(-55 * time.Second)), Lag: "2m0s"},
		Phase: quarantine.PhaseQuarantined, Waiting: quarantine.WaitingForHolder, Reason: "XidFallenOffTheBus", Severity: "fatal",
		Epoch: state.Case.Epoch, Attempt: 2, Since: moment(state.Case.FirstNotGood), Source: SourceCase, Workflow: workflow.ID(key),
		Mark:    &Mark{State: "InForce", Name: "sickbay-node-1-gpu-0", Epoch: state.Case.Epoch},
		Holders: []Holder{{Namespace: "team-a", Name: "train", UID: "uid-train", Claim: "claim"}},
	}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("listed as\n%+v, want\n%+v", d, want)
	}
}

func TestWithoutTemporalTheMarksAnswer(t *testing.T) {
	cluster := twoGPUs(t, device.Healthy, "")
	since := now.Add(-2 * time.Hour)
	cluster.Marks = []kube.Mark{{
		Device: gpu(t, "1"), Node: "node-1", Intact: true,
		Found: quarantine.MarkFound{
			Name: "sickbay-node-1-gpu-1", Epoch: since.UnixMilli(), Since: since.UnixMilli(),
			Severity: reason.SeverityMajor, Reason: "UnrecognizedMessage", Attempt: 1,
		},
	}}
	d := find(t, Join(cluster, nil, now), "gpu.example.com/node-1/gpu-1")
	if d.Phase != quarantine.PhaseQuarantined || d.Source != SourceMark || d.Reason != "UnrecognizedMessage" || d.Severity != "major" {
		t.Errorf("listed as %+v, want what its mark says", d)
	}
	if d.Mark == nil || d.Mark.State != "InForce" || !d.Since.Equal(since) || !d.Faulty() {
		t.Errorf("mark %+v since %v, want InForce since %v", d.Mark, d.Since, since)
	}
	// Where the mark knows when its device was first not good, that is since when.
	first := since.Add(-time.Minute)
	cluster.Marks[0].Found.FirstNotGood = first.UnixMilli()
	if d := find(t, Join(cluster, nil, now), "gpu.example.com/node-1/gpu-1"); !d.Since.Equal(first) {
		t.Errorf("since %v, want %v", d.Since, first)
	}
}

func TestAMarkThatSomebodyChangedIsShownAsChanged(t *testing.T) {
	key := gpu(t, "0")
	cluster := twoGPUs(t, device.Unhealthy, "Xid 79")
	cluster.Marks = []kube.Mark{{Device: key, Found: quarantine.MarkFound{Name: "sickbay-node-1-gpu-0", Epoch: 5}}}
	state := workflow.State{Case: quarantine.Case{
		Device: key, Phase: quarantine.PhaseQuarantined, Epoch: 5, Since: now,
		Mark: quarantine.Mark{State: quarantine.MarkInForce, Name: "sickbay-node-1-gpu-0"},
	}}
	for name, cases := range map[string][]Case{
		"with its case":    {{Workflow: workflow.ID(key), State: &state}},
		"without its case": nil,
	} {
		t.Run(name, func(t *testing.T) {
			if d := find(t, Join(cluster, cases, now), key.String()); d.Mark == nil || d.Mark.State != "Changed" {
				t.Errorf("mark %+v, want Changed", d.Mark)
			}
		})
	}
}

func TestWithoutAWorkerTheSearchAttributesAnswer(t *testing.T) {
	key := gpu(t, "0")
	c := Case{Workflow: workflow.ID(key), Phase: quarantine.PhaseSuspect, Reason: "HealthUnknown", Epoch: now.Add(-time.Minute).UnixMilli()}
	l := Join(twoGPUs(t, device.Unknown, ""), []Case{c}, now)
	d := find(t, l, key.String())
	if d.Phase != quarantine.PhaseSuspect || d.Source != SourceAttributes || d.Waiting != "" || d.Workflow != c.Workflow {
		t.Errorf("listed as %+v, want the phase of its search attributes", d)
	}
	if len(l.Problems) != 0 {
		t.Errorf("problems %v, want none of its own", l.Problems)
	}
}

func TestACaseOfADeviceThatIsNoLongerListedIsStillShown(t *testing.T) {
	key := gpu(t, "7")
	state := workflow.State{Case: quarantine.Case{Device: key, Node: "node-1", Phase: quarantine.PhaseGone, Waiting: quarantine.WaitingForReturn, Since: now}}
	t.Run("as its workflow tells it", func(t *testing.T) {
		d := find(t, Join(twoGPUs(t, device.Healthy, ""), []Case{{Workflow: workflow.ID(key), State: &state}}, now), key.String())
		if d.Listed || d.Phase != quarantine.PhaseGone || d.Node != "node-1" {
			t.Errorf("listed as %+v, want it gone and not listed", d)
		}
	})
	t.Run("as a problem, where no worker can tell which device it is", func(t *testing.T) {
		l := Join(twoGPUs(t, device.Healthy, ""), []Case{{Workflow: workflow.ID(key), Phase: quarantine.PhaseGone}}, now)
		if len(l.Devices) != 2 || len(l.Problems) != 1 || !strings.Contains(l.Problems[0], workflow.ID(key)) {
			t.Errorf("%d devices, problems %v; want 2 and one about the workflow", len(l.Devices), l.Problems)
		}
	})
}

func TestEntriesThatNameNoOneDeviceAreListedApart(t *testing.T) {
	cluster := twoGPUs(t, device.Healthy, "")
	cluster.Claims[0].Results = append(cluster.Claims[0].Results, device.Allocated{Request: "gpu", Device: gpu(t, "1")})
	cluster.Pods[0].Containers[0].Entries = []device.Entry{
		{Name: "claim:gpu", ResourceID: "k8s.gpu.example.com/claim=a", Health: device.Unhealthy},
		{Name: "claim:gpu", ResourceID: "k8s.gpu.example.com/claim=b", Health: device.Healthy},
	}
	l := Join(cluster, nil, now)
	if len(l.Unmapped) != 1 || l.Unmapped[0].Reason != device.SeveralDevices || l.Unmapped[0].Health != device.Unhealthy {
		t.Fatalf("unmapped %+v, want the one that is Unhealthy", l.Unmapped)
	}
	for _, d := range l.Devices {
		if d.Health != "" {
			t.Errorf("%s is said to be %s by a guess", d.Name, d.Health)
		}
	}
}

func TestAdminAccessHoldsNothing(t *testing.T) {
	cluster := twoGPUs(t, device.Healthy, "")
	cluster.Claims[0].Results[0].AdminAccess = true
	if d := find(t, Join(cluster, nil, now), gpu(t, "0").String()); len(d.Holders) != 0 {
		t.Errorf("holders %v, want none: the claim only monitors", d.Holders)
	}
}

func TestWhatTriesADeviceHoldsNothingAndIsShownAsWhatItIs(t *testing.T) {
	cluster := twoGPUs(t, device.Healthy, "")
	ours := device.Ours(cluster.Claims[0].Namespace)
	if d := find(t, Join(cluster, nil, now), gpu(t, "0").String()); len(d.Holders) != 1 {
		t.Fatalf("holders %v, want one without such a namespace", d.Holders)
	}
	for i := range cluster.Claims {
		cluster.Claims[i] = ours.Claim(cluster.Claims[i])
	}
	for i := range cluster.Pods {
		cluster.Pods[i] = ours.Pod(cluster.Pods[i])
	}
	d := find(t, Join(cluster, nil, now), gpu(t, "0").String())
	if len(d.Holders) != 0 || d.Health != device.Healthy {
		t.Errorf("%s with holders %v, want none, and its health", d.Health, d.Holders)
	}
	if got := allocations(gpu(t, "0"), cluster.Claims); len(got) != 1 || !got[0].Ours {
		t.Errorf("allocated by %+v, want a claim of Sickbay's", got)
	}
}

func TestTheOrderOfReadingDoesNotShow(t *testing.T) {
	cluster := twoGPUs(t, device.Unhealthy, "Xid 79")
	for _, name := range []string{"node-2", "node-3", "node-4"} {
		cluster.Slices = append(cluster.Slices, device.Slice{
			Driver: "gpu.example.com", Pool: name, Node: name, Generation: 1, SliceCount: 1,
			Devices: []device.Listed{{Name: "gpu-1"}, {Name: "gpu-0"}},
		})
	}
	want := Join(cluster, nil, now)
	for range 20 {
		rand.Shuffle(len(cluster.Slices), func(a, b int) { cluster.Slices[a], cluster.Slices[b] = cluster.Slices[b], cluster.Slices[a] })
		if got := Join(cluster, nil, now); !reflect.DeepEqual(got, want) {
			t.Fatalf("another order gave\n%+v, want\n%+v", got, want)
		}
	}
}

func TestNarrow(t *testing.T) {
	l := Join(twoGPUs(t, device.Unhealthy, "Xid 79"), nil, now)
	first, second := gpu(t, "0").String(), gpu(t, "1").String()
	for name, tc := range map[string]struct {
		filter  Filter
		want    []string
		missing []string
	}{
		"nothing asked":         {Filter{}, []string{first, second}, nil},
		"only what is faulty":   {Filter{Faulty: true}, []string{first}, nil},
		"by name":               {Filter{Names: []string{second}}, []string{second}, nil},
		"a name that isn't":     {Filter{Names: []string{first, "gpu.example.com/node-1/gpu-9"}}, []string{first}, []string{"gpu.example.com/node-1/gpu-9"}},
		"another node":          {Filter{Nodes: []string{"node-2"}}, nil, nil},
		"another driver":        {Filter{Drivers: []string{"nic.example.com"}}, nil, nil},
		"this node and driver":  {Filter{Nodes: []string{"node-1"}, Drivers: []string{"gpu.example.com"}}, []string{first, second}, nil},
		"faulty on other nodes": {Filter{Nodes: []string{"node-2"}, Faulty: true}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			narrowed, missing := l.Narrow(tc.filter)
			var got []string
			for _, d := range narrowed.Devices {
				got = append(got, d.Name)
			}
			if !reflect.DeepEqual(got, tc.want) || len(missing) != len(tc.missing) {
				t.Errorf("shows %v and misses %v, want %v and %v", got, missing, tc.want, tc.missing)
			}
			if len(l.Devices) != 2 {
				t.Fatal("narrowing changed the listing itself")
			}
		})
	}
}
