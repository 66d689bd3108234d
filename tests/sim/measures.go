package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// measures are what a run is judged by, and the checks of what has to hold in each.
type measures struct {
	DeviceDays float64
	// Faults are defects, Reportable those of which drivers say something, Missed those
	// of them that Sickbay never kept out.
	Faults, Reportable, Missed int
	// WrongBy, NeedlessBy and MissedBy are the same by what they came of.
	WrongBy, NeedlessBy [causes]int
	MissedBy            [misses]int
	// Quarantines are marks of quarantined devices, Wrong those of devices that were
	// sound; Restrictions and Needless the same of restricted ones.
	Quarantines, Wrong, Restrictions, Needless int
	// Took are the times from a fault's first sight in a Pod's status to its mark.
	Took []time.Duration
	// Open is how long broken devices of which something was seen could be given out,
	// ForBudget how long of that because there was no permit. Idle is how long sound
	// devices were kept out and nobody worked with them: from a quarantine on, because its
	// holder is to move, and from when its holder left where it is only restricted.
	Open, ForBudget, Idle time.Duration
	// PodsOnWrong are Pods that had a device when it was wrongly quarantined (a restriction
	// moves nobody), PodsGiven those that were given a broken one of which its driver says
	// something. Who has it when it breaks loses the same whatever Sickbay does.
	PodsOnWrong, PodsGiven int
	// Stuck is how long Pods wait that are given a device whose driver is silent.
	Stuck time.Duration
	// WorstHour is the most new marks, and WorstWrong the most wrong ones, in an hour.
	WorstHour, WorstWrong int
	// MostOut is the most marks at a time.
	MostOut int

	Incidents, Looks, Decisions int

	hours, wrong map[int]int
	broken       error
}

func (m *measures) begin(s shape, lasts time.Duration) {
	m.DeviceDays = float64(s.devices()) * lasts.Hours() / 24
	m.hours, m.wrong = map[int]int{}, map[int]int{}
}

func (m *measures) fail(format string, args ...any) {
	if m.broken == nil {
		m.broken = fmt.Errorf(format, args...)
	}
}

func (m *measures) broke(u *unitOf) {
	m.Faults++
	if u.defect != silent {
		m.Reportable++
	}
}

// given takes in that a Pod is given a broken device. What its driver calls Healthy no
// policy keeps it from.
func (m *measures) given(u *unitOf) {
	if u.defect != silent {
		m.PodsGiven++
	}
}

// marked takes in a new mark.
func (m *measures) marked(w *world, u *unitOf, c quarantine.PutMark) {
	wrong := u.defect == sound
	u.markWrong = wrong
	if c.Restricted {
		m.Restrictions++
	} else {
		m.Quarantines++
	}
	hour := int(w.now / time.Hour)
	m.hours[hour]++
	m.WorstHour = max(m.WorstHour, m.hours[hour])
	all, _ := w.standing()
	m.MostOut = max(m.MostOut, all+1)
	if !wrong {
		m.kept(w, u)
		return
	}
	m.wrong[hour]++
	m.WorstWrong = max(m.WorstWrong, m.wrong[hour])
	if c.Restricted {
		m.Needless++
		m.NeedlessBy[causeOf(u, w.now)]++
		if !u.held() {
			u.idleSince = w.now
		}
		return
	}
	m.wronged(w, u)
}

// raised takes in that a device is quarantined that was restricted.
func (m *measures) raised(w *world, u *unitOf) {
	m.Quarantines++
	if u.markWrong {
		m.wronged(w, u)
	}
}

// wronged takes in that a sound device is quarantined.
func (m *measures) wronged(w *world, u *unitOf) {
	m.Wrong++
	m.WrongBy[causeOf(u, w.now)]++
	if u.held() {
		m.PodsOnWrong++
	}
	if u.idleSince < 0 {
		u.idleSince = w.now
	}
}

// letGo takes in that a Pod leaves a device.
func (m *measures) letGo(u *unitOf, at time.Duration) {
	if u.mark != nil && u.markWrong && u.idleSince < 0 {
		u.idleSince = at
	}
}

// idled adds up how long a sound device was kept out.
func (m *measures) idled(w *world, u *unitOf) {
	if u.idleSince >= 0 {
		m.Idle += w.now - u.idleSince
	}
	u.idleSince = -1
}

// kept takes in that a broken device is kept out from now on.
func (m *measures) kept(w *world, u *unitOf) {
	if u.shownAt >= 0 && !u.byHand && !u.wasOut {
		m.Took = append(m.Took, w.now-u.shownAt)
	}
	u.wasOut = true
	m.closed(w, u)
}

// closed takes in that a broken device can't be given out any more.
func (m *measures) closed(w *world, u *unitOf) {
	if u.openSince >= 0 {
		m.Open += w.now - u.openSince
	}
	u.openSince = -1
}

// markTurnedRight takes in that a device breaks that is kept out already.
func (m *measures) markTurnedRight(w *world, u *unitOf) {
	m.idled(w, u)
	u.markWrong = false
}

// unmarked takes in the end of a mark.
func (m *measures) unmarked(w *world, u *unitOf) {
	m.idled(w, u)
	if u.defect != sound && !u.byHand && u.shownAt >= 0 {
		u.openSince = w.now
	}
}

// waitOver takes in that a device waits for a permit no more.
func (m *measures) waitOver(w *world, u *unitOf) {
	if u.heldSince >= 0 && u.defect != sound && !u.byHand {
		m.ForBudget += w.now - max(u.heldSince, u.brokeAt)
	}
	u.heldSince = -1
}

