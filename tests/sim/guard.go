package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// This file keeps many devices at once from becoming cases one by one, as the starter
// does: it counts levels and onsets and asks pkg/incident when an incident begins, what
// it holds, and whom it lets through. What is counted when is the starter's storm.go and
// crowd.go in few lines; the starter's own code needs a cluster.

// stormWindow is how long an Unknown that is over counts towards a storm.
const stormWindow = 5 * time.Minute

type guard struct {
	w       *world
	unknown []*unitOf
	crowded []*unitOf
	onsets  map[incident.Scope][]onset
	scopes  map[incident.Scope]*ongoing
	totals  *incident.Totals
	judged  time.Duration
	next    time.Duration
}

// onset is the beginning of a fault.
type onset struct {
	u  *unitOf
	at time.Duration
}

// ongoing is an open incident, and when it is told the levels next.
type ongoing struct {
	i      incident.Incident
	last   incident.Answer
	due    time.Duration
	begins bool
}

func newGuard(w *world) *guard {
	g := &guard{w: w, onsets: map[incident.Scope][]onset{}, scopes: map[incident.Scope]*ongoing{}, totals: incident.NewTotals(), next: -1}
	for _, u := range w.units {
		g.totals.Add(incident.Pair{Driver: u.key.Driver, Node: u.node.name}, 1)
	}
	return g
}

func (g *guard) gather() time.Duration { return g.w.policy.gather }

// holds tells whether an incident has its devices wait.
func (g *guard) holds(scope incident.Scope) bool {
	o := g.scopes[scope]
	return o != nil && o.last.Holds
}

// follow takes in that what is said of a device may have changed.
func (g *guard) follow(u *unitOf) {
	g.followUnknown(u, u.unknownShows())
	g.followFault(u, g.w.faultShows(u))
}

func (g *guard) followUnknown(u *unitOf, unknown bool) {
	e, now := &u.watch, g.w.now
	switch {
	case unknown && (!e.unknown || e.over && now-e.until >= g.gather()):
		e.unknown, e.since, e.over, e.through, e.counted, e.open = true, now, false, false, false, u.c.Open()
		g.unknown = include(g.unknown, u)
		g.judgeAt(now)
		g.judgeAt(now + g.gather())
	case unknown:
		e.over = false
	case e.unknown && !e.over:
		e.over, e.until = true, now
	}
}

// waits tells whether an Unknown may not open a case yet.
func (g *guard) waits(u *unitOf) bool {
	switch {
	case u.mark != nil, u.watch.through:
		return false
	case g.w.now-u.watch.since < g.gather():
		return true
	case !g.w.policy.storms:
		return false
	}
	for _, scope := range incident.Storms(u.node.name, u.key.Driver) {
		if g.holds(scope) {
			return true
		}
	}
	return false
}

// waiting tells whether a device waits without a case.
func (g *guard) waiting(u *unitOf) bool {
	return !u.c.Open() && u.watch.unknown && !u.watch.over && !u.node.held && g.waits(u)
}

// judgeAt has levels compared at a time.
func (g *guard) judgeAt(at time.Duration) { g.w.at(at, g.judge) }

// judge compares levels: it finds incidents that begin, tells those that are due, and
// lets go on what gathered long enough.
func (g *guard) judge() {
	w, now := g.w, g.w.now
	if g.judged == now && now > 0 || len(g.unknown)+len(g.crowded)+len(g.scopes) == 0 {
		return
	}
	g.judged = now
	if w.policy.storms || len(g.scopes) > 0 {
		tally := g.tally()
		if w.policy.storms {
			g.findStorms(tally)
		}
		g.findCrowds()
		g.report(tally)
	}
	for _, u := range slices.Clone(g.unknown) {
		if u.watch.over && now-u.watch.until >= max(g.gather(), stormWindow) {
			u.watch.unknown, u.watch.over = false, false
			g.unknown = exclude(g.unknown, u)
			continue
		}
		if !u.c.Open() && u.unknownShows() && !u.node.held {
			w.tellDue(u)
		}
	}
	g.sleep()
}

// sleep has levels compared again when an incident is due.
func (g *guard) sleep() {
	next := time.Duration(-1)
	for _, o := range g.scopes {
		if next < 0 || o.due < next {
			next = o.due
		}
	}
	if next >= 0 && (g.next < g.w.now || next < g.next) {
		g.next = max(next, g.w.now+time.Second)
		g.judgeAt(g.next)
	}
}

