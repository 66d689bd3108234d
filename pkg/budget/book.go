package budget

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Purpose is what a permit is for. Each purpose has its own count.
type Purpose string

const (
	// Mark: the device is kept out by a mark.
	Mark Purpose = "mark"
	// Observe: it would be kept out if the mode were enforce. What is only observed
	// takes nothing from what is enforced.
	Observe Purpose = "observe"
)

// Purposes lists all purposes.
func Purposes() []Purpose { return []Purpose{Mark, Observe} }

const (
	// markLease is how long a permit stands without its mark: from when it was granted
	// until a starter sees the mark, and from when the mark was gone.
	markLease = 2 * time.Minute
	// offerLease is how long a permit stands for somebody who waited: the device is read
	// anew before it is marked.
	offerLease = 5 * time.Minute
	// observeLease is how long a permit of an observed case stands unless it asks again.
	observeLease = time.Hour
	// waitLease is how long somebody waits who doesn't ask again, and askAgain how often
	// who waits should.
	waitLease, askAgain = 45 * time.Minute, 15 * time.Minute
	// unknownAgain is when to ask again while it isn't known which marks exist.
	unknownAgain = 2 * time.Second
	// maxWaiters bounds who waits. Past it the last in line are told to ask again.
	maxWaiters = 1000
)

