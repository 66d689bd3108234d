package device

import (
	"fmt"
	"strings"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/workflows/markdown"
)

// This file writes a case's page in Temporal's UI, its current details: for somebody
// who was woken up and knows neither the code nor the words of docs/operating.md.

// Details is the case in Markdown: which device it is, what is wrong, since when,
// whether anything keeps it out and who has it, what happens next and when, what a
// person can do, and last what is on record. meaning puts a reason's code into
// words, or gives none.
//
// The UI shows it in a narrow column and sets lists with one level only: what is
// needed first stands first, in short lines.
func Details(c quarantine.Case, meaning func(reason.Code) string) string {
	if c.Phase == quarantine.PhaseNone {
		return "No case."
	}
	var p markdown.Page
	p.Heading(title(c))
	p.Line("Device", "`%s` on node `%s`", c.Device, orDash(c.Node))
	p.Line("What is wrong", "%s", wrong(c, meaning))
	if c.Message != "" {
		p.Line("Driver says", "%s", markdown.Inline(c.Message))
	}
	p.Line("Since", "%s", markdown.Moment(c.FirstNotGood))
	p.Line("Kept out", "%s", kept(c))
	p.Line("Held by", "%s", heldBy(c))
	if c.MovedTo != "" {
		p.Line("Hardware", "listed as `%s` now", c.MovedTo)
	}
	if c.Outage != nil {
		p.Line("Node", "%s", outage(c))
	}
	if c.Refused != nil {
		p.Line("Incident", "%s: %s", markdown.Inline(c.Refused.Incident), markdown.Inline(c.Refused.Why))
	}
	p.Line("Next", "%s", Next(c, latest(c)))
	for _, w := range c.Words {
		said := markdown.Inline(w.Reason)
		if w.Ticket != "" {
			said += ", ticket " + markdown.Inline(w.Ticket)
		}
		p.Line("Operator said", "`%s` at %s by %s: %s", w.Verb, markdown.Moment(w.At), markdown.Inline(w.Actor), said)
	}
	for _, w := range c.RefusedWords {
		p.Line("Refused", "`%s` at %s by %s: %s", w.Verb, markdown.Moment(w.At), markdown.Inline(w.Actor), markdown.Inline(w.Text))
	}
	if c.Open() {
		p.Heading("What you can do")
		for _, advice := range advise(c) {
			p.Item("%s", advice)
		}
		messages(&p, c)
	}
	proving(&p, c)
	p.Heading("On record")
	p.Line("Phase", "%s", standing(c))
	p.Line("Health", "%s", health(c))
	if text := MarkText(c, markdown.Inline); c.Mark.State != quarantine.MarkNone {
		p.Line("Mark", "%s", text)
	}
	switch c.Phase {
	case quarantine.PhaseQuarantined, quarantine.PhaseRetired, quarantine.PhaseRecovering:
		p.Line("Way back", "%s", wayBack(c))
		if c.Relapse.Count > 0 {
			p.Line("Relapses", "%d in a row soon after it was given back", c.Relapse.Count)
		}
	case quarantine.PhaseReleased:
		p.Line("Watched", "until %s: a fault in this time counts against it", markdown.Moment(c.RememberUntil))
	case quarantine.PhaseRestricted:
		p.Line("Way back", "its health comes back and lasts; nothing has to be proven, for no fault was found")
	case quarantine.PhaseClosed:
		if c.Lives() {
			p.Line("Remembered", "until %s, to tell a device that goes Unknown again and again", markdown.Moment(c.RememberUntil))
		}
	}
	p.Line("Case", "opened %s by %s, epoch %d", markdown.Moment(c.Since), orDash(c.Actor), c.Epoch)
	return p.String()
}

// messages lists what the case takes from an operator now, and how to send it.
func messages(p *markdown.Page, c quarantine.Case) {
	var taken []quarantine.Verb
	for _, verb := range quarantine.Verbs {
		if quarantine.Refuse(c, quarantine.Message{Verb: verb, Actor: self, Reason: "to see whether it would be taken"}) == nil {
			taken = append(taken, verb)
		}
	}
	for _, verb := range taken {
		p.Item("Send `%s`: %s", verb, describeVerb(verb))
	}
	if len(taken) > 0 {
		p.Item("To send: More Actions, Send an Update, with `{\"actor\":\"you@example.com\",\"reason\":\"why\"}` as data. Send a Signal does the same, and doesn't answer.")
	}
}

