package starter

import (
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/pkg/reading"
)

// This file is the guard against a crowd: many devices that are called Unhealthy all
// at once, because a driver's new version can't read them, or because an error that
// names no card condemns all cards of its node. Those of one node are marked as ever,
// and told as one incident. Of a driver's on several nodes the first ones are marked
// as ever, and the others wait for the incident's pace or an operator.

// fault is one time of being at fault.
type fault struct {
	since time.Time
	// crowd is where the device waits; the zero value is nowhere.
	crowd incident.Scope
}

// onset is the beginning of a fault.
type onset struct {
	key  device.Key
	node string
	at   time.Time
}

// followFault takes in whether a device is at fault. The decision whether it waits
// falls here, once for each fault, so that the first ones are never late.
func (t *tracker) followFault(r *record, faulty bool) {
	switch {
	case !faulty:
		r.fault = fault{}
		delete(t.guard.crowded, r.key)
		return
	case !r.fault.since.IsZero() || r.mark != nil:
		return
	}
	g, now := t.guard, t.clock.Now()
	r.fault.since = now
	one := onset{key: r.key, node: r.node, at: now}
	p := r.pair()
	g.onNodes[p] = append(recent(g.onNodes[p], now.Add(-g.CrowdNodeWithin)), one)
	scope := incident.CrowdOfDriver(p.driver, t.driverVersion(r.key))
	if scope.Validate() != nil {
		scope.Version = "" // it is one that nobody could type
	}
	g.crowds[scope] = append(recent(g.crowds[scope], now.Add(-g.CrowdWithin)), one)
	if w := g.scopes[scope]; w == nil && t.crowding(scope) || w.holds() {
		r.fault.crowd = scope
		g.crowded[r.key] = struct{}{}
	}
}

// recent drops what began before a moment.
func recent(onsets []onset, after time.Time) []onset {
	for len(onsets) > 0 && !onsets[0].at.After(after) {
		onsets = onsets[1:]
	}
	return onsets
}

// crowding tells whether the faults of a driver that came within the window are more
// than are believed one by one. A node that is a crowd by itself counts as one.
func (t *tracker) crowding(scope incident.Scope) bool {
	onsets := t.guard.crowds[scope]
	if len(onsets) <= t.guard.CrowdDevices {
		return false
	}
	byNode := map[string]int{}
	for _, o := range onsets {
		byNode[o.node]++
	}
	count := 0
	for node, n := range byNode {
		if n >= t.guard.CrowdOfNode(len(t.devicesByPair[pair{scope.Driver, node}])) {
			n = 1
		}
		count += n
	}
	return len(byNode) > 1 && count > t.guard.Thresholds.CrowdOfDriver(t.totals.Of(scope.Driver))
}

// driverVersion is the version of a device's driver, where its slices publish one.
func (t *tracker) driverVersion(key device.Key) string {
	p := t.poolOf(key)
	if p == nil {
		return ""
	}
	listed, _ := p.believed().Find(key.Device)
	return listed.DriverVersion
}

// inCrowd tells whether a fault may not open a case yet, because it is one of a crowd.
// A device with a mark has its case.
func (t *tracker) inCrowd(r *record) bool {
	if t.guard == nil || r.mark != nil || r.fault.crowd == (incident.Scope{}) {
		return false
	}
	w, found := t.guard.scopes[r.fault.crowd]
	return !found || w.holds()
}

// admit lets a device of a crowd go on.
func (t *tracker) admit(r *record) {
	r.fault.crowd = incident.Scope{}
	delete(t.guard.crowded, r.key)
	t.touch(r.key)
}

// admitOne lets the device of a crowd go on that has waited longest.
func (t *tracker) admitOne(scope incident.Scope) {
	var oldest *record
	for key := range t.guard.crowded {
		r := t.devices[key]
		if r == nil || r.fault.crowd != scope || r.mark != nil {
			continue
		}
		if oldest == nil || older(r.fault.since, oldest.fault.since, r, oldest) {
			oldest = r
		}
	}
	if oldest != nil {
		t.admit(oldest)
	}
}

