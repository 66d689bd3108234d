package budget

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// This file bounds how many devices come back at once. A device that passed all gates
// asks for its turn; from the grant until the end of a settling time it counts as coming
// back. What fails again in that time stops the returns of its class for the rest of it.
//
// None of it is about marks: it takes nothing from their budgets, no pause holds it, and
// it needs no knowledge of which marks exist.

const (
	// lineLease is how long a device keeps its place that doesn't ask when it was told to.
	lineLease = 2 * time.Minute
	// turnSoon is when to ask again where it isn't known when there is room.
	turnSoon = 10 * time.Second
	// maxComing bounds who comes back at once, whatever the limits say.
	maxComing = 1000
)

// ReturnLimits are how many devices may be coming back at once. They are plain numbers:
// what comes back is a few of those that are out, however many others there are.
type ReturnLimits struct {
	Node    int `json:"perNode"`
	Class   int `json:"perClass"`
	Cluster int `json:"cluster"`
	// Settle is for how long, in seconds, a device counts as coming back.
	Settle int `json:"settleSeconds"`
}

// DefaultReturns returns what holds where the operator says nothing.
func DefaultReturns() ReturnLimits { return ReturnLimits{Node: 1, Class: 4, Cluster: 8, Settle: 600} }

func (r ReturnLimits) validate() error {
	var errs []error
	for _, s := range []struct {
		name string
		n    int
	}{{"node", r.Node}, {"class", r.Class}, {"cluster", r.Cluster}} {
		if s.n < 0 {
			errs = append(errs, fmt.Errorf("returns per %s %d: want none below zero", s.name, s.n))
		}
	}
	if r.Settle < 0 {
		errs = append(errs, fmt.Errorf("returns settle %d s: want zero or more", r.Settle))
	}
	return errors.Join(errs...)
}

// Of is how many of a scope may be coming back at once: one at least, so that everything
// comes back in the end. Scopes of other kinds have no limit.
func (r ReturnLimits) Of(s Scope) (n int, limited bool) {
	switch s.Kind {
	case Cluster:
		n = r.Cluster
	case Class:
		n = r.Class
	case Node:
		n = r.Node
	default:
		return 0, false
	}
	return min(max(n, 1), maxComing), true
}

func (r ReturnLimits) settle() time.Duration { return time.Duration(r.Settle) * time.Second }

// AskTurn asks whether a device may be given back now.
type AskTurn struct {
	Device string `json:"device"`
	Epoch  int64  `json:"epoch"`
	// Token is that of the attempt that passed all gates: of a device the latest counts,
	// and it is the earliest one's turn first.
	Token int64 `json:"token"`
	// Scopes are all that the device is in, but for the cluster and the device itself.
	Scopes []Scope `json:"scopes"`
}

// in lists the scopes that bound how many come back.
func (a AskTurn) in() []Scope {
	all := []Scope{Everything}
	for _, s := range a.Scopes {
		if s.Kind == Class || s.Kind == Node {
			all = append(all, s)
		}
	}
	return all
}

func (a AskTurn) isIn(s Scope) bool { return slices.Contains(a.in(), s) }

// TurnsAsked carries devices that passed all gates, and is answered one by one.
type TurnsAsked struct {
	Asks []AskTurn `json:"asks"`
}

func (TurnsAsked) event() {}

// Turn is the answer to one AskTurn.
type Turn struct {
	Device  string `json:"device"`
	Token   int64  `json:"token"`
	Granted bool   `json:"granted"`
	// For is the scope that is full or stopped, Why says so for people.
	For Scope  `json:"for,omitzero"`
	Why string `json:"why,omitempty"`
	// Again is when to ask again. Nobody is told that it is its turn.
	Again time.Duration `json:"again,omitempty"`
}

// Coming is a device that comes back.
type Coming struct {
	AskTurn
	// At is when it was granted, and Until the end of its settling time.
	At    time.Time `json:"at"`
	Until time.Time `json:"until"`
	// Relapsed is when it was found to have failed again before that.
	Relapsed time.Time `json:"relapsed,omitzero"`
}

// InLine is a device that waits for its turn.
type InLine struct {
	AskTurn
	// Since is when it asked first, and AskAt when it is to ask again.
	Since time.Time `json:"since"`
	AskAt time.Time `json:"askAt"`
	// For is the scope that is full or stopped, Why says so for people.
	For Scope  `json:"for,omitzero"`
	Why string `json:"why,omitempty"`
}