// self stands where an actor is wanted and nobody in particular is meant.
const self = "sickbay"

// title says in a line how the device is.
func title(c quarantine.Case) string {
	switch c.Phase {
	case quarantine.PhaseSuspect:
		return titleOfSuspect(c)
	case quarantine.PhaseRestricted:
		return titleOfRestricted(c)
	case quarantine.PhaseQuarantined, quarantine.PhaseRetired:
		return titleByMark(c)
	case quarantine.PhaseRecovering:
		return titleOfRecovering(c)
	case quarantine.PhaseReleased:
		return "Given back: proven healthy, and watched for a relapse"
	case quarantine.PhaseGone:
		return "Gone: the device isn't listed any more"
	case quarantine.PhaseClosed:
		return "Over: " + ended(c.End)
	}
	return string(c.Phase)
}

func titleOfSuspect(c quarantine.Case) string {
	switch {
	case c.Absence != nil:
		return "Suspected: the device isn't listed any more, and nothing keeps it out"
	case c.Outage != nil:
		return "Suspected: its node is out, and nothing is judged until that returns"
	case c.Waiting == quarantine.WaitingForIncident:
		return "Suspected: a part of an incident, and nothing keeps it out"
	case c.Flapping && c.Waiting == quarantine.WaitingForNothing:
		return "Suspected: its health comes and goes, and nothing keeps it out"
	case c.Waiting == quarantine.WaitingForNothing:
		return "Suspected: inside its grace window, and nothing keeps it out"
	case c.Waiting == quarantine.WaitingForEvidence:
		return "Suspected: nobody has it, so nobody can tell how it is; nothing keeps it out"
	}
	return "Suspected: not known to be healthy when its grace window ended; nothing keeps it out"
}

func titleOfRestricted(c quarantine.Case) string {
	switch c.Mark.State {
	case quarantine.MarkRefused:
		return "Not known to be healthy, and NOT kept out: its mark was refused"
	case quarantine.MarkHeld:
		return "Not known to be healthy, and NOT kept out: it waits for a permit"
	case quarantine.MarkAdvisory:
		return "Not known to be healthy, and nothing can keep it out"
	case quarantine.MarkObserved:
		return "Not known to be healthy, and not kept out because the mode is observe"
	case quarantine.MarkLifting:
		return "Restricted: its health is back, and its mark is being removed"
	}
	if c.Outage != nil {
		return "Restricted: kept from new Pods, and its node is out"
	}
	return "Restricted: kept from new Pods, because its health isn't known"
}

func titleByMark(c quarantine.Case) string {
	switch c.Mark.State {
	case quarantine.MarkRefused:
		return "Faulty, and NOT kept out: its mark was refused"
	case quarantine.MarkHeld:
		return "Faulty, and NOT kept out: it waits for a permit"
	case quarantine.MarkAdvisory:
		return "Faulty, and nothing can keep it out"
	case quarantine.MarkObserved:
		return "Faulty, and not kept out because the mode is observe"
	case quarantine.MarkInForce, quarantine.MarkAdopted:
		return "Out of service" + waitsFor(c)
	}
	return "Faulty, and NOT kept out yet"
}

// waitsFor ends the title of a device that is out of service.
func waitsFor(c quarantine.Case) string {
	switch c.Waiting {
	case quarantine.WaitingForLook:
		return ", by a mark that was found without its case"
	case quarantine.WaitingForHolder:
		return ", and a Pod still has it"
	case quarantine.WaitingForCoolDown:
		return ", and nobody has it"
	case quarantine.WaitingForRecovery:
		return ", and due to be proven healthy"
	case quarantine.WaitingForGates:
		return ", and about to be proven healthy"
	case quarantine.WaitingForDriver:
		return ", and can't be proven healthy: its driver stands in the way"
	case quarantine.WaitingForProbe:
		return ", and couldn't be tried"
	case quarantine.WaitingForOperator:
		if c.Phase == quarantine.PhaseRetired {
			return " until it is repaired or replaced"
		}
		return " until an operator decides"
	}
	return ""
}

