package incident

import (
	"fmt"
	"time"
)

// Event is something that an incident learns.
type Event interface{ event() }

// Reported is a starter's count. The first one begins the incident.
type Reported struct{ Levels Levels }

// Asked is a case that wants to restrict its device.
type Asked struct{ Device string }

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

const (
	// againLeast and againMost bound when a case is told to ask again. An incident
	// may be over sooner than its maximum.
	againLeast = 30 * time.Second
	againMost  = 5 * time.Minute
)

// Decide takes one event in. It returns the incident after it, and what whoever
// reported or asked is told; for other events the answer is that of a question at
// that moment, without letting anything through. What waits to be announced is in
// Notices, until an Announced.
func Decide(i Incident, event Event, now time.Time, p Policy) (Incident, Answer) {
	d := &decision{Incident: i.clone(), now: now, p: p}
	d.reachDeadlines()
	switch e := event.(type) {
	case Reported:
		return d.Incident, d.reported(e)
	case Asked:
		return d.Incident, d.asked()
	case Message:
		d.message(e)
	case Announced:
		d.announced(e)
	}
	return d.Incident, d.answer()
}

// clone keeps a decision from writing into the slices of the state before it.
func (i Incident) clone() Incident {
	i.Words = append([]Word(nil), i.Words...)
	i.Notices = append([]Notice(nil), i.Notices...)
	i.Story = append([]Notice(nil), i.Story...)
	return i
}

type decision struct {
	Incident
	now time.Time
	p   Policy
}

// reachDeadlines ends the hold at its maximum: whoever asks is never too early for
// a deadline that has passed, however late its timer is.
func (d *decision) reachDeadlines() {
	if d.Phase != Holding || d.now.Before(d.Until) {
		return
	}
	d.Phase = Pacing
	if d.NextAt.Before(d.Until) {
		d.NextAt = d.Until
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
	if d.Levels.Held == 0 {
		return d.answer()
	}
	return d.next(false)
}

func (d *decision) begin() {
	d.Since = d.now
	text := fmt.Sprintf("%d of %d devices in %s are %s at once, on %d nodes, the first since %s", d.Levels.Now, d.Levels.Total, d.Scope, d.what(), d.Levels.Nodes, stamp(d.Levels.Oldest))
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

// asked answers a case that wants to restrict its device.
func (d *decision) asked() Answer { return d.next(true) }

// next lets one through if the pace allows it and it is its turn: cases and the
// starter's devices take turns, and one that doesn't come loses its turn after as
// long as the pace is.
func (d *decision) next(forCase bool) Answer {
	a := d.answer()
	if d.Phase != Pacing {
		return a
	}
	others := d.Asking > 0
	if forCase {
		others = d.Levels.Held > 0
	}
	turn := !others || d.CaseLast != forCase || !d.now.Before(d.NextAt.Add(d.p.pace(d.Scope)))
	if d.now.Before(d.NextAt) || !turn {
		if !turn {
			a.Again = d.NextAt.Add(d.p.pace(d.Scope)).Sub(d.now)
		}
		if forCase {
			// Who is sent away comes back one after the other.
			d.Asking++
			a.Again = min(max(time.Duration(d.Asking)*d.p.pace(d.Scope), a.Again), againMost)
		}
		return a
	}
	d.NextAt, d.CaseLast = d.now.Add(d.p.pace(d.Scope)), forCase
	if forCase {
		d.Granted++
		d.Asking = 0
	} else {
		d.Opened++
	}
	a = d.answer()
	a.Through = 1
	return a
}

// answer is what holds now.
func (d *decision) answer() Answer {
	a := Answer{Phase: d.Phase, Holds: d.Incident.Holds(), Since: d.Since, Until: d.Until}
	switch d.Phase {
	case Holding:
		a.Again = min(max(d.Until.Sub(d.now), againLeast), againMost)
		a.Why = fmt.Sprintf("incident %s holds until %s", d.Scope, stamp(d.Until))
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

// what the devices of the scope are.
func (d *decision) what() string { return What(d.Scope.Kind) }

// What the devices of an incident of that kind are.
func What(kind Kind) string {
	if kind == Crowd {
		return "Unhealthy"
	}
	return "Unknown"
}
