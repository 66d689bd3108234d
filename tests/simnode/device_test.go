package simnode_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/tests/simnode"
)

func TestARemovedDeviceLeavesItsPoolAtANewGenerationAndItsHolderWithUnknown(t *testing.T) {
	f := newFixture(t, simnode.Options{})
	node := f.node(simnode.Node{Pools: []simnode.Pool{{Devices: simnode.MakeDevices(1), Generation: 7}}})
	f.run(simnode.MakePod(f.namespace, "p").Claim("accel", "one").Obj(),
		simnode.MakeClaim(f.namespace, "one").Request("gpu", f.driver, 1).Obj())

	_, err := f.RemoveDevice(f.ctx, node, "gpu-0")
	must(t, err)

	pool := f.slices(node)[0].Spec
	if pool.Pool.Generation != 8 || len(pool.Devices) != 0 {
		t.Errorf("generation %d with %d devices, want generation 8 without any", pool.Pool.Generation, len(pool.Devices))
	}
	wantEntries(t, f.pod("p"), "main", "claim:accel: "+f.driver+"/"+node+"/gpu-0=Unknown")
}

func TestASwappedCardHasTheSameNameAndAnotherUUID(t *testing.T) {
	cases := map[string]struct {
		slices         int
		wantGeneration int64
	}{
		"a pool in one slice keeps its generation": {slices: 1, wantGeneration: 1},
		"a pool in two slices gets a new one":      {slices: 2, wantGeneration: 2},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, simnode.Options{})
			node := f.node(simnode.Node{Pools: []simnode.Pool{{Devices: simnode.MakeDevices(4), Slices: test.slices}}})
			before := devices(f, node)["gpu-1"]

			_, err := f.SwapDevice(f.ctx, node, "gpu-1", "GPU-new")
			must(t, err)

			after := devices(f, node)["gpu-1"]
			if before == after || after != "GPU-new" {
				t.Errorf("UUID %q before and %q after", before, after)
			}
			for _, slice := range f.slices(node) {
				pool := slice.Spec.Pool
				if pool.Generation != test.wantGeneration || pool.ResourceSliceCount != int64(test.slices) {
					t.Errorf("slice at generation %d of %d slices, want %d of %d",
						pool.Generation, pool.ResourceSliceCount, test.wantGeneration, test.slices)
				}
			}
		})
	}
}

func TestADroppedSliceLeavesThePoolIncomplete(t *testing.T) {
	f := newFixture(t, simnode.Options{})
	node := f.node(simnode.Node{Pools: []simnode.Pool{{Devices: simnode.MakeDevices(4), Slices: 2}}})

	must(t, f.DropSlice(f.ctx, node, node, 0))
	left := f.slices(node)
	if len(left) != 1 || left[0].Spec.Pool.ResourceSliceCount != 2 {
		t.Fatalf("%d slices left of %d", len(left), left[0].Spec.Pool.ResourceSliceCount)
	}

	must(t, f.Republish(f.ctx, node))
	if got := devices(f, node); len(got) != 4 {
		t.Errorf("after publishing again the pool has %d devices, want 4", len(got))
	}
}

func TestThePartsOfACardAndTheWholeExcludeEachOther(t *testing.T) {
	f := newFixture(t, simnode.Options{})
	parts, counters := simnode.Partition("card-0", 2)
	node := f.node(simnode.Node{Pools: []simnode.Pool{{Devices: parts, Counters: []resourceapi.CounterSet{counters}}}})
	f.run(simnode.MakePod(f.namespace, "part").Claim("accel", "part").Obj(),
		simnode.MakeClaim(f.namespace, "part").Request("gpu", f.driver, 1).
			Where(`"parent" in device.attributes["`+f.driver+`"]`).Obj())

	_, err := f.client.ResourceV1().ResourceClaims(f.namespace).Create(f.ctx,
		simnode.MakeClaim(f.namespace, "whole").Request("gpu", f.driver, 1).
			Where(`!("parent" in device.attributes["`+f.driver+`"])`).Obj(), metav1.CreateOptions{})
	must(t, err)
	_, err = f.client.CoreV1().Pods(f.namespace).Create(f.ctx, simnode.MakePod(f.namespace, "whole").Claim("accel", "whole").Obj(), metav1.CreateOptions{})
	must(t, err)
	_, err = f.AwaitPod(f.ctx, f.namespace, "whole", unschedulable)
	must(t, err)

	must(t, f.client.CoreV1().Pods(f.namespace).Delete(f.ctx, "part", metav1.DeleteOptions{}))
	whole, err := f.AwaitPod(f.ctx, f.namespace, "whole", simnode.Running)
	must(t, err)
	wantEntries(t, whole, "main", "claim:accel: "+f.driver+"/"+node+"/card-0=Healthy")
}

