package starter

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reading"
)

// pool is what a driver lists under one pool name.
type pool struct {
	key    device.PoolKey
	node   string
	slices map[string]device.Slice
	now    device.Pool
	// expected holds the devices that were listed in a complete pool and didn't
	// leave it for a good reason: the last complete set, and what is missing from it.
	expected device.Pool
	// changed is when a slice last changed; dirty asks for a judgement.
	changed time.Time
	dirty   bool
	// used is when devices that aren't listed were last known to be in use.
	used map[device.Key]time.Time
}

// believed is the pool to reason with: as it is listed if it is complete, else as
// it was when it last was.
func (p *pool) believed() device.Pool {
	if p.now.Complete || len(p.expected.Devices) == 0 {
		return p.now
	}
	return p.expected
}

// forget takes a device out of what is expected of the pool.
func (p *pool) forget(key device.Key) {
	p.expected.Devices = slices.DeleteFunc(slices.Clone(p.expected.Devices), func(d device.PoolDevice) bool { return d.Key == key })
}

// unlisted tells whether the pool is complete without the device.
func (p *pool) unlisted(key device.Key) bool {
	_, listed := p.now.Find(key.Device)
	return p.now.Complete && !listed
}

// inventory is whether a device is listed: as it is, and as its case was told.
type inventory struct {
	want, told quarantine.Inventory
	// wanted is set while want is news to the case; open lets it start one.
	wanted, open bool
	// unsure is set for a device whose case may have been told by another starter
	// that it is missing.
	unsure bool
	// hardware is what stood behind the name when its case was told of it.
	hardware device.Incarnation
}

// asked tells whether the device is missing or its case should hear of it.
func (i inventory) asked() bool {
	return i.wanted || i.told.Missing != ""
}

// settleInventory judges the pools that have been quiet for long enough. Drivers
// rewrite their slices one by one, and what is between says nothing.
func (t *tracker) settleInventory() {
	t.do(func() {
		if !t.complete {
			return
		}
		deadline := t.clock.Now().Add(-t.timing.InventoryQuiet)
		var due []*pool
		for _, p := range t.pools {
			if p.dirty && !p.changed.After(deadline) {
				due = append(due, p)
			}
		}
		slices.SortFunc(due, func(a, b *pool) int { return comparePools(a.key, b.key) })
		for _, p := range due {
			p.dirty = false
			t.judgePool(p)
		}
	})
}

func comparePools(a, b device.PoolKey) int {
	return cmp.Or(strings.Compare(a.Driver, b.Driver), strings.Compare(a.Pool, b.Pool))
}

// judgePool says which devices of a pool are listed and which are missing. Only a
// complete pool says anything of a single device; a pool that is gone as a whole
// says something to cases that exist already, since a kubelet that starts and a
// driver that restarts look just like it.
func (t *tracker) judgePool(p *pool) {
	switch {
	case len(p.slices) == 0:
		for _, r := range t.sortedRecords(t.devicesByPool[p.key]) {
			t.missing(r, t.absence(p), "", false)
		}
		if len(p.expected.Devices) == 0 && len(t.devicesByPool[p.key]) == 0 {
			delete(t.pools, p.key)
		}
	case p.now.Complete:
		t.judgeComplete(p)
	}
}

// absence is the reason why a whole pool is gone.
func (t *tracker) absence(p *pool) device.MissingReason {
	if _, ok := t.nodes[p.node]; p.node != "" && !ok {
		return device.NodeDeleted
	}
	return device.PoolGone
}

func (t *tracker) judgeComplete(p *pool) {
	gone := map[device.Key]device.PoolDevice{}
	for _, d := range device.Missing(p.expected, p.now) {
		gone[d.Key] = d
	}
	for key := range t.allocatedIn(p) {
		if _, ok := gone[key]; !ok && p.unlisted(key) && !wasListed(p, key) {
			gone[key] = device.PoolDevice{Key: key}
		}
	}
	// Mostly what is listed is what is expected, and both are one list.
	expected := p.now
	for _, key := range slices.SortedFunc(maps.Keys(gone), device.Key.Compare) {
		if t.judgeGone(p, gone[key]) {
			expected.Devices = append(slices.Clip(expected.Devices), gone[key])
		}
	}
	if len(expected.Devices) > len(p.now.Devices) {
		slices.SortFunc(expected.Devices, func(a, b device.PoolDevice) int { return a.Key.Compare(b.Key) })
	}
	for _, r := range t.sortedRecords(t.devicesByPool[p.key]) {
		if listed, ok := p.now.Find(r.key.Device); ok {
			t.present(r, p, listed.Incarnation)
		} else if _, judged := gone[r.key]; !judged {
			t.missing(r, device.MissingFromPool, "", false)
		}
	}
	t.shiftPool(p.expected, expected)
	p.expected = expected
}

func wasListed(p *pool, key device.Key) bool {
	_, ok := p.expected.Find(key.Device)
	return ok
}

// judgeGone says what it means that a device isn't in its complete pool any more,
// and whether it is still expected there.
func (t *tracker) judgeGone(p *pool, d device.PoolDevice) bool {
	r := t.devices[d.Key]
	hardware := d.Incarnation
	if r != nil && !r.inventory.hardware.IsZero() {
		hardware = r.inventory.hardware
	}
	moved, renamed := device.Renamed(p.now, d.Key, hardware)
	switch {
	case renamed && (r == nil || !r.maybe):
		if t.leading() {
			t.log.Info("device is listed under another name", "device", d.Key.String(), "now", moved.String(), "hardware", hardware.String())
		}
		return false
	case renamed:
		t.missing(r, device.MissingFromPool, moved.String(), false)
		return true
	case t.inUse(p, d.Key, r):
		p.used[d.Key] = t.clock.Now()
		return true
	case t.clock.Now().Before(p.used[d.Key].Add(t.timing.Return)):
		// It was given back just now, and its driver has yet to list it again.
		p.dirty = true
		return true
	}
	delete(p.used, d.Key)
	if r == nil {
		r = t.record(d.Key, p.node)
	}
	if r.inventory.hardware.IsZero() {
		r.inventory.hardware = d.Incarnation
	}
	t.missing(r, device.MissingFromPool, "", true)
	return true
}

