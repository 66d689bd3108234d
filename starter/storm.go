package starter

import (
	"cmp"
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/pkg/reading"
)

// This file keeps Unknowns that come together from becoming cases one by one. An
// Unknown waits a moment (Storm.Gather), so that a storm is seen before the first of
// its cases is opened; while an incident that it is in holds, it goes on waiting.
// Levels are compared every second, and an incident is told what they are. Faults
// never wait here; those of a crowd do in crowd.go.

// Storm is when many devices at once are one incident.
type Storm struct {
	incident.Thresholds
	// Gather is how long an Unknown waits before it may open a case.
	Gather time.Duration
	// Window is how long an Unknown that its case knows, or that is over, counts
	// towards the beginning of a storm. Default 5 min: a node that is upgraded after
	// the other makes a storm too, and the kubelet shows silence up to 90 s late.
	Window time.Duration
}

// defaultWindow is the default of Storm.Window.
const defaultWindow = 5 * time.Minute

// episode is one time of being Unknown, short recoveries included: a device that is
// Unknown every other second is Unknown since the first of them.
type episode struct {
	since time.Time
	// until is when it was last over; zero while it lasts.
	until time.Time
	// through is set once an incident let the device through, counted once one that
	// it was in is over: it makes no other begin.
	through, counted bool
}

// guard is what is known of many devices at once. It is a part of the tracker, under
// its lock.
type guard struct {
	Storm
	// judged is up to when levels were compared, in this stretch of leadership.
	judged time.Time
	// listed is set once the incidents that are open were listed.
	listed bool
	// began is when that was, and had tells which devices had an open case then; nil
	// where it isn't known.
	began time.Time
	had   func(device.Key) bool
	// unknown holds the devices with an episode.
	unknown map[device.Key]struct{}
	// scopes are the open incidents.
	scopes map[incident.Scope]*ongoing
	// crowds counts faults that came together, by driver and version, and onNodes by
	// driver and node; crowded holds the devices that wait in a crowd.
	crowds  map[incident.Scope][]onset
	onNodes map[pair][]onset
	crowded map[device.Key]struct{}
}

// ongoing is an incident as this starter knows it.
type ongoing struct {
	// begins is set where this starter found the incident, until it answers.
	begins bool
	// answered is set once the incident answered, last is what it did.
	answered bool
	last     incident.Answer
	// due is when it is told the levels next; failing that it can't be.
	due     time.Time
	failing bool
	held    int
}

// holds tells whether its devices wait. One that hasn't answered yet holds, too.
func (w *ongoing) holds() bool { return w != nil && (!w.answered || w.last.Holds) }

func newGuard(s Storm) *guard {
	if s.Window == 0 {
		s.Window = defaultWindow
	}
	return &guard{
		Storm: s, unknown: map[device.Key]struct{}{}, scopes: map[incident.Scope]*ongoing{},
		crowds: map[incident.Scope][]onset{}, onNodes: map[pair][]onset{}, crowded: map[device.Key]struct{}{},
	}
}

// begin forgets what another stretch of leadership knew of incidents.
func (g *guard) begin() {
	if g == nil {
		return
	}
	g.judged, g.listed, g.began, g.had = time.Time{}, false, time.Time{}, nil
	clear(g.scopes)
}

// follow takes in that what is said of a device may have changed. What is said on a
// node that is out counts when the node is back, as everything there does.
func (t *tracker) follow(r *record) {
	if t.guard == nil || t.isOut(r) {
		return
	}
	unknown, faulty := false, false
	for _, s := range r.readings {
		switch {
		case s.worst != nil:
			faulty = true
		case !t.bad(r, s.now):
		case s.now.Counts() == device.Unhealthy:
			faulty = faulty || !s.now.Ended || s.untold()
		case !s.now.Ended:
			unknown = true
		}
	}
	t.followUnknown(r, unknown && !faulty)
	t.followFault(r, faulty)
}

func (t *tracker) followUnknown(r *record, unknown bool) {
	now, e := t.clock.Now(), &r.unknown
	switch {
	case unknown && (e.since.IsZero() || !e.until.IsZero() && now.Sub(e.until) >= t.guard.Gather):
		*e = episode{since: now}
		if t.hadCase(r) {
			r.maybe, r.opened, e.counted = true, true, true
		}
		t.guard.unknown[r.key] = struct{}{}
	case unknown:
		e.until = time.Time{}
	case !e.since.IsZero() && e.until.IsZero():
		e.until = now
	}
}

