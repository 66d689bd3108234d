package watchpods

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

const gpus = "gpu.example.com"

// slice is a ResourceSlice as an API server of either version gives it.
func slice(node string, devices ...map[string]any) *unstructured.Unstructured {
	all := []any{}
	for _, d := range devices {
		all = append(all, d)
	}
	spec := map[string]any{
		"driver": gpus, "devices": all,
		"pool": map[string]any{"name": node, "generation": int64(1), "resourceSliceCount": int64(1)},
	}
	if node != "everywhere" {
		spec["nodeName"] = node
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
		"metadata": map[string]any{"name": node + "-slice"}, "spec": spec,
	}}
}

// plain are n devices that nothing is wrong with.
func plain(n int) (devices []map[string]any) {
	for i := range n {
		devices = append(devices, named(fmt.Sprintf("gpu-%d", i)))
	}
	return devices
}

// named is a device with further fields.
func named(name string, fields ...map[string]any) map[string]any {
	d := map[string]any{"name": name}
	for _, more := range fields {
		for key, value := range more {
			d[key] = value
		}
	}
	return d
}

// offeredBy reads slices of pools with one slice each.
func offeredBy(t *testing.T, all ...*unstructured.Unstructured) (offered []Offered) {
	t.Helper()
	for _, object := range all {
		read, err := readSlice(object)
		if err != nil {
			t.Fatal(err)
		}
		devices, complete := assemble(device.PoolKey{Driver: gpus, Pool: read.view.Pool}, []rawSlice{read})
		if !complete {
			t.Fatalf("pool %s is incomplete", read.view.Pool)
		}
		offered = append(offered, devices...)
	}
	return offered
}

