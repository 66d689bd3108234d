package quarantine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// self is the actor of what Sickbay decides by itself.
const self = "sickbay"

// Decide returns the case as it is after an event, and everything that is owed
// to the world then. It is total and deterministic, and never changes its
// arguments. An event that is repeated, or that a newer one has overtaken,
// changes nothing.
func Decide(c Case, e Event, now time.Time, p Policy) (Case, []Command) {
	d := &decision{c: c.clone(), now: now, p: p}
	switch e := e.(type) {
	case Observed:
		d.observed(e)
	case Inventory:
		d.recounted(e)
		d.inventory(e)
	case MarkSeen:
		d.markSeen(e)
	case Looked:
		d.looked(e)
	case MarkReported:
		d.markReported(e)
	case Message:
		d.message(e)
	case RestrictionAnswered:
		d.restrictionAnswered(e)
	case PermitOffered:
		d.permitOffered(e)
	case PermitAnswered:
		d.permitAnswered(e)
	case Tended:
		d.tended(e)
	case Cleaned:
		d.cleaned(e)
	case ReturnAnswered:
		d.returnAnswered(e)
	case Announced:
		d.c.Notices = slices.DeleteFunc(d.c.Notices, func(n Notice) bool { return n.Seq <= e.UpTo })
	case Woke:
	}
	d.advance()
	d.takeMade()
	d.leave(c)
	return d.c, d.owed()
}

// leave notes that the case left a phase, and for how long it was in it, on the
// last decision that was made of the event.
func (d *decision) leave(before Case) {
	if d.c.Phase == before.Phase {
		return
	}
	if last := len(d.c.Notices) - 1; before.Open() && last >= 0 && d.c.Notices[last].Seq > before.NoticeSeq {
		// A case that an older worker began doesn't know when its phase began.
		since := before.PhaseSince
		if since.IsZero() {
			since = before.Since
		}
		d.c.Notices[last].Left, d.c.Notices[last].Stayed = before.Phase, d.now.Sub(since)
	}
	d.c.PhaseSince = d.now
}

// decision is one call of Decide under way.
type decision struct {
	c   Case
	now time.Time
	p   Policy
	// seen describes what led to the decision, for the audit trail.
	seen string
	// gravest is the reading that seen describes; nil where it describes none.
	gravest *Reading
	// lost is set when an Unknown in this event is the loss of a known health.
	lost bool
	// fault is a fault that came in the middle of an attempt at recovery.
	fault *Reading
	// made is the mark that was made ahead of the case that this event may open.
	made Made
	// What this event's readings say, for the case that it may open: the gravest
	// fault, whether one of them quarantines at once, and when the earliest of
	// those that are not good was seen.
	worst     *Reading
	confirmed bool
	notGoodAt time.Time
	// faultAt is when the first reading that quarantines at once was seen.
	faultAt time.Time
}

// advance takes every transition that the evidence and the deadlines call for
// now. Each step changes the phase at most once; few can follow each other.
func (d *decision) advance() {
	for range 4 {
		before := d.c.Phase
		d.step()
		if d.c.Phase == before {
			break
		}
	}
	d.c.Waiting = d.waiting()
}

func (d *decision) step() {
	switch d.c.Phase {
	case PhaseNone, PhaseClosed, PhaseReleased:
		d.forgetFlaps()
		d.stepNone()
	case PhaseSuspect:
		d.stepSuspect()
	case PhaseRestricted:
		d.stepRestricted()
	case PhaseQuarantined, PhaseRetired:
		d.stepQuarantined()
	case PhaseRecovering:
		d.followMode()
		d.stepRecovering()
	case PhaseGone:
		d.stepGone()
	}
}

