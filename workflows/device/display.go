package device

import (
	"fmt"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/workflows/markdown"
)

// The search attributes, all keywords. The namespace has to have them.
var (
	AttributeNode   = temporal.NewSearchAttributeKeyKeyword("SickbayNode")
	AttributeDriver = temporal.NewSearchAttributeKeyKeyword("SickbayDriver")
	AttributePhase  = temporal.NewSearchAttributeKeyKeyword("SickbayPhase")
	AttributeReason = temporal.NewSearchAttributeKeyKeyword("SickbayReason")
	AttributeEpoch  = temporal.NewSearchAttributeKeyKeyword("SickbayEpoch")
)

// attributes are the values of the search attributes. They are written again
// only when the phase or the epoch changed: each write is a history event.
type attributes struct {
	phase quarantine.Phase
	epoch int64
}

// show writes what people see of the case in Temporal's UI.
func (r *runner) show() {
	workflow.SetCurrentDetails(r.ctx, Details(r.Case, r.meaning))
	now := attributes{phase: r.Case.Phase, epoch: r.Case.Epoch}
	if !r.knobs.SearchAttributes || now == r.shown || now.phase == quarantine.PhaseNone {
		return
	}
	r.shown = now
	err := workflow.UpsertTypedSearchAttributes(r.ctx,
		AttributeNode.ValueSet(r.Case.Node),
		AttributeDriver.ValueSet(owner(r.Case.Device)),
		AttributePhase.ValueSet(string(r.Case.Phase)),
		AttributeReason.ValueSet(string(r.Case.Reason.Code)),
		AttributeEpoch.ValueSet(fmt.Sprint(r.Case.Epoch)),
	)
	if err != nil {
		r.log.Error("search attributes not written", "error", err)
	}
}

// BelievedText is what is believed of a device's health, and why that isn't what its
// Pods say, where it isn't.
func BelievedText(evidence device.Evidence) string {
	switch evidence.Stale {
	case device.Fresh:
		return orDash(string(evidence.Value))
	case device.NodeSilent:
		return "Unknown, although Healthy is what its node's kubelet last wrote (NodeSilent: the node gives no sign of life)"
	case device.NodeNotReady:
		return "Unknown, although the kubelet goes on saying Healthy (NodeNotReady: the node isn't ready)"
	case device.DriverAbsent:
		return "Unknown, although the kubelet goes on saying Healthy (DriverAbsent: the driver's slices are gone or incomplete)"
	case device.PluginAbsent:
		return "Unknown, although the kubelet goes on saying Healthy (PluginAbsent: nothing of the resource is allocatable on the node)"
	case device.NotListed:
		return "Unknown, although the kubelet says Healthy (NotListed: the plugin lists fewer devices than when it called this one Unhealthy)"
	}
	return fmt.Sprintf("%s, although Healthy is said (%s)", evidence.Value, evidence.Stale)
}

// MarkText says what keeps the device out, or why nothing does. quote sets off
// names and foreign texts, as the medium wants it.
func MarkText(c quarantine.Case, quote func(string) string) string {
	switch c.Mark.State {
	case quarantine.MarkNone:
		return NoMarkText(c.Device.Path())
	case quarantine.MarkInForce:
		text := fmt.Sprintf("%s in force since %s", quote(c.Mark.Name), markdown.Moment(c.Mark.InForceSince))
		if !c.LeaseUntil.IsZero() {
			text += ", lease until " + markdown.Moment(c.LeaseUntil)
		}
		return text
	case quarantine.MarkObserved:
		if !c.Mark.HeldSince.IsZero() {
			return "none: mode observe; in mode enforce it would have to wait: " + quote(c.Mark.Detail)
		}
		return "none: mode observe"
	case quarantine.MarkAdvisory:
		return "none: advisory only, " + quote(c.Mark.Detail)
	case quarantine.MarkRefused:
		return fmt.Sprintf("refused: %s; next try %s", quote(c.Mark.Detail), markdown.Moment(c.Mark.RetryAt))
	case quarantine.MarkHeld:
		return fmt.Sprintf("none: held since %s, %s", markdown.Moment(c.Mark.HeldSince), quote(c.Mark.Detail))
	}
	return string(c.Mark.State)
}

// NoMarkText says that there is no mark, and where there can't be one.
func NoMarkText(path device.Path) string {
	if path == device.PathPlugin {
		return "none: Kubernetes can't keep one device of a device plugin out, so its cases are advisory"
	}
	return "none"
}

// Next says whose turn it is, and when the case goes on by itself after a moment
// that it has reached. A deadline that lies before that was acted on already.
func Next(c quarantine.Case, reached time.Time) string {
	text := turn(c)
	if c.Open() {
		if at := c.NextWake(reached); !at.IsZero() && !strings.Contains(text, markdown.Moment(at)) {
			text += fmt.Sprintf(" (%s at %s)", nextStep(c, at), markdown.Moment(at))
		}
	}
	return text
}

// latest is a moment that the case has certainly reached, from its own records:
// details must come out alike in a replay and in a query.
func latest(c quarantine.Case) time.Time {
	at := c.Since
	moments := []time.Time{c.LookedAt, c.Mark.ConfirmedAt, c.DoubtedAt}
	if r := c.Recovery; r != nil {
		moments = append(moments, r.GateBegan, r.Tended)
	}
	for _, t := range moments {
		if t.After(at) {
			at = t
		}
	}
	return at
}

