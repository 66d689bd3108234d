package quarantine

import (
	"fmt"
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// What comes of an Unknown that outlasts its window. Nothing is restricted by what a
// clock says alone: a live look that was asked for after the window's end has to find
// the device Unknown still, said by a Pod that runs, on a node that lives; enough looks
// have to have been made in the window; and nothing larger may be going on of which
// this device is only a part. docs/decisions/0010 tells why each.

// windowOver tells whether the grace window is over. While the node is out it stands
// still.
func (d *decision) windowOver() bool {
	return d.c.Phase == PhaseSuspect && d.c.Outage == nil && !d.c.GraceUntil.After(d.now)
}

// sayHalf alerts in the middle of the window.
func (d *decision) sayHalf() {
	c := &d.c
	if c.HalfAt.IsZero() || c.HalfAt.After(d.now) || c.Outage != nil {
		return
	}
	c.HalfAt = time.Time{}
	if c.GoodSince.IsZero() && c.Absence == nil && d.value() == device.Unknown && c.Evidence().Live() && c.GraceUntil.After(d.now) {
		d.notify(NoticeGraceHalf, true, fmt.Sprintf("half of the grace window is over and its health isn't back; at %s it is restricted", stamp(c.GraceUntil)))
	}
}

// outlasted goes on with a suspect whose window is over: it asks for what is still
// needed to restrict it, one after the other.
func (d *decision) outlasted() {
	c := &d.c
	switch {
	case c.Absence != nil || d.value() != device.Unknown:
		return
	case !c.Evidence().Live():
		// Nobody has the device, so nobody says that it is Unknown now. It is no
		// worse than any other device that nobody has: its next holder tells.
		if !c.OverSaid {
			c.OverSaid = true
			d.notify(NoticeGraceOver, true, "not known to be healthy at the end of the grace window, and nobody holds it: nothing is restricted, and its next holder's report decides")
		}
		return
	case c.LookedAt.Before(c.GraceUntil):
		d.lookBy(d.now)
		return
	case c.GraceLooks < d.looksNeeded():
		d.lookBy(later(d.now, c.LookedAt.Add(d.p.backoff(c.GraceLooks))))
		return
	case !d.nodeLives():
		d.lookBy(later(d.now, c.LookedAt.Add(renewal)))
		return
	}
	c.Asking = true
}

// looksNeeded is how many looks a window has to have had to be believed in: as many as
// the backoff makes in it. A clock that jumps ends no window by that alone.
func (d *decision) looksNeeded() int {
	if d.c.Flapping {
		return 2
	}
	n := 0
	for spent := time.Duration(0); ; n++ {
		// Jitter makes each pause longer by so much at most.
		pause := d.p.backoff(n)
		if spent += pause + pause/jitterPart; spent >= d.p.Grace {
			return n
		}
	}
}

// restrictionAnswered takes in whether the device may be restricted.
func (d *decision) restrictionAnswered(e RestrictionAnswered) {
	c := &d.c
	if e.Epoch != c.Epoch || c.Phase != PhaseSuspect || !c.Asking {
		return
	}
	if e.Granted {
		d.enterRestricted()
		return
	}
	again := max(e.Again, d.p.RecheckFirst)
	news := c.Refused == nil || c.Refused.Incident != e.Incident
	c.Refused = &Refusal{Incident: clip(e.Incident, maxName), Why: clip(e.Why, maxText), At: d.now}
	// The window goes on, so that the device is looked at anew before it is asked again.
	c.GraceUntil = d.now.Add(again)
	if news {
		d.notify(NoticeHeld, false, fmt.Sprintf("not restricted now: %s; asked again at %s", c.Refused.Why, stamp(c.GraceUntil)))
	}
}

// Refusal is why a device that is Unknown past its window isn't restricted.
type Refusal struct {
	// Incident is the workflow ID of the incident that holds it, if one does.
	Incident string    `json:"incident,omitempty"`
	Why      string    `json:"why,omitempty"`
	At       time.Time `json:"at"`
}

// enterRestricted keeps the device out of new allocations. Who has it keeps it.
func (d *decision) enterRestricted() {
	c := &d.c
	c.Phase, c.Looks = PhaseRestricted, 0
	c.GraceUntil, c.HalfAt, c.Refused, c.Asking = time.Time{}, time.Time{}, nil, false
	c.LeaseUntil = d.now.Add(d.p.Lease)
	d.wantMark()
	d.notify(NoticePhase, true, fmt.Sprintf("restricted: Unknown since %s, found so on live looks past the grace window; no new allocations, and whoever has it keeps it",
		stamp(c.FirstNotGood)))
}

func (d *decision) stepRestricted() {
	c := &d.c
	d.followMode()
	d.stepHeld()
	switch {
	case c.Confirmed || d.value() == device.Unhealthy && c.Outage == nil:
		// The same case and the same mark, and no short way any more.
		c.Phase = PhaseQuarantined
		d.enterQuarantine()
		d.notify(NoticePhase, true, fmt.Sprintf("quarantined: %s", describe(c.Reason, c.Message)))
	case d.absenceSettled():
		d.enterGone()
	case d.goodFor(d.hysteresis()):
		if d.unmark() {
			d.close(EndHealthBack, fmt.Sprintf("%s since %s", d.whyGood(), stamp(c.GoodSince)))
		}
	case c.OnTrial && !c.Held():
		if d.unmark() {
			d.tryNextHolder()
		}
	case c.Mark.State == MarkLifting, c.Mark.State == MarkNone:
		c.OnTrial = false
		d.keepMark()
		if d.p.Rules >= rulesOfBursts && !c.LeaseUntil.After(d.now) {
			d.expire()
		}
	case !c.LeaseUntil.After(d.now):
		d.expire()
	}
}

// unmark has the mark removed, and tells whether none is there any more.
func (d *decision) unmark() bool {
	c := &d.c
	switch c.Mark.State {
	case MarkNone, MarkObserved, MarkAdvisory, MarkHeld:
		return true
	case MarkAdopted:
		// A look confirms it first.
	case MarkLifting:
		// Its removal is under way, or was refused and is tried again.
		if !c.Mark.RetryAt.After(d.now) {
			c.Mark.RetryAt = time.Time{}
		}
	default:
		switch {
		case d.p.Mode == ModeObserve:
			// Observing changes nothing, so the mark stays, and the case with it.
		case c.Mark.State == MarkInForce && c.Mark.outdated():
			// Only a mark of this epoch is removed, so it is written first.
		default:
			c.Mark.State, c.Mark.RetryAt, c.Mark.Detail, c.Mark.Tries = MarkLifting, time.Time{}, "", 0
		}
	}
	return false
}

// keepMark takes back that the mark was to be removed, and has it say what it should.
func (d *decision) keepMark() {
	c := &d.c
	if c.Mark.State == MarkLifting && d.p.Rules >= rulesOfUnknown {
		// Nothing says that it was removed; if it was, the answer will.
		c.Mark.State, c.Mark.Written, c.Mark.Tries, c.Mark.Detail = MarkInForce, 0, 0, ""
	}
	d.wantMark()
}

// tryNextHolder lets a restricted device that nobody holds have one more holder, by an
// operator's word. The window is over and stays so.
func (d *decision) tryNextHolder() {
	c := &d.c
	c.Phase, c.OnTrial, c.OverSaid = PhaseSuspect, false, true
	c.GraceUntil, c.LeaseUntil = d.now, time.Time{}
	// None is wanted any more, whatever the mode becomes.
	c.Mark = Mark{Revision: c.Mark.Revision, Restored: c.Mark.Restored}
	d.lookAnew()
	d.notify(NoticePhase, true, "no longer restricted, by an operator's word; still not known to be healthy, and its next holder's report decides")
}

// waitingInSuspicion names what a suspect waits for.
func (d *decision) waitingInSuspicion() Waiting {
	c := &d.c
	switch {
	case c.Absence != nil:
		return WaitingForNothing
	case c.Outage != nil:
		return WaitingForNode
	case c.Refused != nil && c.Evidence().Live() && d.value() == device.Unknown:
		return WaitingForIncident
	case !c.GraceUntil.IsZero() && (d.p.Rules < rulesOfUnknown || !d.windowOver()):
		return WaitingForNothing
	case !c.Evidence().Live():
		return WaitingForEvidence
	}
	return WaitingForRestriction
}

// waitingInRestriction names what a restricted device waits for.
func (d *decision) waitingInRestriction() Waiting {
	c := &d.c
	good := d.goodFor(d.hysteresis())
	switch {
	case c.Mark.State == MarkWanted, c.Mark.State == MarkRefused, c.Mark.State == MarkLifting && c.Mark.Detail != "":
		return WaitingForMark
	case c.Mark.State == MarkHeld:
		return WaitingForPermit
	case c.Mark.State == MarkAdopted:
		return WaitingForLook
	case c.Absence != nil || c.Mark.State == MarkLifting:
		return WaitingForNothing
	case c.Outage != nil:
		return WaitingForNode
	case good && c.Mark.outdated() && d.p.Mode == ModeEnforce:
		return WaitingForMark
	case good, c.OnTrial:
		// Mode observe removes nothing.
		return WaitingForOperator
	case !c.Evidence().Live() && c.GoodSince.IsZero():
		return WaitingForEvidence
	}
	return WaitingForHealth
}

// hysteresis is how long health has to stay good before a case ends of which nothing
// was found but Unknown.
func (d *decision) hysteresis() time.Duration {
	if d.c.Flapping {
		return max(d.p.Hysteresis, d.p.Stability)
	}
	return d.p.Hysteresis
}

// acknowledged tells whether the kubelet, asked for it, has just worked out that the
// device is healthy, where other Pods' entries still say Unknown: a Healthy that comes
// after a lazy Unknown isn't pushed to them. A fault is never outweighed.
func (d *decision) acknowledged(e Looked) bool {
	return slices.ContainsFunc(e.Readings, func(r Reading) bool {
		return r.Acknowledged && r.Counts() == device.Healthy
	}) && d.value() != device.Unhealthy
}

// driverVouches tells whether the driver of a device that nobody holds is back: nobody
// reports on a device that nobody holds, well or not, and what was wrong was that the
// driver was silent. It is back when it speaks of its other devices there, or when its
// slices were made anew since the case began and nothing says that it is still silent.
func (d *decision) driverVouches(e Looked) bool {
	c := &d.c
	published := c.SlicesRead && e.Slices != "" && clip(e.Slices, maxName) != c.Slices
	back := e.Driver == DriverSpeaks || published && e.Driver != DriverUnknown
	return back && !c.Held() && !c.Evidence().Live() && d.value() != device.Unhealthy &&
		// Of a plugin's device it has to be on the list, as far as the list's length shows that.
		e.Presence != nil && e.Presence.Present && e.Presence.Listed >= c.Listed
}

// whyGood says what the end of a case of Unknown goes by.
func (d *decision) whyGood() string {
	if !d.c.Evidence().Live() {
		return "nobody holds it, and its driver has been back on live looks"
	}
	return "healthy on live reads"
}

// jitterPart is which part of a pause may be added to it or taken away.
const jitterPart = 5

// pause is the pause before look number tries: the backoff with some jitter, so that
// devices that went Unknown together aren't looked at together. It follows from the
// case, so that a replay comes to the same.
func (d *decision) pause(tries int) time.Duration {
	pause := d.p.backoff(tries)
	if d.p.Rules < rulesOfUnknown || d.c.Phase != PhaseSuspect && d.c.Phase != PhaseRestricted {
		return pause
	}
	const parts = 1024
	share := time.Duration(hash(d.c.Device.String(), d.c.Epoch, int64(tries)) % parts)
	return pause - pause/jitterPart + 2*pause/jitterPart*share/(parts-1)
}

// hash spreads what it is given evenly (FNV-1a).
func hash(text string, numbers ...int64) uint64 {
	const prime = 1099511628211
	sum := uint64(14695981039346656037)
	for i := range len(text) {
		sum = (sum ^ uint64(text[i])) * prime
	}
	for _, n := range numbers {
		for shift := 0; shift < 64; shift += 8 {
			sum = (sum ^ uint64(byte(n>>shift))) * prime
		}
	}
	return sum ^ sum>>32
}