// stepNone opens a case when the evidence calls for one.
func (d *decision) stepNone() {
	switch value := d.value(); {
	case value == device.Unhealthy:
		worst := d.worstFault()
		if worst.Reason.Action == reason.ActionSuspect && !d.confirmed {
			d.suspect(worst.Reason, worst.Message)
			return
		}
		d.open(PhaseQuarantined, worst.Reason, worst.Message)
		d.c.Confirmed, d.c.FaultSeen = true, d.faultAt
		d.enterQuarantine()
	case value == device.Unknown && d.lost:
		d.suspect(d.whyUnknown(), clip(d.c.Evidence().Message, maxMessage))
	case d.c.Absence != nil && d.c.Absence.Reason == device.MissingFromPool:
		d.suspect(missingReason, "")
	}
}

// suspect opens a case that waits out the grace window. Its clock runs from the
// first not-good moment, whatever is said meanwhile.
func (d *decision) suspect(why reason.Match, message string) {
	why, flapping := d.flaps(why)
	d.open(PhaseSuspect, why, message)
	c := &d.c
	c.Flapping = flapping
	c.GraceUntil = c.FirstNotGood.Add(d.p.Grace)
	if half := c.FirstNotGood.Add(d.p.Grace / 2); d.p.Rules >= rulesOfUnknown && half.After(d.now) {
		c.HalfAt = half
	}
	c.LookAt = d.now.Add(d.pause(0))
}

func (d *decision) stepSuspect() {
	c := &d.c
	c.Asking = false
	graceOver := !c.GraceUntil.After(d.now) && c.Outage == nil
	switch {
	case c.Confirmed || graceOver && d.value() == device.Unhealthy:
		c.Phase = PhaseQuarantined
		d.enterQuarantine()
		d.notify(NoticePhase, true, fmt.Sprintf("quarantined: %s", describe(c.Reason, c.Message)))
	case d.p.Rules >= rulesOfBursts && c.Mark.State == MarkAdopted:
		// A look says first whether the mark is there: no case ends beside one.
	case d.absenceSettled():
		d.enterGone()
	case c.Absence == nil && c.Reason.Code == reason.DeviceMissing && !d.value().WorseThan(device.Healthy):
		d.close(EndHealthBack, "listed again before the absence settled")
	case d.goodFor(d.hysteresis()):
		d.close(EndHealthBack, fmt.Sprintf("%s since %s", d.whyGood(), stamp(c.GoodSince)))
	case d.p.Rules >= rulesOfUnknown:
		d.sayHalf()
		if graceOver {
			d.outlasted()
		}
	case graceOver && !c.GraceUntil.IsZero():
		d.notify(NoticeGraceOver, true, "still not known to be healthy at the end of the grace window; nothing is restricted")
		c.GraceUntil = time.Time{}
	}
}

func (d *decision) stepQuarantined() {
	c := &d.c
	d.followMode()
	switch {
	case d.absenceSettled():
		d.enterGone()
	case d.stepHeld():
	case c.Advisory() && c.Phase == PhaseQuarantined && d.goodFor(d.p.Stability) && !d.handHolds():
		d.close(EndAdvisory, fmt.Sprintf("never kept out; healthy on live reads since %s", stamp(c.GoodSince)))
	case d.mayTry():
		d.beginAttempt()
	case d.needsHands():
		c.Phase = PhaseRetired
		d.sayOnMark()
		d.notify(NoticePhase, true, fmt.Sprintf("retired: %s takes a repair; send repaired once it is done", describe(c.Reason, c.Message)))
	case !c.LeaseUntil.After(d.now):
		d.expire()
	}
}

// needsHands tells whether it is time to say that nothing is tried before the device is
// repaired: nobody has it any more.
func (d *decision) needsHands() bool {
	c := &d.c
	return d.recovers() && c.Phase == PhaseQuarantined && c.Mark.State == MarkInForce && d.needsWord() == VerbRepaired &&
		c.MovedTo == "" && c.Absence == nil && !c.Held() && !d.handHolds() && !c.CoolUntil.IsZero() && !c.CoolUntil.After(d.now)
}

