package kube

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

var lookedAt = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// looking is what the API server holds around one device.
type looking struct {
	key    device.Key
	slices []device.Slice
	claims []device.Claim
	pods   []device.Pod
	known  []string
	node   nodeState
}

// answer is what a live look makes of it.
func (l looking) answer() quarantine.Looked {
	reader := &LiveReader{catalogue: reason.Builtin()}
	claims := map[string]device.Claim{}
	for _, c := range l.claims {
		claims[c.Namespace+"/"+c.Name] = c
	}
	var pool *device.Pool
	if l.key.Path() == device.PathDRA {
		assembled := device.AssemblePool(device.PoolKey{Driver: l.key.Driver, Pool: l.key.Pool}, l.slices)
		pool = &assembled
	}
	look := quarantine.Look{Device: l.key, Asked: lookedAt}
	for _, name := range l.known {
		look.Known = append(look.Known, device.PodRef{Namespace: "team-kestrel", Name: name, UID: "uid-" + name})
	}
	var looked quarantine.Looked
	reader.read(&looked, look, pool, claims, l.pods, l.node)
	looked.Presence = presence(look, pool, l.node.name, l.node)
	return looked
}

// told writes the readings of a look, one text each.
func told(looked quarantine.Looked) []string {
	all := []string{}
	for _, r := range looked.Readings {
		text := fmt.Sprintf("%s %s", r.Pod.Name, r.Health)
		if r.Fault {
			text += " fault"
		}
		if r.Monitor {
			text += " seen elsewhere"
		}
		all = append(all, text)
	}
	return all
}

