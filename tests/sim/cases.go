package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// This file is what the device workflow and its activities do: it feeds events to a case
// and carries out what that owes to the world, at most one of each kind at a time.

// How long activities take, and how long a write is tried before it is reported as
// refused.
const (
	writeTakes = 300 * time.Millisecond
	lookTakes  = 200 * time.Millisecond
	askTakes   = 100 * time.Millisecond
	writeTried = 2 * time.Minute
	writeRetry = 10 * time.Second
)

// unannounced is how many decisions are left before they are announced together: nothing
// else follows from it.
const unannounced = 12

func itoa(n int) string { return strconv.Itoa(n) }

// tell feeds an event to a device's case.
func (w *world) tell(u *unitOf, e quarantine.Event) {
	before := u.c
	after, owed := quarantine.Decide(before, e, w.time(), w.policy.quarantine)
	w.got.Decisions++
	if len(after.Notices) >= unannounced {
		after, owed = quarantine.Decide(after, quarantine.Announced{UpTo: after.NoticeSeq}, w.time(), w.policy.quarantine)
	}
	u.c = after
	w.got.check(w, u, before, after)
	for _, command := range owed {
		w.perform(u, command)
	}
	if before.Open() && !after.Open() {
		w.over(u)
	}
	w.phases(u, before.Phase)
	if !u.c.Lives() {
		// Its workflow ends, and with it all that was known.
		u.c = quarantine.Case{Device: u.key, Node: u.node.name}
	}
	w.wakes(u)
	w.mind(u)
}

// wakes has time tell a case of its next deadline.
func (w *world) wakes(u *unitOf) {
	next := u.c.NextWake(w.time())
	if next.Equal(u.wakeAt) {
		return
	}
	u.wakeAt = next
	u.wakeGen++
	if next.IsZero() {
		return
	}
	gen := u.wakeGen
	w.at(sinceBegan(next), func() {
		if u.wakeGen == gen {
			u.wakeAt = time.Time{}
			w.tell(u, quarantine.Woke{})
		}
	})
}

// perform starts what is owed and not under way.
func (w *world) perform(u *unitOf, command quarantine.Command) {
	switch c := command.(type) {
	case quarantine.PutMark:
		if !u.markBusy {
			u.markBusy = true
			w.writes(u, c.Epoch, c.Revision, func() quarantine.MarkReported { return w.put(u, c) })
		}
	case quarantine.LiftMark:
		if !u.markBusy {
			u.markBusy = true
			w.writes(u, c.Epoch, 0, func() quarantine.MarkReported { return w.lift(u, c) })
		}
	case quarantine.Look:
		if !u.lookBusy {
			u.lookBusy = true
			w.got.Looks++
			w.at(w.now+lookTakes, func() {
				looked := w.look(u, c)
				u.lookBusy = false
				w.tell(u, looked)
			})
		}
	case quarantine.AskRestriction:
		if !u.askBusy {
			u.askBusy = true
			w.at(w.now+askTakes, func() {
				u.askBusy = false
				w.tell(u, w.guard.mayRestrict(c))
			})
		}
	}
}

// writes carries out a write, as soon as the API server is there.
func (w *world) writes(u *unitOf, epoch, revision int64, do func() quarantine.MarkReported) {
	given := w.now + writeTried
	var try func()
	try = func() {
		report := quarantine.MarkReported{Outcome: quarantine.OutcomeRefused, Epoch: epoch, Revision: revision, Detail: "the API server is away"}
		switch {
		case w.apiUntil <= w.now:
			report = do()
		case w.now+writeRetry < given:
			w.at(w.now+writeRetry, try)
			return
		}
		u.markBusy = false
		w.tell(u, report)
	}
	w.at(w.now+writeTakes, try)
}

// put makes a device's mark, if it may.
func (w *world) put(u *unitOf, c quarantine.PutMark) quarantine.MarkReported {
	report := quarantine.MarkReported{Epoch: c.Epoch, Revision: c.Revision, Name: u.name}
	w.hold(u)
	if u.mark == nil {
		if answer := w.permits.ask(w, c); !answer.Granted {
			report.Outcome, report.Detail, report.Again = quarantine.OutcomeHeld, answer.Why, answer.Again
			if u.heldSince < 0 {
				u.heldSince = w.now
			}
			return report
		}
		w.got.marked(w, u, c)
	} else if u.mark.Restricted && !c.Restricted {
		w.got.raised(w, u)
	}
	w.got.waitOver(w, u)
	u.mark = &quarantine.MarkFound{
		Name: u.name, Epoch: c.Epoch, Severity: c.Severity, Reason: c.Reason.Code, Closes: c.Reason.Closes,
		Message: c.Message, Actor: c.Actor, Attempt: c.Attempt, Since: c.Since.UnixMilli(), Restricted: c.Restricted,
		FirstNotGood: c.FirstNotGood.UnixMilli(), Until: c.Until.UnixMilli(), Hardware: c.Hardware,
	}
	w.countSoon()
	report.Outcome = quarantine.OutcomeInForce
	return report
}