// expire answers the end of the record's lease: never by freeing the device, but
// by looking again. The look extends the lease.
func (d *decision) expire() {
	c := &d.c
	if c.LookedAt.Before(c.LeaseUntil) {
		d.lookBy(d.now)
		return
	}
	if c.Mark.State == MarkAdvisory && d.p.Mode == ModeEnforce {
		c.Mark.State = MarkWanted
	}
	d.extend(d.p.Lease)
	d.notify(NoticeExtended, false, fmt.Sprintf("lease ran out; last live look says %s; extended until %s", orNone(d.value()), stamp(c.LeaseUntil)))
}

// extend moves the end of the record's lease away, and never nearer.
func (d *decision) extend(by time.Duration) {
	d.c.LeaseUntil = later(d.c.LeaseUntil, d.now.Add(by))
	d.c.Mark.Revision++
}

// followMode carries a change of the operator's mode into an open case. A mark
// that is in force stays in either mode: observing changes nothing.
func (d *decision) followMode() {
	c := &d.c
	switch {
	case c.Mark.State == MarkObserved && d.p.Mode == ModeEnforce:
		c.Mark.State = MarkWanted
		c.Mark.RetryAt, c.Mark.HeldSince, c.Mark.Detail = time.Time{}, time.Time{}, ""
	case (c.Mark.State == MarkWanted || c.Mark.State == MarkRefused || c.Mark.State == MarkHeld) && d.p.Mode == ModeObserve:
		c.Mark.State = MarkObserved
		c.Mark.RetryAt, c.Mark.HeldSince, c.GoodSince = time.Time{}, time.Time{}, time.Time{}
	case c.Mark.State == MarkLifting && d.p.Mode == ModeObserve && d.p.Rules >= rulesOfBursts:
		// Nothing is removed any more either. If it is gone, or goes by what is under way,
		// a look or the answer tells.
		c.Mark.State, c.Mark.Written, c.Mark.RetryAt, c.Mark.Tries, c.Mark.Detail = MarkInForce, 0, time.Time{}, 0, ""
	case c.Mark.State == MarkRefused && !c.Mark.RetryAt.After(d.now):
		c.Mark.State = MarkWanted
		c.Mark.RetryAt = time.Time{}
	case c.Mark.State == MarkInForce && !c.Mark.RetryAt.After(d.now):
		c.Mark.RetryAt = time.Time{}
	}
}

// open begins a new case. What is known of the device stays; everything that
// belonged to an earlier case goes.
func (d *decision) open(phase Phase, why reason.Match, message string) {
	old := d.c
	d.c = Case{
		Device: old.Device, Node: old.Node, Phase: phase, Incarnation: old.Incarnation,
		Epoch:  d.nextEpoch(phase),
		Around: old.Around,
		Reason: why, Message: message, Severity: why.Severity,
		Actor: self, Since: d.now, FirstNotGood: d.firstNotGood(),
		Reports: old.Reports, Absence: old.Absence,
		Notices: old.Notices, NoticeSeq: old.NoticeSeq, Flaps: d.recentFlaps(),
		Token: old.Token, Litter: old.Litter, CleanAt: old.CleanAt, CleanTries: old.CleanTries, Relapse: old.Relapse,
	}
	if r := old.Recovery; r != nil {
		d.c.Litter, d.c.CleanAt = max(d.c.Litter, r.Token), time.Time{}
	}
	if d.c.Absence != nil {
		d.c.MovedTo = old.MovedTo
	}
	text := fmt.Sprintf("case opened as %s", phase)
	if saysNothing(why.Code) {
		text += fmt.Sprintf(", visible since %s, the silence may be older", stamp(d.c.FirstNotGood))
	}
	d.notify(NoticeOpened, true, text+": "+describe(why, message))
}

