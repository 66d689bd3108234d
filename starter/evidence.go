package starter

import (
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/reading"
)

// How old what is known of a device may be stands apart from what that is. An entry
// carries no time, so it can be judged only by what is around it: while all of that is
// well, an entry is behind by its driver's reporting delay at most, and when something
// ceases to be, its age begins to grow. That the same was said again is no evidence.

// around is what has to be well for a reading of a device on a node to be of now.
func (t *tracker) around(key device.Key, node string) device.Surroundings {
	around := device.Surroundings{WatchCurrent: true, Node: t.nodeVerdict(reading.DriverOf(key), node)}
	if key.Path() == device.PathPlugin {
		around.Offer = t.nodes[key.Node].offers[key.Resource]
	} else if p := t.poolOf(key); p != nil {
		around.PoolComplete = p.now.Complete
	}
	return around
}

// staleSince is since when a reading can't be believed, as far as this starter has
// seen; zero where it doesn't know.
func (t *tracker) staleSince(key device.Key, node string, why device.Staleness) time.Time {
	p := pair{reading.DriverOf(key), node}
	switch why {
	case device.NodeSilent, device.NodeNotReady:
		if o := t.outages[p]; o != nil {
			return o.since
		}
	case device.DriverAbsent:
		return t.away[poolKey(key)]
	case device.PluginAbsent:
		return t.empty[p]
	case device.WatchBehind:
		return t.blindSince
	}
	return time.Time{}
}

// evidenceAges tells, by driver, how old the oldest evidence of a device that live Pods
// report on may be, and how many of these can't be believed, by why.
func (t *tracker) evidenceAges() (oldest map[string]time.Duration, stale map[string]map[device.Staleness]int) {
	oldest, stale = map[string]time.Duration{}, map[string]map[device.Staleness]int{}
	t.eachRecord(func(key device.Key, r *record) {
		if !r.liveSays(anything) {
			return
		}
		driver := reading.DriverOf(key)
		around := t.around(key, r.node)
		around.WatchCurrent = t.blindSince.IsZero()
		age := t.delay(driver)
		if why := around.Freshness(key.Path()); why != device.Fresh {
			if stale[driver] == nil {
				stale[driver] = map[device.Staleness]int{}
			}
			stale[driver][why]++
			if since := t.staleSince(key, r.node, why); !since.IsZero() {
				age += t.clock.Since(since)
			}
		}
		oldest[driver] = max(oldest[driver], age)
	})
	return oldest, stale
}
