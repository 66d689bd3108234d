package device

import (
	"slices"
	"strings"
)

// Scope says how far a fault reaches.
type Scope string

const (
	// ScopeChip faults concern the physical chip: all its partitions and replicas.
	ScopeChip Scope = "chip"
	// ScopeInstance faults concern the one device that is named.
	ScopeInstance Scope = "instance"
)

// sameChip tells whether two devices of the pool share a physical chip: they are
// entries for the same hardware, one is the other's parent, they have the same
// parent, they draw on a shared counter, or they sit at one PCI address of one
// node and nothing says that they are different hardware (AMD's partitions
// publish their chip's address and no parent).
func (p Pool) sameChip(a, b PoolDevice) bool {
	if a.Key == b.Key || a.Incarnation.Compare(b.Incarnation) == SameHardware || p.sameSlot(a, b) {
		return true
	}
	if a.Parent != "" && (a.Parent == b.Parent || a.Parent == b.Incarnation.UUID) {
		return true
	}
	if b.Parent != "" && b.Parent == a.Incarnation.UUID {
		return true
	}
	return slices.ContainsFunc(a.Consumes, func(use CounterUse) bool {
		return slices.ContainsFunc(b.Consumes, func(other CounterUse) bool { return use.Set == other.Set })
	})
}

func (p Pool) sameSlot(a, b PoolDevice) bool {
	return p.Node != "" && a.Incarnation.Slot != "" && a.Incarnation.Slot == b.Incarnation.Slot &&
		a.Incarnation.Compare(b.Incarnation) == Unprovable
}

// Chip returns all devices of the pool on the same physical chip as the named
// one, itself included, sorted by name. A device that the pool doesn't list is
// alone on its chip as far as anyone can tell.
func Chip(pool Pool, name Key) []Key {
	device, ok := pool.Find(name.Device)
	if !ok {
		return []Key{name}
	}
	var chip []Key
	for _, d := range pool.Devices {
		if pool.sameChip(device, d) {
			chip = append(chip, d.Key)
		}
	}
	return chip
}

// IsPart tells whether a device is one partition of a chip rather than the chip
// itself: it names a parent, or another device draws at least as much from the
// counters that they share. A chip draws more than each of its partitions. Where
// there are no counters, devices at one PCI address are taken for parts.
func IsPart(pool Pool, name Key) bool {
	device, ok := pool.Find(name.Device)
	if !ok {
		return false
	}
	if device.Parent != "" {
		return true
	}
	return slices.ContainsFunc(pool.Devices, func(other PoolDevice) bool {
		switch {
		case other.Key == name || other.Parent != "":
			return false
		case len(device.Consumes) == 0:
			return pool.sameSlot(device, other)
		}
		return pool.sameChip(device, other) && len(other.Consumes) > 0 && !drawsMore(device, other)
	})
}

// drawsMore tells whether a draws at least as much as b from every counter that
// b uses, and more from one, be it one that b doesn't use.
func drawsMore(a, b PoolDevice) bool {
	amount := func(d PoolDevice, use CounterUse) int64 {
		for _, u := range d.Consumes {
			if u.Set == use.Set && u.Counter == use.Counter {
				return u.Amount
			}
		}
		return 0
	}
	more := false
	for _, use := range b.Consumes {
		drawn := amount(a, use)
		if drawn < use.Amount {
			return false
		}
		more = more || drawn > use.Amount
	}
	return more || slices.ContainsFunc(a.Consumes, func(use CounterUse) bool { return use.Amount > amount(b, use) })
}

// ReplicaOf returns the chip's ID behind a device-plugin ID. NVIDIA's plugin
// names time-sliced and MPS replicas "<uuid>::<number>"; an ID without that
// suffix stands for itself.
func ReplicaOf(id string) string {
	chip, number, ok := strings.Cut(id, "::")
	if !ok || chip == "" || number == "" || strings.Trim(number, "0123456789") != "" {
		return id
	}
	return chip
}

// Replicas returns those of the node's known IDs that stand for the same chip as
// id, itself included, sorted.
func Replicas(id Key, known []Key) []Key {
	replicas := []Key{id}
	for _, k := range known {
		if k != id && k.Node == id.Node && k.Resource == id.Resource && ReplicaOf(k.ID) == ReplicaOf(id.ID) {
			replicas = append(replicas, k)
		}
	}
	slices.SortFunc(replicas, Key.Compare)
	return slices.Compact(replicas)
}

// Concerned returns the devices that a fault seen on one device of a pool
// concerns. A fault of the chip concerns all of it; so does any fault reported
// on a whole chip, because its partitions live on it. A fault of one partition
// concerns that one alone.
func Concerned(pool Pool, seenOn Key, scope Scope) []Key {
	if scope == ScopeInstance && IsPart(pool, seenOn) {
		return []Key{seenOn}
	}
	return Chip(pool, seenOn)
}
