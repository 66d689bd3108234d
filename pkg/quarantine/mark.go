package quarantine

import (
	"fmt"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// wantMark asks for the mark, as far as the mode lets.
func (d *decision) wantMark() {
	c := &d.c
	c.Mark.Revision++
	c.Mark.RetryAt = time.Time{}
	if d.p.Mode == ModeObserve {
		if c.Mark.State != MarkInForce && c.Mark.State != MarkAdopted {
			c.Mark.State = MarkObserved
			d.lookBy(d.now)
		}
		return
	}
	c.Mark.State = MarkWanted
}

// restore asks for a mark that somebody else removed or changed.
func (d *decision) restore(why string) {
	c := &d.c
	c.Mark.Restored++
	c.Mark.State = MarkNone
	d.wantMark()
	if c.Mark.State == MarkWanted {
		d.notify(NoticeMarkRestored, true, why+"; the case is open, so it is put back")
		return
	}
	d.notify(NoticeMarkRestored, true, why+"; mode observe puts nothing back")
}

// markSeen takes in what the watch says of the device's mark.
func (d *decision) markSeen(e MarkSeen) {
	c := &d.c
	if e.Node != "" && c.Node == "" {
		c.Node = e.Node
	}
	if !e.Present {
		// While it is being lifted or made, its absence is no news.
		if c.Open() && c.Mark.State == MarkInForce && (e.Mark.Epoch == 0 || e.Mark.Epoch == c.Epoch) {
			d.seen = fmt.Sprintf("mark %s deleted", e.Mark.Name)
			d.restore("the mark was deleted by somebody else")
		}
		return
	}
	d.seen = fmt.Sprintf("mark %s with epoch %d", e.Mark.Name, e.Mark.Epoch)
	switch {
	case !c.Open():
		d.adopt(e.Mark)
	case c.Mark.State == MarkInForce && e.Mark.Epoch == c.Epoch && !e.Intact:
		d.restore("the mark was changed by somebody else")
	case c.Phase == PhaseSuspect:
		// The mark of an earlier case whose workflow is lost. That case had
		// confirmed a fault; suspicion doesn't undo it.
		d.adoptInto(e.Mark)
	case e.Mark.Epoch > c.Epoch:
		d.supersede(e.Mark)
	}
}

// adopt opens the case that a mark without one stands for. It keeps the mark's
// epoch, so that the mark stays valid as it is; a live look confirms first that
// the mark is still there.
func (d *decision) adopt(found MarkFound) {
	old := d.c
	d.open(PhaseQuarantined, found.match(), found.Message)
	c := &d.c
	if found.Epoch > old.Epoch {
		c.Epoch = found.Epoch
	}
	d.inherit(found)
	c.LeaseUntil = d.now.Add(d.p.Lease)
	c.Mark = Mark{State: MarkAdopted, Name: found.Name, Revision: 1}
	d.lookBy(d.now)
}

func (d *decision) adoptInto(found MarkFound) {
	c := &d.c
	c.Phase = PhaseQuarantined
	d.raise(found.match(), found.Message)
	d.inherit(found)
	c.Epoch = max(c.Epoch, found.Epoch)
	c.GraceUntil, c.GoodSince = time.Time{}, time.Time{}
	c.LeaseUntil = d.now.Add(d.p.Lease)
	c.Mark = Mark{State: MarkAdopted, Name: found.Name, Revision: 1}
	d.lookBy(d.now)
	d.notify(NoticePhase, true, fmt.Sprintf("quarantined: mark %s of an earlier case is still there", found.Name))
}

// inherit carries over what an earlier case of the device had come to.
func (d *decision) inherit(found MarkFound) {
	c := &d.c
	c.Severity = max(c.Severity, found.Severity)
	c.Attempt = max(c.Attempt, found.Attempt)
	c.Confirmed = true
	if found.Actor != "" {
		c.Actor = found.Actor
	}
	if found.Since > 0 {
		if since := time.UnixMilli(found.Since).UTC(); since.Before(c.Since) {
			c.Since, c.FirstNotGood = since, since
		}
	}
	if !found.Hardware.IsZero() {
		c.Incarnation = found.Hardware
	}
}

// match rebuilds the reason that a mark carries.
func (f MarkFound) match() reason.Match {
	match := reason.Match{
		Code: f.Reason, Severity: f.Severity, Action: reason.ActionQuarantine,
		Closes: f.Closes, Scope: device.ScopeInstance, Rule: "sickbay/adopted",
	}
	if match.Code == "" {
		match.Code = reason.Adopted
	}
	if match.Severity == 0 {
		match.Severity = reason.SeverityMajor
	}
	if match.Closes == "" {
		match.Closes = reason.ClosesByGates
	}
	return match
}

// supersede lifts this case's epoch above one that was found on a mark, and
// writes the mark anew.
func (d *decision) supersede(found MarkFound) {
	c := &d.c
	d.raise(found.match(), found.Message)
	c.Severity = max(c.Severity, found.Severity)
	c.Attempt = max(c.Attempt, found.Attempt)
	c.Epoch = max(d.now.UnixMilli(), found.Epoch+1)
	d.wantMark()
}

// markReported takes in what became of the mark. Answers to an earlier epoch's
// commands say nothing of this one's.
func (d *decision) markReported(e MarkReported) {
	c := &d.c
	if e.Epoch != c.Epoch || !c.Open() {
		return
	}
	switch e.Outcome {
	case OutcomeInForce:
		d.markInForce(e)
	case OutcomeUnavailable:
		if c.Mark.State == MarkWanted {
			c.Mark.State, c.Mark.Detail = MarkAdvisory, e.Detail
			d.notify(NoticeAdvisory, true, "the device can't be kept out: "+e.Detail)
			d.lookBy(d.now)
		}
	case OutcomeSuperseded:
		if e.Before != nil && c.Mark.State != MarkLifting {
			d.supersede(*e.Before)
		}
	case OutcomeLifted:
		if c.Mark.State == MarkLifting {
			c.Mark = Mark{Revision: c.Mark.Revision}
			d.notify(NoticeMarkLifted, false, fmt.Sprintf("mark of epoch %d removed", e.Epoch))
		}
	case OutcomeRefused, OutcomeForeign, OutcomeChanged:
		d.markRefused(e)
	}
}

func (d *decision) markInForce(e MarkReported) {
	c := &d.c
	if c.Mark.State == MarkLifting || c.Mark.State == MarkNone {
		return
	}
	first := c.Mark.InForceSince.IsZero()
	c.Mark.Name, c.Mark.Detail, c.Mark.Tries = e.Name, "", 0
	c.Mark.Written, c.Mark.ConfirmedAt = e.Revision, d.now
	c.Mark.State = MarkInForce
	if e.Before != nil {
		c.Attempt = max(c.Attempt, e.Before.Attempt)
		d.raise(e.Before.match(), e.Before.Message)
	}
	if first {
		c.Mark.InForceSince = d.now
		d.notify(NoticeMarkInForce, true, fmt.Sprintf("mark %s keeps the device out", e.Name))
	}
	// A claim may have slipped through before the mark was there.
	d.lookBy(d.now)
}

func (d *decision) markRefused(e MarkReported) {
	c := &d.c
	news := c.Mark.Tries == 0 || c.Mark.Detail != e.Detail
	pause := d.p.backoff(c.Mark.Tries)
	if pause > d.p.MarkRetry {
		pause = d.p.MarkRetry
	}
	c.Mark.Tries++
	c.Mark.Detail = e.Detail
	c.Mark.RetryAt = d.now.Add(pause)
	if c.Mark.State != MarkLifting {
		c.Mark.State = MarkRefused
	}
	if e.Outcome == OutcomeChanged {
		// What somebody else changed isn't ours to remove; ask again seldom.
		c.Mark.RetryAt = d.now.Add(d.p.Lease)
	}
	if news {
		d.notify(NoticeMarkRefused, true, e.Detail)
	}
}