// hadCase tells whether an Unknown is one that a case knew before this starter led: that
// it is found now makes no storm. What a driver that is away makes Unknown is found
// some minutes later only.
func (t *tracker) hadCase(r *record) bool {
	g := t.guard
	return g.had != nil && t.clock.Since(g.began) < 2*max(t.timing.DriverAway, t.timing.PluginAway) && g.had(r.key)
}

// waits tells whether an Unknown may not open a case yet. A device with a mark has
// its case.
func (t *tracker) waits(r *record) bool {
	g := t.guard
	switch {
	case g == nil, r.mark != nil, r.unknown.through && !t.upgrading(r):
		return false
	case g.judged.Sub(r.unknown.since) < g.Gather, !g.listed, t.upgrading(r):
		return true
	}
	for _, scope := range incident.Storms(r.node, reading.DriverOf(r.key)) {
		if g.scopes[scope].holds() {
			return true
		}
	}
	return false
}

// held tells whether a device waits without a case. One whose node is out waits for
// that.
func (t *tracker) held(r *record) bool {
	return !r.opened && r.unknown.until.IsZero() && !t.isOut(r) && t.waits(r)
}

// report is what an incident is to be told.
type report struct {
	scope  incident.Scope
	levels incident.Levels
}

// judge compares levels: it finds the incidents that begin, lets what gathered long
// enough go on, and returns what is to be told now.
func (t *tracker) judge() (due []report) {
	g := t.guard
	t.do(func() {
		now := t.clock.Now()
		before := g.judged
		g.judged = now
		t.endUpgrades(now)
		levels, held := t.levels(now, before)
		tally := incident.NewTally(g.Thresholds, levels, t.totals)
		for _, scope := range tally.Begin(func(s incident.Scope) bool { return g.scopes[s] != nil }) {
			// Whether a silent node is all that there is shows when its devices have
			// gathered.
			if scope.Node == "" || now.Sub(tally.Of(scope).Oldest) >= g.Gather {
				t.beginIncident(scope, tally.Of(scope))
			}
		}
		t.findCrowds(now)
		for scope, w := range g.scopes {
			var l incident.Levels
			if scope.Kind == incident.Crowd {
				l = t.crowdLevels(scope, now)
			} else {
				l = tally.Of(scope)
				l.Held = held[scope]
			}
			w.held = l.Held
			l.Begins = w.begins
			if !now.Before(w.due) {
				l.Unsure = t.unsure(scope)
				due = append(due, report{scope, l})
			}
		}
	})
	slices.SortFunc(due, func(a, b report) int { return cmp.Compare(a.scope.String(), b.scope.String()) })
	return due
}

// beginIncident makes a scope hold from now on.
func (t *tracker) beginIncident(scope incident.Scope, l incident.Levels) {
	t.guard.scopes[scope] = &ongoing{due: t.clock.Now(), begins: true}
	t.log.Warn("many devices at once are taken for one incident", "incident", scope.String(), "health", incident.What(scope.Kind),
		"devices", l.Now, "of", l.Total, "nodes", l.Nodes, "enough", l.Enough)
}

// levels lists the devices that are Unknown, or were a moment ago, and counts those
// that wait by the scopes that they are in.
func (t *tracker) levels(now, before time.Time) ([]incident.Level, map[incident.Scope]int) {
	g, held := t.guard, map[incident.Scope]int{}
	var all []incident.Level
	for key := range g.unknown {
		r := t.devices[key]
		if r == nil || r.unknown.since.IsZero() {
			delete(g.unknown, key) // it was forgotten meanwhile
			continue
		}
		e := r.unknown
		over := !e.until.IsZero()
		if over && now.Sub(e.until) >= max(g.Gather, g.Window) {
			r.unknown = episode{}
			delete(g.unknown, key)
			continue
		}
		if before.Sub(e.since) < g.Gather && now.Sub(e.since) >= g.Gather {
			t.touch(key)
		}
		if r.mark != nil || t.upgrading(r) {
			continue // it is restricted, or worse; or expected
		}
		l := incident.Level{
			Device: key.String(), Pair: incident.Pair{Driver: reading.DriverOf(key), Node: r.node}, Since: e.since,
			Now: !over || now.Sub(e.until) < g.Gather,
		}
		l.Fresh = !e.counted && now.Sub(e.since) <= g.Window || !over && !r.opened && !r.doubtful
		all = append(all, l)
		if t.held(r) {
			for _, scope := range incident.Storms(l.Node, l.Driver) {
				held[scope]++
			}
		}
	}
	return all, held
}