// O11 in part: watch Pods are refused wherever they would cost a tenant something or wait
// for ever, with the device, its slice and the remedy.
func TestWatchPodsAreRefusedWhereTheyWouldCostSomething(t *testing.T) {
	const leaveOut = "Leave such nodes out with --node-selector or such devices with --class; where all are so, go without watch Pods."
	mapped36 := map[string]any{"nodeAllocatableResourceMappings": map[string]any{"memory": map[string]any{"allocationMultiplier": "2Gi"}, "cpu": map[string]any{}}}
	mapped37 := map[string]any{"nodeAllocatableResources": map[string]any{"hugepages-2Mi": map[string]any{"mapping": map[string]any{"deviceMultiplier": "1Gi"}}}}
	overhead37 := map[string]any{"nodeAllocatableResources": map[string]any{"memory": map[string]any{"overhead": map[string]any{"perPod": "64Mi"}}}}
	part := func(uuid string) map[string]any {
		return map[string]any{"attributes": map[string]any{"parentUUID": map[string]any{"string": uuid}}}
	}
	for sentence, c := range map[string]struct {
		slices []*unstructured.Unstructured
		nodes  string
		class  string
		per    int
		want   []string
	}{
		"nothing is wrong": {slices: []*unstructured.Unstructured{slice("n1", plain(2)...), slice("n2", plain(32)...)}},
		"mappings as in 1.36": {slices: []*unstructured.Unstructured{slice("n1", named("gpu-0", mapped36)), slice("n2", plain(1)...)},
			want: []string{"device gpu.example.com/n1/gpu-0 (ResourceSlice n1-slice) takes cpu, memory of its node when it is allocated (node allocatable mappings), and admin access is no exception: " +
				"a watch Pod would take that from tenants, and push them out. " + leaveOut}},
		"mappings as in 1.37": {slices: []*unstructured.Unstructured{slice("n1", named("gpu-0", mapped37)), slice("n2", plain(1)...)},
			want: []string{"device gpu.example.com/n1/gpu-0 (ResourceSlice n1-slice) takes hugepages-2Mi of its node"}},
		"an overhead as in 1.37": {slices: []*unstructured.Unstructured{slice("n1", named("gpu-0", overhead37)), slice("n2", plain(1)...)},
			want: []string{"device gpu.example.com/n1/gpu-0 (ResourceSlice n1-slice) takes memory of its node"}},
		"shared counters": {slices: []*unstructured.Unstructured{slice("n1", named("gpu-0", map[string]any{"consumesCounters": []any{
			map[string]any{"counterSet": "chip", "counters": map[string]any{"memory": map[string]any{"value": "1"}}}}})), slice("n2", plain(1)...)},
			want: []string{"device gpu.example.com/n1/gpu-0 (ResourceSlice n1-slice) draws from shared counters"}},
		"parts of a chip": {slices: []*unstructured.Unstructured{slice("n1", named("mig-0", part("GPU-1")), named("gpu-1")), slice("n2", plain(1)...)},
			want: []string{"device gpu.example.com/n1/mig-0 (ResourceSlice n1-slice) is a part of a chip"}},
		"a class leaves the parts out": {slices: []*unstructured.Unstructured{
			slice("n1", named("mig-0", part("GPU-1")), named("gpu-1", map[string]any{"attributes": map[string]any{"type": map[string]any{"string": "gpu"}}})),
			slice("n2", named("gpu-0", map[string]any{"attributes": map[string]any{"type": map[string]any{"string": "gpu"}}}))},
			class: `device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].type == "gpu"`},
		"devices that are shared out": {slices: []*unstructured.Unstructured{slice("n1", named("gpu-0", map[string]any{"allowMultipleAllocations": true})), slice("n2", plain(1)...)},
			want: []string{"device gpu.example.com/n1/gpu-0 (ResourceSlice n1-slice) can be allocated several times over (allowMultipleAllocations); watch Pods were never tried with that"}},
		"more than a claim can have": {slices: []*unstructured.Unstructured{slice("n1", plain(33)...), slice("n2", plain(1)...)},
			want: []string{"node n1 has 33 devices: a claim can have 32. Make a DeviceClass for each half"}},
		"a device on no one node": {slices: []*unstructured.Unstructured{slice("everywhere", plain(1)...), slice("n1", plain(1)...), slice("n2", plain(1)...)},
			want: []string{"device gpu.example.com/everywhere/gpu-0 (ResourceSlice everywhere-slice) is on no one node"}},
		"nodes without devices": {slices: []*unstructured.Unstructured{slice("n1", plain(1)...)},
			want: []string{"node n2 without a device of gpu.example.com: a watch Pod there would wait for ever. Pick the nodes that have some with --node-selector kind=one, which is on all of them and on no other."}},
		"those are left out":          {slices: []*unstructured.Unstructured{slice("n1", plain(1)...)}, nodes: "kind=one"},
		"bad ones are left out":       {slices: []*unstructured.Unstructured{slice("n1", plain(1)...), slice("n2", named("gpu-0", mapped36))}, nodes: "kind=one"},
		"one request for each device": {slices: []*unstructured.Unstructured{slice("n1", plain(8)...), slice("n2", plain(8)...)}, per: 8},
		"nodes of two sizes": {slices: []*unstructured.Unstructured{slice("n1", plain(8)...), slice("n2", plain(4)...)}, per: 8,
			want: []string{"node n2 has 4 devices: with --request-per-device 8 a watch Pod would wait there for ever, or leave some unseen. Make a set of watch Pods for each number"}},
		"no device at all": {want: []string{"driver gpu.example.com publishes no device that DeviceClass gpus may select"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if c.class == "" {
				c.class = `device.driver == "gpu.example.com"`
			}
			nodes, err := labels.Parse(c.nodes)
			if err != nil {
				t.Fatal(err)
			}
			judged := Judge(Wanted{Driver: gpus, Class: device.ReadClass("gpus", []string{c.class}), Nodes: nodes, PerDevice: c.per},
				offeredBy(t, c.slices...), map[string]labels.Set{"n1": {"kind": "one", "zone": "a"}, "n2": {"kind": "two", "zone": "a"}})
			var got []string
			for _, r := range judged.Refusals {
				got = append(got, r.String())
			}
			if len(got) != len(c.want) {
				t.Fatalf("refused %q, want %q", got, c.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], c.want[i]) {
					t.Errorf("refused\n%s\nwant\n%s", got[i], c.want[i])
				}
			}
		})
	}
}

// A node that has only devices of the pool's old generation has none.
func TestWhatIsLeftOfAnOlderGenerationIsNotWatched(t *testing.T) {
	old, err := readSlice(slice("n1", plain(3)...))
	if err != nil {
		t.Fatal(err)
	}
	object := slice("n1", plain(2)...)
	object.SetName("n1-next")
	if err := unstructured.SetNestedField(object.Object, int64(2), "spec", "pool", "generation"); err != nil {
		t.Fatal(err)
	}
	next, err := readSlice(object)
	if err != nil {
		t.Fatal(err)
	}
	offered, complete := assemble(device.PoolKey{Driver: gpus, Pool: "n1"}, []rawSlice{old, next})
	if len(offered) != 2 || !complete || offered[0].Slice != "n1-next" {
		t.Errorf("offered %v, complete %t; want the two of n1-next", offered, complete)
	}
}