// Ask asks for a permit to keep a device out.
type Ask struct {
	Device string `json:"device"`
	// Epoch is the case's; a later one takes its predecessor's permit over.
	Epoch   int64   `json:"epoch"`
	Purpose Purpose `json:"purpose"`
	// Scopes are all that the device is in, but for the cluster and the device itself.
	Scopes []Scope `json:"scopes"`
	// Sizes are how many eligible devices those of the scopes have that starters don't
	// report, as far as it is known.
	Sizes []Size `json:"sizes,omitempty"`
	// Severity and Since, the first not-good moment, are by what it is its turn.
	Severity int       `json:"severity,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	// Cost is how many devices it takes out: 1, or all of a node. Costs are how many of
	// each class of these.
	Cost  int    `json:"cost,omitempty"`
	Costs []Size `json:"costs,omitempty"`
}

// costIn is how many devices of a scope it takes out.
func (a Ask) costIn(s Scope) int { return costIn(a.Cost, a.Costs, s) }

// in lists all scopes of the device, the cluster and itself included.
func (a Ask) in() []Scope {
	return append(append(make([]Scope, 0, len(a.Scopes)+2), Everything), append(a.Scopes, Scope{Device, a.Device})...)
}

// before orders by severity, then by age, then by name.
func before(a, b Ask) int {
	return cmp.Or(cmp.Compare(b.Severity, a.Severity), a.Since.Compare(b.Since), strings.Compare(a.Device, b.Device), cmp.Compare(a.Epoch, b.Epoch))
}

// Size is how many eligible devices a scope has.
type Size struct {
	Scope    Scope `json:"scope"`
	Eligible int   `json:"eligible"`
}

// Grant is a permit that is in force.
type Grant struct {
	Device string    `json:"device"`
	Epoch  int64     `json:"epoch"`
	Scopes []Scope   `json:"scopes,omitempty"`
	Cost   int       `json:"cost,omitempty"`
	Costs  []Size    `json:"costs,omitempty"`
	At     time.Time `json:"at,omitzero"`
	// Until is from when on it comes back once no mark of it is found; zero while the
	// mark is there.
	Until time.Time `json:"until,omitzero"`
}

// lapsed tells whether nothing renewed it.
func (g Grant) lapsed(now time.Time) bool { return !g.Until.IsZero() && !g.Until.After(now) }

func (g Grant) in(s Scope) bool { return s.Kind == Cluster || slices.Contains(g.Scopes, s) }

// Waiter is somebody who was told to wait.
type Waiter struct {
	Ask
	// HeldSince is when it was refused first, AskedAt when it asked last.
	HeldSince time.Time `json:"heldSince"`
	AskedAt   time.Time `json:"askedAt"`
	// For is the scope that is full or paused, Why says so for people.
	For Scope  `json:"for"`
	Why string `json:"why"`
}

// Ledger is what is remembered of one purpose. Grants are sorted by device, Waiters by
// whose turn it is.
type Ledger struct {
	Grants  []Grant  `json:"grants,omitempty"`
	Waiters []Waiter `json:"waiters,omitempty"`
	// Paced is from when on the next of a class that waited is let in.
	Paced []Moment `json:"paced,omitempty"`
	// Full are the scopes that somebody waits for, with since when.
	Full []Moment `json:"full,omitempty"`
}

// Moment is a time that belongs to a scope.
type Moment struct {
	Scope Scope     `json:"scope"`
	At    time.Time `json:"at"`
	// Device is whose turn the next has to wait for.
	Device string `json:"device,omitempty"`
}

// find is a device's permit, or nil.
func (l *Ledger) find(device string) *Grant {
	i, ok := slices.BinarySearchFunc(l.Grants, device, func(g Grant, device string) int { return strings.Compare(g.Device, device) })
	if !ok {
		return nil
	}
	return &l.Grants[i]
}

// put adds a permit, or replaces the device's.
func (l *Ledger) put(g Grant) {
	i, ok := slices.BinarySearchFunc(l.Grants, g.Device, func(g Grant, device string) int { return strings.Compare(g.Device, device) })
	if ok {
		l.Grants[i] = g
		return
	}
	l.Grants = slices.Insert(l.Grants, i, g)
}

// Used is how much of a scope is in force.
func (l *Ledger) Used(s Scope) int {
	used := 0
	for _, g := range l.Grants {
		if g.in(s) && !l.covers(g.Device, g.Scopes) {
			used += costIn(g.Cost, g.Costs, s)
		}
	}
	return used
}

// Waiting counts who waits for a scope.
func (l *Ledger) Waiting(s Scope) int {
	n := 0
	for _, w := range l.Waiters {
		if w.For == s {
			n++
		}
	}
	return n
}

// Book is everything that is remembered: the workflow's state. It is plain data with
// absolute times.
type Book struct {
	Marks    Ledger `json:"marks,omitzero"`
	Observed Ledger `json:"observed,omitzero"`
	// Known is when it was told last which marks exist. While it is zero nothing is
	// granted: there may be more in force than is known.
	Known time.Time `json:"known,omitzero"`
	// Sizes are how many eligible devices scopes have, as a starter counted last, at
	// SizedAt. By is that starter.
	Sizes   []Size    `json:"sizes,omitempty"`
	SizedAt time.Time `json:"sizedAt,omitzero"`
	By      string    `json:"by,omitempty"`
	Pauses  []Pause   `json:"pauses,omitempty"`
	// Returns are the devices that come back, and those that wait for it.
	Returns Returns `json:"returns,omitzero"`
	// Notices wait to be announced, Story keeps the latest for who asks.
	NoticeSeq int64    `json:"noticeSeq,omitempty"`
	Notices   []Notice `json:"notices,omitempty"`
	Story     []Notice `json:"story,omitempty"`
}

// Ledger is the ledger of a purpose.
func (b *Book) Ledger(p Purpose) *Ledger {
	if p == Observe {
		return &b.Observed
	}
	return &b.Marks
}

// SizeOf is how many eligible devices a scope has, as far as it is known: as starters
// count, or as those were told who wait for it.
func (b *Book) SizeOf(s Scope) int {
	is := func(size Size) bool { return size.Scope == s }
	if i := slices.IndexFunc(b.Sizes, is); i >= 0 {
		return b.Sizes[i].Eligible
	}
	for _, l := range []*Ledger{&b.Marks, &b.Observed} {
		for _, w := range l.Waiters {
			if i := slices.IndexFunc(w.Sizes, is); i >= 0 {
				return w.Sizes[i].Eligible
			}
		}
	}
	return 0
}

func (b Book) clone() Book {
	for _, p := range Purposes() {
		l := b.Ledger(p)
		l.Grants, l.Waiters = slices.Clone(l.Grants), slices.Clone(l.Waiters)
		l.Paced, l.Full = slices.Clone(l.Paced), slices.Clone(l.Full)
	}
	b.Returns = b.Returns.clone()
	b.Pauses, b.Notices, b.Story = slices.Clone(b.Pauses), slices.Clone(b.Notices), slices.Clone(b.Story)
	return b
}

// NextWake is the earliest moment after now at which something comes of itself, or zero.
func (b *Book) NextWake(now time.Time) time.Time {
	var next time.Time
	consider := func(at time.Time) {
		if at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, p := range Purposes() {
		l := b.Ledger(p)
		for _, g := range l.Grants {
			if p == Observe {
				consider(g.Until)
			}
		}
		for _, w := range l.Waiters {
			consider(w.AskedAt.Add(waitLease))
		}
		if len(l.Waiters) > 0 {
			for _, m := range l.Paced {
				consider(m.At)
			}
		}
	}
	for _, p := range b.Pauses {
		consider(p.Until)
	}
	for _, c := range b.Returns.Coming {
		consider(c.Until)
	}
	for _, w := range b.Returns.Line {
		consider(w.AskAt.Add(lineLease))
	}
	return next
}
