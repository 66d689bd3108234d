package quarantine

import "fmt"

// This file says what stands between a device and its release, to whoever asks for one.

// wantsWord tells whether the case's reason is closed by that word of an operator's, which
// wasn't given yet.
func (c Case) wantsWord(verb Verb) bool {
	d := decision{c: c}
	return d.needsWord() == verb
}

// barred is the gate that a release would have to skip: the one that is under way, or
// the one at which the last attempt failed, or the first.
func (c Case) barred() Gate {
	switch {
	case c.Recovery != nil:
		return c.Recovery.Gate
	case c.Last != nil && c.Last.Result.Verdict != VerdictPassed:
		return c.Last.Result.Gate
	}
	return Gates[0]
}

// barrier says at which gate a release is refused, and on what evidence.
func (c Case) barrier() string {
	failed := ""
	if last := c.Last; last != nil && last.Result.Verdict != VerdictPassed {
		outcome := "failed"
		if last.Result.Verdict == VerdictUnsure {
			outcome = "could not be tried"
		}
		failed = fmt.Sprintf("gate %s %s in attempt %d at %s: %s",
			last.Result.Gate, outcome, last.Attempt, stamp(last.Result.Ended), orNothing(last.Result.Evidence))
	}
	r := c.Recovery
	switch {
	case r != nil && failed != "":
		return fmt.Sprintf("gate %s is under way since %s: %s; before that, %s", r.Gate, stamp(r.GateBegan), c.found(*r), failed)
	case r != nil:
		return fmt.Sprintf("gate %s is under way since %s: %s", r.Gate, stamp(r.GateBegan), c.found(*r))
	case failed != "":
		return failed
	}
	return fmt.Sprintf("gate %s is the first, and no attempt was made yet; the case is %s", Gates[0], standing(c))
}

// found is what the gate under way knows so far.
func (c Case) found(r Recovery) string {
	text := ""
	switch {
	case r.Trouble != "":
		text = "it can't be tried: " + r.Trouble
	case len(r.Blocked) > 0:
		text = fmt.Sprintf("the driver's taints keep our claim out: %v", r.Blocked)
	case r.Gate == GateReason && c.wantsWord(VerbRelease):
		text = "it waits for release"
	case r.Gate == GateReason && c.wantsWord(VerbRepaired):
		text = "it waits for repaired"
	case r.Gate == GateReturn:
		text = "it waits for its turn"
		if r.Wait != "" {
			text += ": " + r.Wait
		}
	case (r.Gate == GateProbe || r.Gate == GateCanary) && r.Job != JobNone:
		text = "its program is " + string(r.Job)
		if r.Report != "" {
			text += ": " + r.Report
		}
	case r.Gate == GateStability && r.Stable > 0:
		text = fmt.Sprintf("healthy and fresh for %s so far", r.Stable)
	case r.HealthAt.IsZero():
		text = "nothing is known of it yet"
	default:
		text = fmt.Sprintf("its driver says %s at %s", r.Health, stamp(r.HealthAt))
		if r.Message != "" {
			text += fmt.Sprintf(" (%s)", r.Message)
		}
	}
	return clip(text, maxReport)
}
