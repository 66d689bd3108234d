package starter

import (
	"maps"
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/reading"
)

// While a node is out, nothing that was read on it is told to any case: it is what a
// kubelet last wrote that is dead or not ready. Each driver on a node is judged by
// itself, because how long a node may be silent is said for each driver. What was
// told before stays as it was told. When the node is back, its levels are compared
// anew once it has settled: a kubelet that starts wipes slices and forgets health.

// nodeBeat is what is known of a node's Lease.
type nodeBeat struct {
	renewed string
	version device.Version
	// moved is when a change of it was last seen, or when watching it began; changed
	// is set once one was seen.
	moved   time.Time
	changed bool
}

// outage is one stretch in which the devices of one driver on one node aren't judged.
type outage struct {
	verdict device.NodeVerdict
	since   time.Time
	// back is when the node was first seen to live again; zero while it is out.
	back time.Time
	// silent is set where a Lease that stood still made it an outage: it takes one
	// that moves to end it.
	silent bool
}

// nodeReady takes in a node's condition Ready.
func (t *tracker) nodeReady(name string, ready device.Readiness) {
	t.do(func() {
		if was, known := t.ready[name]; known && was == ready {
			return
		}
		t.ready[name] = ready
		t.judgeNode(name)
	})
}

// leasesListed takes in all Leases of nodes, by node: what each says of its renewal,
// and its version; at is the version of the whole list. It must be called every
// Timing.Heartbeats; a list that comes late says nothing of what was between, and one
// that isn't newer than the one before comes from an API server that is behind: some
// Lease of the cluster is renewed every second, the starter's own among them. It tells
// whether the list was of use.
func (t *tracker) leasesListed(leases map[string]lease, at device.Version) (current bool) {
	t.do(func() {
		now := t.clock.Now()
		current = at.Newer(t.beatsVersion)
		t.beatsVersion = at
		if !current {
			t.beatsMissed(now)
			return
		}
		if now.Sub(t.beatsListed) > 2*t.timing.Heartbeats {
			t.beatsAnew(now)
		}
		t.beatsListed = now
		for name, l := range leases {
			beat, known := t.beats[name]
			switch {
			case !known:
				beat = nodeBeat{renewed: l.renewed, version: l.version, moved: now}
			case l.renewed != beat.renewed && l.version.Newer(beat.version):
				beat = nodeBeat{renewed: l.renewed, version: l.version, moved: now, changed: true}
			default:
				continue
			}
			t.beats[name] = beat
		}
		maps.DeleteFunc(t.beats, func(name string, _ nodeBeat) bool {
			_, there := leases[name]
			return !there
		})
		t.judgeNodes()
	})
	return current
}

// lease is what is read of a node's Lease.
type lease struct {
	renewed string
	version device.Version
}

// leasesMissed takes in that the Leases couldn't be listed: what was between isn't
// known, and all clocks begin anew.
func (t *tracker) leasesMissed() { t.do(func() { t.beatsMissed(t.clock.Now()) }) }

func (t *tracker) beatsMissed(now time.Time) {
	t.beatsAnew(now)
	if now.Sub(t.beatsListed) > leasesGivenUp*t.timing.Heartbeats {
		t.forgetLeases()
	}
}

// leasesGivenUp is after how many lists without use nodes are judged by Ready alone.
const leasesGivenUp = 20

// leasesForgotten ends the judging by Leases, as at the end of a stretch of leadership.
func (t *tracker) leasesForgotten() { t.do(t.forgetLeases) }

func (t *tracker) forgetLeases() {
	if t.beatsListed.IsZero() {
		return
	}
	clear(t.beats)
	t.beatsListed = time.Time{}
	for _, o := range t.outages {
		o.silent = false
	}
	t.judgeNodes()
}

func (t *tracker) beatsAnew(now time.Time) {
	for name, beat := range t.beats {
		beat.moved, beat.changed = now, false
		t.beats[name] = beat
	}
}

// heartbeat judges a node's Lease as of the last list, so that time in which nothing
// was listed never makes one stand still.
func (t *tracker) heartbeat(node string, limit time.Duration) device.Heartbeat {
	beat, known := t.beats[node]
	switch {
	case !known:
		return device.HeartbeatUnseen
	case t.beatsListed.Sub(beat.moved) > limit:
		return device.HeartbeatStopped
	case beat.changed:
		return device.HeartbeatAdvancing
	}
	return device.HeartbeatUnseen
}

// judgeNodes judges every node that has known devices.
func (t *tracker) judgeNodes() {
	for _, p := range slices.SortedFunc(maps.Keys(t.devicesByPair), comparePairs) {
		t.judgePair(p)
	}
}

func (t *tracker) judgeNode(name string) {
	drivers := map[pair]struct{}{}
	for key := range t.devicesByNode[name] {
		drivers[pair{reading.DriverOf(key), name}] = struct{}{}
	}
	for _, p := range slices.SortedFunc(maps.Keys(drivers), comparePairs) {
		t.judgePair(p)
	}
	t.shiftNode(name)
}

