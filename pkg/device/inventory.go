package device

import (
	"cmp"
	"slices"
	"strings"
)

// Slice is one ResourceSlice as far as the inventory is concerned.
type Slice struct {
	Driver string
	Pool   string
	// Node is empty for slices that aren't local to one node.
	Node       string
	Generation int64
	// SliceCount is how many slices the pool has at this generation.
	SliceCount int64
	Devices    []Listed
}

// Listed is one device of a slice.
type Listed struct {
	Name string
	// Attributes holds the string attributes, by their full name.
	Attributes map[string]string
	// DriverVersion is the version of the device's driver, if published.
	DriverVersion string
	// Consumes is what the device draws from shared counters (KEP-4815): devices
	// that draw from one counter set sit on the same chip.
	Consumes []CounterUse
}

// CounterUse is what a device draws from one counter of a counter set, in the
// counter's own unit.
type CounterUse struct {
	Set     string
	Counter string
	Amount  int64
}

// PoolKey names a pool of one driver.
type PoolKey struct {
	Driver string
	Pool   string
}

// Pool is a driver's pool at the highest generation seen.
type Pool struct {
	Key        PoolKey
	Node       string
	Generation int64
	// Complete is set when all slices of the generation are there. Only then
	// does an absent device say anything.
	Complete bool
	// Devices is sorted by name.
	Devices []PoolDevice
}

// PoolDevice is one device of a pool.
type PoolDevice struct {
	Key         Key
	Incarnation Incarnation
	// Parent is the uuid of the chip that a partition belongs to, if published.
	Parent   string
	Consumes []CounterUse
	// DriverVersion is the version of the device's driver, if published.
	DriverVersion string
}

// Find returns the pool's device of that name.
func (p Pool) Find(name string) (PoolDevice, bool) {
	i := slices.IndexFunc(p.Devices, func(d PoolDevice) bool { return d.Key.Device == name })
	if i < 0 {
		return PoolDevice{}, false
	}
	return p.Devices[i], true
}

// AssemblePool puts the slices of one pool together: those of the highest
// generation count, older ones are left over from before (a driver writes the
// new ones first). Devices whose names the API wouldn't accept are left out.
func AssemblePool(key PoolKey, all []Slice) Pool {
	pool := Pool{Key: key}
	for _, s := range all {
		pool.Generation = max(pool.Generation, s.Generation)
	}
	var count, want int64
	for _, s := range all {
		if s.Generation != pool.Generation {
			continue
		}
		count++
		want = max(want, s.SliceCount)
		if s.Node != "" {
			pool.Node = s.Node
		}
		for _, d := range s.Devices {
			k, err := NewDRA(key.Driver, key.Pool, d.Name)
			if err != nil {
				continue
			}
			pool.Devices = append(pool.Devices, PoolDevice{
				Key:         k,
				Incarnation: incarnationOf(d.Attributes),
				Parent:      attribute(d.Attributes, "parentUUID"),
				Consumes:    d.Consumes, DriverVersion: d.DriverVersion,
			})
		}
	}
	slices.SortFunc(pool.Devices, func(a, b PoolDevice) int {
		return cmp.Or(strings.Compare(a.Key.Device, b.Key.Device), strings.Compare(a.Incarnation.UUID, b.Incarnation.UUID))
	})
	twice := false
	for i := range pool.Devices[min(1, len(pool.Devices)):] {
		twice = twice || pool.Devices[i].Key == pool.Devices[i+1].Key
	}
	// The scheduler takes a pool that lists a device twice for invalid.
	pool.Complete = count > 0 && count == want && !twice
	return pool
}

// Missing returns the devices that were in the pool before and aren't now. It
// answers only for a complete pool. Devices whose chip is still there in another
// partitioning or under a new name didn't go missing: they were repartitioned
// (MIG and the like) or renamed. Missing is about new faults; whether a device
// that has a case already is still listed is for Find to tell.
func Missing(before, now Pool) []PoolDevice {
	if !now.Complete {
		return nil
	}
	var missing []PoolDevice
	for _, d := range before.Devices {
		if _, ok := now.Find(d.Key.Device); ok {
			continue
		}
		if repartitioned(before, now, d) {
			continue
		}
		missing = append(missing, d)
	}
	return missing
}

// repartitioned tells whether the chip that a vanished device belonged to is
// still listed under another device of the pool that wasn't there before, or was
// there before beside it: as a chip and its parts, or as two entries for one card
// of which a driver hides one while the other is in use (whole GPU and VFIO).
func repartitioned(before, now Pool, gone PoolDevice) bool {
	for _, d := range now.Devices {
		if !now.sameChip(gone, d) {
			continue
		}
		was, known := before.Find(d.Key.Device)
		if !known || IsPart(before, gone.Key) || gone.Incarnation.Compare(was.Incarnation) == SameHardware {
			return true
		}
	}
	return false
}

// Renamed finds hardware that stands under another name of the pool now: an
// index that moved at a reboot is no replacement. Hardware that still stands
// under its old name isn't renamed, whatever other entries there are for it.
func Renamed(pool Pool, was Key, hardware Incarnation) (Key, bool) {
	if d, ok := pool.Find(was.Device); ok && hardware.Compare(d.Incarnation) == SameHardware {
		return Key{}, false
	}
	for _, d := range pool.Devices {
		if d.Key != was && hardware.Compare(d.Incarnation) == SameHardware {
			return d.Key, true
		}
	}
	return Key{}, false
}

// MissingReason says how a device disappeared. Each has a settling time of its
// own, because each has a harmless cause that looks the same for a while.
type MissingReason string

const (
	// MissingFromPool: a complete pool, at its current generation, without the device.
	MissingFromPool MissingReason = "MissingFromPool"
	// PoolGone: all the driver's slices of the pool are gone. A kubelet deletes
	// them when it starts, and 30 s after the driver disconnected.
	PoolGone MissingReason = "PoolGone"
	// AllocatableDropped: the node lists no device of the resource any more. The
	// plugin has been gone for 5 minutes, or hasn't registered since the kubelet
	// started, or lists nothing.
	AllocatableDropped MissingReason = "AllocatableDropped"
	// MissingFromPlugin: the plugin lists fewer devices than when it called this one
	// Unhealthy, and the Pods say Healthy of it, which is what the kubelet says of a
	// device that left the list.
	MissingFromPlugin MissingReason = "MissingFromPlugin"
	// NodeDeleted: the Node object is gone.
	NodeDeleted MissingReason = "NodeDeleted"
)
