package quarantine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// How a device is proven healthy and given back. An attempt goes through all gates, in
// their order; nothing but that removes the mark of a confirmed fault. What fails costs a
// growing pause, and after some failures the device is retired. What couldn't be tried
// costs nothing but time.

// recovers tells whether attempts are made at all.
func (d *decision) recovers() bool {
	return d.p.Recover && d.p.Rules >= rulesOfRecovery && d.p.Mode == ModeEnforce && d.c.Device.Path() == device.PathDRA
}

// mayTry tells whether an attempt may begin now.
func (d *decision) mayTry() bool {
	c := &d.c
	switch {
	case !d.recovers() || c.Phase != PhaseQuarantined || c.Mark.State != MarkInForce || c.Mark.outdated():
		return false
	case c.Absence != nil || c.MovedTo != "" || c.Held() || d.handHolds():
		return false
	case c.LookedAt.IsZero() || c.LookedAt.Before(c.LookAfter):
		// A claim that slipped past the mark is a holder, and a look finds it.
		return false
	case d.needsWord() != "" || c.Litter != 0 || d.calledBad():
		return false
	case c.Hurry:
		return true
	case c.RestUntil.After(d.now):
		return false
	case c.Attempt == 0 && c.Evidence().Live() && d.value() == device.Healthy:
		// The driver takes it back.
		return true
	}
	return !c.CoolUntil.IsZero() && !c.CoolUntil.After(d.now)
}

// calledBad tells whether the driver still says of the device, which nobody holds, that it
// is bad: somebody watches it.
func (d *decision) calledBad() bool {
	return d.c.Evidence().Live() && d.value() == device.Unhealthy
}

// needsWord says which of an operator's words the case's reason asks for before anything
// is tried, or nothing.
func (d *decision) needsWord() Verb {
	c := &d.c
	switch {
	case c.ReasonClosed:
		return ""
	case c.Reason.Closes == reason.ClosesByRepair:
		return VerbRepaired
	case c.Reason.Closes == reason.ClosesByOperator:
		return VerbRelease
	}
	return ""
}

// beginAttempt begins at the first gate.
func (d *decision) beginAttempt() {
	c := &d.c
	c.Phase, c.Hurry = PhaseRecovering, false
	c.Attempt++
	c.Token = max(d.now.UnixMilli(), c.Token+1)
	c.CoolUntil, c.RestUntil, c.GoodSince = time.Time{}, time.Time{}, time.Time{}
	c.LeaseUntil = later(c.LeaseUntil, d.now.Add(d.p.Lease))
	c.Recovery = &Recovery{Token: c.Token, Began: d.now}
	d.enterGate(GateEvidence)
	if c.Unsure == 0 {
		// The mark says so already of one that is made again.
		d.sayOnMark()
	}
	d.notify(NoticePhase, false, fmt.Sprintf("attempt %d of %d to prove it healthy begins", c.Attempt, d.p.Attempts))
}

// enterGate goes on to a gate.
func (d *decision) enterGate(gate Gate) {
	r := d.c.Recovery
	r.Gate, r.GateBegan, r.TendAt, r.Tended = gate, d.now, d.now, time.Time{}
	r.Job, r.Report, r.Trouble, r.Blocked, r.GoodAt = JobNone, "", "", nil, time.Time{}
	switch limit := d.gateLimit(gate); {
	case limit > 0:
		r.Deadline = d.now.Add(limit)
	default:
		r.Deadline = time.Time{}
	}
}

// gateLimit is how long a gate may take; zero is as long as it needs.
func (d *decision) gateLimit(gate Gate) time.Duration {
	switch gate {
	case GateEvidence:
		return d.p.ProveWithin
	case GateProbe:
		return d.p.ProbeWithin
	case GateCanary:
		return d.p.CanaryWithin
	case GateStability:
		// Gaps only make it longer, but not for ever.
		return stabilityParts * d.p.Stability
	}
	return 0
}

// clearing is how long the removal of what was made may take at least: Pods have their grace
// period, and a worker may die meanwhile.
const clearing = 2 * time.Minute

// stabilityParts is how many times its window the stability gate may take.
const stabilityParts = 4

