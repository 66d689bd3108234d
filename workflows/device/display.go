package device

import (
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
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
	workflow.SetCurrentDetails(r.ctx, Details(r.Case))
	now := attributes{phase: r.Case.Phase, epoch: r.Case.Epoch}
	if !r.knobs.SearchAttributes || now == r.shown || now.phase == quarantine.PhaseNone {
		return
	}
	r.shown = now
	driver := r.Case.Device.Driver
	if r.Case.Device.Path() == device.PathPlugin {
		driver = r.Case.Device.Resource
	}
	err := workflow.UpsertTypedSearchAttributes(r.ctx,
		AttributeNode.ValueSet(r.Case.Node),
		AttributeDriver.ValueSet(driver),
		AttributePhase.ValueSet(string(r.Case.Phase)),
		AttributeReason.ValueSet(string(r.Case.Reason.Code)),
		AttributeEpoch.ValueSet(fmt.Sprint(r.Case.Epoch)),
	)
	if err != nil {
		r.log.Error("search attributes not written", "error", err)
	}
}

// Details is the case in Markdown, as the UI shows it: what is believed, what
// was decided, and what happens next and when.
func Details(c quarantine.Case) string {
	if c.Phase == quarantine.PhaseNone {
		return "No case."
	}
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "- **%s:** %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "### %s", c.Phase)
	if c.Waiting != "" {
		fmt.Fprintf(&b, " · %s", c.Waiting)
	}
	b.WriteString("\n")
	line("Device", "`%s` on node `%s`", c.Device, orDash(c.Node))
	line("Reason", "%s (%s), closed by %s", c.Reason.Code, c.Severity, orDash(string(c.Reason.Closes)))
	if c.Message != "" {
		line("Driver says", "%s", inline(c.Message))
	}
	evidence := c.Evidence()
	line("Evidence", "%s from %d readings; last live look %s", orDash(string(evidence.Value)), len(evidence.Reports), moment(c.LookedAt))
	line("Mark", "%s", MarkText(c, inline))
	line("Opened", "%s by %s, epoch %d; first not good %s", moment(c.Since), orDash(c.Actor), c.Epoch, moment(c.FirstNotGood))
	if len(c.Holders) > 0 {
		holders := make([]string, len(c.Holders))
		for i, h := range c.Holders {
			holders[i] = "`" + h.Pod.String() + "`"
		}
		line("Holders", "%s", strings.Join(holders, ", "))
	}
	if c.MovedTo != "" {
		line("Hardware", "listed as `%s` now", c.MovedTo)
	}
	line("Next", "%s", Next(c, latest(c)))
	return b.String()
}

// MarkText says what keeps the device out, or why nothing does. quote sets off
// names and foreign texts, as the medium wants it.
func MarkText(c quarantine.Case, quote func(string) string) string {
	switch c.Mark.State {
	case quarantine.MarkNone:
		return "none"
	case quarantine.MarkInForce:
		return fmt.Sprintf("%s in force since %s, lease until %s", quote(c.Mark.Name), moment(c.Mark.InForceSince), moment(c.LeaseUntil))
	case quarantine.MarkObserved:
		return "none: mode observe"
	case quarantine.MarkAdvisory:
		return "none: advisory only, " + quote(c.Mark.Detail)
	case quarantine.MarkRefused:
		return fmt.Sprintf("refused: %s; next try %s", quote(c.Mark.Detail), moment(c.Mark.RetryAt))
	}
	return string(c.Mark.State)
}

// Next says whose turn it is, and when the case goes on by itself after a moment
// that it has reached. A deadline that lies before that was acted on already.
func Next(c quarantine.Case, reached time.Time) string {
	text := turn(c)
	if c.Open() {
		if at := c.NextWake(reached); !at.IsZero() {
			text += fmt.Sprintf(" (%s at %s)", nextStep(c, at), moment(at))
		}
	}
	return text
}

// latest is a moment that the case has certainly reached, from its own records:
// details must come out alike in a replay and in a query.
func latest(c quarantine.Case) time.Time {
	at := c.Since
	for _, t := range []time.Time{c.LookedAt, c.Mark.ConfirmedAt, c.DoubtedAt} {
		if t.After(at) {
			at = t
		}
	}
	return at
}

func turn(c quarantine.Case) string {
	switch c.Waiting {
	case quarantine.WaitingForMark:
		return "the mark is being written"
	case quarantine.WaitingForLook:
		return "a live look confirms the mark"
	case quarantine.WaitingForHolder:
		return "a holder has to leave; an operator may delete its Pod"
	case quarantine.WaitingForCoolDown:
		return "the device rests"
	case quarantine.WaitingForRecovery:
		return "recovery isn't part of this version; the device stays out"
	case quarantine.WaitingForRestriction:
		return "still Unknown after the grace window; find out why its driver is silent"
	case quarantine.WaitingForEvidence:
		return "nobody holds the device, so nobody reports on it"
	case quarantine.WaitingForHealth:
		return "not kept out; the driver has to report it healthy"
	case quarantine.WaitingForReturn:
		return "gone; it comes back or is forgotten"
	case quarantine.WaitingForOperator:
		return "an operator has to say what is to be done"
	}
	switch c.Phase {
	case quarantine.PhaseSuspect:
		return "health comes back, or the window ends"
	case quarantine.PhaseClosed:
		return fmt.Sprintf("nothing; ended as %s", c.End)
	}
	return "the next reading"
}

// nextStep names what happens at a deadline.
func nextStep(c quarantine.Case, at time.Time) string {
	switch {
	case at.Equal(c.Mark.RetryAt):
		return "try the mark again"
	case at.Equal(c.GraceUntil):
		return "grace window ends"
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

func moment(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04:05 MST")
}

func orDash(text string) string {
	if text == "" {
		return "—"
	}
	return text
}

// inline keeps a driver's text from being taken for Markdown.
func inline(text string) string {
	return "`" + strings.ReplaceAll(strings.ReplaceAll(text, "`", "'"), "\n", " ") + "`"
}

// MissingAttributes lists the search attributes that a namespace lacks or has
// with another type, given its custom ones.
func MissingAttributes(custom map[string]enumspb.IndexedValueType) []string {
	var missing []string
	for _, key := range []temporal.SearchAttributeKeyKeyword{AttributeNode, AttributeDriver, AttributePhase, AttributeReason, AttributeEpoch} {
		if custom[key.GetName()] != enumspb.INDEXED_VALUE_TYPE_KEYWORD {
			missing = append(missing, key.GetName())
		}
	}
	return missing
}
