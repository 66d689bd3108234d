package main

import (
	"container/heap"
	"context"
	"fmt"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// began is the date at which every simulation begins.
var began = time.Date(2027, time.January, 1, 0, 0, 0, 0, time.UTC)

// world is a fleet under a policy, at a moment. It is a discrete-event simulation: what
// happens next is taken from a queue, in the order of time and of its coming.
type world struct {
	shape  shape
	seed   uint64
	rates  rates
	policy policy

	nodes []*node
	units []*unitOf
	now   time.Duration
	queue queue
	seq   int

	catalogue *reason.Catalogue
	matches   map[string]reason.Match
	// apiUntil is how long the API server is away.
	apiUntil time.Duration

	guard   *guard
	permits permits
	got     measures
}

// newWorld builds a fleet in which all is well, and draws its troubles.
func newWorld(s shape, seed uint64, r rates, p policy, lasts time.Duration) *world {
	w := &world{shape: s, seed: seed, rates: r, policy: p, matches: map[string]reason.Match{}}
	catalogue, err := reason.Builtin().With(p.catalogue)
	if err != nil {
		w.got.fail("the catalogue: %w", err)
	}
	w.catalogue = catalogue
	w.nodes, w.units = newFleet(s, seed)
	w.got.begin(s, lasts)
	for _, u := range w.units {
		u.pods = 1
		if u.chance.share() < float64(r.of[holdFor])/(r.of[holdFor]+r.of[freeFor]) {
			u.pod = u.podName()
			u.heldTill = u.chance.exponential(r.lasts[holdFor])
		} else {
			u.heldTill = u.chance.exponential(r.lasts[freeFor])
		}
		u.version = 1
	}
	w.guard = newGuard(w)
	w.count()
	for _, t := range w.troubles(lasts) {
		w.at(t.at, func() { t.do(w) })
	}
	return w
}

// run goes on until a time. What goes wrong in it that must not is an error.
func (w *world) run(ctx context.Context, until time.Duration) error {
	for n := 0; len(w.queue) > 0 && w.queue[0].at <= until; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		next := heap.Pop(&w.queue).(happening)
		w.now = next.at
		next.do()
		if w.got.broken != nil {
			return fmt.Errorf("%s after %s: %w", w.policy.name, w.now, w.got.broken)
		}
	}
	w.now = until
	return nil
}

// time is the present as a date.
func (w *world) time() time.Time { return began.Add(w.now) }

// since is a date as time since the beginning.
func sinceBegan(t time.Time) time.Duration { return t.Sub(began) }

// at has something happen at a time, or now if that is over.
func (w *world) at(at time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, happening{max(at, w.now), w.seq, do})
}

type happening struct {
	at  time.Duration
	seq int
	do  func()
}

// queue is a heap of what is to happen.
type queue []happening

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(happening)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	(*q)[len(*q)-1] = happening{}
	*q = (*q)[:len(*q)-1]
	return last
}

// Troubles.

// breaks has a device break. One that is broken already, or in the hands of people,
// doesn't break again.
func (w *world) breaks(u *unitOf, what defect, text string, accuses bool) {
	if u.defect != sound || u.byHand {
		return
	}
	w.hold(u)
	u.defect, u.message, u.brokeAt, u.shownAt, u.openSince, u.wasOut = what, text, w.now, -1, -1, u.mark != nil
	u.episode++
	w.got.broke(u)
	if u.held() {
		u.heldTill = min(u.heldTill, w.now+u.chance.exponential(crashLoopHeld))
	}
	if u.mark != nil {
		w.got.markTurnedRight(w, u)
	}
	if accuses && u.node.accuser == nil {
		u.node.accuser = u
		for _, other := range u.node.units {
			w.spoke(other)
		}
	}
	w.spoke(u)
	w.mind(u)
	episode := u.episode
	w.at(w.now+u.chance.exponential(w.rates.lasts[foundByUsers]), func() {
		if u.episode == episode && u.defect != sound && !u.visiting {
			w.visits(u)
		}
	})
}

func (w *world) falseAlarm(u *unitOf, text string, lasts time.Duration) {
	u.falseFor, u.falsely = max(u.falseFor, w.now+lasts), text
	w.spoke(u)
	w.at(w.now+lasts, func() { w.spoke(u) })
}

func (w *world) glitches(u *unitOf, lasts time.Duration) {
	u.glitch = max(u.glitch, w.now+lasts)
	w.spoke(u)
	w.at(w.now+lasts, func() { w.spoke(u) })
}