// passGate goes on to the next gate.
func (d *decision) passGate(evidence string) {
	c := &d.c
	r := c.Recovery
	r.Results = append(r.Results, GateResult{
		Gate: r.Gate, Verdict: VerdictPassed, Began: r.GateBegan, Ended: d.now, Evidence: clip(evidence, maxText),
	})
	d.notify(NoticeGate, false, fmt.Sprintf("gate %s passed: %s", r.Gate, evidence))
	d.enterGate(Gates[slices.Index(Gates[:], r.Gate)+1])
}

// tended takes in how the attempt stands.
func (d *decision) tended(e Tended) {
	c := &d.c
	r := c.Recovery
	if r == nil || c.Phase != PhaseRecovering || e.Token != r.Token || e.Gate != r.Gate || !e.Asked.After(r.Tended) || r.Granted {
		return
	}
	d.seen = "gate " + string(r.Gate)
	r.Tended = e.Asked
	if e.Failed != "" {
		r.TendAt = d.now.Add(d.p.RecheckFirst)
		d.trouble(e.Failed)
		return
	}
	r.Claim, r.Pod = clip(e.Claim, maxName), e.Pod
	r.Blocked = slices.Clone(e.Blocked[:min(len(e.Blocked), maxClasses)])
	r.Job, r.Report = e.Job, clip(e.Report, maxMessage)
	d.trouble(e.Trouble)
	switch {
	case e.NodeOut != "":
		d.endAttempt(VerdictUnsure, "the node is out: "+e.NodeOut)
		return
	case e.Elsewhere != "":
		d.endAttempt(VerdictUnsure, "our claim was given something else: "+e.Elsewhere)
		return
	}
	d.heard(e)
	r.TendAt = d.now.Add(d.tendPause(e))
}

// trouble notes why the gate can't be tried, and says so when that is news.
func (d *decision) trouble(why string) {
	r := d.c.Recovery
	why = clip(why, maxText)
	if why != "" && why != r.Trouble {
		d.notify(NoticeGate, true, fmt.Sprintf("gate %s can't be tried: %s", r.Gate, why))
	}
	r.Trouble = why
}

// heard takes in what the kubelet says of the device on our claim.
func (d *decision) heard(e Tended) {
	r := d.c.Recovery
	r.Health, r.Message = "", ""
	if e.Reading == nil {
		r.GoodAt = time.Time{}
		return
	}
	reading := *e.Reading
	reading.Monitor = true
	d.believe(reading, true)
	r.Health, r.HealthAt, r.Message = reading.Counts(), e.Asked, clip(reading.Message, maxReport)
	if !reading.Acknowledged && r.Health == device.Healthy {
		// What was true a while ago proves nothing now.
		r.Health = ""
	}
	if r.Health != device.Healthy {
		r.GoodAt = time.Time{}
		return
	}
	if gap := e.Asked.Sub(r.GoodAt); r.Gate == GateStability && !r.GoodAt.IsZero() && gap > 0 && gap <= 2*d.stabilityPause()+renewal {
		r.Stable += gap
	}
	r.GoodAt = e.Asked
}

// tendPause is when to tend to the attempt again. While a program runs the answer itself
// waits for news.
func (d *decision) tendPause(e Tended) time.Duration {
	r := d.c.Recovery
	switch {
	case r.Gate == GateStability, r.Gate == GateReason, r.Gate == GateReturn:
		return d.stabilityPause()
	case e.Trouble != "" || len(e.Blocked) > 0, e.Reading != nil && !e.Reading.Acknowledged:
		return d.p.RecheckFirst
	}
	return min(time.Second, d.p.RecheckFirst)
}

// stabilityPause is the time between two readings in the stability window.
func (d *decision) stabilityPause() time.Duration {
	return max(min(d.p.Stability/10, d.p.RecheckMax), min(time.Second, d.p.RecheckFirst))
}

