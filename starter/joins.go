package starter

import (
	"maps"
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// claimSeen takes in a claim. What Pods said through it is read again, since they
// may have come first.
func (t *tracker) claimSeen(view device.Claim) {
	view = t.ours.Claim(view)
	t.do(func() {
		name := view.Namespace + "/" + view.Name
		t.unplaceClaim(name)
		t.claims[name] = view
		for _, result := range view.Results {
			key := poolKey(result.Device)
			t.claimsByPool.add(key, name)
			t.vouchPool(key)
			t.inventoryChanged(key, result.Device)
			t.shift(result.Device)
		}
		t.claimChanged(name)
	})
}

// claimGone takes in that a claim is deleted.
func (t *tracker) claimGone(namespace, name string) {
	t.do(func() {
		full := namespace + "/" + name
		t.unplaceClaim(full)
		delete(t.claims, full)
		t.claimChanged(full)
	})
}

func (t *tracker) claimChanged(name string) {
	for uid := range t.podsByClaim[name] {
		t.again[uid] = struct{}{}
	}
}

func (t *tracker) unplaceClaim(name string) {
	for _, result := range t.claims[name].Results {
		key := poolKey(result.Device)
		t.claimsByPool.remove(key, name)
		t.vouchPool(key)
		if p := t.pools[key]; p != nil {
			if _, hidden := p.used[result.Device]; hidden {
				p.used[result.Device] = t.clock.Now() // until this moment, however long
			}
		}
		t.inventoryChanged(key, result.Device)
		t.shift(result.Device)
	}
}

// inventoryChanged has a pool judged again if whether this device is listed
// matters to anyone.
func (t *tracker) inventoryChanged(key device.PoolKey, name device.Key) {
	if p := t.pools[key]; p != nil && p.unlisted(name) {
		p.dirty = true
	}
}

func poolKey(key device.Key) device.PoolKey {
	return device.PoolKey{Driver: key.Driver, Pool: key.Pool}
}

// poolOf finds the pool of a DRA device, or nil.
func (t *tracker) poolOf(key device.Key) *pool {
	if key.Path() != device.PathDRA {
		return nil
	}
	return t.pools[poolKey(key)]
}

// sliceSeen takes in one slice of a pool.
func (t *tracker) sliceSeen(name string, view device.Slice) {
	t.do(func() {
		key := device.PoolKey{Driver: view.Driver, Pool: view.Pool}
		if old, ok := t.sliceOf[name]; ok && old != key {
			t.removeSlice(name, old)
		}
		t.sliceOf[name] = key
		p := t.pools[key]
		if p == nil {
			p = &pool{key: key, slices: map[string]device.Slice{}, used: map[device.Key]time.Time{}}
			t.pools[key] = p
		}
		p.slices[name] = view
		t.assemble(p)
	})
}

// sliceGone takes in that a slice is deleted.
func (t *tracker) sliceGone(name string) {
	t.do(func() {
		if key, ok := t.sliceOf[name]; ok {
			t.removeSlice(name, key)
		}
	})
}

func (t *tracker) removeSlice(name string, key device.PoolKey) {
	delete(t.sliceOf, name)
	p := t.pools[key]
	if p == nil {
		return
	}
	delete(p.slices, name)
	t.assemble(p)
}

// assemble puts a pool together anew. Pods whose devices are on chips of this pool
// may concern other devices than before.
func (t *tracker) assemble(p *pool) {
	var parts []device.Slice
	for _, name := range slices.Sorted(maps.Keys(p.slices)) {
		parts = append(parts, p.slices[name])
	}
	before := p.now
	p.now = device.AssemblePool(p.key, parts)
	t.shiftPool(before, p.now)
	if p.now.Node != "" {
		p.node = p.now.Node
	}
	p.dirty, p.changed = true, t.clock.Now()
	t.vouchPool(p.key)
	for uid := range t.podsByPool[p.key] {
		t.again[uid] = struct{}{}
	}
}