// lift removes a device's mark.
func (w *world) lift(u *unitOf, c quarantine.LiftMark) quarantine.MarkReported {
	w.unmark(u)
	w.returned(u, c.Epoch)
	return quarantine.MarkReported{Outcome: quarantine.OutcomeLifted, Epoch: c.Epoch, Name: u.name}
}

// unmark has a device be given out again.
func (w *world) unmark(u *unitOf) {
	if u.mark == nil {
		return
	}
	w.hold(u)
	w.got.unmarked(w, u)
	u.mark = nil
	w.countSoon()
}

// over is what comes of the end of a case.
func (w *world) over(u *unitOf) {
	w.got.waitOver(w, u)
	w.returned(u, u.c.Epoch)
	u.unhealthy = u.held() && u.api.health == device.Unhealthy
	u.watch.told, u.watch.open = "", false
	// What is still said of it may open the next one.
	w.at(w.now+time.Second, func() {
		if !u.c.Open() && !u.node.held {
			w.tellDue(u)
		}
	})
}

// phases notes when a case enters a phase that somebody looks after.
func (w *world) phases(u *unitOf, before quarantine.Phase) {
	if u.c.Phase == before {
		return
	}
	switch u.c.Phase {
	case quarantine.PhaseQuarantined, quarantine.PhaseRestricted:
		w.visits(u)
	}
}

// permits is the budget: pkg/budget's book, and when it goes on by itself.
type permits struct {
	book   budget.Book
	wakeAt time.Duration
	gen    int
	soon   bool
}

func (p *permits) decide(w *world, e budget.Event) budget.Outcome {
	var out budget.Outcome
	p.book, out = budget.Decide(p.book, e, w.time(), w.policy.limits)
	if p.book.NoticeSeq > 0 && len(p.book.Notices) > 0 {
		p.book = p.book.Announced(p.book.NoticeSeq)
	}
	w.got.checkBudget(w)
	for _, o := range out.Offers {
		for _, u := range w.units {
			if u.name == o.Device {
				w.at(w.now+askTakes, func() { w.tell(u, quarantine.PermitOffered{Epoch: o.Epoch}) })
			}
		}
	}
	p.wakes(w)
	return out
}

func (p *permits) wakes(w *world) {
	next := p.book.NextWake(w.time())
	if next.IsZero() || sinceBegan(next) == p.wakeAt {
		return
	}
	p.wakeAt = sinceBegan(next)
	p.gen++
	gen := p.gen
	w.at(p.wakeAt, func() {
		if p.gen == gen {
			p.wakeAt = 0
			p.decide(w, budget.Woke{})
		}
	})
}

// ask asks for the permit of a mark, as the activity does.
func (p *permits) ask(w *world, c quarantine.PutMark) budget.Answer {
	ask := budget.Ask{
		Device: c.Device.String(), Epoch: c.Epoch, Purpose: budget.Mark,
		Scopes:   budget.ScopesOf(c.Device, c.Node, c.Around.Classes, c.Tenants),
		Severity: int(c.Severity), Since: c.FirstNotGood,
		Sizes: []budget.Size{{Scope: budget.Scope{Kind: budget.Node, Name: c.Node}, Eligible: c.Around.OnNode}},
	}
	out := p.decide(w, budget.Asked{Asks: []budget.Ask{ask}})
	if len(out.Answers) != 1 {
		w.got.fail("%d answers to one ask for %s", len(out.Answers), ask.Device)
		return budget.Answer{}
	}
	return out.Answers[0]
}

func (w *world) returned(u *unitOf, epoch int64) {
	w.permits.decide(w, budget.Returned{Permits: []budget.Permit{{Device: u.name, Epoch: epoch, Purpose: budget.Mark}}})
}

// countSoon has the starter tell which marks there are, a little after they change.
func (w *world) countSoon() {
	if w.permits.soon {
		return
	}
	w.permits.soon = true
	w.at(w.now+5*time.Second, func() { w.permits.soon = false; w.count() })
}

// count tells which marks there are, and how many devices.
func (w *world) count() {
	var marks []budget.Standing
	for _, u := range w.units {
		if u.mark != nil {
			marks = append(marks, budget.Standing{Device: u.name, Epoch: u.mark.Epoch, Scopes: budget.ScopesOf(u.key, u.node.name, nil, nil)})
		}
	}
	w.permits.decide(w, budget.Counted{Marks: marks, Sizes: w.sizes(), By: "starter"})
}

// standing counts the marks that exist, in all and of a driver's devices.
func (w *world) standing() (all int, of map[string]int) {
	of = map[string]int{}
	for _, u := range w.units {
		if u.mark != nil {
			all++
			of[u.key.Driver]++
		}
	}
	return all, of
}

func (u *unitOf) String() string {
	return fmt.Sprintf("%s (%s, mark %t, defect %d)", u.name, u.c.Phase, u.mark != nil, u.defect)
}