// stepRecovering goes on with an attempt.
func (d *decision) stepRecovering() {
	c := &d.c
	r := c.Recovery
	switch {
	case r == nil:
		c.Phase = PhaseQuarantined
	case !d.recovers():
		d.endAttempt(VerdictUnsure, "nothing is tried any more: the mode, or what it takes to try devices, was changed")
	case d.fault != nil:
		d.endAttempt(VerdictFailed, fmt.Sprintf("a fault in the middle of it: %s", describe(d.fault.Reason, d.fault.Message)))
	case r.Health == device.Unhealthy:
		d.endAttempt(VerdictFailed, unhealthy(r.Message))
	case d.calledBad():
		d.endAttempt(VerdictFailed, unhealthy(c.Evidence().Message))
	case c.Held() && !r.Granted:
		// Whoever has it after that has waited for its mark to go.
		d.endAttempt(VerdictUnsure, "somebody else has the device")
	case d.absenceSettled():
		d.endAttempt(VerdictUnsure, "the device isn't listed any more")
		d.enterGone()
	case r.Granted:
		d.stepReturn()
	case c.Mark.State == MarkRefused:
		d.endAttempt(VerdictUnsure, "its mark isn't in force: "+c.Mark.Detail)
	case !r.Deadline.IsZero() && !r.Deadline.After(d.now):
		d.stepOverdue()
	default:
		for range Gates {
			gate := r.Gate
			d.stepGate()
			if c.Recovery == nil || r.Gate == gate {
				break
			}
		}
	}
	if c.Phase == PhaseRecovering && !c.LeaseUntil.After(d.now) {
		// It has been looked at all the time.
		d.extend(d.p.Lease)
	}
}

func unhealthy(message string) string {
	text := "its driver calls it Unhealthy on our claim"
	if message != "" {
		text += fmt.Sprintf(" (%s)", strings.TrimSpace(message))
	}
	return text
}

// stepGate passes the gate, or fails it, as far as that can be told by now.
func (d *decision) stepGate() {
	r := d.c.Recovery
	fresh := r.Health == device.Healthy && !r.HealthAt.Before(r.GateBegan)
	switch r.Gate {
	case GateEvidence:
		if fresh {
			d.passGate(fmt.Sprintf("Healthy on our claim %s, read anew at %s", r.Claim, stamp(r.HealthAt)))
		}
	case GateProbe, GateCanary:
		switch {
		case r.Job == JobFailed:
			d.endAttempt(VerdictFailed, "its program failed: "+orNothing(r.Report))
		case r.Job == JobLost:
			d.endAttempt(VerdictUnsure, "its program went without an end: "+orNothing(r.Report))
		case r.Job == JobRunning && r.Health == device.Unknown:
			d.endAttempt(VerdictFailed, "its health was Unknown under load: "+orNothing(r.Message))
		case r.Job == JobPassed && fresh:
			d.passGate(fmt.Sprintf("%s; Healthy at %s", orNothing(r.Report), stamp(r.HealthAt)))
		}
	case GateStability:
		if r.Stable >= d.p.Stability {
			d.passGate(fmt.Sprintf("Healthy for %s on fresh evidence, gaps not counted", r.Stable.Round(time.Second)))
		}
	case GateReason:
		if d.needsWord() == "" {
			d.passGate(d.whyClosed())
		}
	case GateReturn:
		r.Asked = !r.AskAt.After(d.now)
	}
}

// whyClosed says by what the case's reason is closed.
func (d *decision) whyClosed() string {
	if d.c.ReasonClosed {
		return "closed by an operator's word"
	}
	return "closed by the gates"
}

// stepOverdue ends an attempt whose gate took too long.
func (d *decision) stepOverdue() {
	r := d.c.Recovery
	text := fmt.Sprintf("not passed within %s", r.Deadline.Sub(r.GateBegan))
	switch {
	case len(r.Blocked) > 0:
		text += "; taints of its driver keep our claim out: " + strings.Join(r.Blocked, ", ")
	case r.Trouble != "":
		text += "; " + r.Trouble
	case (r.Gate == GateProbe || r.Gate == GateCanary) && r.Job == JobRunning:
		// It was there, it had the device, and it never came to an end.
		d.endAttempt(VerdictFailed, text+"; its program hangs")
		return
	case r.Health != "":
		text += fmt.Sprintf("; %s on our claim", r.Health)
		if r.Message != "" {
			text += fmt.Sprintf(" (%s)", r.Message)
		}
	}
	d.endAttempt(VerdictUnsure, text)
}

// stepReturn gives the device back once it is its turn: what was made for the attempt is
// removed first, so that nothing of ours stands in a tenant's way, and the mark last.
func (d *decision) stepReturn() {
	c := &d.c
	r := c.Recovery
	switch {
	case c.Mark.State != MarkLifting && c.Mark.State != MarkNone && d.now.Sub(r.GoodAt) > max(d.p.Stability, stabilityParts*d.stabilityPause(), clearing):
		// Nobody has seen it since.
		d.endAttempt(VerdictUnsure, "what was made for it couldn't be removed in time")
	case c.Litter != 0:
	case d.unmark():
		d.release()
	}
}

