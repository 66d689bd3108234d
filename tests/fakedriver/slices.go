package fakedriver

// This file turns the inventory into what is published: ResourceSlices with
// attributes, taints and, for partitions, shared counters. It is pure.

import (
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// memorySlices is the number of slices that a whole device's memory is cut
// into; a partition takes one.
const memorySlices = maxPartitions

// resources is the one pool of the driver. A generation of 0 leaves it to the
// vendors' helper, which keeps it when a single slice changes.
func resources(pool string, devices []Device, generation int64) resourceslice.DriverResources {
	p := resourceslice.Pool{Generation: generation}
	if !slices.ContainsFunc(devices, func(d Device) bool { return d.Parent != "" }) {
		s := resourceslice.Slice{Devices: []resourceapi.Device{}}
		for _, d := range devices {
			s.Devices = append(s.Devices, published(d, ""))
		}
		p.Slices = []resourceslice.Slice{s}
		return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{pool: p}}
	}

	var counters resourceslice.Slice
	var cards []resourceslice.Slice
	for _, whole := range devices {
		if whole.Parent != "" {
			continue
		}
		counters.SharedCounters = append(counters.SharedCounters, resourceapi.CounterSet{
			Name: counterSet(whole.Name), Counters: memory(0, memorySlices),
		})
		var card resourceslice.Slice
		d := published(whole, "")
		d.ConsumesCounters = consumes(whole.Name, 0, memorySlices)
		card.Devices = append(card.Devices, d)
		n := 0
		for _, part := range devices {
			if part.Parent != whole.Name {
				continue
			}
			d := published(part, whole.UUID)
			d.ConsumesCounters = consumes(whole.Name, n, 1)
			card.Devices = append(card.Devices, d)
			n++
		}
		cards = append(cards, card)
	}
	p.Slices = append([]resourceslice.Slice{counters}, cards...)
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{pool: p}}
}

func published(d Device, parentUUID string) resourceapi.Device {
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	attrs := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"type":        text("gpu"),
		"productName": text("Fake Accelerator 80GB"),
	}
	if d.UUID != "" {
		attrs["uuid"] = text(d.UUID)
	}
	if d.PCIBusID != "" {
		attrs[deviceattribute.StandardDeviceAttributePCIBusID] = text(d.PCIBusID)
	}
	if d.Parent != "" {
		attrs["type"] = text("mig")
		attrs["profile"] = text("1g")
		attrs["parentUUID"] = text(parentUUID)
	}
	for _, k := range slices.Sorted(maps.Keys(d.Attributes)) {
		attrs[resourceapi.QualifiedName(k)] = text(d.Attributes[k])
	}
	out := resourceapi.Device{Name: d.Name, Attributes: attrs, Taints: slices.Clone(d.Taints)}
	if d.OwnTaint != nil {
		out.Taints = append(out.Taints, *d.OwnTaint)
	}
	return out
}

func counterSet(whole string) string { return whole + "-counter-set" }

func memory(first, n int) map[string]resourceapi.Counter {
	out := make(map[string]resourceapi.Counter, n)
	for i := first; i < first+n; i++ {
		out[fmt.Sprintf("memory-slice-%d", i)] = resourceapi.Counter{Value: *resource.NewQuantity(1, resource.DecimalSI)}
	}
	return out
}

func consumes(whole string, first, n int) []resourceapi.DeviceCounterConsumption {
	return []resourceapi.DeviceCounterConsumption{{CounterSet: counterSet(whole), Counters: memory(first, n)}}
}
