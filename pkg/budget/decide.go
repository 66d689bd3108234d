package budget

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Decide returns the book as it is after an event, and what comes of it. It is total
// and deterministic, and never changes its arguments.
func Decide(b Book, e Event, now time.Time, limits Limits) (Book, Outcome) {
	d := &decision{Book: b.clone(), now: now, limits: limits}
	d.expire()
	var asks []Ask
	switch e := e.(type) {
	case Asked:
		asks = e.Asks
		for _, ask := range asks {
			d.changeOver(ask)
			d.relapses(ask.Device, ask.Epoch)
		}
	case Returned:
		for _, p := range e.Permits {
			d.giveBack(p)
			d.Returns.leave(p.Device, p.Epoch)
		}
	case TurnsAsked:
		d.out.Turns = d.turns(e.Asks)
	case Counted:
		d.counted(e)
	case Message:
		d.out.Refusal = d.message(e)
	case Woke:
	}
	answers := map[int]Answer{}
	for _, purpose := range Purposes() {
		d.admit(purpose, asks, answers)
	}
	for i, ask := range asks {
		answer, ok := answers[i]
		if !ok {
			answer = Answer{Device: ask.Device, Epoch: ask.Epoch, Why: fmt.Sprintf("purpose %q: want one of %v", ask.Purpose, Purposes()), Again: askAgain}
		}
		d.out.Answers = append(d.out.Answers, answer)
	}
	return d.Book, d.out
}

// decision is one call of Decide under way.
type decision struct {
	Book
	now    time.Time
	limits Limits
	out    Outcome
}

// expire takes back what nobody renewed, and ends pauses whose time is over. A permit
// to mark isn't taken back by the clock alone: while nobody tells which marks exist, its
// mark may.
func (d *decision) expire() {
	d.Observed.Grants = slices.DeleteFunc(d.Observed.Grants, func(g Grant) bool { return g.lapsed(d.now) })
	for _, p := range Purposes() {
		l := d.Ledger(p)
		l.Waiters = slices.DeleteFunc(l.Waiters, func(w Waiter) bool { return !w.AskedAt.Add(waitLease).After(d.now) })
		l.Paced = slices.DeleteFunc(l.Paced, func(m Moment) bool { return !m.At.After(d.now) })
	}
	d.Returns.expire(d.now)
	d.Pauses = slices.DeleteFunc(d.Pauses, func(p Pause) bool {
		over := !p.Until.After(d.now)
		if over {
			d.notifyAs(p.Actor, NoticeResumed, false, p.Scope, fmt.Sprintf("the pause is over that %s began at %s (%s)", p.Actor, stamp(p.Since), p.Reason))
		}
		return over
	})
}

// giveBack takes a permit back, or takes somebody out of the line. A later epoch's
// stays. A turn that came to nothing is no turn: the next needn't wait for it.
func (d *decision) giveBack(p Permit) {
	l := d.Ledger(p.Purpose)
	l.Waiters = slices.DeleteFunc(l.Waiters, func(w Waiter) bool { return w.Device == p.Device && w.Epoch <= p.Epoch })
	l.Grants = slices.DeleteFunc(l.Grants, func(g Grant) bool {
		if g.Device != p.Device || g.Epoch > p.Epoch || p.Unused && g.Until.IsZero() {
			return false
		}
		if !g.Until.IsZero() {
			l.Paced = slices.DeleteFunc(l.Paced, func(m Moment) bool { return m.Device == g.Device })
		}
		return true
	})
}

// changeOver takes a case out of the line for another purpose than it asks for now: its
// mode was changed. A permit to mark stays: its mark may be there.
func (d *decision) changeOver(ask Ask) {
	if ask.Purpose == Mark {
		d.giveBack(Permit{Device: ask.Device, Epoch: ask.Epoch, Purpose: Observe})
		return
	}
	l := d.Ledger(Mark)
	l.Waiters = slices.DeleteFunc(l.Waiters, func(w Waiter) bool { return w.Device == ask.Device && w.Epoch <= ask.Epoch })
}

// counted takes in which marks exist. A mark that nobody asked for counts as any other.
// A permit whose mark is gone stands a little longer: the mark may be put back.
func (d *decision) counted(e Counted) {
	if e.Same && (d.Known.IsZero() || e.By != d.By) {
		d.out.Tell = true
		return
	}
	if d.Known.IsZero() && len(e.Marks) > 0 && len(d.Pauses) == 0 {
		d.notify(NoticeRebuilt, true, Everything, fmt.Sprintf("counted anew: the budgets knew of no mark, and %d are there. If this workflow was ended or reset, pauses and announced upgrades ended with it: say those again that are to hold", len(e.Marks)))
	}
	d.Known = d.now
	if e.Sizes != nil {
		d.Sizes, d.SizedAt = slices.Clone(e.Sizes), d.now
	}
	if e.By != "" {
		d.By = e.By
	}
	if !e.Same {
		d.stand(e.Marks)
	}
	d.Marks.Grants = slices.DeleteFunc(d.Marks.Grants, func(g Grant) bool { return g.lapsed(d.now) })
}