// release ends a case whose device is proven and given back. It is watched for a while:
// a fault in that time is a new case, and counts against the device.
func (d *decision) release() {
	c := &d.c
	r := c.Recovery
	r.Results = append(r.Results, GateResult{Gate: GateReturn, Verdict: VerdictPassed, Began: r.GateBegan, Ended: d.now})
	first := c.Attempt <= 1
	c.Last = &Attempted{Attempt: c.Attempt, Result: r.Results[len(r.Results)-1], Passed: r.Results}
	c.Recovery = nil
	c.Relapse = Relapse{Count: c.Relapse.Count, Epoch: c.Epoch, ReleasedAt: d.now, FirstTry: first}
	// None is wanted any more, whatever the mode becomes.
	c.Mark = Mark{Revision: c.Mark.Revision, Restored: c.Mark.Restored}
	d.end([]string{r.Pod.UID})
	text := fmt.Sprintf("proven healthy in attempt %d and given back; a fault until %s counts against it", c.Attempt, stamp(d.now.Add(d.p.RelapseWatch)))
	d.notify(NoticeReleased, false, text)
	c.Notices[len(c.Notices)-1].FirstTry = first
	d.close(EndReleased, text)
}

// endAttempt ends the attempt under way. One that failed costs a growing pause, and the
// last of several retires the device; one that couldn't be tried is made again.
func (d *decision) endAttempt(verdict Verdict, evidence string) {
	c := &d.c
	r := c.Recovery
	result := GateResult{Gate: r.Gate, Verdict: verdict, Began: r.GateBegan, Ended: d.now, Evidence: clip(evidence, maxText)}
	c.Last = &Attempted{Attempt: c.Attempt, Result: result, Counted: verdict == VerdictFailed, Passed: r.Results}
	c.Litter, c.CleanAt, c.CleanTries = max(c.Litter, r.Token), time.Time{}, 0
	c.Recovery, c.Phase = nil, PhaseQuarantined
	// Its Pod is about to go, and holds nothing against the device that isn't known.
	d.end([]string{r.Pod.UID})
	if d.fault != nil {
		// What was closed was another fault than this.
		c.ReasonClosed = false
	}
	var pause time.Duration
	if verdict == VerdictFailed {
		c.Unsure = 0
		pause = d.attemptPause(c.Attempt + c.Relapse.Count)
	} else {
		c.Attempt--
		c.Unsure++
		pause = min(d.doubled(d.p.CoolDown, c.Unsure), max(d.p.AttemptPause, d.p.CoolDown))
	}
	c.RestUntil = d.now.Add(pause)
	c.CoolUntil = d.now
	c.LeaseUntil = later(c.LeaseUntil, later(c.RestUntil, d.now.Add(d.p.Lease)))
	switch {
	case c.Mark.State == MarkNone:
		d.wantMark()
	case c.Mark.State == MarkLifting:
		d.keepMark()
	case verdict == VerdictFailed:
		d.sayOnMark()
	}
	d.lookBy(d.now.Add(min(slipping, d.p.RecheckFirst)))
	text := fmt.Sprintf("attempt %d ended at gate %s: %s; tried again from %s on", c.Last.Attempt, r.Gate, evidence, stamp(c.RestUntil))
	if verdict == VerdictFailed && c.Attempt >= d.p.Attempts {
		c.Phase, c.RestUntil = PhaseRetired, time.Time{}
		text = fmt.Sprintf("attempt %d ended at gate %s: %s; it was the last of %d: retired until it is repaired or replaced", c.Last.Attempt, r.Gate, evidence, d.p.Attempts)
		d.sayOnMark()
	}
	d.notify(NoticeAttempt, true, text)
}

// attemptPause is how long the device rests after so many failures.
func (d *decision) attemptPause(failures int) time.Duration {
	return min(d.doubled(d.p.AttemptPause, failures), d.p.AttemptPauseMax)
}

// doubled is a pause that doubles with each of n tries.
func (d *decision) doubled(pause time.Duration, n int) time.Duration {
	for range n - 1 {
		if pause >= d.p.AttemptPauseMax {
			break
		}
		pause *= 2
	}
	return pause
}