func ended(end quarantine.End) string {
	switch end {
	case quarantine.EndHealthBack:
		return "its health came back and lasted, and nothing was ever found but that it was unknown"
	case quarantine.EndAdvisory:
		return "it was never kept out, and reported healthy for long enough"
	case quarantine.EndNeverMarked:
		return "it became healthy, for long enough, before there was a permit to keep it out"
	case quarantine.EndReleased:
		return "it was proven healthy and given back, and didn't relapse"
	case quarantine.EndGone:
		return "the device is gone for good, and nothing is marked any more"
	case quarantine.EndMarkGone:
		return "the mark that it stood for is gone"
	}
	return orDash(string(end))
}

// standing is the phase in the words of the tables in docs/operating.md.
func standing(c quarantine.Case) string {
	if c.Waiting == quarantine.WaitingForNothing {
		return string(c.Phase)
	}
	return fmt.Sprintf("%s, waiting for %s", c.Phase, strings.TrimPrefix(string(c.Waiting), "WaitingFor"))
}

func wrong(c quarantine.Case, meaning func(reason.Code) string) string {
	text := fmt.Sprintf("%s (%s)", c.Reason.Code, c.Severity)
	if words := meaning(c.Reason.Code); words != "" {
		text += ": " + words
	}
	return text
}

// health is what is believed of the device, and how old the last proof of it is.
func health(c quarantine.Case) string {
	evidence := c.Evidence()
	text := fmt.Sprintf("%s, the worst of %d readings", BelievedText(evidence), len(evidence.Reports))
	switch len(evidence.Reports) {
	case 0:
		text = "nobody reports on it"
	case 1:
		text = fmt.Sprintf("%s by 1 reading", BelievedText(evidence))
	}
	if c.LookedAt.IsZero() {
		return text + "; no live look yet"
	}
	text += "; last live look " + markdown.Moment(c.LookedAt)
	if c.Poke != "" {
		text += ", " + markdown.Inline(c.Poke)
	}
	return text
}

// kept says whether anything keeps the device out.
func kept(c quarantine.Case) string {
	text := "no"
	switch c.Mark.State {
	case quarantine.MarkInForce:
		text = "yes, since " + markdown.Moment(c.Mark.InForceSince)
	case quarantine.MarkAdopted:
		text = "yes, by a mark that is being confirmed"
	case quarantine.MarkLifting:
		text = "its mark is being removed"
		if c.Mark.Detail != "" {
			text = "yes; its mark could not be removed: " + markdown.Inline(c.Mark.Detail)
		}
	case quarantine.MarkWanted:
		text = "not yet; its mark is being made"
	case quarantine.MarkHeld:
		text = "NOT YET, since " + markdown.Moment(c.Mark.HeldSince) + ": " + markdown.Inline(c.Mark.Detail)
	case quarantine.MarkRefused, quarantine.MarkAdvisory:
		text = "NO: " + markdown.Inline(c.Mark.Detail)
	case quarantine.MarkObserved:
		text = "no; mode observe"
	case quarantine.MarkNone:
		if c.Phase == quarantine.PhaseSuspect {
			text = "no; nothing is done on a suspicion"
		}
	}
	switch c.Mark.Restored {
	case 0:
	case 1:
		text += "; somebody removed or changed the mark once, and it was put back"
	default:
		text += fmt.Sprintf("; somebody removed or changed the mark %d times, and it was put back", c.Mark.Restored)
	}
	return text
}

// heldBy names the Pods that have the device: by claims, or by their own status.
func heldBy(c quarantine.Case) string {
	var pods []string
	add := func(pod device.PodRef) {
		name := "`" + pod.String() + "`"
		for _, known := range pods {
			if known == name {
				return
			}
		}
		pods = append(pods, name)
	}
	for _, h := range c.Holders {
		add(h.Pod)
	}
	for _, r := range c.Reports {
		if !r.Ended && !r.Monitor {
			add(r.Pod)
		}
	}
	if len(pods) == 0 {
		return "nobody"
	}
	return strings.Join(pods, ", ")
}

// outage says since when and why nothing is judged.
func outage(c quarantine.Case) string {
	why := "its kubelet isn't ready"
	if c.Outage.Why == device.NodeSilent {
		why = "its Lease isn't renewed"
	}
	if c.Outage.Returning {
		why += ", and it seems to be back just now"
	}
	return fmt.Sprintf("out since %s: %s", markdown.Moment(c.Outage.Since), why)
}

func wayBack(c quarantine.Case) string {
	switch {
	case c.Advisory() && c.Device.Path() == device.PathPlugin:
		return "its device plugin calls it Healthy for the stability window"
	case c.Advisory():
		return "its driver reports it Healthy for the stability window"
	}
	return wayBackBy(c.Reason.Closes)
}

