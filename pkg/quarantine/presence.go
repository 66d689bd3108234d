package quarantine

import (
	"fmt"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// inventory takes in whether the device is listed, and as what hardware.
func (d *decision) inventory(e Inventory) {
	c := &d.c
	if e.Node != "" && c.Node == "" {
		c.Node = e.Node
	}
	if e = d.stillShort(e); !e.Present {
		d.absent(e)
		return
	}
	d.seen = "listed by its driver"
	if c.Absence != nil && c.Phase == PhaseSuspect {
		d.lookBy(d.now.Add(d.p.backoff(0)))
	}
	c.Absence = nil
	c.ForgetAt = time.Time{}
	if c.Phase == PhaseGone {
		d.comeBack()
	}
	if !c.Open() {
		if !e.Now.IsZero() {
			c.Incarnation = e.Now
		}
		return
	}
	switch c.Incarnation.Compare(e.Now) {
	case device.NewHardware:
		d.newHardware(e)
	case device.SameHardware:
		c.MovedTo = ""
	case device.Unprovable:
		if c.Incarnation.IsZero() {
			c.Incarnation = e.Now
			if !e.Now.IsZero() {
				c.MovedTo = ""
			}
		}
	}
}

func (d *decision) absent(e Inventory) {
	c := &d.c
	if c.Phase == PhaseGone {
		return
	}
	if c.Absence == nil {
		d.seen = fmt.Sprintf("not listed: %s", e.Missing)
		c.Absence = &Absence{Reason: e.Missing, Since: d.now}
	}
	c.Absence.Reason = e.Missing
	c.Absence.SettledAt = c.Absence.Since.Add(d.p.settle(e.Missing))
	if e.MovedTo != "" {
		c.MovedTo = e.MovedTo
	}
	c.GoodSince = time.Time{}
}

// absenceSettled tells whether the device has been missing for its settling time
// and a live look after that found it still missing. Until then it asks for one;
// those that find nothing out are followed by others, at their own pace.
func (d *decision) absenceSettled() bool {
	c := &d.c
	if c.Absence == nil || c.Absence.SettledAt.After(d.now) {
		return false
	}
	if c.LookedAt.Before(c.Absence.SettledAt) {
		d.lookBy(d.now)
	}
	return !c.Absence.MissedAt.Before(c.Absence.SettledAt)
}

// enterGone takes a device that is missing for good enough reason out of its
// phase. Missing from a complete pool is a hardware fault of its own; a pool or
// node that went as a whole says nothing of the device.
func (d *decision) enterGone() {
	c := &d.c
	c.Former = c.Phase
	c.Phase = PhaseGone
	c.GraceUntil, c.LeaseUntil, c.CoolUntil = time.Time{}, time.Time{}, time.Time{}
	if !c.LookAfter.After(c.LookedAt) {
		c.LookAt = d.now.Add(d.p.Lease)
	}
	c.ForgetAt = d.now.Add(d.p.Forget)
	c.HalfAt, c.Asking, c.Refused = time.Time{}, false, nil
	if (c.Former == PhaseSuspect || c.Former == PhaseRestricted) && c.Absence.Reason == device.MissingFromPool {
		d.condemnGone()
		d.raise(missingReason, "")
	}
	d.notify(NoticePhase, true, fmt.Sprintf("gone: %s since %s; forgotten at %s", c.Absence.Reason, stamp(c.Absence.Since), stamp(c.ForgetAt)))
}

// condemnGone makes sure that a gone device is out when it comes back.
func (d *decision) condemnGone() {
	d.c.Former = PhaseQuarantined
	if d.c.Mark.State == MarkNone {
		d.wantMark()
	}
}

func (d *decision) stepGone() {
	c := &d.c
	d.followMode()
	if (c.Former == PhaseSuspect || c.Former == PhaseRestricted) && c.Confirmed {
		d.condemnGone()
	}
	if c.Mark.State == MarkLifting && !c.Mark.RetryAt.IsZero() && !c.Mark.RetryAt.After(d.now) {
		c.Mark.RetryAt = time.Time{}
	}
	if !c.forgotten(d.now) {
		return
	}
	switch c.Mark.State {
	case MarkNone, MarkObserved, MarkAdvisory, MarkHeld:
		d.close(EndGone, "gone for good; nothing is marked any more")
	case MarkLifting:
	case MarkAdopted:
		// A look confirms it first.
	default:
		if d.p.Mode == ModeObserve {
			// Observing changes nothing, so the mark stays, and the case with it.
			c.ForgetAt = d.now.Add(d.p.Forget)
			return
		}
		if c.Mark.State == MarkInForce && c.Mark.outdated() {
			// Only a mark of this epoch is removed, so it is written first.
			return
		}
		c.Mark.State, c.Mark.RetryAt, c.Mark.Detail = MarkLifting, time.Time{}, ""
	}
}

// comeBack takes a gone device back to where it was.
func (d *decision) comeBack() {
	c := &d.c
	c.Phase, c.Former, c.Outage = c.Former, PhaseNone, nil
	switch c.Phase {
	case PhaseSuspect:
		c.GraceUntil = d.now.Add(d.p.Grace)
	default:
		c.LeaseUntil = d.now.Add(d.p.Lease)
		if c.Mark.State == MarkLifting {
			// Nothing says that it was removed; if it was, the answer will.
			c.Mark.State, c.Mark.Written, c.Mark.Tries, c.Mark.Detail = MarkInForce, 0, 0, ""
		}
		d.wantMark()
	}
	d.lookAnew()
	d.notify(NoticePhase, true, fmt.Sprintf("listed again; back to %s", c.Phase))
}

// newHardware answers another card behind the device's name. Hardware that is
// listed under another name moved and was not replaced: its fault moved with it,
// and only a person can say what stands here now.
func (d *decision) newHardware(e Inventory) {
	c := &d.c
	if c.Phase == PhaseSuspect {
		c.Incarnation, c.MovedTo = e.Now, ""
		return
	}
	if e.MovedTo != "" {
		if c.MovedTo != e.MovedTo {
			c.MovedTo = e.MovedTo
			d.notify(NoticeMoved, true, fmt.Sprintf("the hardware of this case is listed as %s now; it was not replaced", e.MovedTo))
		}
		return
	}
	d.notify(NoticeReplaced, true, fmt.Sprintf("new hardware %s in the place of %s; the old case ends as replaced", e.Now, c.Incarnation))
	mark := c.Mark
	c.Incarnation, c.Reports, c.Attempt, c.Confirmed = e.Now, nil, 0, false
	d.open(PhaseQuarantined, replacedReason, "")
	d.c.Mark = Mark{State: mark.State, Name: mark.Name, Revision: mark.Revision, Written: mark.Written}
	d.enterQuarantine()
	d.lookAnew()
}
