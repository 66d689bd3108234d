package quarantine

import (
	"fmt"
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// patience is how much slower looks become once they can't change much.
const patience = 10

// looked takes in the answer to a live look.
func (d *decision) looked(e Looked) {
	c := &d.c
	if !c.Open() {
		return
	}
	if e.Failed != "" {
		c.Looks++
		c.LookAt = d.now.Add(d.p.backoff(c.Looks))
		return
	}
	asked := e.Asked
	if asked.IsZero() {
		asked = d.now
	}
	d.seen = "live look"
	c.LookedAt = asked
	if e.Node != "" {
		c.Node = e.Node
	}
	held := c.Held()
	for _, r := range e.Readings {
		d.believe(r, true)
	}
	d.end(e.Ended)
	c.Holders = slices.Clone(e.Holders)
	if held && !c.Held() {
		c.CoolUntil = d.now.Add(d.p.CoolDown)
	}
	if e.Presence != nil {
		d.inventory(*e.Presence)
	}
	d.lookedAtMark(e, asked)
	d.judge(e)
	if c.Open() {
		d.scheduleLook(asked)
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

// judge decides whether this look found the device healthy: a live holder's word,
// no other one against it, from a ready node whose Lease moved on since the look
// before. The first look only takes the Lease down.
func (d *decision) judge(e Looked) {
	c := &d.c
	advanced := e.NodeLease != "" && c.Lease != "" && e.NodeLease != c.Lease
	evidence := c.Evidence()
	good := evidence.Value == device.Healthy && evidence.Live() && e.NodeReady && c.Absence == nil
	if c.Phase == PhaseSuspect {
		// What an application did wrong is no reason to suspect the device.
		good = good || d.value() == device.Healthy && evidence.Live() && e.NodeReady && c.Absence == nil
	}
	switch {
	case !good:
		c.GoodSince = time.Time{}
	case advanced && c.GoodSince.IsZero():
		c.GoodSince = d.now
	case !advanced && c.GoodSince.IsZero():
		// Nothing yet to hold the Lease against.
	case !advanced:
		c.GoodSince = time.Time{}
	}
	if e.NodeLease != "" {
		c.Lease = e.NodeLease
	}
}

// scheduleLook sets when to look next. Suspects are looked at on exponential
// backoff; a healthy one at the end of its window; what only a holder's leaving
// can change, seldom; what nothing but a message can change, not before the
// lease runs out.
func (d *decision) scheduleLook(asked time.Time) {
	c := &d.c
	c.LookAt = time.Time{}
	if c.DoubtedAt.After(asked) {
		c.LookAt = d.now.Add(d.p.RecheckFirst)
	}
	pause := d.p.backoff(c.Looks)
	c.Looks++
	window := d.p.Hysteresis
	// A second look soon after the first good one sees the Lease move on.
	promising := !c.GoodSince.IsZero() || c.Evidence().Live() && d.value() == device.Healthy
	switch {
	case c.Phase == PhaseSuspect:
		if c.GraceUntil.IsZero() && c.Absence == nil && !promising {
			pause *= patience
		}
	case c.Phase == PhaseGone:
		pause = d.p.Lease
	case c.Advisory():
		window = d.p.Stability
		if !promising {
			pause *= patience
		}
	case c.Phase == PhaseQuarantined && c.Held():
		pause *= patience
	default:
		return
	}
	next := d.now.Add(pause)
	if !c.GoodSince.IsZero() {
		next = later(c.GoodSince.Add(window), d.now.Add(time.Second))
	}
	d.lookBy(next)
}

// lookedAtMark compares the mark that a live read found with the one that the
// case believes in. A read that was asked for before the mark was last confirmed
// may have missed it.
func (d *decision) lookedAtMark(e Looked, asked time.Time) {
	c := &d.c
	switch c.Mark.State {
	case MarkAdopted:
		d.confirmAdopted(e)
	case MarkInForce:
		if asked.Before(c.Mark.ConfirmedAt) {
			return
		}
		if e.Mark == nil {
			d.restore("the mark was not there on a live read")
		} else if !e.MarkIntact {
			d.restore("the mark did not say what was written")
		}
	}
}

func (d *decision) confirmAdopted(e Looked) {
	c := &d.c
	if e.Mark == nil {
		c.Mark = Mark{}
		if d.value() == device.Unhealthy {
			d.wantMark()
			return
		}
		d.close(EndMarkGone, "the mark to adopt is gone")
		return
	}
	c.Mark.State, c.Mark.Name = MarkInForce, e.Mark.Name
	c.Mark.InForceSince, c.Mark.ConfirmedAt = d.now, d.now
	c.Mark.Written = c.Mark.Revision
	if !e.MarkIntact || e.Mark.Epoch != c.Epoch {
		c.Mark.Revision++
	}
	d.notify(NoticeMarkInForce, true, fmt.Sprintf("mark %s adopted with epoch %d", c.Mark.Name, e.Mark.Epoch))
}
