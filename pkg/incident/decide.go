package incident

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Event is something that an incident learns.
type Event interface{ event() }

// Reported is a starter's count. The first one begins the incident.
type Reported struct{ Levels Levels }

// Asked is a case that wants to restrict its device. Since is its first not-good
// moment: the oldest is let through first.
type Asked struct {
	Device string
	Since  time.Time
}

// Woke is a deadline that was reached.
type Woke struct{}

// Announced tells that the notices up to a number are on record.
type Announced struct{ UpTo int64 }

func (Reported) event()  {}
func (Asked) event()     {}
func (Woke) event()      {}
func (Announced) event() {}
func (Message) event()   {}

// Answer is what a starter or a case is told.
type Answer struct {
	Phase Phase `json:"phase"`
	// Holds tells that the devices of the scope wait.
	Holds bool `json:"holds,omitempty"`
	// Through is how many may go on now, 0 or 1; without Holds all may.
	Through int `json:"through,omitempty"`
	// Again is when to ask again, at the latest; zero is when there is news.
	Again time.Duration `json:"again,omitempty"`
	Since time.Time     `json:"since,omitzero"`
	Until time.Time     `json:"until,omitzero"`
	Why   string        `json:"why,omitempty"`
}

// Granted tells whether who asked may go on.
func (a Answer) Granted() bool { return !a.Holds || a.Through > 0 }

// againMost bounds when a case is told to ask again. An incident may be over sooner than
// its maximum.
const againMost = 5 * time.Minute

// Decide takes one event in. It returns the incident after it, and what whoever
// reported or asked is told; for other events the answer is that of a question at
// that moment, without letting anything through. What waits to be announced is in
// Notices, until an Announced.
func Decide(i Incident, event Event, now time.Time, p Policy) (Incident, Answer) {
	d := &decision{Incident: i.clone(), now: now, p: p}
	if e, ok := event.(Reported); ok {
		// A deadline is judged by the levels of that moment.
		d.seen = d.counted(e.Levels)
		answer := d.reported(e)
		return d.Incident, answer
	}
	d.seen = d.counted(d.Levels)
	d.reachDeadlines()
	switch e := event.(type) {
	case Asked:
		answer := d.asked(e)
		return d.Incident, answer
	case Message:
		d.seen = fmt.Sprintf("%s: %s", e.Verb, cmp.Or(e.Reason, e.Malformed, "no reason"))
		d.message(e)
	case Announced:
		d.announced(e)
	}
	return d.Incident, d.answer()
}

// clone keeps a decision from writing into the slices of the state before it.
func (i Incident) clone() Incident {
	i.Waiting = append([]Waiting(nil), i.Waiting...)
	i.Words = append([]Word(nil), i.Words...)
	i.Notices = append([]Notice(nil), i.Notices...)
	i.Story = append([]Notice(nil), i.Story...)
	return i
}

type decision struct {
	Incident
	now time.Time
	p   Policy
	// seen is what the event says, in words.
	seen string
}

// lineUp is how long, from its maximum on, an incident waits for who else wants to be
// let through: whoever waited for it comes then, and the oldest is to be first.
const lineUp = 15 * time.Second

// reachDeadlines ends the hold at its maximum: whoever asks is never too early for
// a deadline that has passed, however late its timer is.
func (d *decision) reachDeadlines() {
	if d.Phase != Holding || d.now.Before(d.asksAt(d.p)) {
		return
	}
	d.Phase, d.CalmSince = Pacing, time.Time{}
	d.Least, d.GrewAt = d.Levels.Now, time.Time{}
	if first := d.Until.Add(min(lineUp, d.p.pace(d.Scope))); d.NextAt.Before(first) {
		d.NextAt = first
	}
	d.notify(NoticeAsks, true, fmt.Sprintf("%s held for %s, its maximum, and %s still %s: lets one through every %s from now on. Is that right? Send wait to hold longer, or admit to let all through at once",
		d.Scope, d.Until.Sub(d.Since).Round(time.Second), people(d.Levels.Now), d.what(), d.p.pace(d.Scope)))
}