func TestADevicePluginsDevices(t *testing.T) {
	const plugin = "plugin.example.com/gpu"
	start := func(t *testing.T) (*fixture, string) {
		f := newFixture(t, simnode.Options{})
		node := f.node(simnode.Node{Plugins: []simnode.Plugin{{Resource: plugin, IDs: []string{"GPU-0", "GPU-1"}}}})
		f.run(simnode.MakePod(f.namespace, "p").Resource(plugin, 1).OnNode(node).Obj())
		wantEntries(t, f.pod("p"), "main", plugin+": GPU-0=Healthy")
		wantCount(t, f, node, plugin, 2, 2)
		return f, node
	}
	t.Run("an unhealthy one is no longer allocatable", func(t *testing.T) {
		f, node := start(t)
		_, err := f.SetPlugin(f.ctx, node, plugin, "GPU-0", corev1.ResourceHealthStatusUnhealthy)
		must(t, err)
		wantEntries(t, f.pod("p"), "main", plugin+": GPU-0=Unhealthy")
		wantCount(t, f, node, plugin, 2, 1)
	})
	t.Run("one that leaves the list turns Healthy", func(t *testing.T) {
		f, node := start(t)
		_, err := f.SetPlugin(f.ctx, node, plugin, "GPU-0", corev1.ResourceHealthStatusUnhealthy)
		must(t, err)
		_, err = f.RemovePluginDevice(f.ctx, node, plugin, "GPU-0")
		must(t, err)
		wantEntries(t, f.pod("p"), "main", plugin+": GPU-0=Healthy")
		wantCount(t, f, node, plugin, 1, 1)
	})
	t.Run("those of a lost plugin keep their entries and allocatable is 0", func(t *testing.T) {
		f, node := start(t)
		_, err := f.SetPlugin(f.ctx, node, plugin, "GPU-0", corev1.ResourceHealthStatusUnhealthy)
		must(t, err)
		_, err = f.PluginGone(f.ctx, node, plugin)
		must(t, err)
		wantEntries(t, f.pod("p"), "main", plugin+": GPU-0=Unhealthy")
		wantCount(t, f, node, plugin, 2, 0)
	})
	t.Run("after a kubelet restart without the plugin all are Healthy and allocatable is 0", func(t *testing.T) {
		f, node := start(t)
		_, err := f.SetPlugin(f.ctx, node, plugin, "GPU-0", corev1.ResourceHealthStatusUnhealthy)
		must(t, err)
		_, err = f.RestartKubelet(f.ctx, node)
		must(t, err)
		wantEntries(t, f.pod("p"), "main", plugin+": GPU-0=Healthy")
		wantCount(t, f, node, plugin, 0, 0)
	})
}

func wantCount(t *testing.T, f *fixture, node string, name corev1.ResourceName, capacity, allocatable int64) {
	t.Helper()
	object, err := f.client.CoreV1().Nodes().Get(f.ctx, node, metav1.GetOptions{})
	must(t, err)
	has, can := object.Status.Capacity[name], object.Status.Allocatable[name]
	if has.Value() != capacity || can.Value() != allocatable {
		t.Errorf("node %s has capacity %d and allocatable %d of %s, want %d and %d",
			node, has.Value(), can.Value(), name, capacity, allocatable)
	}
}

// devices are the UUIDs of the published devices by name.
func devices(f *fixture, node string) map[string]string {
	f.t.Helper()
	uuids := map[string]string{}
	for _, slice := range f.slices(node) {
		for _, device := range slice.Spec.Devices {
			uuids[device.Name] = *device.Attributes["uuid"].StringValue
		}
	}
	return uuids
}

func unschedulable(pod *corev1.Pod) bool {
	if pod == nil {
		return false
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
			return true
		}
	}
	return false
}