// advise says what a person can do about the device beside sending a message.
func advise(c quarantine.Case) []string {
	driver := fmt.Sprintf("the driver of `%s` on node `%s`: whether it runs, and what its log says.", owner(c.Device), orDash(c.Node))
	if c.Device.Path() == device.PathPlugin {
		driver = "the device plugin" + strings.TrimPrefix(driver, "the driver")
	}
	holder := fmt.Sprintf("Delete the Pod that has it, if it has to go: %s. Sickbay evicts nobody.", heldBy(c))
	switch {
	case c.Mark.State == quarantine.MarkRefused:
		return []string{"Put right what was refused; the mark is tried again by itself.", "Until then cordon the node, if nobody may get the device."}
	case c.MovedTo != "" && c.Phase == quarantine.PhaseQuarantined:
		return []string{"Find out which card is where: the hardware of this case is listed under another name now."}
	}
	if advice := adviseInRecovery(c); advice != nil {
		return advice
	}
	switch c.Waiting {
	case quarantine.WaitingForPermit:
		return []string{
			"Look at `sickbay budgets`: what is used up or paused, and who is in line. It is this device's turn by itself, and it is read anew then.",
			"Until then cordon the node, if nobody may get the device.",
		}
	case quarantine.WaitingForHolder:
		return []string{holder}
	case quarantine.WaitingForNode:
		return []string{fmt.Sprintf("Look after the node `%s`: its devices are read anew when it is back.", orDash(c.Node))}
	case quarantine.WaitingForIncident:
		return []string{"Look at the incident: what ails this device ails others too. Its page says what it waits for, and takes messages."}
	case quarantine.WaitingForHealth:
		if c.Phase == quarantine.PhaseRestricted {
			return []string{"Look at " + driver, "Nothing else: it is given back by itself when its health is back and lasts."}
		}
		advice := []string{"Cordon the node, if nobody may get the device: only that keeps it from new Pods."}
		if c.Device.Path() == device.PathPlugin {
			advice = []string{
				"Cordon the node, or have the plugin leave the device out, if nobody may get it: only its plugin's word keeps it from new Pods.",
				"Look at " + driver,
			}
		}
		if c.Held() {
			advice = append(advice, holder)
		}
		return advice
	case quarantine.WaitingForRecovery:
		return []string{
			"Give Sickbay what it takes to prove devices healthy (`SICKBAY_PROBE_NAMESPACE`, `SICKBAY_PROBE_IMAGE`).",
			"Leave the mark alone: one that is deleted is put back.",
		}
	case quarantine.WaitingForRestriction:
		return []string{"Look at " + driver}
	case quarantine.WaitingForEvidence:
		if c.Phase == quarantine.PhaseRestricted {
			return []string{
				"Look at " + driver + " When the driver shows itself again, by other devices or by new ResourceSlices, the device is given back.",
				"Send `release`, to let one more Pod have it: its status then tells how the device is.",
			}
		}
		return []string{"Look at " + driver, "Let a Pod use the device: its status then tells how the device is."}
	case quarantine.WaitingForReturn:
		why := "the ResourceSlices of its pool, its driver, the node, the card itself."
		if c.Device.Path() == device.PathPlugin {
			why = "its device plugin and what its log says, the node, the card itself."
		}
		return []string{"Find out why it isn't listed: " + why, "Nothing, if it was taken out for good: the case ends by itself."}
	case quarantine.WaitingForOperator:
		if c.Phase == quarantine.PhaseGone {
			return []string{"Delete its mark by hand, if the device is gone for good: " + markdown.Inline(c.Mark.Name)}
		}
		if c.Phase == quarantine.PhaseRestricted {
			return []string{"Have the workers enforce (`SICKBAY_MODE`): its health is back, and observing removes no mark.", "Or delete its mark by hand: " + markdown.Inline(c.Mark.Name)}
		}
		return []string{"Repair or replace the device."}
	}
	if c.Phase == quarantine.PhaseSuspect {
		return []string{"Nothing has to be done yet. Who wants to know more looks at " + driver}
	}
	return []string{"Nothing; it goes on by itself."}
}

// owner is the DRA driver of a device, or the resource of its device plugin.
func owner(key device.Key) string {
	if key.Path() == device.PathPlugin {
		return key.Resource
	}
	return key.Driver
}