const (
	// reportEvery is how often an incident that holds is told the levels, reportSeldom
	// one that doesn't, and reportRetry how soon after it couldn't be.
	reportEvery, reportSeldom, reportRetry = 15 * time.Second, time.Minute, 5 * time.Second
	// reportAhead is how long before its maximum an incident is told the levels by which
	// it decides then whether anybody has to be asked.
	reportAhead = 3 * time.Second
)

// answered takes in what an incident answered.
func (t *tracker) answered(scope incident.Scope, answer incident.Answer) {
	t.do(func() {
		w := t.guard.scopes[scope]
		if w == nil {
			return
		}
		w.begins, w.answered, w.failing, w.last = false, true, false, answer
		again := reportSeldom
		if answer.Holds {
			again = reportEvery
		}
		if w.held > 0 && answer.Phase == incident.Pacing && answer.Again > 0 {
			again = min(again, answer.Again)
		}
		w.due = t.clock.Now().Add(again)
		if ahead := answer.Until.Add(-reportAhead); answer.Phase == incident.Holding && ahead.After(t.clock.Now()) && ahead.Before(w.due) {
			w.due = ahead
		}
		if answer.Phase == incident.Closed {
			delete(t.guard.scopes, scope)
			t.countedIn(scope)
			t.log.Info("incident is over", "incident", scope.String())
		}
		switch {
		case !answer.Holds:
			t.letAllThrough(scope)
		case answer.Through > 0:
			t.letOneThrough(scope)
		}
	})
}

// unanswered takes in that an incident can't be told. Its devices go on waiting.
func (t *tracker) unanswered(scope incident.Scope, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.guard.scopes[scope]
	if w == nil {
		return
	}
	if !w.failing {
		t.log.Error("incident can't be told; its devices wait until it can, and nothing is restricted meanwhile", "incident", scope.String(), "devices", w.held, "error", err)
	}
	w.failing, w.due = true, t.clock.Now().Add(reportRetry)
}

// found takes in which incidents are open, at the beginning of a stretch of
// leadership: they go on, however few of their devices are left. had tells which
// devices have an open case; nil where that can't be known.
func (t *tracker) found(scopes []incident.Scope, had func(device.Key) bool) {
	t.do(func() {
		g := t.guard
		if had != nil {
			g.began, g.had = t.clock.Now(), had
			t.takeOverCases()
			t.takeOverEpisodes()
		}
		for _, scope := range scopes {
			if g.scopes[scope] == nil {
				g.scopes[scope] = &ongoing{due: t.clock.Now()}
				t.log.Info("going on with an incident", "incident", scope.String())
			}
		}
		g.listed = true
		t.forgetCrowds()
		for key := range g.unknown {
			t.touch(key)
		}
	})
}

// takeOverCases takes in which devices already had a case when this starter began to
// lead. What their cases know is no news, however new it is to this starter.
func (t *tracker) takeOverCases() {
	g := t.guard
	for key := range g.unknown {
		if r := t.devices[key]; r != nil && g.had(key) {
			r.maybe, r.opened, r.unknown.counted = true, true, true
		}
	}
	known := func(o onset) bool {
		r := t.devices[o.key]
		return r == nil || r.mark != nil || g.had(o.key)
	}
	for scope, onsets := range g.crowds {
		g.crowds[scope] = slices.DeleteFunc(onsets, known)
	}
	for p, onsets := range g.onNodes {
		g.onNodes[p] = slices.DeleteFunc(onsets, known)
	}
	for key := range g.crowded {
		if r := t.devices[key]; r != nil && g.had(key) {
			t.admit(r)
		}
	}
}

