package watchpods

// This file says where there must be no watch Pods. It is pure.

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// MaxDevices is how many devices a claim can have (resource/v1, AllocationResultsMaxSize).
// A claim for more isn't refused: its Pod waits, with an error of the scheduler.
const MaxDevices = 32

// Wanted is what is asked for.
type Wanted struct {
	Driver string
	// Class is the DeviceClass that watch Pods ask for.
	Class device.Class
	// Nodes picks the nodes that they run on.
	Nodes labels.Selector
	// PerDevice is the number of requests of one device each; zero is one request for
	// all of a node's devices.
	PerDevice int
}

// Refusal says why there can't be watch Pods, and what to do.
type Refusal struct {
	What   string `json:"what"`
	Why    string `json:"why"`
	Remedy string `json:"remedy"`
}

// String is the refusal in one line.
func (r Refusal) String() string { return fmt.Sprintf("%s %s. %s", r.What, r.Why, r.Remedy) }

// Judged is what came of it.
type Judged struct {
	// Devices are those that watch Pods would have, by node.
	Devices  map[string][]Offered
	Refusals []Refusal
	// Notes are what to know all the same.
	Notes []string
}

// Judge says whether there may be watch Pods as wanted. nodes are the labels of all nodes
// of the cluster.
func Judge(want Wanted, offered []Offered, nodes map[string]labels.Set) Judged {
	judged := Judged{Devices: map[string][]Offered{}}
	undecided := false
	admitted := slices.DeleteFunc(slices.Clone(offered), func(o Offered) bool {
		membership := want.Class.Admits(want.Driver, o.Listed)
		undecided = undecided || membership == device.Undecided
		return membership == device.NotMember
	})
	if len(admitted) == 0 {
		judged.Refusals = append(judged.Refusals, Refusal{
			What: "driver " + want.Driver, Why: fmt.Sprintf("publishes no device that DeviceClass %s may select", want.Class.Name),
			Remedy: "See what it publishes with `kubectl get resourceslices`, and name its driver and DeviceClass with --driver and --class.",
		})
		return judged
	}
	if undecided {
		judged.Notes = append(judged.Notes, fmt.Sprintf("DeviceClass %s demands more than can be judged here; all devices that it may select were looked at", want.Class.Name))
	}
	var left []string
	for _, o := range admitted {
		if o.Node != "" && !want.Nodes.Matches(nodes[o.Node]) {
			left = append(left, o.Node)
			continue
		}
		judged.Devices[o.Node] = append(judged.Devices[o.Node], o)
		judged.Refusals = append(judged.Refusals, hazards(o)...)
	}
	if len(left) > 0 {
		judged.Notes = append(judged.Notes, fmt.Sprintf("nodes that --node-selector leaves out have such devices too: %s", some(slices.Compact(slices.Sorted(slices.Values(left))))))
	}
	judged.Refusals = append(judged.Refusals, counts(want, judged.Devices)...)
	judged.Refusals = append(judged.Refusals, idle(want, judged.Devices, nodes)...)
	return judged
}

// hazards are what is wrong with one device.
func hazards(o Offered) (refusals []Refusal) {
	refuse := func(why, remedy string) {
		refusals = append(refusals, Refusal{What: "device " + o.String(), Why: why, Remedy: remedy})
	}
	const leaveOut = "Leave such nodes out with --node-selector or such devices with --class; where all are so, go without watch Pods."
	if o.Node == "" {
		refuse("is on no one node, and would be watched from every node at once", leaveOut)
	}
	if len(o.Consumes) > 0 {
		refuse(fmt.Sprintf("takes %s of its node when it is allocated (node allocatable mappings), and admin access is no exception: a watch Pod would take that from tenants, and push them out",
			strings.Join(o.Consumes, ", ")), leaveOut)
	}
	if o.Counters {
		refuse("draws from shared counters (partitionable devices): an admin claim has to fit what is left of them, so that watch Pod and tenants keep each other out", leaveOut)
	}
	if o.Part && !o.Counters {
		refuse("is a part of a chip: drivers refuse admin claims of parts, as NVIDIA's does for MIG devices", leaveOut)
	}
	if o.Shared {
		refuse("can be allocated several times over (allowMultipleAllocations); watch Pods were never tried with that", leaveOut)
	}
	return refusals
}

// counts looks at how many devices each node has.
func counts(want Wanted, devices map[string][]Offered) (refusals []Refusal) {
	for _, node := range slices.Sorted(maps.Keys(devices)) {
		n := len(devices[node])
		refuse := func(why, remedy string) {
			refusals = append(refusals, Refusal{What: "node " + node, Why: fmt.Sprintf("has %d devices: %s", n, why), Remedy: remedy})
		}
		switch {
		case n > MaxDevices:
			refuse(fmt.Sprintf("a claim can have %d", MaxDevices),
				"Make a DeviceClass for each half of them, by a CEL selector on an attribute, and a set of watch Pods for each with --class and --name.")
		case want.PerDevice != 0 && n != want.PerDevice:
			refuse(fmt.Sprintf("with --request-per-device %d a watch Pod would wait there for ever, or leave some unseen", want.PerDevice),
				"Make a set of watch Pods for each number of devices, with --node-selector and --name.")
		}
	}
	return refusals
}

// idle looks for nodes on which a watch Pod would wait for ever.
func idle(want Wanted, devices map[string][]Offered, nodes map[string]labels.Set) []Refusal {
	var without []string
	for name, labelled := range nodes {
		if want.Nodes.Matches(labelled) && len(devices[name]) == 0 {
			without = append(without, name)
		}
	}
	if len(without) == 0 {
		return nil
	}
	slices.Sort(without)
	remedy := "Pick the nodes that have some with --node-selector; give them a label, if they have none of their own."
	if label := common(devices, nodes); label != "" {
		remedy = fmt.Sprintf("Pick the nodes that have some with --node-selector %s, which is on all of them and on no other.", label)
	}
	what := "node " + without[0]
	if len(without) > 1 {
		what = "nodes " + some(without)
	}
	return []Refusal{{What: what, Why: fmt.Sprintf("without a device of %s: a watch Pod there would wait for ever", want.Driver), Remedy: remedy}}
}

// common is a label that all nodes with devices have and no others; the first by name, or
// empty.
func common(devices map[string][]Offered, nodes map[string]labels.Set) string {
	count := map[string]int{}
	for name, labelled := range nodes {
		for key, value := range labelled {
			if len(devices[name]) > 0 {
				count[key+"="+value]++
			} else {
				count[key+"="+value] -= len(nodes) + 1
			}
		}
	}
	with := 0
	for name := range nodes {
		if len(devices[name]) > 0 {
			with++
		}
	}
	for _, label := range slices.Sorted(maps.Keys(count)) {
		if with > 0 && count[label] == with {
			return label
		}
	}
	return ""
}