// close ends the case.
func (d *decision) close(end End, why string) {
	c := &d.c
	c.Phase, c.End = PhaseClosed, end
	if end == EndReleased || end == EndMarkGone && c.Relapse.Epoch == c.Epoch && !c.Relapse.ReleasedAt.IsZero() {
		// The mark that was found was that of the case that is over.
		c.Phase, c.End = PhaseReleased, EndReleased
	}
	c.RestUntil, c.Hurry, c.Unsure, c.ReasonClosed = time.Time{}, false, 0, false
	c.Waiting, c.LookAt, c.GraceUntil, c.LeaseUntil = WaitingForNothing, time.Time{}, time.Time{}, time.Time{}
	c.CoolUntil, c.ForgetAt, c.Absence, c.Confirmed = time.Time{}, time.Time{}, nil, false
	c.ByHandUntil = time.Time{}
	c.MovedTo, c.HalfAt, c.Asking, c.Refused, c.Outage, c.OnTrial = "", time.Time{}, false, nil, nil, false
	d.rememberFlap(end)
	switch end {
	case EndGone, EndMarkGone:
		// The reports are those of hardware that isn't there any more; kept, they
		// would open the next case.
		c.Reports = nil
	case EndHealthBack, EndAdvisory, EndNeverMarked, EndReleased:
		// A live holder has disproved what ended Pods last said; kept, it would
		// speak again as soon as that holder leaves.
		c.Reports = slices.DeleteFunc(c.Reports, func(r device.Report) bool { return r.Ended })
	}
	d.notify(NoticeClosed, false, fmt.Sprintf("case closed (%s): %s", end, why))
}

func (d *decision) enterQuarantine() {
	c := &d.c
	c.GraceUntil, c.GoodSince, c.Looks = time.Time{}, time.Time{}, 0
	c.HalfAt, c.Asking, c.Refused, c.OnTrial, c.Flapping = time.Time{}, false, nil, false, false
	c.LeaseUntil = d.now.Add(d.p.Lease)
	d.keepMark()
	d.relapsed()
}

// waiting names what the case waits for.
func (d *decision) waiting() Waiting {
	c := &d.c
	switch c.Phase {
	case PhaseSuspect:
		return d.waitingInSuspicion()
	case PhaseRestricted:
		return d.waitingInRestriction()
	case PhaseQuarantined:
		return d.waitingInQuarantine()
	case PhaseRecovering:
		return d.waitingInRecovery()
	case PhaseReleased:
		return WaitingForRelapse
	case PhaseRetired:
		return WaitingForOperator
	case PhaseGone:
		if c.forgotten(d.now) && c.Mark.Detail != "" {
			return WaitingForOperator
		}
		return WaitingForReturn
	}
	return WaitingForNothing
}

func (d *decision) waitingInQuarantine() Waiting {
	c := &d.c
	switch c.Mark.State {
	case MarkWanted, MarkRefused:
		return WaitingForMark
	case MarkHeld:
		return WaitingForPermit
	case MarkAdopted:
		return WaitingForLook
	case MarkAdvisory, MarkObserved:
		return WaitingForHealth
	}
	switch {
	case c.MovedTo != "", d.handHolds() && !c.Held():
		return WaitingForOperator
	case c.Held():
		c.CoolUntil = time.Time{}
		return WaitingForHolder
	case c.CoolUntil.IsZero():
		c.CoolUntil = d.now.Add(d.p.CoolDown)
		return WaitingForCoolDown
	case c.CoolUntil.After(d.now):
		return WaitingForCoolDown
	}
	return d.waitingToTry()
}

// lookBy asks for a live look no later than at, or at the end of the pause that
// failed looks impose.
func (d *decision) lookBy(at time.Time) {
	at = later(at, d.c.LookHeld)
	if d.c.LookAt.IsZero() || d.c.LookAt.After(at) {
		d.c.LookAt = at
	}
}

// lookAnew asks for a look at once. One that is under way doesn't answer it,
// because it may have read before what has just happened.
func (d *decision) lookAnew() {
	d.c.LookAfter = d.now
	d.lookBy(d.now)
}

func describe(why reason.Match, message string) string {
	text := string(why.Code)
	if message != "" {
		text += fmt.Sprintf(" (%s)", strings.TrimSpace(message))
	}
	return text
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func orNone(h device.Health) string {
	if h == "" {
		return "no reading"
	}
	return string(h)
}