// takeOverEpisodes keeps what was over when this starter began to lead from making an
// incident: if it was one, the starter before has told it, and it may be over by an
// operator's word.
func (t *tracker) takeOverEpisodes() {
	for key := range t.guard.unknown {
		r := t.devices[key]
		if r != nil && !r.unknown.until.IsZero() && t.clock.Since(r.unknown.until) >= t.guard.Gather {
			r.unknown.counted = true
		}
	}
}

// countedIn keeps what was a part of an incident that is over from making another.
func (t *tracker) countedIn(scope incident.Scope) {
	if scope.Kind != incident.Storm {
		return
	}
	for key := range t.guard.unknown {
		if r := t.devices[key]; r != nil && scope.Covers(r.node, reading.DriverOf(key)) {
			r.unknown.counted = true
		}
	}
}

// letAllThrough has the devices of a scope looked at again.
func (t *tracker) letAllThrough(scope incident.Scope) {
	if scope.Kind == incident.Crowd {
		for key := range t.guard.crowded {
			if r := t.devices[key]; r != nil && r.fault.crowd == scope {
				t.admit(r)
			}
		}
		return
	}
	for key := range t.guard.unknown {
		if r := t.devices[key]; r != nil && scope.Covers(r.node, reading.DriverOf(key)) {
			t.touch(key)
		}
	}
}

// letOneThrough lets the device go on that has waited longest. One that another
// incident holds, too, has to wait for that.
func (t *tracker) letOneThrough(scope incident.Scope) {
	if scope.Kind == incident.Crowd {
		t.admitOne(scope)
		return
	}
	var oldest *record
	for key := range t.guard.unknown {
		r := t.devices[key]
		if r == nil || !scope.Covers(r.node, reading.DriverOf(key)) || !t.held(r) || t.heldElsewhere(r, scope) {
			continue
		}
		if oldest == nil || older(r.unknown.since, oldest.unknown.since, r, oldest) {
			oldest = r
		}
	}
	if oldest != nil {
		oldest.unknown.through = true
		t.touch(oldest.key)
	}
}

// older orders devices by what began first, and by name.
func older(a, b time.Time, of, than *record) bool {
	return a.Before(b) || a.Equal(b) && of.key.Compare(than.key) < 0
}

func (t *tracker) heldElsewhere(r *record, but incident.Scope) bool {
	for _, scope := range incident.Storms(r.node, reading.DriverOf(r.key)) {
		if scope != but && t.guard.scopes[scope].holds() {
			return true
		}
	}
	return t.guard.judged.Sub(r.unknown.since) < t.guard.Gather
}

// openIncidents counts, by kind and phase, the incidents that this starter tells.
func (t *tracker) openIncidents(emit func(float64, ...string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.guard == nil || !t.leading() {
		return
	}
	counts := map[[2]string]int{}
	for _, kind := range []incident.Kind{incident.Storm, incident.Crowd} {
		for _, phase := range incident.OpenPhases() {
			counts[[2]string{string(kind), string(phase)}] = 0
		}
		counts[[2]string{string(kind), unreached}] = 0
	}
	for scope, w := range t.guard.scopes {
		phase := unreached
		if w.answered && !w.failing {
			phase = string(w.last.Phase)
		}
		counts[[2]string{string(scope.Kind), phase}]++
	}
	for labels, n := range counts {
		emit(float64(n), labels[:]...)
	}
}

// unreached is the phase label of incidents that can't be told anything now.
const unreached = "Unreached"

// heldDevices counts the devices that wait without a case, by kind of incident; those
// that gather count as a storm's.
func (t *tracker) heldDevices(emit func(float64, ...string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.guard == nil || !t.leading() {
		return
	}
	unknown, expected, crowded := 0, 0, 0
	for key := range t.guard.unknown {
		switch r := t.devices[key]; {
		case r == nil || !t.held(r):
		case t.upgrading(r):
			expected++
		default:
			unknown++
		}
	}
	for key := range t.guard.crowded {
		if r := t.devices[key]; r != nil && t.inCrowd(r) {
			crowded++
		}
	}
	emit(float64(unknown), string(incident.Storm))
	emit(float64(crowded), string(incident.Crowd))
	emit(float64(expected), "Upgrade")
}