// stand takes in all marks that exist.
func (d *decision) stand(marks []Standing) {
	exists := map[string]bool{}
	for _, m := range marks {
		exists[m.Device] = true
		g := Grant{Device: m.Device, Epoch: m.Epoch, Scopes: limited(m.Scopes), Cost: m.Cost, Costs: m.Costs, At: d.now}
		if old := d.Marks.find(m.Device); old != nil {
			g.Epoch, g.At = max(g.Epoch, old.Epoch), old.At
			if len(g.Scopes) == 0 {
				g.Scopes = old.Scopes
			}
		}
		d.Marks.put(g)
	}
	for i := range d.Marks.Grants {
		if g := &d.Marks.Grants[i]; g.Until.IsZero() && !exists[g.Device] {
			g.Until = d.now.Add(markLease)
		}
	}
}

// limited are the scopes that a permit is counted in.
func limited(scopes []Scope) []Scope {
	return slices.DeleteFunc(slices.Clone(scopes), func(s Scope) bool {
		return s.Kind != Class && s.Kind != Tenant && s.Kind != Node
	})
}

// candidate is somebody who wants a permit: who asks now, who waits, or both.
type candidate struct {
	Waiter
	// asked are the asks of this event that are its own.
	asked []int
	// waited tells that it had to wait before.
	waited bool
}

// admit goes through all who want a permit for a purpose, in their order. Who can't
// have one keeps its turn: nobody behind it gets what it waits for.
func (d *decision) admit(purpose Purpose, asks []Ask, answers map[int]Answer) {
	l := d.Ledger(purpose)
	line := d.line(l, purpose, asks, answers)
	l.Waiters = nil
	use := d.usage(l)
	behind := map[Scope]string{}
	for _, c := range line {
		at, why := d.refuses(l, use, c, behind)
		if why == "" {
			d.grant(l, use, c, purpose)
			for _, i := range c.asked {
				answers[i] = Answer{Device: c.Device, Epoch: c.Epoch, Granted: true}
			}
			if len(c.asked) == 0 {
				d.out.Offers = append(d.out.Offers, Offer{Device: c.Device, Epoch: c.Epoch, Purpose: purpose})
			}
			continue
		}
		c.For, c.Why = at, why
		answer := Answer{Device: c.Device, Epoch: c.Epoch, For: at, Why: why, Again: askAgain}
		if d.Known.IsZero() {
			answer.Unknown, answer.Again = true, unknownAgain
		}
		for _, i := range c.asked {
			answers[i] = answer
		}
		if len(l.Waiters) < maxWaiters && !d.Known.IsZero() {
			l.Waiters = append(l.Waiters, c.Waiter)
		}
	}
	d.tellFull(l, purpose)
}

// line is everybody who wants a permit for the purpose, in the order of their turns.
// Asks of who has one already are answered at once.
func (d *decision) line(l *Ledger, purpose Purpose, asks []Ask, answers map[int]Answer) []candidate {
	at := map[string]int{}
	line := make([]candidate, 0, len(l.Waiters)+len(asks))
	for _, w := range l.Waiters {
		at[w.Device] = len(line)
		line = append(line, candidate{Waiter: w, waited: true})
	}
	for i, ask := range asks {
		if ask.Purpose != purpose {
			continue
		}
		overtaken := func(epoch int64) {
			answers[i] = Answer{Device: ask.Device, Epoch: ask.Epoch, For: Scope{Device, ask.Device}, Why: fmt.Sprintf("its case %d asked after case %d", epoch, ask.Epoch), Again: askAgain}
		}
		if g := l.find(ask.Device); g != nil {
			if g.Epoch > ask.Epoch {
				overtaken(g.Epoch)
				continue
			}
			d.renew(g, ask)
			answers[i] = Answer{Device: ask.Device, Epoch: ask.Epoch, Granted: true}
			continue
		}
		c := candidate{Waiter: Waiter{Ask: ask, HeldSince: d.now, AskedAt: d.now}, asked: []int{i}}
		if j, again := at[ask.Device]; again {
			switch there := line[j]; {
			case there.Epoch > ask.Epoch:
				overtaken(there.Epoch)
				continue
			case there.Epoch == ask.Epoch:
				c.asked = append(c.asked, there.asked...)
			default:
				for _, i := range there.asked {
					answers[i] = Answer{Device: ask.Device, Epoch: there.Epoch, For: Scope{Device, ask.Device}, Why: fmt.Sprintf("its case %d asked after case %d", ask.Epoch, there.Epoch), Again: askAgain}
				}
			}
			c.HeldSince, c.waited = line[j].HeldSince, line[j].waited
			line[j] = c
			continue
		}
		at[ask.Device] = len(line)
		line = append(line, c)
	}
	slices.SortStableFunc(line, func(a, b candidate) int { return before(a.Ask, b.Ask) })
	return line
}

// renew has a permit stand for a later epoch, and for longer.
func (d *decision) renew(g *Grant, ask Ask) {
	g.Epoch = ask.Epoch
	g.Scopes = limited(ask.Scopes)
	if !g.Until.IsZero() {
		g.Until = d.now.Add(leaseOf(ask.Purpose))
	}
}