// reported takes a count in, and lets the next device through if it is its turn.
func (d *decision) reported(e Reported) Answer {
	if d.Phase == Closed {
		return d.answer()
	}
	e.Levels.Sample = clipSample(e.Levels.Sample)
	e.Levels.Unsure = clip(e.Levels.Unsure, maxUnsure)
	if d.Phase == PhaseNone && !e.Levels.Begins && e.Levels.few(d.Scope) {
		// The record of one that is as good as over is gone: there is nothing to begin.
		d.Levels, d.ReportedAt = e.Levels, d.now
		d.close(EndLevels)
		return d.answer()
	}
	before := d.Levels
	d.Levels, d.ReportedAt, d.Most = e.Levels, d.now, max(d.Most, e.Levels.Now)
	if d.Phase == PhaseNone {
		d.begin()
	} else if before.By != e.Levels.By {
		d.notify(NoticeTakenOver, false, fmt.Sprintf("starter %s counts now, after %s; the incident goes on since %s", e.Levels.By, before.By, stamp(d.Since)))
	}
	switch {
	case !d.Levels.low(d.Scope):
		d.CalmSince = time.Time{}
	case d.CalmSince.IsZero():
		d.CalmSince = d.now
	case d.now.Sub(d.CalmSince) >= d.p.Calm:
		d.close(EndLevels)
		d.notify(NoticeClosed, false, fmt.Sprintf("%s is over after %s: %s left for %s. At most there were %d; %d were let through, %d restrictions granted",
			d.Scope, d.now.Sub(d.Since).Round(time.Second), people(d.Levels.Now), d.p.Calm, d.Most, d.Opened, d.Granted))
	}
	d.reachDeadlines()
	d.notice()
	if d.Levels.Held == 0 {
		return d.answer()
	}
	return d.next()
}

// notice finds a new wave after the maximum, or after an operator let all through. It
// isn't held anew: only an operator's word makes a hold longer than its maximum. It is
// let through at the pace, and asked about. One is told for each maximum's time.
func (d *decision) notice() {
	if d.Scope.Kind != Storm || d.Phase != Pacing && d.Phase != Admitted {
		return
	}
	more := d.Levels.Now - d.Least
	switch {
	case more < 0 && d.Levels.Unsure == "":
		d.Least = d.Levels.Now
		return
	case more < max(d.Levels.Enough, 1), !d.GrewAt.IsZero() && d.now.Sub(d.GrewAt) < d.p.max(d.Scope):
		return
	}
	d.GrewAt, d.Least = d.now, d.Levels.Now
	if d.Phase == Admitted {
		d.Phase = Pacing
		if d.NextAt.Before(d.now) {
			d.NextAt = d.now.Add(d.p.pace(d.Scope))
		}
	}
	d.notify(NoticeGrew, true, fmt.Sprintf("%d more devices in %s became %s, %s now: lets one through every %s. Is that right? Send wait to hold them, or admit to let all through at once",
		more, d.Scope, d.what(), people(d.Levels.Now), d.p.pace(d.Scope)))
}

func (d *decision) begin() {
	d.Since = d.now
	text := fmt.Sprintf("%d of %d devices in %s are %s at once, on %d nodes, the first since %s", d.Levels.Now, d.Levels.Total, d.Scope, d.what(), d.Levels.Nodes, stamp(d.Levels.Oldest))
	if d.Levels.Lately > d.Levels.Now {
		text = fmt.Sprintf("%d of %d devices in %s became %s within minutes, on %d nodes, and %s now", d.Levels.Lately, d.Levels.Total, d.Scope, d.what(), d.Levels.Nodes, people(d.Levels.Now))
	}
	if !d.Levels.Begins {
		text += ". A starter knew of it already, and its record is gone: it is taken to begin now"
	}
	switch {
	case d.Scope.Kind == Storm:
		d.Phase, d.Until = Holding, d.now.Add(d.p.max(d.Scope))
		text += fmt.Sprintf(". That is taken for one fault of observation: none of them gets a case or is restricted until %s; faults are marked as ever", stamp(d.Until))
	case d.Scope.Node != "":
		d.Phase = Noted
		text += ". That is taken for one fault of the node: each of them is marked, and nothing else is done to any"
	default:
		d.Phase, d.NextAt = Pacing, d.now.Add(d.p.CrowdPace)
		text += fmt.Sprintf(". The first %d are marked, the others one every %s. Is that right? Send admit to mark all at once, or wait to hold them", d.Levels.Enough, d.p.CrowdPace)
	}
	d.notify(NoticeBegan, true, text)
}