// stopAttempt ends an attempt for an operator's reason; it doesn't count.
func (d *decision) stopAttempt(why string) {
	if d.c.Phase == PhaseRecovering && d.c.Recovery != nil {
		d.endAttempt(VerdictUnsure, why)
	}
}

// cleaned takes in that what was made for earlier attempts is gone, or what isn't.
func (d *decision) cleaned(e Cleaned) {
	c := &d.c
	if e.UpTo < c.Litter {
		return
	}
	if e.Failed == "" {
		c.Litter, c.CleanAt, c.CleanTries = 0, time.Time{}, 0
		return
	}
	c.CleanTries++
	c.CleanAt = d.now.Add(d.p.backoff(c.CleanTries))
	if c.CleanTries == cleanPatience {
		d.notify(NoticeGate, true, "what was made for an attempt isn't gone: "+clip(e.Failed, maxText))
	}
}

// cleanPatience is how many tries a clean-up may take before somebody is told.
const cleanPatience = 4

// returnAnswered takes in whether it is the device's turn.
func (d *decision) returnAnswered(e ReturnAnswered) {
	c := &d.c
	r := c.Recovery
	if r == nil || c.Phase != PhaseRecovering || r.Gate != GateReturn || e.Token != r.Token || r.Granted {
		return
	}
	r.Asked = false
	if !e.Granted {
		r.AskAt = d.now.Add(max(e.Again, d.p.RecheckFirst))
		r.Wait = clip(e.Why, maxText)
		return
	}
	if r.Health != device.Healthy || r.GoodAt.IsZero() {
		// It has to be healthy now, too.
		r.AskAt = d.now.Add(d.p.RecheckFirst)
		return
	}
	r.Granted, r.Wait = true, ""
	c.Litter, c.CleanAt, c.CleanTries = r.Token, time.Time{}, 0
}

// relapsed counts a fault soon after a release against the device.
func (d *decision) relapsed() {
	c := &d.c
	if c.Relapse.ReleasedAt.IsZero() {
		return
	}
	if d.p.RelapseWatch > 0 && c.FirstNotGood.Sub(c.Relapse.ReleasedAt) <= d.p.RelapseWatch {
		c.Relapse.Count++
		c.RestUntil = d.now.Add(d.attemptPause(c.Relapse.Count))
		d.notify(NoticeRelapse, true, fmt.Sprintf("it was given back at %s, and is bad again: relapse %d; it rests until %s", stamp(c.Relapse.ReleasedAt), c.Relapse.Count, stamp(c.RestUntil)))
	} else {
		c.Relapse = Relapse{}
	}
	c.Relapse.ReleasedAt = time.Time{}
}

// waitingInRecovery names what an attempt waits for.
func (d *decision) waitingInRecovery() Waiting {
	c := &d.c
	r := c.Recovery
	switch {
	case r == nil:
		return WaitingForGates
	case r.Granted && c.Litter != 0:
		return WaitingForCleanUp
	case r.Granted:
		return WaitingForMark
	case len(r.Blocked) > 0, r.Gate == GateEvidence && r.Health == device.Unknown:
		return WaitingForDriver
	case r.Trouble != "":
		return WaitingForProbe
	case r.Gate == GateReason:
		return WaitingForOperator
	case r.Gate == GateReturn && r.Wait != "":
		return WaitingForTurn
	}
	return WaitingForGates
}

// waitingToTry names what a quarantined device waits for that nobody holds, once its
// cool-down is over.
func (d *decision) waitingToTry() Waiting {
	c := &d.c
	switch {
	case !d.recovers():
		return WaitingForRecovery
	case c.Mark.outdated():
		return WaitingForMark
	case d.needsWord() != "":
		return WaitingForOperator
	case c.Litter != 0:
		return WaitingForCleanUp
	case d.calledBad():
		return WaitingForDriver
	case !c.RestUntil.After(d.now):
		return WaitingForGates
	case c.Unsure > 0 && c.Last != nil && c.Last.Result.Gate == GateEvidence:
		return WaitingForDriver
	case c.Unsure > 0:
		return WaitingForProbe
	}
	return WaitingForCoolDown
}

func orNothing(text string) string {
	if text == "" {
		return "it said nothing"
	}
	return text
}
