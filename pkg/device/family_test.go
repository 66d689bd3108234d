package device_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

func keyNames(keys []device.Key) []string {
	all := []string{}
	for _, k := range keys {
		if k.Path() == device.PathDRA {
			all = append(all, k.Device)
		} else {
			all = append(all, k.ID)
		}
	}
	return all
}

// O10. A fault of the chip concerns all that lives on it, a fault of one
// partition that one alone, however a driver publishes the family.
func TestAChipsFaultReachesItsPartitionsAndAPartitionsFaultOnlyItself(t *testing.T) {
	const uuid, parent, slot = "uuid", "parentUUID", "resource.kubernetes.io/pciBusID"
	pools := map[string][]device.Listed{
		"a chip and MIG partitions that name it": {
			listed("gpu-0", uuid, "GPU-0"), listed("mig-0", uuid, "MIG-0", parent, "GPU-0"), listed("mig-1", uuid, "MIG-1", parent, "GPU-0"), listed("gpu-1", uuid, "GPU-1")},
		"MIG partitions of a chip that isn't listed": {
			listed("mig-0", parent, "GPU-0"), listed("mig-1", parent, "GPU-0"), listed("mig-2", parent, "GPU-1")},
		"partitions by shared counters": {
			drawing(listed("gpu-0"), "chip-0", "a", "b"), drawing(listed("part-a"), "chip-0", "a"), drawing(listed("part-b"), "chip-0", "b"), drawing(listed("gpu-1"), "chip-1", "a")},
		"partitions by shared counters and nothing else": {
			drawing(listed("part-a"), "chip-0", "a"), drawing(listed("part-b"), "chip-0", "b")},
		"partitions that only share an address": {
			listed("gpu-1-129", slot, "0000:5e:00.0"), listed("gpu-2-130", slot, "0000:5e:00.0"), listed("gpu-9-137", slot, "0000:86:00.0")},
		"two entries for one card": {
			listed("gpu-0", uuid, "GPU-0", slot, "0000:5e:00.0"), listed("gpu-vfio-0", uuid, "GPU-0", slot, "0000:5e:00.0"), listed("gpu-1", uuid, "GPU-1", slot, "0000:86:00.0")},
		"plain GPUs": {listed("gpu-0", uuid, "GPU-0"), listed("gpu-1", uuid, "GPU-1"), listed("gpu-2")},
	}
	tests := map[string]struct {
		pool, seenOn string
		scope        device.Scope
		want         []string
	}{
		"a chip's fault reaches its partitions": {
			"a chip and MIG partitions that name it", "gpu-0", device.ScopeChip, []string{"gpu-0", "mig-0", "mig-1"}},
		"so does any fault that is seen on the whole chip": {
			"a chip and MIG partitions that name it", "gpu-0", device.ScopeInstance, []string{"gpu-0", "mig-0", "mig-1"}},
		"a chip's fault that is seen on a partition reaches the chip and the others": {
			"a chip and MIG partitions that name it", "mig-1", device.ScopeChip, []string{"gpu-0", "mig-0", "mig-1"}},
		"a partition's fault stays with it": {
			"a chip and MIG partitions that name it", "mig-1", device.ScopeInstance, []string{"mig-1"}},
		"another chip is left alone": {
			"a chip and MIG partitions that name it", "gpu-1", device.ScopeChip, []string{"gpu-1"}},
		"siblings are found without the chip": {
			"MIG partitions of a chip that isn't listed", "mig-0", device.ScopeChip, []string{"mig-0", "mig-1"}},
		"a partition's fault stays with it without the chip": {
			"MIG partitions of a chip that isn't listed", "mig-0", device.ScopeInstance, []string{"mig-0"}},
		"counters tell who shares the chip": {
			"partitions by shared counters", "part-a", device.ScopeChip, []string{"gpu-0", "part-a", "part-b"}},
		"what draws more than each other user is the chip": {
			"partitions by shared counters", "gpu-0", device.ScopeInstance, []string{"gpu-0", "part-a", "part-b"}},
		"what draws less is a part": {
			"partitions by shared counters", "part-b", device.ScopeInstance, []string{"part-b"}},
		"the counters of another chip are others": {
			"partitions by shared counters", "gpu-1", device.ScopeChip, []string{"gpu-1"}},
		"parts beside each other are parts": {
			"partitions by shared counters and nothing else", "part-a", device.ScopeInstance, []string{"part-a"}},
		"parts beside each other share the chip's fault": {
			"partitions by shared counters and nothing else", "part-a", device.ScopeChip, []string{"part-a", "part-b"}},
		"parts at one address share the chip's fault": {
			"partitions that only share an address", "gpu-1-129", device.ScopeChip, []string{"gpu-1-129", "gpu-2-130"}},
		"a part at an address keeps its own": {
			"partitions that only share an address", "gpu-1-129", device.ScopeInstance, []string{"gpu-1-129"}},
		"both entries for one card are concerned, so that no virtual machine gets it": {
			"two entries for one card", "gpu-0", device.ScopeChip, []string{"gpu-0", "gpu-vfio-0"}},
		"both entries for one card are concerned whatever the scope": {
			"two entries for one card", "gpu-vfio-0", device.ScopeInstance, []string{"gpu-0", "gpu-vfio-0"}},
		"plain GPUs have no family": {
			"plain GPUs", "gpu-2", device.ScopeChip, []string{"gpu-2"}},
		"a device that isn't listed is alone": {
			"plain GPUs", "gpu-9", device.ScopeChip, []string{"gpu-9"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pool := assemble(slice(1, 1, pools[test.pool]...))
			if len(pool.Devices) == 0 {
				t.Fatalf("no pool %q", test.pool)
			}
			got := keyNames(device.Concerned(pool, dra(t, "gpu.example.com/anvil-07/"+test.seenOn), test.scope))
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// O10. The same PCI address on two nodes is two cards.
func TestAnAddressIsSharedOnOneNodeOnly(t *testing.T) {
	spread := slice(1, 1, listed("a", "pciBusID", "0000:5e:00.0"), listed("b", "pciBusID", "0000:5e:00.0"))
	spread.Node = ""
	got := keyNames(device.Concerned(assemble(spread), dra(t, "gpu.example.com/anvil-07/a"), device.ScopeChip))
	if !slices.Equal(got, []string{"a"}) {
		t.Errorf("in a pool of several nodes a fault of a concerns %v", got)
	}
}

// O10. Case 15: replicas of a time-sliced chip are told by their IDs.
func TestReplicasStandForTheirChip(t *testing.T) {
	for id, chip := range map[string]string{
		"GPU-5f1c::2": "GPU-5f1c", "GPU-5f1c::12": "GPU-5f1c", "GPU-5f1c": "GPU-5f1c", "GPU-5f1c::": "GPU-5f1c::", "::2": "::2", "GPU-5f1c::x": "GPU-5f1c::x", "a::1::2": "a::1::2", "": "",
	} {
		if got := device.ReplicaOf(id); got != chip {
			t.Errorf("%q stands for %q, want %q", id, got, chip)
		}
	}
	const shared = "nvidia.com/gpu.shared"
	known := []device.Key{
		plugin(t, "anvil-07", shared, "GPU-5f1c::3"), plugin(t, "anvil-07", shared, "GPU-5f1c::0"), plugin(t, "anvil-07", shared, "GPU-77aa::0"),
		plugin(t, "harbor-12", shared, "GPU-5f1c::1"), plugin(t, "anvil-07", "nvidia.com/gpu", "GPU-5f1c"),
	}
	got := keyNames(device.Replicas(plugin(t, "anvil-07", shared, "GPU-5f1c::2"), known))
	if want := []string{"GPU-5f1c::0", "GPU-5f1c::2", "GPU-5f1c::3"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v: only those of the same node and resource", got, want)
	}
}

// O10. Property: being on one chip is mutual, a device is always concerned by its
// own fault, and the chip's fault reaches at least as far as a partition's.
func TestFamiliesAreMutual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := func(label string, values ...string) string { return rapid.SampledFrom(values).Draw(t, label) }
		var devices []device.Listed
		for _, name := range []string{"a", "b", "c", "d"} {
			l := listed(name, "uuid", value("uuid", "", "u1", "u2", "u3"), "parentUUID", value("parent", "", "", "u1", "u2"), "pciBusID", value("slot", "", "s1", "s2"))
			if set := value("set", "", "", "c1", "c2"); set != "" {
				l = drawing(l, set, rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x", "y", "z"}), 1, 3, rapid.ID).Draw(t, "counters")...)
			}
			devices = append(devices, l)
		}
		pool := assemble(slice(1, 1, devices...))
		for _, d := range pool.Devices {
			chip := device.Chip(pool, d.Key)
			narrow, wide := device.Concerned(pool, d.Key, device.ScopeInstance), device.Concerned(pool, d.Key, device.ScopeChip)
			if !slices.Contains(narrow, d.Key) || !slices.Equal(wide, chip) {
				t.Fatalf("%s: instance %v, chip %v, family %v", d.Key, narrow, wide, chip)
			}
			for _, k := range narrow {
				if !slices.Contains(wide, k) {
					t.Fatalf("%s: the chip's fault spares %s", d.Key, k)
				}
			}
			for _, k := range chip {
				if !slices.Contains(device.Chip(pool, k), d.Key) {
					t.Fatalf("%s has %s in its family and not the other way round", d.Key, k)
				}
			}
		}
	})
}