func leaseOf(p Purpose) time.Duration {
	if p == Observe {
		return observeLease
	}
	return markLease
}

// usage counts what is in force, once for all who want a permit.
func (d *decision) usage(l *Ledger) map[Scope]int {
	use := map[Scope]int{}
	for _, g := range l.Grants {
		if l.covers(g.Device, g.Scopes) {
			continue
		}
		use[Everything] += costIn(g.Cost, g.Costs, Everything)
		for _, s := range g.Scopes {
			use[s] += costIn(g.Cost, g.Costs, s)
		}
	}
	return use
}

// refuses says which scope keeps a candidate waiting and why; an empty text is that
// nothing does. What is full, or let in one by one, keeps back everybody behind it too.
func (d *decision) refuses(l *Ledger, use map[Scope]int, c candidate, behind map[Scope]string) (Scope, string) {
	if d.Known.IsZero() {
		return Everything, "it isn't known yet which marks exist, and what is in force already"
	}
	scopes := c.in()
	for _, p := range d.Pauses {
		if slices.Contains(scopes, p.Scope) {
			return p.Scope, fmt.Sprintf("%s is paused until %s by %s (%s)", p.Scope, stamp(p.Until), p.Actor, p.Reason)
		}
	}
	for _, s := range scopes {
		limit, ok := d.limits.Limit(s)
		if !ok {
			continue
		}
		more := l.more(c.Ask, s)
		if more == 0 {
			continue // they are out already
		}
		n := limit.Of(d.eligible(s, c.Ask))
		switch first, waits := behind[s]; {
		case c.costIn(s) > n:
			return s, fmt.Sprintf("it takes out %d devices at once, and %s allows %d at most: it waits for an operator to raise the limit", c.costIn(s), s, n)
		case use[s]+more > n:
			behind[s] = c.Device
			return s, fmt.Sprintf("%d of the %d that %s allows are in force", use[s], n, s)
		case waits:
			return s, fmt.Sprintf("%s is first in line for %s", first, s)
		}
	}
	if !c.waited {
		return Scope{}, ""
	}
	for _, s := range scopes {
		if i := slices.IndexFunc(l.Paced, func(m Moment) bool { return m.Scope == s }); i >= 0 {
			behind[s] = c.Device
			return s, fmt.Sprintf("%s is opened again one by one; the next is let in at %s", s, stamp(l.Paced[i].At))
		}
	}
	return Scope{}, ""
}

// eligible is how many eligible devices a scope has: as starters count, or as who asks
// was told.
func (d *decision) eligible(s Scope, ask Ask) int {
	if n := d.SizeOf(s); n > 0 {
		return n
	}
	for _, size := range ask.Sizes {
		if size.Scope == s {
			return size.Eligible
		}
	}
	return 0
}

// grant puts a permit into force, and paces the next that waits for the same class.
func (d *decision) grant(l *Ledger, use map[Scope]int, c candidate, purpose Purpose) {
	lease := leaseOf(purpose)
	if len(c.asked) == 0 && purpose == Mark {
		lease = offerLease
	}
	g := Grant{Device: c.Device, Epoch: c.Epoch, Scopes: limited(c.Scopes), At: d.now, Until: d.now.Add(lease)}
	if c.Cost > 1 {
		g.Cost = c.Cost
	}
	g.Costs = c.Costs
	use[Everything] += l.more(c.Ask, Everything)
	for _, s := range g.Scopes {
		use[s] += l.more(c.Ask, s)
		if c.waited && s.Kind == Class && d.limits.Pace > 0 {
			l.Paced = append(l.Paced, Moment{Scope: s, At: d.now.Add(time.Duration(d.limits.Pace) * time.Second), Device: c.Device})
		}
	}
	l.put(g)
}

// tellFull says once when a scope keeps somebody waiting, and once when nobody waits
// for it any more.
func (d *decision) tellFull(l *Ledger, purpose Purpose) {
	var full []Moment
	for _, w := range l.Waiters {
		if slices.ContainsFunc(full, func(m Moment) bool { return m.Scope == w.For }) {
			continue
		}
		m := Moment{Scope: w.For, At: d.now}
		if i := slices.IndexFunc(l.Full, func(m Moment) bool { return m.Scope == w.For }); i >= 0 {
			m.At = l.Full[i].At
		} else {
			d.notify(NoticeHeld, purpose == Mark, w.For, fmt.Sprintf("%s has to wait: %s", w.Device, w.Why))
		}
		full = append(full, m)
	}
	slices.SortFunc(full, func(a, b Moment) int { return strings.Compare(a.Scope.String(), b.Scope.String()) })
	for _, m := range l.Full {
		if !slices.ContainsFunc(full, func(now Moment) bool { return now.Scope == m.Scope }) {
			d.notify(NoticeFree, false, m.Scope, fmt.Sprintf("nobody waits for %s any more; somebody did since %s", m.Scope, stamp(m.At)))
		}
	}
	l.Full = full
}
