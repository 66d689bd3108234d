package quarantine

import (
	"fmt"
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// patience is how much slower looks become once they can't change much, and after
// how many in a row that changed nothing a hopeful case is taken for such a one.
const patience = 10

// looked takes in the answer to a live look. An answer that was asked for before
// the case was opened, or before one that is in already, says nothing new.
func (d *decision) looked(e Looked) {
	c := &d.c
	asked := e.Asked
	if asked.IsZero() {
		asked = d.now
	}
	if !c.Open() || asked.Before(c.LookedAt) || asked.Before(c.Since) {
		return
	}
	if e.Failed != "" {
		c.Looks++
		c.LookHeld = d.now.Add(d.p.backoff(c.Looks))
		c.LookAt = c.LookHeld
		return
	}
	// A mark says what hardware it was made for, the inventory what hardware is
	// there, and what Pods say is about that.
	if e.Mark != nil {
		d.foundMark(e, asked)
	}
	d.lookedForDevice(e, asked)
	d.seen = "live look"
	again := asked.Equal(c.LookedAt)
	c.LookedAt, c.LookHeld = asked, time.Time{}
	if e.Node != "" {
		c.Node = e.Node
	}
	held := c.Held()
	if d.p.Rules >= rulesOfUnknown && !again { // an answer that comes again moves nothing
		d.leaseSeen(e.NodeLease)
		d.nodeSeen(e)
		c.Poke = clip(e.Poke, maxText)
		if !c.SlicesRead {
			c.Slices, c.SlicesRead = clip(e.Slices, maxName), true
		}
	}
	if d.p.Rules < rulesOfUnknown || c.Outage == nil && d.nodeOut(e) == device.Fresh {
		d.read(d.doubted(e.Readings), asked)
		if !again {
			c.GraceLooks++
		}
	}
	d.end(e.Ended)
	c.Holders = slices.Clone(e.Holders[:min(len(e.Holders), maxHolders)])
	if held && !c.Held() {
		c.CoolUntil = d.now.Add(d.p.CoolDown)
	}
	if e.Mark == nil {
		d.foundNoMark(e, asked)
	}
	d.judge(e, again)
	if c.Open() {
		d.scheduleLook(asked)
	}
}

// read takes in what Pods said on a live read. What the watch told of a Pod after
// the look was asked for may be newer than what the look found: the worse of the
// two stands, and another look follows.
func (d *decision) read(readings []Reading, asked time.Time) {
	for _, r := range readings {
		newer := func(known device.Report) bool {
			return known.Pod.UID == r.Pod.UID && known.Observed.After(asked) &&
				known.Version.Newer(r.Version) && judged(known).WorseThan(judged(r.Report))
		}
		if slices.ContainsFunc(d.c.Reports, newer) {
			d.c.DoubtedAt = d.now
			continue
		}
		d.believe(r, true)
	}
}

// lookedForDevice takes in whether a look found the device listed. Nothing to
// ask (on the device-plugin path, where no node is known) leaves what the watch
// said standing; an inventory without an answer (an incomplete pool) confirms nothing.
func (d *decision) lookedForDevice(e Looked, asked time.Time) {
	c := &d.c
	switch {
	case e.Presence != nil && e.Presence.Present && c.Absence != nil && c.Absence.Since.After(asked):
		// It went missing after this was read.
	case e.Presence != nil:
		d.inventory(d.counted(*e.Presence, e.Readings, asked))
	case c.Absence != nil && c.Absence.Reason == device.NodeDeleted:
		return
	case c.Absence != nil && c.Device.Path() != device.PathPlugin:
		return
	}
	if c.Absence != nil && !c.Absence.Since.After(asked) {
		c.Absence.MissedAt = asked
	}
}

// end turns the reports of Pods that are no more into history.
func (d *decision) end(uids []string) {
	for i, r := range d.c.Reports {
		if !r.Ended && slices.Contains(uids, r.Pod.UID) {
			d.c.Reports[i].Ended = true
		}
	}
}

// leaseStill is how long a node's Lease may stand still before what its Pods say
// is what a dead kubelet last wrote: the grace after which Kubernetes itself gives
// a node up (--node-monitor-grace-period).
const leaseStill = 50 * time.Second

// judge decides whether this look found the device healthy: a live holder's word,
// no other one against it, from a ready node whose Lease moves, of a device that
// is listed.
func (d *decision) judge(e Looked, again bool) {
	c := &d.c
	if d.p.Rules < rulesOfUnknown {
		d.leaseSeen(e.NodeLease)
	}
	evidence := c.Evidence()
	good := evidence.Value == device.Healthy && evidence.Live()
	if c.Phase == PhaseSuspect || c.Phase == PhaseRestricted {
		// What an application did wrong is no reason to suspect the device.
		good = good || d.value() == device.Healthy && evidence.Live() || d.acknowledged(e) || d.driverVouches(e)
	}
	switch {
	case !good || c.Outage != nil || !e.NodeReady || c.Absence != nil || !d.leaseMoves():
		c.GoodSince = time.Time{}
	case c.GoodSince.IsZero() && !again: // an answer that comes again moves nothing
		c.GoodSince = d.now
	}
}

// leaseSeen takes in the node's Lease as a look found it. That it moves shows by
// a change, on our own clock; the first look only takes it down.
func (d *decision) leaseSeen(renewal string) {
	c := &d.c
	before := c.LeaseRead
	if d.p.Rules >= rulesOfUnknown {
		c.LeaseRead = c.LookedAt
		if before.IsZero() {
			c.LeaseSince = c.LookedAt
		}
	}
	if renewal == "" || renewal == c.Lease {
		return
	}
	if c.Lease != "" {
		c.LeaseMoved = c.LookedAt
		if !before.IsZero() && c.LookedAt.Sub(before) <= leaseStill {
			c.LeaseLives = c.LookedAt
		}
	}
	c.Lease = renewal
	if d.p.Rules >= rulesOfUnknown {
		c.LeaseSince = c.LookedAt
	}
}

// leaseMoves tells whether the node was alive not long before the last look.
func (d *decision) leaseMoves() bool {
	c := &d.c
	return !c.LeaseMoved.IsZero() && c.LookedAt.Sub(c.LeaseMoved) <= leaseStill
}

// scheduleLook sets when to look next. Suspects are looked at on exponential
// backoff; a healthy one at the end of its window; what only a holder's leaving
// can change, seldom; what nothing but a message can change, not before the
// lease runs out.
func (d *decision) scheduleLook(asked time.Time) {
	c := &d.c
	c.LookAt = time.Time{}
	if c.LookAfter.After(asked) {
		d.lookBy(later(d.now, c.LookAfter))
	}
	if c.DoubtedAt.After(asked) {
		d.lookBy(d.now.Add(d.p.RecheckFirst))
	}
	if counts := c.Shorter.Since.Add(entryLag); c.Shorter.Listed != 0 && counts.After(d.now) {
		d.lookBy(counts)
	}
	pause := d.pause(c.Looks)
	c.Looks++
	// window is what a good look has to be followed by, where that ends the case.
	window := time.Duration(0)
	// A second look soon after the first good one sees the Lease move on; where it
	// doesn't for long, the node is out.
	promising := !c.GoodSince.IsZero() || c.Evidence().Live() && d.value() == device.Healthy && c.Looks <= patience
	switch {
	case c.Phase == PhaseGone:
		pause = d.p.Lease
	case c.Outage != nil && c.Outage.Returning:
		pause = renewal
	case c.Outage != nil:
		if c.Looks > patience {
			pause *= patience
		}
	case c.Phase == PhaseSuspect:
		window = d.hysteresis()
		if d.windowOver() && c.Absence == nil && !promising {
			pause *= patience
		}
	case c.Phase == PhaseRestricted && c.Absence == nil:
		window = d.hysteresis()
		if d.goodFor(window) {
			// What is still missing, no look brings: the mark has to go.
			window, promising = 0, false
		}
		if !promising {
			pause *= patience
		}
	case c.Absence != nil:
		pause = max(pause, c.Absence.SettledAt.Sub(d.now))
	case c.Phase == PhaseQuarantined && c.unmarked() && d.handHolds():
		// However healthy it is, that ends nothing before the operator's time is over.
		pause = min(max(pause*patience, c.Mark.RetryAt.Sub(d.now)), c.ByHandUntil.Sub(d.now))
	case c.Phase == PhaseQuarantined && c.Advisory():
		window = d.p.Stability
		if !promising {
			pause *= patience
		}
	case c.Phase == PhaseQuarantined && c.Mark.State == MarkHeld:
		window = d.hysteresis()
		if !promising {
			// The next time that it asks for a permit it looks as well.
			pause = max(pause, c.Mark.RetryAt.Sub(d.now))
		}
	case c.Phase == PhaseQuarantined && c.Held():
		pause *= patience
	case c.Phase == PhaseRestricted:
	default:
		return
	}
	next := d.now.Add(pause)
	if window > 0 && !c.GoodSince.IsZero() {
		// Where only a sign of life from the node is missing, it comes soon.
		next = later(c.GoodSince.Add(window), d.now.Add(d.p.RecheckFirst))
	}
	d.lookBy(next)
}

// foundMark compares the mark that a live read found with the one that the case
// believes in. A read that was asked for before the mark was last seen may be
// behind.
func (d *decision) foundMark(e Looked, asked time.Time) {
	c := &d.c
	if asked.Before(c.Mark.ConfirmedAt) {
		return
	}
	switch {
	case c.Phase == PhaseSuspect:
		d.adoptInto(*e.Mark)
		d.confirmAdopted(e)
	case c.Mark.State == MarkNone || c.unmarked():
		d.adoptBeside(*e.Mark)
		d.confirmAdopted(e)
	case c.Mark.State == MarkAdopted:
		d.confirmAdopted(e)
	case c.Mark.State == MarkInForce && !e.MarkIntact:
		d.restoreChanged("the mark did not say what was written")
	}
}

func (d *decision) foundNoMark(e Looked, asked time.Time) {
	c := &d.c
	switch {
	case !c.Open() || asked.Before(c.Mark.ConfirmedAt):
	case c.Mark.State == MarkAdopted:
		d.adoptedGone()
		if c.Phase == PhaseSuspect && c.Absence == nil && e.Presence != nil {
			// What hardware is there, the mark doesn't say any more.
			d.inventory(*e.Presence)
		}
	case c.Mark.State == MarkInForce:
		d.restoreDeleted("the mark was not there on a live read")
	}
}

// adoptedGone goes on without a mark that was to be adopted: as what the case was
// before, or on the evidence, or not at all.
func (d *decision) adoptedGone() {
	c := &d.c
	former := c.Former
	c.Mark = Mark{Revision: c.Mark.Revision, Restored: c.Mark.Restored}
	if c.Phase != PhaseGone {
		c.Former = PhaseNone
	}
	switch {
	case d.value() == device.Unhealthy, former == PhaseQuarantined, former == PhaseRetired, former == PhaseRestricted:
		d.wantMark()
	case c.Phase == PhaseRestricted && (d.value() == device.Unknown || c.Absence != nil):
		// Its window counts from when it was first not good, and is over by now.
		c.Phase, c.LeaseUntil, c.GraceUntil = PhaseSuspect, time.Time{}, d.now
		d.notify(NoticePhase, true, "the mark to adopt is gone; suspected as before")
	case c.Phase == PhaseQuarantined && (d.value() == device.Unknown && former == PhaseSuspect || c.Absence != nil):
		c.Phase, c.Confirmed, c.LeaseUntil = PhaseSuspect, false, time.Time{}
		c.GraceUntil = c.FirstNotGood.Add(d.p.Grace)
		if former != PhaseSuspect {
			c.Reason, c.Message, c.GraceUntil = missingReason, "", d.now.Add(d.p.Grace)
		}
		d.notify(NoticePhase, true, "the mark to adopt is gone; suspected as before")
	case c.Phase == PhaseGone && former == PhaseSuspect,
		d.p.Rules >= rulesOfBursts && c.Phase == PhaseSuspect:
		// Nothing kept it out before.
	default:
		d.close(EndMarkGone, "the mark to adopt is gone")
	}
}

func (d *decision) confirmAdopted(e Looked) {
	c := &d.c
	if d.unproven() {
		d.raise(e.Mark.match(), e.Mark.message())
		d.inherit(*e.Mark)
	}
	switch {
	case c.Phase != PhaseGone:
		c.Former = PhaseNone
	case c.Former == PhaseSuspect && e.Mark.Restricted:
		c.Former = PhaseRestricted
	case d.p.Rules >= rulesOfProof && c.Former == PhaseSuspect:
		c.Former = PhaseQuarantined
	}
	c.Mark.State, c.Mark.Name = MarkInForce, e.Mark.Name
	c.Mark.InForceSince, c.Mark.ConfirmedAt = d.now, d.now
	c.Mark.Written = c.Mark.Revision
	if !e.MarkIntact || e.Mark.Epoch != c.Epoch {
		c.Mark.Revision++
	}
	d.notify(NoticeMarkInForce, true, fmt.Sprintf("mark %s adopted with epoch %d", c.Mark.Name, e.Mark.Epoch))
}