// O10, O3. Case 15: on a live look each Pod has one word on the device, and it is
// the graver where the Pod has several parts of the chip. What a Pod that the case
// knows says of another part counts, better or worse; what it says of a part that
// this fault doesn't reach never stands in for its own.
func TestALookHearsOneWordFromEachPodOfTheChip(t *testing.T) {
	mig := func(name string) device.Key {
		return device.Key{Driver: "gpu.nvidia.com", Pool: "harbor-12", Device: name}
	}
	replica := func(id string) device.Key {
		return device.Key{Node: "anvil-07", Resource: "example.com/gpu.shared", ID: id}
	}
	partition := func(name string) device.Listed {
		return device.Listed{Name: name, Attributes: map[string]string{"uuid": "MIG-" + name, "parentUUID": "GPU-9ad0"}}
	}
	chip := []device.Slice{{Driver: "gpu.nvidia.com", Pool: "harbor-12", Node: "harbor-12", Generation: 1, SliceCount: 1,
		Devices: []device.Listed{partition("mig-1g-0"), partition("mig-1g-1"), partition("mig-3g-2")}}}
	type word struct {
		key     device.Key
		health  device.Health
		message string
	}
	pod := func(name string, words ...word) device.Pod {
		p := device.Pod{Ref: device.PodRef{Namespace: "team-kestrel", Name: name, UID: "uid-" + name}, Node: "harbor-12", ResourceVersion: "100"}
		var entries []device.Entry
		for _, w := range words {
			e := device.Entry{Name: "claim:accel", ResourceID: w.key.String(), Health: w.health, Message: w.message}
			if w.key.Path() == device.PathPlugin {
				p.Node = w.key.Node
				e = device.Entry{Name: w.key.Resource, ResourceID: w.key.ID, Health: w.health}
			}
			entries = append(entries, e)
		}
		p.Containers = []device.Container{{Name: "main", Entries: entries}}
		return p
	}
	const (
		offTheBus = "XID 79: GPU has fallen off the bus"
		contained = "XID 94: Contained ECC error"
	)
	for name, tc := range map[string]struct {
		looking
		want []string
	}{
		"one Pod with two parts, the looked-at one bad": {
			looking{key: mig("mig-1g-0"), slices: chip, known: []string{"a"}, pods: []device.Pod{
				pod("a", word{mig("mig-1g-0"), device.Unhealthy, "flux"}, word{mig("mig-1g-1"), device.Healthy, ""})}},
			[]string{"a Unhealthy fault"},
		},
		"one Pod with two parts, the other one bad by itself": {
			looking{key: mig("mig-1g-1"), slices: chip, known: []string{"a"}, pods: []device.Pod{
				pod("a", word{mig("mig-1g-1"), device.Healthy, ""}, word{mig("mig-3g-2"), device.Unhealthy, contained})}},
			[]string{"a Healthy"},
		},
		"the chip fell off the bus under a Pod with two other parts, one of which doesn't show it yet": {
			looking{key: mig("mig-3g-2"), slices: chip, known: []string{"a"}, pods: []device.Pod{
				pod("a", word{mig("mig-1g-0"), device.Unhealthy, offTheBus}, word{mig("mig-1g-1"), device.Healthy, ""})}},
			[]string{"a Unhealthy fault seen elsewhere"},
		},
		"the chip fell off the bus under a Pod that the case hasn't heard of": {
			looking{key: mig("mig-3g-2"), slices: chip, pods: []device.Pod{
				pod("a", word{mig("mig-1g-0"), device.Unhealthy, offTheBus}), pod("b", word{mig("mig-3g-2"), device.Healthy, ""})}},
			[]string{"a Unhealthy fault seen elsewhere", "b Healthy"},
		},
		"the chip is well again, says the Pod that told of its fault": {
			looking{key: mig("mig-3g-2"), slices: chip, known: []string{"a"}, pods: []device.Pod{
				pod("a", word{mig("mig-1g-0"), device.Healthy, ""})}},
			[]string{"a Healthy seen elsewhere"},
		},
		"a healthy part of a Pod that the case hasn't heard of says nothing of this one": {
			looking{key: mig("mig-3g-2"), slices: chip, pods: []device.Pod{pod("a", word{mig("mig-1g-0"), device.Healthy, ""})}},
			[]string{},
		},
		"another replica of the chip is bad": {
			looking{key: replica("GPU-5f1c::0"), known: []string{"a"}, pods: []device.Pod{
				pod("a", word{replica("GPU-5f1c::2"), device.Unhealthy, ""}), pod("b", word{replica("GPU-5f1c::0"), device.Healthy, ""}),
				pod("c", word{replica("GPU-77aa::0"), device.Unhealthy, ""})}},
			[]string{"a Unhealthy fault seen elsewhere", "b Healthy"},
		},
		"the replica that told of the chip's fault is well again": {
			looking{key: replica("GPU-5f1c::0"), known: []string{"a"}, pods: []device.Pod{
				pod("a", word{replica("GPU-5f1c::2"), device.Healthy, ""}), pod("b", word{replica("GPU-5f1c::0"), device.Healthy, ""})}},
			[]string{"a Healthy seen elsewhere", "b Healthy"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			looked := tc.answer()
			if got := told(looked); !slices.Equal(got, tc.want) {
				t.Errorf("heard %q, want %q", got, tc.want)
			}
			if len(looked.Ended) != 0 {
				t.Errorf("%v is taken for ended", looked.Ended)
			}
		})
	}
}

