package quarantine

import (
	"fmt"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// wantMark asks for the mark, as far as the mode lets. One that is there stays in
// force in either mode; what it says is brought up to date.
func (d *decision) wantMark() {
	c := &d.c
	c.Mark.Revision++
	c.Mark.RetryAt = time.Time{}
	switch {
	case c.Mark.State == MarkInForce || c.Mark.State == MarkAdopted:
	case d.p.Mode == ModeObserve:
		c.Mark.State = MarkObserved
		d.lookBy(d.now)
	default:
		c.Mark.State = MarkWanted
	}
}

// restoreDeleted asks for a mark that somebody else removed. Where the mode puts
// nothing back the case is advisory from now on, and its window begins now.
func (d *decision) restoreDeleted(why string) {
	d.c.Mark.State, d.c.GoodSince = MarkNone, time.Time{}
	d.restore(why)
}

// restoreChanged asks for a mark that says something else to be written again.
// The object is there, so the case goes on with it in either mode.
func (d *decision) restoreChanged(why string) {
	if d.c.Mark.outdated() {
		return
	}
	d.c.Mark.Written = 0
	d.restore(why)
}

func (d *decision) restore(why string) {
	d.c.Mark.Restored++
	d.wantMark()
	if d.p.Mode == ModeEnforce {
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
		if !c.Open() || c.Mark.State != MarkInForce {
			return
		}
		d.seen = fmt.Sprintf("mark %s deleted", e.Mark.Name)
		if e.Mark.Epoch != 0 && e.Mark.Epoch != c.Epoch {
			// That of an earlier case, or this one's after somebody edited it.
			d.lookAnew()
			return
		}
		d.tampered(e, d.restoreDeleted, "the mark was deleted by somebody else")
		return
	}
	d.seen = fmt.Sprintf("mark %s with epoch %d", e.Mark.Name, e.Mark.Epoch)
	switch {
	case !c.Open():
		d.adopt(e.Mark)
	case c.Mark.State == MarkInForce && e.Mark.Epoch <= c.Epoch && !e.Intact:
		d.tampered(e, d.restoreChanged, "the mark was changed by somebody else")
	case c.Phase == PhaseSuspect:
		// The mark of an earlier case whose workflow is lost. That case had
		// confirmed a fault; suspicion doesn't undo it.
		d.adoptInto(e.Mark)
	case e.Mark.Epoch > c.Epoch && d.unproven():
		c.Epoch = max(d.now.UnixMilli(), e.Mark.Epoch+1)
		d.adoptBeside(e.Mark)
	case e.Mark.Epoch > c.Epoch:
		d.supersede(e.Mark)
	case c.unmarked() || c.Mark.State == MarkNone:
		d.adoptBeside(e.Mark)
	}
}

// tampered answers what somebody did to the mark, as far as the watch tells. What
// it tells may be long put right, by a look that was faster: then another look
// decides, for versions step back where etcd is restored.
func (d *decision) tampered(e MarkSeen, restore func(why string), why string) {
	if d.c.Mark.overtook(e.Mark.Version) {
		d.lookAnew()
		return
	}
	restore(why)
}

// adopt opens the case that a mark without one stands for. It keeps the mark's
// epoch, so that the mark stays valid as it is; a live look confirms first that
// the mark is still there.
func (d *decision) adopt(found MarkFound) {
	old := d.c
	phase := PhaseQuarantined // where it is retired too, the case was opened as this
	if found.Restricted {
		phase = PhaseRestricted
	}
	d.open(phase, found.match(), found.message())
	c := &d.c
	if found.Epoch > old.Epoch {
		c.Epoch = found.Epoch
	}
	d.inherit(found)
	if found.Since > 0 {
		if since := time.UnixMilli(found.Since).UTC(); since.Before(c.Since) {
			c.Since, c.FirstNotGood = since, since
		}
	}
	d.recallFirst(found)
	if found.Retired {
		c.Phase = PhaseRetired
	}
	c.LeaseUntil = d.leaseOf(found)
	d.holdAdopted(found)
}

// recallFirst takes over when the device was first seen not good from the mark of an
// earlier case: it is the same episode.
func (d *decision) recallFirst(found MarkFound) {
	if d.p.Rules < rulesOfProof || found.FirstNotGood <= 0 {
		return
	}
	if first := time.UnixMilli(found.FirstNotGood).UTC(); first.Before(d.c.FirstNotGood) {
		d.c.FirstNotGood = first
	}
}

// leaseOf is how long the record of an adopted case is valid: as an operator extended
// it, if that is longer than usual and can have been.
func (d *decision) leaseOf(found MarkFound) time.Time {
	usual := d.now.Add(d.p.Lease)
	if until := time.UnixMilli(found.Until).UTC(); found.Until > 0 && until.After(usual) && until.Before(d.now.Add(maxExtension)) {
		return until
	}
	return usual
}

// sayOnMark has what an operator said written on the mark, if there is one: with it
// the word outlives the case's workflow.
func (d *decision) sayOnMark() {
	if d.c.Mark.State != MarkNone && !d.c.Advisory() {
		d.c.Mark.Revision++
	}
}

// adoptInto makes a suspect of which a mark was found a quarantined device.
func (d *decision) adoptInto(found MarkFound) {
	c := &d.c
	c.Phase, c.Former = PhaseQuarantined, PhaseSuspect
	text := "quarantined"
	d.raise(found.match(), found.message())
	d.inherit(found)
	c.Epoch = max(c.Epoch, found.Epoch)
	c.GraceUntil, c.GoodSince = time.Time{}, time.Time{}
	c.HalfAt, c.Asking, c.Refused, c.Outage = time.Time{}, false, nil, nil
	switch {
	case found.Retired:
		c.Phase = PhaseRetired
	case found.Restricted && !c.Confirmed:
		c.Phase, text = PhaseRestricted, "restricted"
	}
	c.LeaseUntil = d.leaseOf(found)
	d.holdAdopted(found)
	d.notify(NoticePhase, true, fmt.Sprintf("%s: mark %s of an earlier case is still there", text, found.Name))
}

// unproven tells whether nothing was found of the device but that its health is Unknown,
// or that it isn't listed: what a mark says of more, a look has to find first.
func (d *decision) unproven() bool {
	c := &d.c
	soft := func(p Phase) bool { return p == PhaseSuspect || p == PhaseRestricted }
	return d.p.Rules >= rulesOfProof && !c.Confirmed && (soft(c.Phase) || c.Phase == PhaseGone && soft(c.Former))
}

// adoptBeside takes a mark of an earlier case into one that has none of its own,
// because of the mode or for lack of a way. It must not outlive the case.
func (d *decision) adoptBeside(found MarkFound) {
	if d.unproven() {
		if d.c.Phase == PhaseRestricted {
			d.c.Former = PhaseRestricted
		}
		d.holdAdopted(found)
		return
	}
	switch {
	case d.c.Phase == PhaseRestricted:
		d.c.Former = PhaseRestricted
	case d.p.Rules >= rulesOfUnknown && d.c.Phase == PhaseGone && found.Restricted:
		// It says nothing of the device that isn't known, and a look confirms it first.
	case d.c.Former != PhaseRetired:
		d.c.Former = PhaseQuarantined
	}
	d.raise(found.match(), found.message())
	d.inherit(found)
	d.holdAdopted(found)
}

func (d *decision) holdAdopted(found MarkFound) {
	m := &d.c.Mark
	*m = Mark{State: MarkAdopted, Name: found.Name, Revision: m.Revision + 1, Restored: m.Restored, ConfirmedAt: d.now}
	d.lookAnew()
}

// inherit carries over what an earlier case of the device had come to.
func (d *decision) inherit(found MarkFound) {
	c := &d.c
	c.Severity = max(c.Severity, found.Severity)
	c.Attempt = max(c.Attempt, found.Attempt)
	// The mark of a device of which nothing was found but Unknown confirms no fault.
	c.Confirmed = c.Confirmed || !found.Restricted
	d.recallFirst(found)
	if found.Actor != "" {
		c.Actor = clip(found.Actor, maxName)
	}
	if !found.Hardware.IsZero() {
		c.Incarnation = found.Hardware
	}
}

// message is what a driver said. The mark of a restricted device has words of its own.
func (f MarkFound) message() string {
	if f.Restricted {
		return ""
	}
	return clip(f.Message, maxMessage)
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
	if closesRank(match.Closes) < 0 {
		match.Closes = reason.ClosesByGates
	}
	if f.Restricted {
		match.Action = reason.ActionSuspect
	}
	return match
}

// takeOver takes in what a mark says of an earlier case of the device, unless that
// was about hardware that is proven not to be there any more.
func (d *decision) takeOver(found MarkFound) {
	c := &d.c
	if found.Hardware.Compare(c.Incarnation) == device.NewHardware {
		return
	}
	d.raise(found.match(), found.message())
	c.Severity = max(c.Severity, found.Severity)
	c.Attempt = max(c.Attempt, found.Attempt)
	if c.Phase == PhaseRestricted && !found.Restricted && found.Epoch != c.Epoch {
		// That case had confirmed a fault.
		c.Confirmed = true
	}
}

// supersede lifts this case's epoch above one that was found on a mark, and
// writes the mark anew. Until then the mark is in force as it was found.
func (d *decision) supersede(found MarkFound) {
	c := &d.c
	// What was made for the attempt under way is of the epoch that ends here.
	d.stopAttempt("a mark of a later epoch was found")
	d.takeOver(found)
	c.Epoch = max(d.now.UnixMilli(), found.Epoch+1, c.Epoch+1)
	switch {
	case c.Phase != PhaseGone:
		c.Former = PhaseNone
	case d.p.Rules >= rulesOfProof && found.Restricted:
		// Nothing that wasn't known: it goes on as it was, with a mark.
		if c.Former == PhaseSuspect {
			c.Former = PhaseRestricted
		}
	case c.Former == PhaseSuspect, c.Former == PhaseRestricted && !found.Restricted:
		c.Former = PhaseQuarantined
	}
	c.Mark = Mark{
		State: MarkInForce, Name: found.Name, Revision: c.Mark.Revision, Restored: c.Mark.Restored,
		ConfirmedAt: d.now,
	}
	d.wantMark()
	d.lookAnew()
}

// markReported takes in what became of the mark. Answers to an earlier epoch's
// commands say nothing of this one's.
func (d *decision) markReported(e MarkReported) {
	c := &d.c
	if e.Epoch != c.Epoch || !c.Open() || c.Mark.State == MarkNone {
		return
	}
	if c.Mark.State == MarkLifting && e.Revision != 0 {
		// It answers a PutMark that was under way when lifting was decided.
		return
	}
	switch e.Outcome {
	case OutcomeInForce:
		d.markInForce(e)
	case OutcomeUnavailable:
		d.markUnavailable(e)
	case OutcomeHeld:
		d.markHeld(e)
	case OutcomeSuperseded:
		if e.Before != nil && e.Before.Epoch >= c.Epoch {
			d.supersede(*e.Before)
			return
		}
		d.markRefused(e)
	case OutcomeLifted:
		d.markLifted(e)
	default:
		d.markRefused(e)
	}
}

// markUnavailable makes a case advisory whose mark can't be made. One that was
// made stays the case's until a live read doesn't find it.
func (d *decision) markUnavailable(e MarkReported) {
	c := &d.c
	if c.Mark.State != MarkWanted {
		d.markRefused(e)
		return
	}
	c.Mark.State, c.Mark.Detail, c.Mark.Tries = MarkAdvisory, clip(e.Detail, maxText), 0
	d.notify(NoticeAdvisory, true, "the device can't be kept out: "+c.Mark.Detail)
	d.lookAnew()
}

func (d *decision) markLifted(e MarkReported) {
	c := &d.c
	switch c.Mark.State {
	case MarkLifting:
		c.Mark = Mark{Revision: c.Mark.Revision, Restored: c.Mark.Restored}
		d.notify(NoticeMarkLifted, false, fmt.Sprintf("mark of epoch %d removed", e.Epoch))
	case MarkInForce:
		d.restoreDeleted("the mark was removed for a device that has come back")
	}
}

func (d *decision) markInForce(e MarkReported) {
	c := &d.c
	if c.Mark.State == MarkLifting {
		return
	}
	if c.Mark.State == MarkAdopted && c.Phase != PhaseGone {
		c.Former = PhaseNone
	}
	first := c.Mark.InForceSince.IsZero()
	c.Mark.Name, c.Mark.Detail, c.Mark.Tries, c.Mark.RetryAt = e.Name, "", 0, time.Time{}
	c.Mark.Version, c.Mark.HeldSince = e.Version, time.Time{}
	c.Mark.Written, c.Mark.ConfirmedAt = e.Revision, d.now
	c.Mark.State = MarkInForce
	if e.Before != nil {
		d.takeOver(*e.Before)
	}
	if first {
		c.Mark.InForceSince = d.now
		d.notify(NoticeMarkInForce, true, fmt.Sprintf("mark %s keeps the device out", e.Name))
		if !c.FaultSeen.IsZero() {
			c.Notices[len(c.Notices)-1].Took = max(d.now.Sub(c.FaultSeen), 0)
		}
	}
	d.lookForSlipped()
}

// slipping is how long a scheduler that hasn't seen a new mark may go on giving
// the device out. A look sooner than that would miss a claim that slipped through,
// and would stand in the way of other devices' marks.
const slipping = 2 * time.Second

// lookForSlipped asks for a look once every scheduler has seen the mark.
func (d *decision) lookForSlipped() {
	d.c.LookAfter = d.now.Add(slipping)
	d.lookBy(d.c.LookAfter)
}

// markRefused waits before the next try. A mark that is in force and could only
// not be brought up to date stays in force as it is, unless the object turns out
// to be somebody else's.
func (d *decision) markRefused(e MarkReported) {
	c := &d.c
	switch c.Mark.State {
	case MarkWanted, MarkRefused:
		c.Mark.State = MarkRefused
	case MarkInForce:
		if e.Outcome == OutcomeForeign {
			c.Mark.State = MarkRefused
		}
	case MarkLifting:
	default:
		return
	}
	detail := clip(e.Detail, maxText)
	if detail == "" {
		detail = string(e.Outcome)
	}
	news := c.Mark.Tries == 0 || c.Mark.Detail != detail
	pause := min(d.p.backoff(c.Mark.Tries), d.p.MarkRetry)
	c.Mark.Tries++
	c.Mark.Detail = detail
	c.Mark.RetryAt = d.now.Add(pause)
	if e.Outcome == OutcomeChanged {
		// What somebody else changed isn't ours to remove; ask again seldom.
		c.Mark.RetryAt = d.now.Add(d.p.Lease)
	}
	if news {
		d.notify(NoticeMarkRefused, true, detail)
	}
}