// Returns is what is remembered of devices that come back. Coming is in the order of the
// grants, Line by whose turn it is.
type Returns struct {
	Coming []Coming `json:"coming,omitempty"`
	Line   []InLine `json:"line,omitempty"`
}

func (r Returns) clone() Returns {
	return Returns{Coming: slices.Clone(r.Coming), Line: slices.Clone(r.Line)}
}

// Back counts who comes back in a scope.
func (r Returns) Back(s Scope) int {
	n := 0
	for _, c := range r.Coming {
		if c.isIn(s) {
			n++
		}
	}
	return n
}

// expire ends settling times that are over, and the places of those that don't ask.
func (r *Returns) expire(now time.Time) {
	r.Coming = slices.DeleteFunc(r.Coming, func(c Coming) bool { return !c.Until.After(now) })
	r.Line = slices.DeleteFunc(r.Line, func(w InLine) bool { return !w.AskAt.Add(lineLease).After(now) })
}

// leave takes a case out of the line that needs no turn any more.
func (r *Returns) leave(device string, epoch int64) {
	r.Line = slices.DeleteFunc(r.Line, func(w InLine) bool { return w.Device == device && w.Epoch <= epoch })
}

// relapses takes in that a device has a case of this epoch: what came back of an earlier
// one failed again.
func (d *decision) relapses(device string, epoch int64) {
	d.Returns.leave(device, epoch-1)
	for i := range d.Returns.Coming {
		c := &d.Returns.Coming[i]
		if c.Device != device || c.Epoch >= epoch || !c.Relapsed.IsZero() {
			continue
		}
		c.Relapsed = d.now
		d.notify(NoticeReturnsStopped, true, classOf(c.AskTurn), fmt.Sprintf("%s failed again %s after it was given back; nothing of its class comes back until %s",
			c.Device, d.now.Sub(c.At).Round(time.Second), stamp(c.Until)))
	}
}

// classOf is the class of a device that comes back, or everything.
func classOf(a AskTurn) Scope {
	if i := slices.IndexFunc(a.Scopes, func(s Scope) bool { return s.Kind == Class }); i >= 0 {
		return a.Scopes[i]
	}
	return Everything
}

// turns answers who asks. Whoever passed all gates longest ago is first. Who waits for
// something else keeps nobody behind it waiting, but for the first in line: whatever it
// needs goes to nobody else, so that its turn comes.
func (d *decision) turns(asks []AskTurn) []Turn {
	answers := make([]Turn, len(asks))
	asked := map[string][]int{}
	overtaken := func(i int, by int64) {
		answers[i].For, answers[i].Again = Scope{Device, asks[i].Device}, askAgain
		answers[i].Why = fmt.Sprintf("its attempt %d asked after attempt %d", by, asks[i].Token)
	}
	for i, ask := range asks {
		d.relapses(ask.Device, ask.Epoch)
		answers[i] = Turn{Device: ask.Device, Token: ask.Token}
		switch latest := d.Returns.latest(ask.Device); {
		case latest > ask.Token:
			overtaken(i, latest)
		case d.Returns.enter(ask, d.now):
			answers[i].Granted = true
		default:
			asked[ask.Device] = append(asked[ask.Device], i)
		}
	}
	slices.SortFunc(d.Returns.Line, func(a, b InLine) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), strings.Compare(a.Device, b.Device))
	})
	line := d.Returns.Line
	d.Returns.Line = nil
	var keeps []keep
	for _, w := range line {
		mine := asked[w.Device]
		h := d.holdsBack(w.AskTurn, keeps)
		for _, i := range mine {
			switch {
			case asks[i].Token != w.Token:
				overtaken(i, w.Token)
			case h.why == "":
				answers[i].Granted = true
			default:
				answers[i].For, answers[i].Why, answers[i].Again = h.at, h.why, h.again
			}
		}
		if h.why == "" && len(mine) > 0 {
			d.Returns.Coming = append(d.Returns.Coming, Coming{AskTurn: w.AskTurn, At: d.now, Until: d.now.Add(d.limits.Returns.settle())})
			continue
		}
		if h.why == "" || len(d.Returns.Line) == 0 {
			keeps = append(keeps, h.keep(w.AskTurn))
		}
		w.For, w.Why = h.at, cmp.Or(h.why, "it is its turn, and it asks soon")
		if len(mine) > 0 {
			w.AskAt = d.now.Add(h.again)
		}
		if len(d.Returns.Line) < maxWaiters {
			d.Returns.Line = append(d.Returns.Line, w)
		}
	}
	return answers
}