// inUse tells whether a device that isn't listed may well be in order: some
// drivers take a device out of the slice while it is allocated. What its holder
// reports decides, where anything is reported at all.
func (t *tracker) inUse(p *pool, key device.Key, r *record) bool {
	if _, allocated := t.allocatedIn(p)[key]; !allocated {
		return false
	}
	if t.drivers[key.Driver].HidesAllocated {
		return true
	}
	return r != nil && r.liveSays(func(said quarantine.Reading) bool {
		return said.Health == device.Healthy || said.Health == device.Unknown && !t.lost(r)
	})
}

// allocatedIn lists the pool's devices that claims hold. A driver that hides what is
// allocated hides what Sickbay's own claim has, too.
func (t *tracker) allocatedIn(p *pool) map[device.Key]struct{} {
	held := map[device.Key]struct{}{}
	for name := range t.claimsByPool[p.key] {
		for _, result := range t.claims[name].Results {
			if poolKey(result.Device) == p.key && (result.Holds() || result.Ours && t.drivers[p.key.Driver].HidesAllocated) {
				held[result.Device] = struct{}{}
			}
		}
	}
	return held
}

// missing makes it news that a device is missing, to its case if there is one;
// with open, a case may be started for it.
func (t *tracker) missing(r *record, why device.MissingReason, moved string, open bool) {
	i := &r.inventory
	if i.told.Missing == why && i.told.MovedTo == moved {
		i.wanted = false
		return
	}
	if !r.maybe && !open {
		return
	}
	i.want = quarantine.Inventory{Node: r.node, Missing: why, MovedTo: moved}
	i.wanted, i.open = true, open
	r.maybe = true
	t.touch(r.key)
}

// present makes it news that a device is listed: to a case that was told that it
// is missing, and to one that knew other hardware.
func (t *tracker) present(r *record, p *pool, now device.Incarnation) {
	i := &r.inventory
	moved := ""
	if to, ok := device.Renamed(p.now, r.key, i.hardware); ok && i.hardware.Compare(now) == device.NewHardware {
		moved = to.String()
	}
	replaced := i.hardware.Compare(now) == device.NewHardware && (moved == "" || i.told.MovedTo != moved)
	unsure := i.unsure && !r.liveSays(anything)
	if !r.maybe || i.told.Missing == "" && !replaced && !unsure {
		i.wanted = false
		if !r.maybe || i.hardware.IsZero() {
			i.hardware = now
		}
		t.dropIfIdle(r)
		return
	}
	i.want = quarantine.Inventory{Node: r.node, Present: true, Now: now, MovedTo: moved}
	i.wanted, i.open = true, false
	t.touch(r.key)
}

// node is one Node object.
type node struct {
	uid string
	// offers is what the node offers of each extended resource.
	offers map[string]device.Offer
}

// nodeSeen takes in a node. One of the same name and another UID is another node:
// nothing of the first carries over.
func (t *tracker) nodeSeen(name, uid string, offers map[string]device.Offer) {
	t.do(func() {
		old, ok := t.nodes[name]
		if ok && old.uid == uid && maps.Equal(old.offers, offers) {
			return
		}
		if ok && old.uid != uid {
			t.endNode(name)
			old = node{}
		}
		t.nodes[name] = node{uid: uid, offers: offers}
		t.shiftNode(name)
		t.offersSeen(name, old.offers)
	})
}

// nodeGone takes in that a node is deleted.
func (t *tracker) nodeGone(name string) {
	t.do(func() {
		t.endNode(name)
		delete(t.nodes, name)
		delete(t.wholes, name)
		t.offersGone(name)
		t.shiftNode(name)
	})
}

// endNode tells the cases on a node that it is deleted, and forgets what was
// expected to be on it.
func (t *tracker) endNode(name string) {
	for _, p := range t.pools {
		if p.node == name {
			t.shiftPool(p.expected, device.Pool{})
			p.expected = device.Pool{}
			p.dirty = true
		}
	}
	for _, r := range t.sortedRecords(t.devicesByNode[name]) {
		if p := t.poolOf(r.key); p != nil && len(p.slices) > 0 && p.node != name {
			continue // it is in a pool that isn't on the node, and was only seen from there
		}
		t.missing(r, device.NodeDeleted, "", false)
	}
	maps.DeleteFunc(t.known, func(p pair, _ struct{}) bool { return p.node == name })
	t.forgetOutages(name)
}

// coverage counts, by driver, the devices in use whose driver never reported any
// health on their node.
func (t *tracker) coverage() map[string]int {
	gaps := map[string]int{}
	t.eachRecord(func(key device.Key, r *record) {
		if _, known := t.known[r.pair()]; !known && r.liveSays(heldBy) {
			gaps[reading.DriverOf(key)]++
		}
	})
	return gaps
}

func anything(quarantine.Reading) bool { return true }

// heldBy tells that a reading is of a Pod that has the device, and not of one that only
// watches it.
func heldBy(r quarantine.Reading) bool { return !r.Monitor }
