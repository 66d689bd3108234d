package starter

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// A claim can be allocated from slices that a dead driver left behind: the kubelet
// takes them away only after half a minute. Its Pod is bound to the node then, no
// container of it ever starts, and nothing takes the allocation back. That is no fault
// of any device; it is shown, with how to get out of it.

// unprepared is a Pod that waits for a device whose driver is gone.
type unprepared struct {
	pod  device.PodRef
	node string
	// claim is namespace/name of the claim, pool where its device was.
	claim  string
	pool   device.PoolKey
	since  time.Time
	logged bool
}

// settleUnprepared looks which Pods wait for devices of pools that are gone.
func (t *tracker) settleUnprepared() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.complete || len(t.away) == 0 && len(t.unprepared) == 0 {
		return
	}
	found := map[string]*unprepared{}
	for key := range t.away {
		for name := range t.claimsByPool[key] {
			for _, ref := range t.claims[name].ReservedFor {
				p := t.pods[ref.UID]
				// Sickbay's own are given up by the attempt that they were made for.
				if p == nil || p.ended || p.view.Ours || !p.view.Pending || t.nodeHeld(key.Driver, p.view.Node) {
					continue
				}
				id := ref.UID + " " + name
				if found[id] = t.unprepared[id]; found[id] == nil {
					found[id] = &unprepared{pod: ref, node: p.view.Node, claim: name, pool: key, since: t.clock.Now()}
				}
			}
		}
	}
	t.unprepared = found
	for _, id := range slices.Sorted(maps.Keys(found)) {
		u := found[id]
		if _, gone := t.absent[u.pool]; !gone || u.logged || !t.leading() {
			continue
		}
		u.logged = true
		_, claim, _ := strings.Cut(u.claim, "/")
		t.log.Warn("a claim is allocated but can't be prepared: its driver is gone from the node, and the Pod can't start; bring the driver back, or delete the Pod, so that its controller makes one that is placed anew",
			"pod", u.pod.String(), "claim", claim, "driver", u.pool.Driver, "pool", u.pool.Pool, "node", u.node,
			"waiting", t.clock.Since(u.since).Round(time.Second).String())
	}
}

// unpreparedClaims counts, by driver, the claims that are allocated but can't be
// prepared, and tells how long the first of them has waited.
func (t *tracker) unpreparedClaims() (count map[string]int, longest map[string]time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	count, longest = map[string]int{}, map[string]time.Duration{}
	for key := range t.pools {
		count[key.Driver], longest[key.Driver] = 0, 0
	}
	for _, u := range t.unprepared {
		if _, gone := t.absent[u.pool]; gone {
			count[u.pool.Driver]++
			longest[u.pool.Driver] = max(longest[u.pool.Driver], t.clock.Since(u.since))
		}
	}
	return count, longest
}
