package listing

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
)

const plugged = "example.com/gpu"

// bothPaths is twoGPUs with a device plugin's device that a Pod on the same node has.
func bothPaths(t *testing.T, health device.Health) Cluster {
	t.Helper()
	cluster := twoGPUs(t, health, "")
	cluster.Nodes[0].Offers = map[string]device.Offer{plugged: {Listed: 1, Allocatable: 1}}
	cluster.Pods = append(cluster.Pods, device.Pod{
		Ref: device.PodRef{Namespace: "team-b", Name: "infer", UID: "uid-infer"}, Node: "node-1", ResourceVersion: "8",
		Containers: []device.Container{{Name: "main", Entries: []device.Entry{{Name: plugged, ResourceID: "GPU-7", Health: health}}}},
	})
	return cluster
}

// O4, O6: what a Pod says of its device counts as far as node, driver and plugin bear
// it out; why it doesn't, and how old it is, stand beside what is said.
func TestAHealthyIsShownOnlyAsFarAsItsSurroundingsBearItOut(t *testing.T) {
	const dra, plugin = "gpu.example.com/node-1/gpu-0", "node-1|example.com/gpu|GPU-7"
	at := func(before time.Duration) *time.Time { return moment(now.Add(-before)) }
	since := now.Add(-5 * time.Minute)
	for name, tc := range map[string]struct {
		change    func(*Cluster)
		dra       device.Staleness
		plugin    device.Staleness
		out       device.Staleness
		confirmed *time.Time // of the DRA device
	}{
		"all is well": {func(*Cluster) {}, "", "", "", at(nodeGrace)},
		"the node gives no sign of life": {func(c *Cluster) { c.Nodes[0].Ready, c.Nodes[0].Since = corev1.ConditionUnknown, since },
			device.NodeSilent, device.NodeSilent, device.NodeSilent, at(5*time.Minute + nodeGrace)},
		"its kubelet says that it isn't ready": {func(c *Cluster) { c.Nodes[0].Ready, c.Nodes[0].Since = corev1.ConditionFalse, since },
			device.NodeNotReady, device.NodeNotReady, device.NodeNotReady, at(5 * time.Minute)},
		"its kubelet never came up": {func(c *Cluster) { c.Nodes[0].Ready, c.Nodes[0].Since = "", time.Time{} },
			device.NodeSilent, device.NodeSilent, device.NodeSilent, nil},
		"the node is deleted":            {func(c *Cluster) { c.Nodes = []Node{} }, device.NodeNotReady, device.NodeNotReady, "", nil},
		"the driver's slices are gone":   {func(c *Cluster) { c.Slices = []device.Slice{} }, device.DriverAbsent, "", "", nil},
		"a slice of the pool is missing": {func(c *Cluster) { c.Slices[0].SliceCount = 2 }, device.DriverAbsent, "", "", nil},
		"nothing of the resource is allocatable": {func(c *Cluster) { c.Nodes[0].Offers[plugged] = device.Offer{Listed: 1} },
			"", device.PluginAbsent, "", at(nodeGrace)},
		"the Nodes could not be read":  {func(c *Cluster) { c.Nodes = nil }, "", "", "", nil},
		"the slices could not be read": {func(c *Cluster) { c.Slices = nil }, "", "", "", at(nodeGrace)},
	} {
		t.Run(name, func(t *testing.T) {
			for _, health := range []device.Health{device.Healthy, device.Unknown, device.Unhealthy} {
				cluster := bothPaths(t, health)
				tc.change(&cluster)
				l := Join(cluster, nil, now)
				for name, why := range map[string]device.Staleness{dra: tc.dra, plugin: tc.plugin} {
					wantBelieved(t, find(t, l, name), health, why)
				}
				d := find(t, l, dra)
				if d.NodeOut != tc.out {
					t.Errorf("its node is out by %q, want %q", d.NodeOut, tc.out)
				}
				if health != device.Healthy {
					continue
				}
				if got := d.Age.Confirmed; (got == nil) != (tc.confirmed == nil) || got != nil && !got.Equal(*tc.confirmed) {
					t.Errorf("last confirmed %v, want %v", got, tc.confirmed)
				}
				if d.Age.Lag != "2m0s" || find(t, l, plugin).Age.Lag != Unbounded {
					t.Errorf("lag %q and %q, want 2m0s and %s", d.Age.Lag, find(t, l, plugin).Age.Lag, Unbounded)
				}
			}
		})
	}
}

// wantBelieved checks that only a Healthy is doubted, and that it then counts for
// Unknown.
func wantBelieved(t *testing.T, d Device, said device.Health, why device.Staleness) {
	t.Helper()
	if said != device.Healthy || why == device.Fresh {
		if d.Health != said || d.Stale != device.Fresh {
			t.Errorf("%s, said to be %s, is shown as %s (%s)", d.Name, said, d.Health, d.Stale)
		}
		return
	}
	if d.Health != device.Unknown || d.Stale != why || d.Why() != string(why) || !d.Faulty() {
		t.Errorf("%s, said to be Healthy, is shown as %s (%s), want Unknown (%s)", d.Name, d.Health, d.Stale, why)
	}
}

// Watched or listed, a Node says the same.
func TestANodeIsReadBySignsThatOutliveTheTrim(t *testing.T) {
	changed := metav1.NewTime(now.Add(-time.Minute))
	trimmed, err := kube.TrimNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue},
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: changed},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	n, _ := nodeView(trimmed.(*corev1.Node))
	if n.Out() != device.NodeSilent || !n.Since.Equal(changed.Time) {
		t.Errorf("read as %+v, want silent since %s", n, changed)
	}
}
