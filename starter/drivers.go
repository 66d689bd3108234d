package starter

import (
	"maps"
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// What a driver publishes of a pool: as long as all of its slices are there, somebody
// stands behind what kubelets say of its devices. Slices have no heartbeat, and their
// age says nothing. That they are gone, or incomplete, says something only once it has
// lasted: a kubelet that starts deletes them all.

// vouchPool works out whether a driver stands behind what is said of a pool's devices.
// That one does is believed at once, that none does when it has lasted.
func (t *tracker) vouchPool(key device.PoolKey) {
	p := t.pools[key]
	switch {
	case p != nil && p.now.Complete:
		_, was := t.absent[key]
		delete(t.away, key)
		delete(t.absent, key)
		if was {
			t.rereadPool(key)
		}
	case len(t.podsByPool[key]) == 0 && len(t.claimsByPool[key]) == 0:
		// Nobody says anything of its devices, and nobody waits for one.
		delete(t.away, key)
		delete(t.absent, key)
	default:
		if _, since := t.away[key]; !since {
			t.away[key] = t.clock.Now()
		}
	}
}

// settleDrivers stops believing what no driver has stood behind for long enough.
func (t *tracker) settleDrivers() {
	t.do(func() {
		if !t.complete {
			return
		}
		for _, key := range slices.SortedFunc(maps.Keys(t.away), comparePools) {
			if _, already := t.absent[key]; already || !t.lasted(t.away[key], t.timing.DriverAway) || t.hidden(key) || t.poolHeld(key) {
				continue
			}
			t.absent[key] = struct{}{}
			if t.leading() {
				t.log.Warn("a driver's slices are gone or incomplete while its devices are in use; what is said of these isn't believed until they are back",
					"driver", key.Driver, "pool", key.Pool, "claims", len(t.claimsByPool[key]), "pods", len(t.podsByPool[key]))
			}
			t.rereadPool(key)
		}
	})
}

// hidden tells whether a driver that hides what is allocated may have nothing left to
// list in a pool.
func (t *tracker) hidden(key device.PoolKey) bool {
	if !t.drivers[key.Driver].HidesAllocated {
		return false
	}
	p := t.pools[key]
	if p == nil {
		return true
	}
	if len(p.slices) > 0 {
		return false
	}
	allocated := t.allocatedIn(p)
	return !slices.ContainsFunc(p.expected.Devices, func(d device.PoolDevice) bool {
		_, held := allocated[d.Key]
		return !held
	})
}

// poolHeld tells whether the node of a pool is out: its slices are as it left them.
func (t *tracker) poolHeld(key device.PoolKey) bool {
	for device := range t.devicesByPool[key] {
		if t.isOut(t.devices[device]) {
			return true
		}
	}
	p := t.pools[key]
	return p != nil && t.nodeHeld(key.Driver, p.node)
}

// nodeHeld tells whether a node is out, for a driver of which no device there need be
// known.
func (t *tracker) nodeHeld(driver, node string) bool {
	ready, told := t.ready[node]
	return t.outages[pair{driver, node}] != nil || told && ready != device.ReadyTrue
}

// rereadPool has the Pods that have devices of a pool say again what they say.
func (t *tracker) rereadPool(key device.PoolKey) {
	for uid := range t.podsByPool[key] {
		t.again[uid] = struct{}{}
	}
}

// vouchersAnew begins the settling of plugins and drivers anew where a node is back.
func (t *tracker) vouchersAnew(p pair, now time.Time) {
	if _, since := t.empty[p]; since {
		t.empty[p] = now
	}
	for key := range t.devicesByPair[p] {
		if _, since := t.away[poolKey(key)]; since && key.Path() == device.PathDRA {
			t.away[poolKey(key)] = now
		}
	}
}

// lasted tells whether something that began then has lasted for so long while
// everything could be seen.
func (t *tracker) lasted(since time.Time, limit time.Duration) bool {
	if t.sighted.After(since) {
		since = t.sighted
	}
	return t.clock.Since(since) >= limit
}

// sees takes in whether everything can be seen at this moment. Where it can't, what is
// missing may be back long since: nothing has lasted.
func (t *tracker) sees(everything bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if everything {
		t.blindSince = time.Time{}
		return
	}
	t.sighted = t.clock.Now()
	if t.blindSince.IsZero() {
		t.blindSince = t.sighted
	}
}