// silence has a node's driver say nothing for a while.
func (w *world) silence(n *node, lasts time.Duration) {
	w.holdAll(n)
	n.silentUntil = max(n.silentUntil, w.now+lasts)
	w.spokeAll(n)
	w.at(w.now+lasts, func() { w.spokeAll(n) })
}

func (w *world) kubeletRestarts(n *node, lasts time.Duration) {
	n.wipedUntil = max(n.wipedUntil, w.now+lasts)
	w.at(w.now+lasts, func() { n.published++ })
	w.silence(n, lasts)
}

// upgraded has another version of the driver start on a node.
func (w *world) upgraded(n *node, version int, bad bool, lasts time.Duration) {
	n.version, n.bad = version, bad
	w.at(w.now+lasts, func() { n.published++ })
	w.silence(n, lasts)
}

func (w *world) rackLost(rack int, lasts time.Duration) {
	for _, n := range w.nodes {
		if n.rack != rack {
			continue
		}
		n.deadUntil = max(n.deadUntil, w.now+lasts)
		w.leaseStops(n)
		w.at(w.now+lasts, func() { w.powerBack(n) })
	}
}

// powerBack has a node start: its Pods are no more, and its driver takes a while.
func (w *world) powerBack(n *node) {
	if n.deadUntil > w.now {
		return
	}
	for _, u := range n.units {
		u.pod = ""
		w.got.letGo(u, w.now)
		u.heldTill = w.now + u.chance.exponential(w.rates.lasts[freeFor])
	}
	n.published++
	w.silence(n, n.chance.between(time.Minute, 3*time.Minute))
	for _, u := range n.units {
		u.kubelet = u.said
	}
	w.returns(n)
}

func (w *world) rackCut(rack int, lasts time.Duration) {
	for _, n := range w.nodes {
		if n.rack != rack {
			continue
		}
		n.cutUntil = max(n.cutUntil, w.now+lasts)
		w.leaseStops(n)
		w.at(w.now+lasts, func() { w.returns(n) })
	}
}

func (w *world) apiLost(lasts time.Duration) { w.apiUntil = max(w.apiUntil, w.now+lasts) }

// leaseStill is how long a Lease stands still before the starter takes its node for out,
// and Kubernetes for not ready; nodeReturn how long the starter waits when it is back.
const (
	leaseStill = 50 * time.Second
	nodeReturn = 30 * time.Second
)

// leaseStops begins the outage of a node.
func (w *world) leaseStops(n *node) {
	if n.out {
		return
	}
	w.holdAll(n)
	n.out, n.outSince = true, w.now
	w.at(w.now+leaseStill, func() { w.findOut(n) })
}

// findOut has the starter hold what is read on a node that is out.
func (w *world) findOut(n *node) {
	switch {
	case !n.out || w.now-n.outSince < leaseStill:
	case w.apiUntil > w.now:
		w.at(w.apiUntil+leaseStill+10*time.Second, func() { w.findOut(n) }) // its clocks begin anew
	default:
		n.held = true
	}
}

// returns ends the outage of a node: what its kubelet says is in the API again.
func (w *world) returns(n *node) {
	if !n.out || !n.reachable(w.now) {
		return
	}
	n.out = false
	for _, u := range n.units {
		w.hold(u)
		w.written(u)
	}
	if n.held {
		w.at(w.now+nodeReturn+10*time.Second, func() { w.settles(n) })
	}
}

// settles has the starter compare anew what is read on a node that is back.
func (w *world) settles(n *node) {
	if !n.held || n.out {
		return
	}
	n.held = false
	for _, u := range n.units {
		u.podSeen = max(u.podSeen, w.now) // what wasn't told counts from now
		w.heard(u)
	}
}

// What drivers, kubelets and the API say.

func (w *world) spokeAll(n *node) {
	for _, u := range n.units {
		w.spoke(u)
	}
}

// spoke takes in that what a driver says of a device may have changed. Its kubelet hears
// a fault at once; a silence shows late (KEP-4680 and the kubelet: 30 to 90 s).
func (w *world) spoke(u *unitOf) {
	says := u.says(w.now)
	if says == u.said {
		return
	}
	u.said, u.saidSince = says, w.now
	u.saidGen++
	c, gen := stream(w.seed, "hears", uint64(u.number), uint64(u.saidGen)), u.saidGen
	late := c.between(time.Second, 10*time.Second)
	switch says.health {
	case device.Unknown:
		late = c.between(30*time.Second, 90*time.Second)
	case device.Unhealthy:
		late = c.between(500*time.Millisecond, 2*time.Second)
	}
	w.at(w.now+late, func() {
		if u.saidGen != gen || u.node.deadUntil > w.now {
			return
		}
		u.kubelet = u.said
		if u.node.reachable(w.now) {
			w.hold(u)
			w.written(u)
		}
	})
}