// findCrowds makes incidents of the crowds that have come together.
func (t *tracker) findCrowds(now time.Time) {
	g := t.guard
	for key := range g.crowded {
		r := t.devices[key]
		if r == nil || r.mark != nil {
			delete(g.crowded, key)
			continue
		}
		if g.listed && g.scopes[r.fault.crowd] == nil {
			t.beginIncident(r.fault.crowd, t.crowdLevels(r.fault.crowd, now))
		}
	}
	for p, onsets := range g.onNodes {
		if onsets = recent(onsets, now.Add(-g.CrowdNodeWithin)); len(onsets) == 0 {
			delete(g.onNodes, p)
			continue
		}
		g.onNodes[p] = onsets
		scope := incident.CrowdOfNode(p.node)
		if p.node != "" && g.listed && g.scopes[scope] == nil && len(onsets) >= g.CrowdOfNode(len(t.devicesByPair[p])) {
			t.beginIncident(scope, t.crowdLevels(scope, now))
		}
	}
	for scope, onsets := range g.crowds {
		if onsets = recent(onsets, now.Add(-g.CrowdWithin)); len(onsets) == 0 {
			delete(g.crowds, scope)
			continue
		}
		g.crowds[scope] = onsets
	}
}

// crowdLevels is what a crowd's incident is told: on a node the devices that are at
// fault or marked, of a driver those that wait or came just now.
func (t *tracker) crowdLevels(scope incident.Scope, now time.Time) incident.Levels {
	g := t.guard
	l := incident.Levels{}
	nodes := map[string]struct{}{}
	count := func(r *record) {
		l.Now++
		nodes[r.node] = struct{}{}
		if !r.fault.since.IsZero() && (l.Oldest.IsZero() || r.fault.since.Before(l.Oldest)) {
			l.Oldest = r.fault.since
		}
		if len(l.Sample) < 5 {
			l.Sample = append(l.Sample, r.key.String())
		}
	}
	if scope.Node != "" {
		worst := map[string]int{}
		for _, r := range t.sortedRecords(t.devicesByNode[scope.Node]) {
			l.Total++
			if !r.fault.since.IsZero() || r.mark != nil {
				count(r)
				worst[reading.DriverOf(r.key)]++
			}
		}
		most := 0
		for driver, n := range worst {
			if needs := g.CrowdOfNode(len(t.devicesByPair[pair{driver, scope.Node}])); n > most || n == most && needs > l.Enough {
				most, l.Enough = n, needs
			}
		}
		l.Nodes = 1
		return l
	}
	l.Total = t.totals.Of(scope.Driver)
	l.Enough = g.Thresholds.CrowdOfDriver(l.Total)
	counted := map[device.Key]struct{}{}
	for _, r := range t.sortedRecords(g.crowded) {
		if r.fault.crowd == scope && t.inCrowd(r) {
			l.Held++
			counted[r.key] = struct{}{}
			count(r)
		}
	}
	for _, o := range recent(g.crowds[scope], now.Add(-g.CrowdWithin)) {
		if _, twice := counted[o.key]; twice || t.devices[o.key] == nil {
			continue
		}
		counted[o.key] = struct{}{}
		count(t.devices[o.key])
	}
	l.Nodes = len(nodes)
	return l
}

// crowdForgotten is how long ago a crowd was that no incident goes on with.
const crowdForgotten = 10 * time.Minute

// forgetCrowds lets go on, at the beginning of a stretch of leadership, what waits in
// a crowd that was over while another starter led.
func (t *tracker) forgetCrowds() {
	for key := range t.guard.crowded {
		r := t.devices[key]
		if r != nil && t.guard.scopes[r.fault.crowd] == nil && t.clock.Since(r.fault.since) >= crowdForgotten {
			t.admit(r)
		}
	}
}
