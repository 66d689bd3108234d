package starter

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// seenOf is what the directory would show of a device.
func (s *scene) seenOf(key device.Key) *directory.Seen {
	s.t.Helper()
	level, err := (&levels{tracker: s.tracker}).Level(s.t.Context(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	return level.Seen
}

// shown collects the devices of which the directory is told.
func (s *scene) shown() func() []device.Key {
	told := map[device.Key]struct{}{}
	s.tracker.showTo(func(keys ...device.Key) {
		for _, key := range keys {
			told[key] = struct{}{}
		}
	})
	return func() []device.Key {
		keys := slices.SortedFunc(maps.Keys(told), device.Key.Compare)
		clear(told)
		return keys
	}
}

func (s *scene) node(name string, ready bool, offers map[string]device.Offer) {
	s.tracker.nodeSeen(name, name+"-uid", offers)
	condition := device.ReadyFalse
	if ready {
		condition = device.ReadyTrue
	}
	s.tracker.nodeReady(name, condition)
}

// hold delivers the claim of a Pod that has a device, by a class.
func (s *scene) hold(pod, class string, key device.Key, admin bool) {
	s.tracker.claimSeen(device.Claim{
		Namespace: "team-kestrel", Name: pod + "-accel", UID: "claim-" + pod,
		Results:     []device.Allocated{{Request: "gpu", Device: key, Class: class, AdminAccess: admin}},
		ReservedFor: []device.PodRef{{Namespace: "team-kestrel", Name: pod, UID: "uid-" + pod}},
	})
}

func TestAHealthyDeviceThatNobodyHoldsIsShown(t *testing.T) {
	s := newScene(t)
	told := s.shown()
	s.node("anvil-07", true, nil)
	s.slice("anvil-07", 1, listed("gpu-0", "GPU-a"), listed("gpu-1", "GPU-b"))
	first, second := gpu("anvil-07", "gpu-0"), gpu("anvil-07", "gpu-1")
	if got := told(); !slices.Equal(got, []device.Key{first, second}) {
		t.Errorf("the directory was told of %v, want both", got)
	}
	got := s.seenOf(first)
	if got == nil || !got.Listed || got.Node != "anvil-07" || got.Hardware.UUID != "GPU-a" || got.Health != "" || got.Stale != device.Fresh {
		t.Errorf("shown as %+v", got)
	}
	none(t, s.cases.take(), "healthy devices")
	if s.seenOf(gpu("anvil-07", "gpu-9")) != nil {
		t.Error("a device that nothing names is shown")
	}

	// The slice again as it was is no news; one that lists another card is.
	s.slice("anvil-07", 1, listed("gpu-0", "GPU-a"), listed("gpu-1", "GPU-b"))
	if got := told(); len(got) != 0 {
		t.Errorf("the directory was told of %v although nothing changed", got)
	}
	s.slice("anvil-07", 2, listed("gpu-0", "GPU-a"), listed("gpu-1", "GPU-c"))
	if got := told(); !slices.Equal(got, []device.Key{second}) {
		t.Errorf("the directory was told of %v, want the one whose card changed", got)
	}
}

// O4: an Unknown of a driver that never reported any health on a node is told from a loss,
// and stops being one for all its devices there with the first word of it.
func TestAnUnknownThatIsNoLossIsShownAsSuch(t *testing.T) {
	s := newScene(t)
	s.node("anvil-07", true, nil)
	s.slice("anvil-07", 1, listed("gpu-0", "GPU-a"), listed("gpu-1", "GPU-b"))
	first, second := gpu("anvil-07", "gpu-0"), gpu("anvil-07", "gpu-1")
	told := s.shown()
	s.hold("train", "gpu.example.com", first, false)
	s.hold("infer", "gpu.example.com", second, false)
	s.report("train", first, device.Unknown, "")
	if got := s.seenOf(first); got.Health != device.Unknown || !got.Unmonitored {
		t.Errorf("shown as %+v, want an Unknown that is no loss", got)
	}
	told()
	s.report("infer", second, device.Healthy, "")
	if got := s.seenOf(first); got.Health != device.Unknown || got.Unmonitored || !slices.Contains(told(), first) {
		t.Errorf("shown as %+v once its driver spoke of another device, want a loss, and that it is told", got)
	}
	if got := s.seenOf(second); got.Unmonitored {
		t.Errorf("a Healthy is shown as %+v", got)
	}
}

func TestWhoHoldsADeviceAndWhatIsReportedOfItStayApart(t *testing.T) {
	s := newScene(t)
	s.node("anvil-07", true, nil)
	s.slice("anvil-07", 1, listed("gpu-0", "GPU-a"))
	key := gpu("anvil-07", "gpu-0")
	told := s.shown()
	s.hold("train", "gpu.example.com", key, false)
	s.hold("monitor", "gpu.example.com", key, true)
	if got := s.seenOf(key); len(got.Holders) != 1 || got.Holders[0].Containers != "" || got.Holders[0].Pod.Name != "train" || got.Health != "" || !slices.Equal(got.Classes, []string{"gpu.example.com"}) {
		t.Errorf("allocated and not reported on: %+v", got)
	}
	if got := told(); !slices.Equal(got, []device.Key{key}) {
		t.Errorf("the directory was told of %v, want the one that was allocated", got)
	}
	pod := s.report("train", key, device.Unhealthy, "XID 79: GPU has fallen off the bus")
	got := s.seenOf(key)
	if got.Health != device.Unhealthy || got.Message != "XID 79: GPU has fallen off the bus" || got.Pod != "team-kestrel/train" ||
		got.Version != pod.ResourceVersion || !got.Observed.Equal(startOfTime) {
		t.Errorf("reported: %+v", got)
	}
	if len(told()) != 1 {
		t.Error("the directory wasn't told of the report")
	}
	if got.Holders[0].Containers != directory.ContainersNotReady {
		t.Errorf("holder %+v, want that its containers aren't ready", got.Holders[0])
	}
	ready := podOn("anvil-07", "train", entry(key, device.Unhealthy, "XID 79: GPU has fallen off the bus"))
	ready.ContainersReady = true
	s.see(ready)
	if got := s.seenOf(key); got.Holders[0].Containers != directory.ContainersReady || got.Health != device.Unhealthy || len(told()) != 1 {
		t.Errorf("shown as %+v: containers that are ready make no device healthy, and show", got)
	}
	s.see(podOn("anvil-07", "train", entry(key, device.Unhealthy, "XID 79: GPU has fallen off the bus")))
	told()
	for range 5 {
		s.report("train", key, device.Unhealthy, "XID 79: GPU has fallen off the bus")
	}
	if got := told(); len(got) != 0 {
		t.Errorf("the directory was told of %v although the same was reported again", got)
	}
	if again := s.seenOf(key); again.Version != pod.ResourceVersion {
		t.Errorf("status version %s, want that at which it was first said, %s", again.Version, pod.ResourceVersion)
	}

	// The Pod goes: nobody reports any more, and that is what is shown.
	s.tracker.podGone(pod.Ref)
	s.tracker.claimGone("team-kestrel", "train-accel")
	if got := s.seenOf(key); got.Health != "" || len(got.Holders) != 0 || !got.Listed {
		t.Errorf("shown as %+v after its holder went", got)
	}
	if len(told()) != 1 {
		t.Error("the directory wasn't told that the holder went")
	}
}

func TestAReadingThatCantBeBelievedIsShownWithWhy(t *testing.T) {
	s := newScene(t)
	s.node("anvil-07", true, nil)
	s.slice("anvil-07", 1, listed("gpu-0", "GPU-a"))
	key := gpu("anvil-07", "gpu-0")
	s.hold("train", "", key, false)
	s.report("train", key, device.Healthy, "")
	stale := func(want device.Staleness, when string) {
		t.Helper()
		if got := s.seenOf(key); got == nil || got.Stale != want || got.Health != device.Healthy {
			t.Errorf("%s: %+v, want Healthy that is %q", when, got, want)
		}
	}
	told := s.shown()
	stale(device.Fresh, "all is well")
	s.tracker.nodeReady("anvil-07", device.ReadyFalse)
	stale(device.NodeNotReady, "the node isn't ready")
	if len(told()) != 1 {
		t.Error("the directory wasn't told that the node isn't ready")
	}
	s.tracker.nodeReady("anvil-07", device.ReadyTrue)
	stale(device.NodeNotReady, "the node is ready again, and hasn't settled")
	s.pass(30 * time.Second)
	stale(device.Fresh, "the node has settled")
	s.tracker.sliceGone("anvil-07-gpus")
	stale(device.DriverAbsent, "the driver's slices are gone")
	s.tracker.nodeGone("anvil-07")
	stale(device.NodeNotReady, "the node is deleted")
	if len(told()) != 1 {
		t.Error("the directory wasn't told that the node is deleted")
	}
}

func TestADevicePluginsDeviceIsShownWhileAPodNamesIt(t *testing.T) {
	s := newScene(t)
	s.node("anvil-07", true, map[string]device.Offer{"example.com/gpu": {Listed: 2, Allocatable: 2}})
	key, err := device.NewPlugin("anvil-07", "example.com/gpu", "GPU-a")
	if err != nil {
		t.Fatal(err)
	}
	p := podOn("anvil-07", "train", device.Entry{Name: "example.com/gpu", ResourceID: "GPU-a", Health: device.Healthy})
	p = s.see(p)
	got := s.seenOf(key)
	if got == nil || !got.Listed || got.Node != "anvil-07" || len(got.Holders) != 1 || !slices.Equal(got.Classes, []string{"example.com/gpu"}) || got.Stale != device.Fresh {
		t.Errorf("shown as %+v", got)
	}
	s.node("anvil-07", true, map[string]device.Offer{"example.com/gpu": {Listed: 2}})
	stale := func(when string, listed bool) {
		t.Helper()
		if got := s.seenOf(key); got.Listed != listed || got.Stale != device.PluginAbsent || got.Health != device.Healthy {
			t.Errorf("%s: shown as %+v, want what is said and why it isn't believed", when, got)
		}
	}
	stale("its plugin is gone", true)
	s.node("anvil-07", true, map[string]device.Offer{"example.com/gpu": {}})
	stale("the kubelet has given its list up", false)
	s.node("anvil-07", true, map[string]device.Offer{"example.com/gpu": {Listed: 2, Allocatable: 2}})
	told := s.shown()
	s.tracker.podGone(p.Ref)
	if got := s.seenOf(key); got != nil {
		t.Errorf("shown as %+v although nothing names it any more", got)
	}
	if got := told(); !slices.Equal(got, []device.Key{key}) {
		t.Errorf("the directory was told of %v, want the one that is gone", got)
	}
}

// O4: that a reading is told to its case as one that can't be believed doesn't change
// what the directory shows as reported.
func TestWhatIsReportedStaysApartFromWhetherItIsBelieved(t *testing.T) {
	s := newScene(t)
	key := replica("anvil-07", "GPU-1")
	s.report("train", key, device.Healthy, "")
	s.offers("anvil-07", 2, 0)
	s.pass(time.Minute)
	observed(t, s.send(), key, true)
	if got := s.seenOf(key); got.Health != device.Healthy || got.Stale != device.PluginAbsent {
		t.Errorf("shown as %+v, want what is reported, and why it isn't believed", got)
	}
}

// Before everything was listed, nothing is taken away.
func TestAStarterThatHasntListedEverythingShowsNothing(t *testing.T) {
	s := newStandby(t)
	s.slice("anvil-07", 1, listed("gpu-0", "GPU-a"))
	truth := &levels{tracker: s.tracker}
	if _, err := truth.Level(t.Context(), gpu("anvil-07", "gpu-0")); err == nil {
		t.Error("a level is given before everything was listed")
	}
	for _, err := range truth.Devices(t.Context(), 0) {
		if err == nil {
			t.Error("devices are given before everything was listed")
		}
	}
}

// What is rebuilt by hand is what a starter shows.
func TestARebuildShowsWhatTheStarterShows(t *testing.T) {
	s := newScene(t)
	slice := device.Slice{
		Driver: driver, Pool: "anvil-07", Node: "anvil-07", Generation: 1, SliceCount: 1,
		Devices: []device.Listed{listed("gpu-0", "GPU-a"), listed("gpu-1", "GPU-b")},
	}
	claim := device.Claim{
		Namespace: "team-kestrel", Name: "train-accel", UID: "claim",
		Results:     []device.Allocated{{Request: "gpu", Device: gpu("anvil-07", "gpu-0"), Class: "gpu"}},
		ReservedFor: []device.PodRef{{Namespace: "team-kestrel", Name: "train", UID: "uid-train"}},
	}
	pod := podOn("anvil-07", "train", entry(gpu("anvil-07", "gpu-0"), device.Unknown, "silent"))
	pod.ResourceVersion = "7"
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "anvil-07", UID: "node-uid"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	s.tracker.sliceSeen("slice", slice)
	s.tracker.claimSeen(claim)
	s.tracker.nodeSeen("anvil-07", "node-uid", nil)
	s.tracker.nodeReady("anvil-07", device.ReadyTrue)
	s.tracker.podSeen(pod)
	entries := Levels(Listed{
		Slices: []device.Slice{slice}, Claims: []device.Claim{claim}, Pods: []device.Pod{pod}, Nodes: []*corev1.Node{node},
	}, reason.Builtin())
	if len(entries) != 2 {
		t.Fatalf("%d entries, want 2", len(entries))
	}
	for _, e := range entries {
		want := s.seenOf(e.Device)
		e.Seen.Observed, want.Observed = startOfTime, startOfTime
		if got, want := *e.Seen, *want; got.Health != want.Health || got.Message != want.Message || got.Stale != want.Stale ||
			got.Hardware != want.Hardware || got.Listed != want.Listed || got.Version != want.Version || got.Node != want.Node ||
			!slices.Equal(got.Holders, want.Holders) || !slices.Equal(got.Classes, want.Classes) {
			t.Errorf("rebuilt as %+v, the starter shows %+v", got, want)
		}
	}
}