// tally counts the devices that are Unknown, or were a moment ago.
func (g *guard) tally() *incident.Tally {
	now := g.w.now
	levels := make([]incident.Level, 0, len(g.unknown))
	for _, u := range g.unknown {
		e := &u.watch
		if u.mark != nil || e.over && now-e.until >= max(g.gather(), stormWindow) || u.node.held {
			continue
		}
		levels = append(levels, incident.Level{
			Device: u.name, Pair: incident.Pair{Driver: u.key.Driver, Node: u.node.name}, Since: began.Add(e.since),
			Now:   !e.over || now-e.until < g.gather(),
			Fresh: !e.counted && now-e.since <= stormWindow || !e.over && !e.open,
		})
	}
	return incident.NewTally(g.w.policy.thresholds, levels, g.totals)
}

// waitingIn counts the devices of a storm that wait without a case.
func (g *guard) waitingIn(scope incident.Scope) int {
	n := 0
	for _, u := range g.unknown {
		if scope.Covers(u.node.name, u.key.Driver) && u.mark == nil && g.waiting(u) {
			n++
		}
	}
	return n
}

func (g *guard) findStorms(tally *incident.Tally) {
	for _, scope := range tally.Begin(func(s incident.Scope) bool { return g.scopes[s] != nil }) {
		if l := tally.Of(scope); scope.Node == "" || g.w.time().Sub(l.Oldest) >= g.gather() {
			g.begin(scope)
		}
	}
}

// begin makes a scope hold from now on.
func (g *guard) begin(scope incident.Scope) {
	g.scopes[scope] = &ongoing{i: incident.Incident{Scope: scope}, due: g.w.now, begins: true, last: incident.Answer{Holds: true}}
	g.w.got.Incidents++
}

const (
	reportEvery, reportSeldom = 15 * time.Second, time.Minute
	reportAhead               = 3 * time.Second
)

// report tells the incidents that are due what is counted, and does what they answer.
func (g *guard) report(tally *incident.Tally) {
	for _, scope := range g.open() {
		o := g.scopes[scope]
		if g.w.now < o.due {
			continue
		}
		var l incident.Levels
		if scope.Kind == incident.Crowd {
			l = g.crowdLevels(scope)
		} else {
			l = tally.Of(scope)
			l.Held = g.waitingIn(scope)
		}
		l.Begins, l.By = o.begins, "starter"
		o.begins = false
		o.i, o.last = incident.Decide(o.i, incident.Reported{Levels: l}, g.w.time(), g.w.policy.incidents)
		g.answered(scope, o, l.Held)
	}
}

// open lists the open incidents in the order of their names.
func (g *guard) open() []incident.Scope {
	scopes := make([]incident.Scope, 0, len(g.scopes))
	for scope := range g.scopes {
		scopes = append(scopes, scope)
	}
	slices.SortFunc(scopes, func(a, b incident.Scope) int { return strings.Compare(a.String(), b.String()) })
	return scopes
}

func (g *guard) answered(scope incident.Scope, o *ongoing, held int) {
	now, again := g.w.now, reportSeldom
	if o.last.Holds {
		again = reportEvery
	}
	if held > 0 && o.last.Phase == incident.Pacing && o.last.Again > 0 {
		again = min(again, o.last.Again)
	}
	o.due = now + again
	if ahead := sinceBegan(o.last.Until) - reportAhead; o.last.Phase == incident.Holding && ahead > now && ahead < o.due {
		o.due = ahead
	}
	if o.last.Phase == incident.Closed {
		delete(g.scopes, scope)
		for _, u := range g.unknown {
			if scope.Kind == incident.Storm && scope.Covers(u.node.name, u.key.Driver) {
				u.watch.counted = true
			}
		}
	}
	switch {
	case !o.last.Holds:
		g.letAllThrough(scope)
	case o.last.Through > 0:
		g.letOneThrough(scope)
	}
}

// letAllThrough has a crowd's devices go on; those of a storm do in judge.
func (g *guard) letAllThrough(scope incident.Scope) {
	for _, u := range slices.Clone(g.crowded) {
		if u.watch.crowd == scope {
			g.admit(u)
		}
	}
}

func (g *guard) letOneThrough(scope incident.Scope) {
	if scope.Kind == incident.Crowd {
		var oldest *unitOf
		for _, u := range g.crowded {
			if u.watch.crowd == scope && (oldest == nil || u.watch.at < oldest.watch.at) {
				oldest = u
			}
		}
		if oldest != nil {
			g.admit(oldest)
		}
		return
	}
	var oldest *unitOf
	for _, u := range g.unknown {
		if !scope.Covers(u.node.name, u.key.Driver) || !g.waiting(u) || g.heldElsewhere(u, scope) {
			continue
		}
		if oldest == nil || cmp.Or(cmp.Compare(u.watch.since, oldest.watch.since), byNumber(u, oldest)) < 0 {
			oldest = u
		}
	}
	if oldest != nil {
		oldest.watch.through = true
	}
}