// next lets one of the starter's devices through if the pace allows it and it is their
// turn.
func (d *decision) next() Answer {
	a := d.answer()
	if d.Phase != Pacing {
		return a
	}
	d.forgetLate()
	if turn := d.turn(len(d.Waiting) > 0, false); d.now.Before(turn) {
		a.Again = turn.Sub(d.now)
		return a
	}
	return d.letThrough(false)
}

// asked answers a case that wants to restrict its device. It is let through if the pace
// allows it, if it is the cases' turn, and if none waits that is older. Who is sent away
// is told to come back when it may be its turn.
func (d *decision) asked(e Asked) Answer {
	a := d.answer()
	if d.Phase != Pacing {
		return a
	}
	d.forgetLate()
	me := Waiting{Device: clip(e.Device, maxDevice), Since: e.Since}
	d.Waiting = slices.DeleteFunc(d.Waiting, func(w Waiting) bool { return w.Device == me.Device })
	before, _ := slices.BinarySearchFunc(d.Waiting, me, func(a, b Waiting) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Device, b.Device))
	})
	turn := d.turn(d.Levels.Held > 0, true)
	if before == 0 && !d.now.Before(turn) {
		return d.letThrough(true)
	}
	each := d.p.pace(d.Scope)
	if d.Levels.Held > 0 {
		each *= 2
	}
	first := max(turn.Sub(d.now), time.Second)
	a.Again = min(first+time.Duration(before)*each, max(first, againMost))
	me.Due = d.now.Add(a.Again)
	d.Waiting = slices.Insert(d.Waiting, before, me)
	d.Waiting = d.Waiting[:min(len(d.Waiting), maxWaiting)]
	return a
}

// maxWaiting bounds the cases that an incident remembers; the others ask as well, and
// are let through when they are among the oldest.
const maxWaiting = 16

// forgetLate forgets cases that didn't come back when they were to: their devices are
// well, or have other troubles.
func (d *decision) forgetLate() {
	late := max(d.p.pace(d.Scope)/2, lineUp)
	d.Waiting = slices.DeleteFunc(d.Waiting, func(w Waiting) bool { return d.now.Sub(w.Due) > late })
}

// turn is from when on one of this kind may be let through: cases and the starter's
// devices take turns, and who doesn't come loses the turn after as long as the pace is.
func (d *decision) turn(others, forCase bool) time.Time {
	if others && d.CaseLast == forCase {
		return d.NextAt.Add(d.p.pace(d.Scope))
	}
	return d.NextAt
}

func (d *decision) letThrough(forCase bool) Answer {
	d.NextAt, d.CaseLast = d.now.Add(d.p.pace(d.Scope)), forCase
	if forCase {
		d.Granted++
	} else {
		d.Opened++
		d.Levels.Held--
	}
	a := d.answer()
	a.Through = 1
	return a
}

// answer is what holds now.
func (d *decision) answer() Answer {
	a := Answer{Phase: d.Phase, Holds: d.Incident.Holds(), Since: d.Since, Until: d.Until}
	switch d.Phase {
	case Holding:
		a.Again = min(max(d.asksAt(d.p).Sub(d.now), time.Second), againMost)
		a.Why = fmt.Sprintf("incident %s holds until %s", d.Scope, stamp(d.asksAt(d.p)))
	case Pacing:
		a.Again = max(d.NextAt.Sub(d.now), time.Second)
		a.Why = fmt.Sprintf("incident %s lets one through every %s", d.Scope, d.p.pace(d.Scope))
	}
	return a
}

func (d *decision) close(end End) {
	d.Phase, d.End, d.Ended = Closed, end, d.now
}

func (d *decision) announced(e Announced) {
	kept := d.Notices[:0]
	for _, n := range d.Notices {
		if n.Seq > e.UpTo {
			kept = append(kept, n)
		}
	}
	d.Notices = kept
}

// counted says what a starter counted.
func (d *decision) counted(l Levels) string {
	text := fmt.Sprintf("%d of %d devices %s on %d nodes, %d wait; counted by %s", l.Now, l.Total, d.what(), l.Nodes, l.Held, clip(l.By, maxDevice))
	if l.Unsure != "" {
		text += ", and there may be more: " + l.Unsure
	}
	return text
}

// what the devices of the scope are.
func (d *decision) what() string { return What(d.Scope.Kind) }

// What the devices of an incident of that kind are.
func What(kind Kind) string {
	if kind == Crowd {
		return "Unhealthy"
	}
	return "Unknown"
}