// judgePair says whether what is read of a driver's devices on a node may be told.
func (t *tracker) judgePair(p pair) {
	if _, known := t.nodes[p.node]; !known {
		return
	}
	now := t.clock.Now()
	beat := t.heartbeat(p.node, t.heartbeatLimit(p.driver))
	ready, told := t.ready[p.node]
	if !told {
		ready = device.ReadyTrue // its Node object is half taken in
	}
	verdict := device.JudgeNode(beat, ready)
	o := t.outages[p]
	switch {
	case verdict != device.NodeUp && o == nil:
		since := now
		if beat == device.HeartbeatStopped {
			since = t.beats[p.node].moved
		}
		t.outages[p] = &outage{verdict: verdict, since: since, silent: beat == device.HeartbeatStopped}
		t.outBegins(p, verdict)
	case verdict != device.NodeUp:
		changed := o.verdict != verdict || !o.back.IsZero()
		o.verdict, o.back = verdict, time.Time{}
		o.silent = o.silent || beat == device.HeartbeatStopped
		if !changed {
			return
		}
	case o == nil, o.silent && beat != device.HeartbeatAdvancing:
		return
	case o.back.IsZero():
		o.back, o.silent = now, false
	default:
		return
	}
	t.shiftPair(p)
}

// outBegins says once for each node that it is out.
func (t *tracker) outBegins(p pair, verdict device.NodeVerdict) {
	if t.nodesOut[p.node]++; t.nodesOut[p.node] > 1 || !t.leading() {
		return
	}
	t.log.Warn("a node is out; what was read on it is held, and nothing is concluded of its devices",
		"node", p.node, "verdict", verdict, "devices", len(t.devicesByNode[p.node]))
}

// settleNodes compares anew what is read on nodes that are back and have settled.
func (t *tracker) settleNodes() {
	t.do(func() {
		now := t.clock.Now()
		for _, p := range slices.SortedFunc(maps.Keys(t.outages), comparePairs) {
			if o := t.outages[p]; !o.back.IsZero() && now.Sub(o.back) >= t.timing.NodeReturn {
				t.release(p, now)
			}
		}
	})
}

// release ends an outage. What wasn't told counts from now: a window that begins with
// it mustn't have passed while nothing could be known.
func (t *tracker) release(p pair, now time.Time) {
	since := t.outages[p].since
	t.outOver(p)
	if t.nodesOut[p.node] == 0 && t.leading() {
		t.log.Info("a node is back; what is read on it is compared anew", "node", p.node, "out", now.Sub(since).Round(time.Second).String())
	}
	for _, r := range t.sortedRecords(t.devicesByPair[p]) {
		for _, s := range r.readings {
			if s.untold() {
				s.since, s.now.Observed = now, now
			}
		}
		if pool := t.poolOf(r.key); pool != nil {
			pool.dirty = true
		}
		t.changed(r)
	}
	t.vouchersAnew(p, now)
}

func (t *tracker) outOver(p pair) {
	if t.outages[p] == nil {
		return
	}
	delete(t.outages, p)
	if t.nodesOut[p.node]--; t.nodesOut[p.node] <= 0 {
		delete(t.nodesOut, p.node)
	}
	t.shiftPair(p)
}

// forgetOutages forgets what was known of a node that is deleted, or made anew.
func (t *tracker) forgetOutages(node string) {
	delete(t.beats, node)
	delete(t.ready, node)
	for p := range t.outages {
		if p.node == node {
			t.outOver(p)
		}
	}
}

// isOut tells whether what is read of a device isn't told now.
func (t *tracker) isOut(r *record) bool { return t.outages[r.pair()] != nil }

// wantsInventory tells whether its case should hear now whether a device is listed.
// That its node is deleted is the end of any outage.
func (t *tracker) wantsInventory(r *record) bool {
	return r.inventory.wanted && (!t.isOut(r) || r.inventory.want.Missing == device.NodeDeleted)
}

// shiftPair has the devices of a driver on a node shown anew.
func (t *tracker) shiftPair(p pair) {
	if t.show == nil {
		return
	}
	for key := range t.devicesByPair[p] {
		t.shift(key)
	}
}

// nodeVerdict is what a node is worth for what is shown of a device; one that is
// deleted is worth nothing.
func (t *tracker) nodeVerdict(driver, node string) device.NodeVerdict {
	p := pair{driver, node}
	if o := t.outages[p]; o != nil {
		return o.verdict
	}
	if _, there := t.nodes[node]; !there && node != "" {
		return device.NodeDegraded
	}
	return device.NodeUp
}

// outNodes tells how many nodes are out and since when the first of them is, by
// verdict. One that is back and settles is counted until it has.
func (t *tracker) outNodes() (count map[device.NodeVerdict]int, longest map[device.NodeVerdict]time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	worst := map[string]outage{}
	for p, o := range t.outages {
		known, there := worst[p.node]
		if !there || known.verdict != o.verdict && o.verdict == device.NodeOutage {
			known.verdict = o.verdict
		}
		if known.since.IsZero() || o.since.Before(known.since) {
			known.since = o.since
		}
		worst[p.node] = known
	}
	count = map[device.NodeVerdict]int{device.NodeDegraded: 0, device.NodeOutage: 0}
	longest = map[device.NodeVerdict]time.Duration{device.NodeDegraded: 0, device.NodeOutage: 0}
	for _, o := range worst {
		count[o.verdict]++
		longest[o.verdict] = max(longest[o.verdict], t.clock.Since(o.since))
	}
	return count, longest
}

// wantsLeases tells whether any node has devices that readings or marks name.
func (t *tracker) wantsLeases() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.devicesByPair) > 0
}