// O4, O8: a look believes a plugin's Healthy only while something of its resource may
// be given out on that node, and tells how many devices are listed there.
func TestALookReadsAPluginsDeviceTogetherWithItsNode(t *testing.T) {
	const resource = "example.com/gpu"
	key := device.Key{Node: "anvil-07", Resource: resource, ID: "GPU-1"}
	pod := func(name string, health device.Health) device.Pod {
		return device.Pod{
			Ref: device.PodRef{Namespace: "team-kestrel", Name: name, UID: "uid-" + name}, Node: "anvil-07", ResourceVersion: "100",
			Containers: []device.Container{{Name: "main", Entries: []device.Entry{{Name: resource, ResourceID: key.ID, Health: health}}}},
		}
	}
	offers := func(listed, allocatable int64) nodeState {
		return nodeState{name: "anvil-07", offers: map[string]device.Offer{resource: {Listed: listed, Allocatable: allocatable}}}
	}
	present := func(listed int64) *quarantine.Inventory {
		return &quarantine.Inventory{Node: "anvil-07", Present: true, Listed: listed}
	}
	missing := func(why device.MissingReason) *quarantine.Inventory {
		return &quarantine.Inventory{Node: "anvil-07", Missing: why}
	}
	for name, tc := range map[string]struct {
		health   device.Health
		node     nodeState
		stale    device.Staleness
		presence *quarantine.Inventory
	}{
		"its plugin is there":                        {device.Healthy, offers(4, 3), device.Fresh, present(4)},
		"its plugin is away":                         {device.Healthy, offers(4, 0), device.PluginAbsent, present(4)},
		"all are Unhealthy, and listed":              {device.Unhealthy, offers(4, 0), device.Fresh, present(4)},
		"the kubelet has started without it":         {device.Healthy, offers(0, 0), device.PluginAbsent, missing(device.AllocatableDropped)},
		"the plugin was given up on, a fault frozen": {device.Unhealthy, offers(0, 0), device.Fresh, missing(device.AllocatableDropped)},
		"the node has no such resource":              {device.Healthy, nodeState{name: "anvil-07", offers: map[string]device.Offer{}}, device.PluginAbsent, missing(device.AllocatableDropped)},
		"the node is deleted":                        {device.Healthy, nodeState{name: "anvil-07", gone: true}, device.Fresh, &quarantine.Inventory{Missing: device.NodeDeleted}},
		"no node was read":                           {device.Healthy, nodeState{}, device.Fresh, nil},
	} {
		t.Run(name, func(t *testing.T) {
			looked := looking{key: key, pods: []device.Pod{pod("train-0", tc.health)}, node: tc.node}.answer()
			if len(looked.Readings) != 1 || looked.Readings[0].Health != tc.health || looked.Readings[0].Stale != tc.stale {
				t.Errorf("readings %+v, want %s that is %q", looked.Readings, tc.health, tc.stale)
			}
			switch {
			case looked.Presence == nil || tc.presence == nil:
				if looked.Presence != tc.presence {
					t.Errorf("presence %+v, want %+v", looked.Presence, tc.presence)
				}
			case *looked.Presence != *tc.presence:
				t.Errorf("presence %+v, want %+v", *looked.Presence, *tc.presence)
			}
		})
	}
}

// Proves a part of R1: what tries the device says how it is, and isn't waited for as one who
// holds it.
func TestALookTakesWhatTriesADeviceForNoHolder(t *testing.T) {
	key := device.Key{Driver: "gpu.nvidia.com", Pool: "harbor-12", Device: "gpu-0"}
	ref := device.PodRef{Namespace: "sickbay-probe", Name: "probe", UID: "uid-probe"}
	claim := device.Claim{Namespace: "sickbay-probe", Name: "c", Results: []device.Allocated{{Request: "r", Device: key}}, ReservedFor: []device.PodRef{ref}}
	pod := device.Pod{Ref: ref, Node: "harbor-12", Claims: []device.PodClaim{{Name: "accel", Claim: "c"}}, Containers: []device.Container{
		{Name: "main", Entries: []device.Entry{{Name: "claim:accel", ResourceID: key.String(), Health: device.Healthy}}},
	}}
	slices := []device.Slice{{Driver: key.Driver, Pool: key.Pool, Node: key.Pool, Generation: 1, SliceCount: 1, Devices: []device.Listed{{Name: key.Device}}}}
	for name, row := range map[string]struct {
		ours    device.Ours
		holders int
		want    string
	}{
		"it is Sickbay's":     {"sickbay-probe", 0, "[probe Healthy seen elsewhere]"},
		"it is somebody's":    {"another", 1, "[probe Healthy]"},
		"nothing is Sickbays": {"", 1, "[probe Healthy]"},
	} {
		looked := looking{key: key, slices: slices, claims: []device.Claim{row.ours.Claim(claim)}, pods: []device.Pod{row.ours.Pod(pod)}}.answer()
		if got := fmt.Sprint(told(looked)); len(looked.Holders) != row.holders || got != row.want {
			t.Errorf("%s: holders %v, readings %s; want %d and %s", name, looked.Holders, got, row.holders, row.want)
		}
	}
	if claim.Results[0].Ours {
		t.Error("the claim itself was changed")
	}
}
