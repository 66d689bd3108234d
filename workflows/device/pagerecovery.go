package device

import (
	"fmt"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/workflows/markdown"
)

// This file puts into words how a device is proven healthy: on the case's page, and for
// the commands.

// proving writes the gates of the attempt under way, or of the last one.
func proving(p *markdown.Page, c quarantine.Case) {
	r, last := c.Recovery, c.Last
	switch {
	case r != nil:
		p.Heading(fmt.Sprintf("Attempt %d", c.Attempt))
		for _, passed := range r.Results {
			p.Line(string(passed.Gate), "%s", ResultText(passed, markdown.Inline))
		}
		p.Line(string(r.Gate), "%s", GateText(c, markdown.Inline))
	case last != nil:
		p.Heading(fmt.Sprintf("Attempt %d, over", last.Attempt))
		for _, passed := range last.Passed {
			p.Line(string(passed.Gate), "%s", ResultText(passed, markdown.Inline))
		}
		if last.Result.Verdict == quarantine.VerdictPassed {
			return
		}
		text := ResultText(last.Result, markdown.Inline)
		if !last.Counted {
			text += "; it doesn't count"
		}
		p.Line(string(last.Result.Gate), "%s", text)
	}
}

// ResultText is what came of a gate, on what evidence, and how long it took.
func ResultText(result quarantine.GateResult, quote func(string) string) string {
	text := fmt.Sprintf("%s at %s after %s", strings.ToLower(string(result.Verdict)), markdown.Moment(result.Ended), result.Ended.Sub(result.Began).Round(time.Second))
	if result.Verdict == quarantine.VerdictUnsure {
		text = fmt.Sprintf("couldn't be told at %s after %s", markdown.Moment(result.Ended), result.Ended.Sub(result.Began).Round(time.Second))
	}
	if result.Evidence != "" {
		text += ": " + quote(result.Evidence)
	}
	return text
}

// GateText is how the gate stands that is tried now.
func GateText(c quarantine.Case, quote func(string) string) string {
	r := c.Recovery
	text := "since " + markdown.Moment(r.GateBegan)
	if !r.Deadline.IsZero() {
		text += ", until " + markdown.Moment(r.Deadline)
	}
	switch {
	case len(r.Blocked) > 0:
		return text + ": taints of its driver keep our claim out: " + quote(strings.Join(r.Blocked, ", "))
	case r.Trouble != "":
		return text + ": can't be tried: " + quote(r.Trouble)
	case r.Gate == quarantine.GateReason:
		return text + ": an operator has to say that the reason is closed"
	case r.Granted && c.Litter != 0:
		return text + ": what was made for the attempt is being removed"
	case r.Granted:
		return text + ": its mark is being removed"
	case r.Wait != "":
		return text + ": " + quote(r.Wait)
	}
	if r.Job != quarantine.JobNone {
		text += ", its program is " + strings.ToLower(string(r.Job))
	}
	if r.Health != "" {
		text += fmt.Sprintf(", %s on our claim at %s", r.Health, markdown.Moment(r.HealthAt))
	}
	if r.Gate == quarantine.GateStability {
		text += fmt.Sprintf(", healthy and fresh for %s of it", r.Stable.Round(time.Second))
	}
	return text
}

// titleOfRecovering says how far a device is that is tried.
func titleOfRecovering(c quarantine.Case) string {
	switch c.Waiting {
	case quarantine.WaitingForDriver:
		return "Out of service, and can't be proven healthy: its driver stands in the way"
	case quarantine.WaitingForProbe:
		return "Out of service, and can't be proven healthy: a gate can't be tried"
	case quarantine.WaitingForTurn:
		return "Proven healthy, and waits for its turn to come back"
	case quarantine.WaitingForCleanUp, quarantine.WaitingForMark:
		return "Proven healthy, and is being given back"
	case quarantine.WaitingForOperator:
		return "Out of service until an operator closes its reason"
	}
	if c.Recovery == nil {
		return "Out of service, and being proven healthy"
	}
	return fmt.Sprintf("Out of service, and being proven healthy: gate %s of attempt %d", c.Recovery.Gate, c.Attempt)
}

// turnInRecovery says whose turn it is of what only recovery waits for, or nothing.
func turnInRecovery(c quarantine.Case) string {
	switch c.Waiting {
	case quarantine.WaitingForGates:
		if c.Recovery == nil {
			return "it is tried as soon as a live look has found nobody that has it"
		}
		return fmt.Sprintf("gate %s of attempt %d", c.Recovery.Gate, c.Attempt)
	case quarantine.WaitingForDriver:
		if c.Recovery == nil {
			return "its driver has to call it Healthy, or to let it be tried; it is tried again by itself"
		}
		return "its driver has to let our claim in and to call the device Healthy; or the policy may tolerate that taint"
	case quarantine.WaitingForProbe:
		return "what stands in the way of the gate has to be mended; it is tried again by itself"
	case quarantine.WaitingForTurn:
		return "other devices come back first: " + markdown.Inline(c.Recovery.Wait)
	case quarantine.WaitingForCleanUp:
		return "what was made for the attempt has to be gone first"
	case quarantine.WaitingForRelapse:
		return "given back; a fault in this time counts against the device"
	}
	return ""
}

// adviseInRecovery says what a person can do about what only recovery waits for, or
// nothing.
func adviseInRecovery(c quarantine.Case) []string {
	switch c.Waiting {
	case quarantine.WaitingForGates, quarantine.WaitingForTurn:
		return []string{"Nothing; it goes on by itself."}
	case quarantine.WaitingForDriver:
		if r := c.Recovery; r != nil && len(r.Blocked) > 0 {
			return []string{
				"Find out why the driver of `" + owner(c.Device) + "` taints the device: " + markdown.Inline(strings.Join(r.Blocked, ", ")) + ".",
				"Have the policy tolerate that taint for probes (`recovery.tolerate`), if the device may be tried all the same.",
			}
		}
		return []string{fmt.Sprintf("Look at the driver of `%s` on node `%s`: whether it runs, and what it says of the device. Some drivers say Unhealthy until they are restarted.", owner(c.Device), orDash(c.Node))}
	case quarantine.WaitingForProbe:
		advice := "Look at what stands in the way"
		if c.Recovery != nil && c.Recovery.Trouble != "" {
			advice += ": " + markdown.Inline(c.Recovery.Trouble)
		} else if c.Last != nil {
			advice += ": " + markdown.Inline(c.Last.Result.Evidence)
		}
		return []string{advice + ". It is the probe's image, its Pod or its node, and not the device."}
	case quarantine.WaitingForCleanUp:
		return []string{"Look at the Pods, Jobs and claims that have the label `sickbay.dev/attempt` in the namespace of probes, and at the node if a Pod there doesn't end."}
	}
	return nil
}

// wayBackBy says what a device has to pass.
func wayBackBy(closes reason.Closes) string {
	const gates = "all gates in one attempt: evidence on our own claim, probe, canary, stability window, its reason closed, its turn"
	switch closes {
	case reason.ClosesByReset:
		return "a reset of the device, then " + gates
	case reason.ClosesByRepair:
		return "`repaired` or new hardware, then " + gates
	case reason.ClosesByOperator:
		return "an operator's `release`, then " + gates
	}
	return gates
}