// written takes in that a kubelet writes what it knows of a device into the API.
func (w *world) written(u *unitOf) {
	if u.api == u.kubelet {
		return
	}
	u.api = u.kubelet
	u.version++
	u.podSeen = w.now
	w.shown(u)
	w.mind(u)
	w.delivered(u)
}

// shown notes when a defect showed first, and whether a fault did.
func (w *world) shown(u *unitOf) {
	if !u.held() || u.api.health == device.Healthy {
		return
	}
	if u.defect != sound && u.shownAt < 0 && (u.api.health == device.Unhealthy || u.defect == hung) {
		u.shownAt = w.now
		if u.mark == nil && !u.byHand {
			u.openSince = w.now
		}
	}
	if u.api.health == device.Unhealthy {
		u.unhealthy = true
	}
}

// Holders.

const (
	// A Pod on a broken device fails, and asks for the same one again. Assumed.
	crashLoopHeld = 10 * time.Minute
	crashLoopFree = 2 * time.Minute
)

func (u *unitOf) podName() string { return fmt.Sprintf("job-%d-%d", u.number, u.pods) }

// hold brings the holder of a device up to now, and tells whether it changed.
func (w *world) hold(u *unitOf) (changed bool) {
	for u.heldTill <= w.now {
		at := u.heldTill
		held, free := w.rates.lasts[holdFor], w.rates.lasts[freeFor]
		if u.defect != sound {
			held, free = crashLoopHeld, crashLoopFree
		}
		switch {
		case u.held():
			u.pod, changed = "", true
			w.got.letGo(u, at)
			u.heldTill = at + u.chance.exponential(free)
		case u.mark != nil || u.byHand || u.node.out:
			// Nobody gets it now.
			u.heldTill = at + u.chance.exponential(free)
		default:
			u.pods++
			u.pod, u.podSeen, changed = u.podName(), at, true
			u.version++
			u.heldTill = at + u.chance.exponential(held)
			switch {
			case u.defect != sound:
				w.got.given(u)
			case u.node.silentUntil > at:
				w.got.Stuck += u.node.silentUntil - at
			}
		}
	}
	if changed {
		w.shown(u)
		w.mind(u)
	}
	return changed
}

// holdAll does so for all of a node's devices, before something changes by which it goes.
func (w *world) holdAll(n *node) {
	for _, u := range n.units {
		w.hold(u)
	}
}

// mind has the comings and goings of a device's holders happen each at its time, while
// they matter: while it isn't well, or has a case. Else they are worked out when needed.
func (w *world) mind(u *unitOf) {
	at := u.heldTill
	if u.minded == at || u.api == healthy && u.kubelet == healthy && u.said == healthy && !u.c.Lives() && u.mark == nil {
		return
	}
	u.minded = at
	w.at(at, func() {
		if u.minded != at {
			return // another one is to come
		}
		u.minded = -1
		if w.hold(u) && u.node.reachable(w.now) {
			w.delivered(u)
		}
		w.mind(u)
	})
}

// size counts the eligible devices: those whose pools are published.
func (w *world) size() (all int, of map[string]int) {
	of = map[string]int{}
	for _, n := range w.nodes {
		if n.wipedUntil <= w.now {
			all += len(n.units)
			of[n.driver] += len(n.units)
		}
	}
	return all, of
}

func (w *world) sizes() []budget.Size {
	all, of := w.size()
	sizes := []budget.Size{{Scope: budget.Everything, Eligible: all}}
	for _, driver := range []string{driverTwo, driverOne} {
		if of[driver] > 0 {
			sizes = append(sizes, budget.Size{Scope: budget.Scope{Kind: budget.Class, Name: driver}, Eligible: of[driver]})
		}
	}
	return sizes
}

// match is what the catalogue makes of a message.
func (w *world) match(driver, message string) reason.Match {
	name := driver + "\x00" + message
	m, known := w.matches[name]
	if !known {
		m = w.catalogue.Match(driver, message)
		w.matches[name] = m
	}
	return m
}