// takenOut takes in that people take a broken device out.
func (m *measures) takenOut(w *world, u *unitOf) {
	if u.heldSince >= 0 {
		m.ForBudget += w.now - max(u.heldSince, u.brokeAt)
		u.heldSince = w.now
	}
	m.closed(w, u)
	if !u.wasOut && u.defect != silent {
		m.Missed++
		m.MissedBy[missOf(u)]++
	}
}

// repaired takes in that people put a sound device in the place of a broken one. If it is
// marked, it is kept out for nothing from now on.
func (m *measures) repaired(w *world, u *unitOf) {
	u.heldSince = min(u.heldSince, w.now)
	if u.mark != nil {
		u.markWrong, u.idleSince = true, w.now
	}
}

// add takes in what another seed gave.
func (m *measures) add(o measures) {
	m.DeviceDays += o.DeviceDays
	m.Faults, m.Reportable, m.Missed = m.Faults+o.Faults, m.Reportable+o.Reportable, m.Missed+o.Missed
	for i := range m.WrongBy {
		m.WrongBy[i] += o.WrongBy[i]
		m.NeedlessBy[i] += o.NeedlessBy[i]
	}
	for i := range m.MissedBy {
		m.MissedBy[i] += o.MissedBy[i]
	}
	m.Quarantines, m.Wrong = m.Quarantines+o.Quarantines, m.Wrong+o.Wrong
	m.Restrictions, m.Needless = m.Restrictions+o.Restrictions, m.Needless+o.Needless
	m.Took = append(m.Took, o.Took...)
	m.Open, m.ForBudget, m.Idle, m.Stuck = m.Open+o.Open, m.ForBudget+o.ForBudget, m.Idle+o.Idle, m.Stuck+o.Stuck
	m.PodsOnWrong, m.PodsGiven = m.PodsOnWrong+o.PodsOnWrong, m.PodsGiven+o.PodsGiven
	m.WorstHour, m.WorstWrong, m.MostOut = max(m.WorstHour, o.WorstHour), max(m.WorstWrong, o.WorstWrong), max(m.MostOut, o.MostOut)
	m.Incidents, m.Looks, m.Decisions = m.Incidents+o.Incidents, m.Looks+o.Looks, m.Decisions+o.Decisions
}

// check looks at each decision: nothing is quarantined that nobody called Unhealthy, and
// a case that is open either has a deadline or says what it waits for.
func (m *measures) check(w *world, u *unitOf, before, after quarantine.Case) {
	if after.Phase == quarantine.PhaseQuarantined && before.Phase != quarantine.PhaseQuarantined && !u.unhealthy {
		m.fail("%s is quarantined, and nothing but Unknown was ever said of it: %+v", u, after.Reason)
	}
	if after.Phase == quarantine.PhaseRestricted && before.Phase != quarantine.PhaseRestricted &&
		(u.node.out && w.now-u.node.outSince > leaseStill+w.policy.quarantine.RecheckMax || w.now-sinceBegan(after.FirstNotGood) < w.policy.quarantine.Grace) {
		m.fail("%s is restricted while its node is out, or before its window is over", u)
	}
	if after.Open() && after.Waiting == quarantine.WaitingForNothing && after.NextWake(w.time()).IsZero() && !u.markBusy && !u.lookBusy && !u.askBusy && after.Mark.State != quarantine.MarkWanted {
		m.fail("%s is stuck in silence", u)
	}
}

// checkBudget looks after each decision about permits: no more may be in force than the
// limits allow, as many as were allowed when they were granted.
func (m *measures) checkBudget(w *world) {
	ledger := &w.permits.book.Marks
	for _, s := range []budget.Scope{budget.Everything, {Kind: budget.Class, Name: driverOne}, {Kind: budget.Class, Name: driverTwo}} {
		limit, bounded := w.policy.limits.Limit(s)
		if !bounded {
			continue
		}
		// Eligible devices become fewer when slices are wiped; what was granted stands.
		size := w.shape.devices()
		if s.Kind == budget.Class {
			size = w.guard.totals.Of(s.Name)
		}
		if used := ledger.Used(s); used > limit.Of(size) {
			m.fail("%d permits are in force in %s, which allows %d", used, s, limit.Of(size))
		}
	}
	if all, _ := w.standing(); all > len(ledger.Grants) {
		m.fail("%d marks, and %d permits", all, len(ledger.Grants))
	}
}

// checkEnd looks at what is left when nothing has gone wrong for long: nothing may be.
func (m *measures) checkEnd(w *world) error {
	for _, u := range w.units {
		switch {
		case u.c.Open():
			return fmt.Errorf("%s: its case is open although all is well for long: %s, %s, evidence %s", w.policy.name, u, u.c.Waiting, u.c.Evidence().Value)
		case u.mark != nil:
			return fmt.Errorf("%s: %s is marked and has no case", w.policy.name, u)
		case u.held() && u.api.health != device.Healthy:
			return fmt.Errorf("%s: %s is called %s although all is well for long", w.policy.name, u, u.api.health)
		}
	}
	if n := len(w.permits.book.Marks.Waiters); n > 0 {
		return fmt.Errorf("%s: %d wait for a permit although nobody needs one", w.policy.name, n)
	}
	return nil
}

// quantile is the value that this share of the sorted times is below.
func quantile(times []time.Duration, share float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}