// latest is the latest attempt of a device that is known of.
func (r *Returns) latest(device string) int64 {
	var latest int64
	for _, c := range r.Coming {
		if c.Device == device {
			latest = max(latest, c.Token)
		}
	}
	for _, w := range r.Line {
		if w.Device == device {
			latest = max(latest, w.Token)
		}
	}
	return latest
}

// enter has a device stand in line, once, and tells whether it comes back already. A turn
// of an earlier attempt came to nothing, unless the device failed after it.
func (r *Returns) enter(ask AskTurn, now time.Time) (granted bool) {
	for _, c := range r.Coming {
		if c.Device == ask.Device && c.Token == ask.Token {
			return true
		}
	}
	r.Coming = slices.DeleteFunc(r.Coming, func(c Coming) bool { return c.Device == ask.Device && c.Relapsed.IsZero() })
	w := InLine{AskTurn: ask, Since: now, AskAt: now}
	if i := slices.IndexFunc(r.Line, func(w InLine) bool { return w.Device == ask.Device }); i >= 0 {
		if r.Line[i].Token == ask.Token {
			w.Since = r.Line[i].Since
		}
		r.Line[i] = w
		return false
	}
	r.Line = append(r.Line, w)
	return false
}

// held is what keeps somebody in line waiting; without a why nothing does.
type held struct {
	at    Scope
	why   string
	again time.Duration
	// by is who has to have settled first.
	by Coming
}

// keep is room that is kept for somebody in line.
type keep struct {
	device string
	scopes []Scope
}

// keep is what is kept for who is held: what doesn't come free with what it waits for.
func (h held) keep(a AskTurn) keep {
	k := keep{device: a.Device, scopes: a.in()}
	if h.why != "" {
		k.scopes = slices.DeleteFunc(k.scopes, h.by.isIn)
	}
	return k
}

// holdsBack says what keeps the next in line waiting. Those before it that still wait are
// in Returns.Line, and room is kept for some of them.
func (d *decision) holdsBack(a AskTurn, keeps []keep) held {
	for _, c := range d.Returns.Coming {
		if class := classOf(c.AskTurn); !c.Relapsed.IsZero() && a.isIn(class) {
			why := fmt.Sprintf("%s failed again soon after it was given back: nothing of %s comes back until %s", c.Device, class, stamp(c.Until))
			return held{class, why, min(c.Until.Sub(d.now), askAgain), c}
		}
	}
	for _, s := range a.in() {
		n, _ := d.limits.Returns.Of(s)
		back := slices.DeleteFunc(slices.Clone(d.Returns.Coming), func(c Coming) bool { return !c.isIn(s) })
		if len(back) >= n {
			slices.SortStableFunc(back, func(a, b Coming) int { return a.Until.Compare(b.Until) })
			return held{s, fmt.Sprintf("%d of %s may be coming back at once, and %d are", n, s, len(back)), d.estimate(s, back), back[0]}
		}
		before := slices.DeleteFunc(slices.Clone(keeps), func(k keep) bool { return !slices.Contains(k.scopes, s) })
		if len(back)+len(before) >= n {
			return held{at: s, why: fmt.Sprintf("%s comes before it in %s", before[0].device, s), again: turnSoon}
		}
	}
	return held{}
}

// estimate is when it is about the turn of the next in line for a scope in which these come
// back, in the order of their ends. Many may wait, and shouldn't all ask whenever one's turn
// comes.
func (d *decision) estimate(s Scope, back []Coming) time.Duration {
	ahead := 0
	for _, w := range d.Returns.Line {
		if w.For == s {
			ahead++
		}
	}
	end := back[ahead%len(back)].Until.Add(time.Duration(ahead/len(back)) * d.limits.Returns.settle())
	return min(max(end.Sub(d.now), time.Second), askAgain)
}