func turn(c quarantine.Case) string {
	switch c.Waiting {
	case quarantine.WaitingForMark:
		if c.Mark.State == quarantine.MarkRefused {
			return "the mark was refused, and is tried again at " + markdown.Moment(c.Mark.RetryAt)
		}
		return "the mark is being written"
	case quarantine.WaitingForPermit:
		return "there is no permit for its mark now; it is read anew when it is its turn, and marked if it is still bad"
	case quarantine.WaitingForLook:
		return "a live look confirms the mark"
	case quarantine.WaitingForHolder:
		return "a holder has to leave; an operator may delete its Pod"
	case quarantine.WaitingForCoolDown:
		return "the device rests"
	case quarantine.WaitingForRecovery:
		return "nothing is given by which devices can be proven healthy; the device stays out"
	case quarantine.WaitingForRestriction:
		if c.Evidence().Stale == device.PluginAbsent {
			return fmt.Sprintf("its device plugin is still away after the grace window; bring the plugin of %s back on node %s", c.Device.Resource, c.Node)
		}
		return "still Unknown after the grace window; it is restricted once a live look past it finds it so, and no incident holds that"
	case quarantine.WaitingForIncident:
		return "a part of something larger that is looked into as a whole; it isn't restricted meanwhile"
	case quarantine.WaitingForNode:
		return fmt.Sprintf("node %s is out; nothing is judged until it returns", orDash(c.Node))
	case quarantine.WaitingForEvidence:
		if c.Phase == quarantine.PhaseRestricted {
			return "nobody holds the device, so nobody reports on it; its driver has to show itself again, or an operator may send release"
		}
		return "nobody holds the device, so nobody reports on it"
	case quarantine.WaitingForHealth:
		if c.Phase == quarantine.PhaseRestricted && c.Mark.State == quarantine.MarkInForce {
			return "its driver has to report it healthy again, and that has to last"
		}
		if c.Device.Path() == device.PathPlugin {
			return "not kept out; the case ends when the plugin has called it Healthy for long enough, and until then an operator may cordon the node"
		}
		return "not kept out; the driver has to report it healthy"
	case quarantine.WaitingForReturn:
		return fmt.Sprintf("gone; it comes back, or is forgotten at %s", markdown.Moment(c.ForgetAt))
	case quarantine.WaitingForOperator:
		return "an operator has to say what is to be done"
	}
	if text := turnInRecovery(c); text != "" {
		return text
	}
	switch c.Phase {
	case quarantine.PhaseSuspect:
		return suspectTurn(c)
	case quarantine.PhaseClosed:
		return fmt.Sprintf("nothing; ended as %s", c.End)
	}
	return "the next reading"
}

// suspectTurn says what ends a suspicion, and what comes of one that nothing ends.
func suspectTurn(c quarantine.Case) string {
	switch {
	case c.Absence != nil:
		return fmt.Sprintf("it is listed again, or counts as gone from %s on", markdown.Moment(c.Absence.SettledAt))
	case c.Evidence().Value == device.Unhealthy:
		return fmt.Sprintf("its health comes back, or it is quarantined when the grace window ends at %s", markdown.Moment(c.GraceUntil))
	}
	return fmt.Sprintf("its health comes back, or the grace window ends at %s and new Pods are kept from it", markdown.Moment(c.GraceUntil))
}

// nextStep names what happens at a deadline.
func nextStep(c quarantine.Case, at time.Time) string {
	switch {
	case at.Equal(c.Mark.RetryAt):
		return "try the mark again"
	case at.Equal(c.GraceUntil):
		return "grace window ends"
	case at.Equal(c.HalfAt):
		return "half of the grace window is over"
	case at.Equal(c.RestUntil):
		return "it may be tried again"
	case c.Recovery != nil && at.Equal(c.Recovery.Deadline):
		return "the gate's time is over"
	case c.Recovery != nil && (at.Equal(c.Recovery.TendAt) || at.Equal(c.Recovery.AskAt)):
		return "see how the attempt stands"
	case at.Equal(c.RememberUntil) && c.Phase == quarantine.PhaseReleased:
		return "its relapse watch is over"
	case at.Equal(c.RememberUntil):
		return "forget that its health was lost"
	case c.Absence != nil && at.Equal(c.Absence.SettledAt):
		return "absence settles"
	case at.Equal(c.ForgetAt):
		return "forget the device"
	case at.Equal(c.LeaseUntil):
		return "lease runs out, look again"
	case at.Equal(c.CoolUntil):
		return "cool-down ends"
	}
	return "look again"
}

func orDash(text string) string {
	if text == "" {
		return "—"
	}
	return text
}

// SearchAttributes are the search attributes with their types, by name: what a
// namespace has to have.
func SearchAttributes() map[string]enumspb.IndexedValueType {
	wanted := map[string]enumspb.IndexedValueType{}
	for _, key := range []temporal.SearchAttributeKeyKeyword{AttributeNode, AttributeDriver, AttributePhase, AttributeReason, AttributeEpoch} {
		wanted[key.GetName()] = key.GetValueType()
	}
	return wanted
}

// MissingAttributes lists the search attributes that a namespace lacks or has
// with another type, given its custom ones.
func MissingAttributes(custom map[string]enumspb.IndexedValueType) []string {
	var missing []string
	for name, kind := range SearchAttributes() {
		if custom[name] != kind {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}
