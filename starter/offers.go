package starter

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// What a node offers of the devices of plugins: whether somebody stands behind what
// its kubelet says of them, and how many are listed. Of devices that no Pod has,
// nothing is known here, and nothing is concluded.

// offersSeen takes in what a node offers now, and what it offered before.
func (t *tracker) offersSeen(name string, before map[string]device.Offer) {
	now := t.nodes[name].offers
	resources := map[pair]struct{}{}
	for _, r := range t.sortedRecords(t.devicesByNode[name]) {
		if r.key.Path() != device.PathPlugin {
			continue
		}
		resources[r.pair()] = struct{}{}
		if offer := now[r.key.Resource]; offer.Listed == 0 {
			t.missing(r, device.AllocatableDropped, "", false)
		} else {
			was, known := before[r.key.Resource]
			t.recount(r, offer.Listed, known && was.Listed != offer.Listed)
		}
	}
	for p := range resources {
		t.vouch(p)
	}
}

// offersGone forgets what a node offered that is deleted.
func (t *tracker) offersGone(name string) {
	maps.DeleteFunc(t.empty, func(p pair, _ time.Time) bool { return p.node == name })
	maps.DeleteFunc(t.unvouched, func(p pair, _ struct{}) bool { return p.node == name })
}

// recount takes in how many devices of a device's resource are listed. A case hears
// of it if it was told otherwise, or if the number has changed.
func (t *tracker) recount(r *record, count int64, changed bool) {
	i := &r.inventory
	i.wanted = r.maybe && (i.told.Missing != "" || changed && i.told.Listed != count)
	if i.wanted {
		i.want, i.open = quarantine.Inventory{Node: r.node, Present: true, Listed: count}, false
		t.touch(r.key)
	}
}

// vouch works out whether a plugin stands behind what is said of its devices on a
// node. That one does is believed at once, that none does when it has lasted.
func (t *tracker) vouch(p pair) {
	n, known := t.nodes[p.node]
	if known && !n.offers[p.driver].Vouched() {
		if _, since := t.empty[p]; !since {
			t.empty[p] = t.clock.Now()
		}
		return
	}
	delete(t.empty, p)
	if _, was := t.unvouched[p]; was {
		delete(t.unvouched, p)
		t.reread(p)
	}
}

// settleOffers stops believing what no plugin has stood behind for long enough.
func (t *tracker) settleOffers() {
	t.do(func() {
		if !t.complete {
			return
		}
		for _, p := range slices.SortedFunc(maps.Keys(t.empty), comparePairs) {
			if _, already := t.unvouched[p]; already || !t.lasted(t.empty[p], t.timing.PluginAway) || t.outages[p] != nil {
				continue
			}
			t.unvouched[p] = struct{}{}
			if t.leading() {
				t.log.Warn("nothing is allocatable of a resource that Pods have devices of; its plugin may be away",
					"node", p.node, "resource", p.driver, "devices", len(t.devicesByPair[p]))
			}
			t.reread(p)
		}
	})
}

func comparePairs(a, b pair) int {
	return cmp.Or(strings.Compare(a.node, b.node), strings.Compare(a.driver, b.driver))
}

// reread has the Pods that have devices of a resource say again what they say.
func (t *tracker) reread(p pair) {
	for key := range t.devicesByPair[p] {
		for uid := range t.devices[key].readings {
			t.again[uid] = struct{}{}
		}
	}
}

// doubt says why a Healthy of a device can't be believed, as far as it shows whether
// its plugin or driver is there.
func (t *tracker) doubt(key device.Key) device.Staleness {
	if key.Path() == device.PathDRA {
		if _, none := t.absent[poolKey(key)]; none {
			return device.DriverAbsent
		}
		return device.Fresh
	}
	if _, none := t.unvouched[pair{key.Resource, key.Node}]; none {
		return device.PluginAbsent
	}
	return device.Fresh
}