func (g *guard) heldElsewhere(u *unitOf, but incident.Scope) bool {
	for _, scope := range incident.Storms(u.node.name, u.key.Driver) {
		if scope != but && g.holds(scope) {
			return true
		}
	}
	return g.w.now-u.watch.since < g.gather()
}

// mayRestrict answers a case whose device is Unknown past its window.
func (g *guard) mayRestrict(c quarantine.AskRestriction) quarantine.RestrictionAnswered {
	answered := quarantine.RestrictionAnswered{Epoch: c.Epoch, Granted: true}
	for _, scope := range incident.Storms(c.Node, c.Device.Driver) {
		o := g.scopes[scope]
		if o == nil || !o.i.Open() {
			continue
		}
		var a incident.Answer
		o.i, a = incident.Decide(o.i, incident.Asked{Device: c.Device.String(), Since: c.Since}, g.w.time(), g.w.policy.incidents)
		if !a.Granted() {
			return quarantine.RestrictionAnswered{Epoch: c.Epoch, Again: a.Again, Incident: scope.String(), Why: a.Why}
		}
	}
	return answered
}

// followFault takes in whether a device is at fault. Whether it waits in a crowd is
// decided here, once for each fault.
func (g *guard) followFault(u *unitOf, faulty bool) {
	e, w := &u.watch, g.w
	switch {
	case !faulty:
		e.faulty, e.crowd = false, incident.Scope{}
		g.crowded = exclude(g.crowded, u)
		return
	case e.faulty || u.mark != nil:
		return
	}
	e.faulty, e.at = true, w.now
	if !w.policy.crowds {
		return
	}
	scope := g.crowdOf(u)
	g.onsets[scope] = append(recent(g.onsets[scope], w.now-w.policy.thresholds.CrowdWithin), onset{u, w.now})
	if o := g.scopes[scope]; o == nil && g.crowding(scope) || o != nil && o.last.Holds {
		e.crowd = scope
		g.crowded = include(g.crowded, u)
		g.judgeAt(w.now)
	}
}

func (g *guard) crowdOf(u *unitOf) incident.Scope {
	return incident.CrowdOfDriver(u.key.Driver, "v"+itoa(u.node.version))
}

func recent(onsets []onset, after time.Duration) []onset {
	for len(onsets) > 0 && onsets[0].at <= after {
		onsets = onsets[1:]
	}
	return onsets
}

// crowding tells whether the faults of a driver that came within the window are more than
// are believed one by one. A node that is a crowd by itself counts as one.
func (g *guard) crowding(scope incident.Scope) bool {
	thresholds := g.w.policy.thresholds
	byNode := map[*node]int{}
	for _, o := range g.onsets[scope] {
		byNode[o.u.node]++
	}
	count := 0
	for n, of := range byNode {
		if of >= thresholds.CrowdOfNode(len(n.units)) {
			of = 1
		}
		count += of
	}
	return len(byNode) > 1 && count > thresholds.CrowdOfDriver(g.totals.Of(scope.Driver))
}

// inCrowd tells whether a fault may not open a case yet, because it is one of a crowd.
func (g *guard) inCrowd(u *unitOf) bool {
	if u.mark != nil || u.watch.crowd == (incident.Scope{}) {
		return false
	}
	o, found := g.scopes[u.watch.crowd]
	return !found || o.last.Holds
}

func (g *guard) admit(u *unitOf) {
	u.watch.crowd = incident.Scope{}
	g.crowded = exclude(g.crowded, u)
	if !u.node.held {
		g.w.tellDue(u)
	}
}

// findCrowds makes incidents of the crowds that have come together.
func (g *guard) findCrowds() {
	for _, u := range g.crowded {
		if g.scopes[u.watch.crowd] == nil {
			g.begin(u.watch.crowd)
		}
	}
}

func (g *guard) crowdLevels(scope incident.Scope) incident.Levels {
	l := incident.Levels{Total: g.totals.Of(scope.Driver)}
	l.Enough = g.w.policy.thresholds.CrowdOfDriver(l.Total)
	nodes, counted := map[*node]bool{}, map[*unitOf]bool{}
	count := func(u *unitOf) {
		counted[u] = true
		nodes[u.node] = true
		l.Now++
		if at := began.Add(u.watch.at); l.Oldest.IsZero() || at.Before(l.Oldest) {
			l.Oldest = at
		}
	}
	for _, u := range g.crowded {
		if u.watch.crowd == scope {
			l.Held++
			count(u)
		}
	}
	for _, o := range recent(g.onsets[scope], g.w.now-g.w.policy.thresholds.CrowdWithin) {
		if !counted[o.u] {
			count(o.u)
		}
	}
	l.Nodes = len(nodes)
	return l
}
