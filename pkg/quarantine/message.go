package quarantine

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// Verb is what an operator asks for.
type Verb string

const (
	// VerbRelease closes the reason and lets recovery begin. It skips no gate.
	VerbRelease Verb = "release"
	// VerbRepaired says that hands were laid on the device; attempts start over.
	VerbRepaired Verb = "repaired"
	// VerbRetire takes the device out until it is repaired or replaced.
	VerbRetire Verb = "retire"
	// VerbQuarantine takes the device out by hand, until a time.
	VerbQuarantine Verb = "quarantine"
	// VerbExtend extends the record's lease.
	VerbExtend Verb = "extend"
	// VerbEvict asks for the holders to be evicted.
	VerbEvict Verb = "evict"
	// VerbWait says that the holder is to be waited for.
	VerbWait Verb = "wait"
)

// Verbs lists all verbs, in the order in which help texts show them.
var Verbs = [...]Verb{VerbRelease, VerbRepaired, VerbRetire, VerbQuarantine, VerbExtend, VerbEvict, VerbWait}

// maxWords bounds the operators' words that a case remembers.
const maxWords = 8

// maxRefusedWords bounds the refusals that a case shows.
const maxRefusedWords = 3

// maxExtension bounds what one extend may add, so that a record stays one that is
// looked at again.
const maxExtension = 30 * 24 * time.Hour

// Message is an operator's word on a case. Actor and reason are what the sender
// claims; who really called is for the server's authorizer to know.
type Message struct {
	Verb   Verb   `json:"verb"`
	Actor  string `json:"actor"`
	Reason string `json:"reason"`
	// For is how long an extend or a quarantine lasts; zero means the policy's lease.
	For time.Duration `json:"for,omitempty"`
	// Epoch is that of the case that is meant; zero means the open one.
	Epoch int64 `json:"epoch,omitempty"`
	// Ticket is where a repair is on record, e.g. at the vendor's.
	Ticket string `json:"ticket,omitempty"`
	// Force asks for a release past the gates. It is always refused, and with what
	// the gates have found out.
	Force bool `json:"force,omitempty"`
	// Malformed is set when the payload could not be read; it is refused on
	// record and never dropped.
	Malformed string `json:"malformed,omitempty"`
	// Before is set when rules before rulesOfRecovery could not read the payload, and
	// what they said: by these it was refused.
	Before string `json:"before,omitempty"`
	// Sent says where Temporal has the message, by which the sender is found.
	Sent Sent `json:"sent,omitzero"`
}

// Sent is where Temporal has an operator's message: it is the so-manyth signal, or the
// so-manyth update, of its name in a run of the case's workflow. The server noted there
// who sent it.
type Sent struct {
	Run    string `json:"run,omitempty"`
	Verb   Verb   `json:"verb,omitempty"`
	Update bool   `json:"update,omitempty"`
	Nth    int    `json:"nth,omitempty"`
}

// Word is a message that was accepted.
type Word struct {
	Verb   Verb      `json:"verb"`
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
	Ticket string    `json:"ticket,omitempty"`
	At     time.Time `json:"at"`
}

// RefusedWord is a message that was refused, and why.
type RefusedWord struct {
	Verb  Verb      `json:"verb"`
	Actor string    `json:"actor"`
	Text  string    `json:"text"`
	At    time.Time `json:"at"`
}

// ErrNoCase is why a message is refused for a device whose case is over, or that never
// had one.
var ErrNoCase = errors.New("the device has no open case")

// OnRecord tells whether a refusal of the message is put on record if it came by update,
// whose sender hears of it in any case: who it is and what is meant can be told, and there
// is an open case whose record it is. What came by signal is always put on record.
func OnRecord(c Case, m Message) bool {
	return c.Open() && m.Malformed == "" && strings.TrimSpace(m.Actor) != "" && strings.TrimSpace(m.Reason) != "" &&
		cost(m.Actor) <= maxName && cost(m.Reason) <= maxReason
}

// Refuse says why a message can't be accepted now, or nil. The text names the
// device and the remedy. It is the validator of updates and the check of signals.
func Refuse(c Case, m Message) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%s refused for %s: %s", m.Verb, c.Device, fmt.Sprintf(format, args...))
	}
	if m.Verb == "" {
		m.Verb = "a message without a name"
	}
	switch {
	case m.Malformed != "":
		return refuse("%s; want JSON like {\"actor\":\"you@example.com\",\"reason\":\"why\"}", m.Malformed)
	case strings.TrimSpace(m.Actor) == "":
		return refuse("actor is empty; say who you are")
	case strings.TrimSpace(m.Reason) == "":
		return refuse("reason is empty; say why")
	case cost(m.Actor) > maxName:
		return refuse("actor is %d bytes long; want at most %d", cost(m.Actor), maxName)
	case cost(m.Reason) > maxReason:
		return refuse("reason is %d bytes long; want at most %d", cost(m.Reason), maxReason)
	case cost(m.Ticket) > maxName:
		return refuse("ticket is %d bytes long; want at most %d", cost(m.Ticket), maxName)
	case !c.Open() && m.Verb != VerbQuarantine:
		return fmt.Errorf("%s refused for %s: %w", m.Verb, c.Device, ErrNoCase)
	case m.Epoch != 0 && !c.Open():
		return refuse("it is for epoch %d, and the device has no open case; leave the epoch out to open one", m.Epoch)
	case m.Epoch != 0 && m.Epoch != c.Epoch:
		return refuse("it is for epoch %d, and the open case is of epoch %d; look at that one, and send it again if it is meant", m.Epoch, c.Epoch)
	case m.Ticket != "" && m.Verb != VerbRepaired:
		return refuse("ticket goes with repaired; say it in the reason")
	case m.Force && m.Verb != VerbRelease:
		return refuse("force goes with release, and even that skips no gate")
	}
	return refuseInPhase(c, m, refuse)
}

func refuseInPhase(c Case, m Message, refuse func(string, ...any) error) error {
	switch m.Verb {
	case VerbRelease:
		switch {
		case c.Phase == PhaseSuspect:
			return refuse("it is only suspected and nothing keeps it out; the case ends when its health is back")
		case c.Phase == PhaseRestricted && (c.Held() || c.Evidence().Live()):
			return refuse("it is held, so its driver's word decides: the case ends when that says Healthy again; bring the driver back, or wait for the holder to leave")
		case c.Phase == PhaseRetired:
			return refuse("it is retired; send repaired once it is")
		case c.Phase == PhaseGone:
			return refuse("it is gone; the case goes on when it is listed again")
		case m.Force && c.wantsWord(VerbRelease):
			return refuse("release skips no gate, forced or not: %s; its reason is closed by this word: send it without force", c.barrier())
		case m.Force:
			return refuse("release skips no gate, forced or not: %s", c.barrier())
		case c.Phase == PhaseRecovering && !c.wantsWord(VerbRelease):
			return refuse("an attempt is under way, and release skips no gate: %s", c.barrier())
		}
	case VerbRepaired:
		switch c.Phase {
		case PhaseSuspect:
			return refuse("it is only suspected; there is nothing to repair yet")
		case PhaseRestricted:
			return refuse("it is only restricted, because its health isn't known; send release where nobody holds it")
		}
	case VerbRetire:
		switch c.Phase {
		case PhaseQuarantined, PhaseRestricted, PhaseRecovering:
		default:
			return refuse("it is %s; only a quarantined or restricted device can be retired", c.Phase)
		}
	case VerbQuarantine:
		switch {
		case c.Open() && c.Phase != PhaseSuspect && c.Phase != PhaseRestricted:
			return refuse("it is %s already; send extend to keep its record longer, or retire", c.Phase)
		case m.For < 0 || m.For > maxExtension:
			return refuse("for is %s; want a positive duration, at most %s; what lasts longer is extended, or retired", m.For, maxExtension)
		}
	case VerbExtend:
		switch c.Phase {
		case PhaseQuarantined, PhaseRetired, PhaseRestricted, PhaseRecovering:
		default:
			return refuse("it is %s and its record has no lease", c.Phase)
		}
		if m.For < 0 || m.For > maxExtension {
			return refuse("for is %s; want a positive duration, at most %s; what lasts longer is extended again, or retired", m.For, maxExtension)
		}
	case VerbEvict:
		return refuse("this version evicts nobody; %s", holdersAdvice(c))
	case VerbWait:
		if c.Waiting != WaitingForHolder {
			return refuse("nothing waits for a holder; the case is %s", standing(c))
		}
	default:
		return refuse("no such message; want one of %v", Verbs)
	}
	return nil
}

// byHand takes the device out for an operator's reason, whatever its health. The case
// has the same life as any other: the mark, its permit, the gates. Until the time that
// the operator gave, nothing that is healthy about the device ends it.
func (d *decision) byHand(m Message) {
	why := reason.Match{
		Code: reason.ByHand, Severity: reason.SeverityMajor, Action: reason.ActionQuarantine, Closes: reason.ClosesByGates,
		Scope: device.ScopeInstance, Rule: "sickbay/by-hand",
	}
	message := clip(m.Reason, maxMessage)
	if d.c.Open() {
		d.c.Phase = PhaseQuarantined
		d.raise(why, message)
	} else {
		d.open(PhaseQuarantined, why, message)
		// Whose word it was that opened the case is on record with that.
		d.c.Notices[len(d.c.Notices)-1].Actor = clip(m.Actor, maxName)
	}
	c := &d.c
	c.Actor, c.Confirmed = clip(m.Actor, maxName), true
	d.enterQuarantine()
	lasts := m.For
	if lasts == 0 {
		lasts = d.p.Lease
	}
	c.ByHandUntil = d.now.Add(lasts)
	c.LeaseUntil = later(c.LeaseUntil, c.ByHandUntil)
	d.lookBy(d.now)
}

// standing names the phase, and what is waited for.
func standing(c Case) string {
	if c.Waiting == WaitingForNothing {
		return string(c.Phase)
	}
	return fmt.Sprintf("%s, %s", c.Phase, c.Waiting)
}

func holdersAdvice(c Case) string {
	if len(c.Holders) == 0 {
		return "nobody is known to hold the device"
	}
	advice := "delete its holders yourself:"
	for _, h := range c.Holders {
		advice += " " + h.Pod.String()
	}
	return advice
}

// refusedWord puts a message on record that was refused.
func (d *decision) refusedWord(m Message, why error) {
	c := &d.c
	actor := m.Actor
	if actor == "" {
		actor = "unnamed"
	}
	d.notifyAs(actor, NoticeRefused, true, why.Error())
	notice := &c.Notices[len(c.Notices)-1]
	notice.Sent = m.Sent
	if m.Verb == VerbRelease && (m.Force || c.Phase == PhaseRecovering) {
		notice.Gate = c.barred()
	}
	if !c.Open() {
		return
	}
	c.RefusedWords = append(c.RefusedWords, RefusedWord{Verb: m.Verb, Actor: notice.Actor, Text: notice.Text, At: d.now})
	if extra := len(c.RefusedWords) - maxRefusedWords; extra > 0 {
		c.RefusedWords = c.RefusedWords[extra:]
	}
}

// message takes in an operator's word.
func (d *decision) message(m Message) {
	c := &d.c
	if d.p.Rules < rulesOfRecovery && m.Before != "" {
		m.Malformed = m.Before
	}
	if err := Refuse(*c, m); err != nil {
		d.refusedWord(m, err)
		return
	}
	d.seen = fmt.Sprintf("%s: %s", m.Verb, m.Reason)
	if m.Ticket != "" {
		d.seen = fmt.Sprintf("%s, ticket %s: %s", m.Verb, m.Ticket, m.Reason)
	}
	if m.Verb == VerbQuarantine {
		d.byHand(m)
	}
	c.Words = append(c.Words, Word{Verb: m.Verb, Actor: m.Actor, Reason: m.Reason, Ticket: m.Ticket, At: d.now})
	if extra := len(c.Words) - maxWords; extra > 0 {
		c.Words = c.Words[extra:]
	}
	text := fmt.Sprintf("%s accepted", m.Verb)
	switch m.Verb {
	case VerbQuarantine:
		text = fmt.Sprintf("quarantined by hand until %s (%s); it comes back by its gates", stamp(c.ByHandUntil), m.Reason)
	case VerbRelease:
		c.ReasonClosed, c.Hurry = true, c.Phase != PhaseRecovering
		text = "release accepted: the reason is closed; the device stays out until the gates are passed"
		if c.Phase == PhaseRestricted {
			c.OnTrial = true
			text = "release accepted: nobody holds the device, so nobody can say that it is well; it may be allocated once more, and its next holder's report decides"
		}
		if c.Phase == PhaseRecovering {
			text = "release accepted: it is the word that closes the reason; the attempt under way goes on, and skips no gate"
		}
	case VerbRepaired:
		c.Attempt, c.MovedTo, c.Unsure = 0, "", 0
		c.ReasonClosed, c.Hurry, c.RestUntil = true, true, time.Time{}
		if c.Phase == PhaseRecovering {
			// The attempt under way is the first of the new ones.
			c.Attempt, c.Hurry = 1, false
		}
		if c.Phase == PhaseRetired {
			c.Phase = PhaseQuarantined
			d.sayOnMark()
		}
		text = "repaired accepted: attempts start over; the device stays out until the gates are passed"
		if m.Ticket != "" {
			text = fmt.Sprintf("repaired accepted, ticket %s: attempts start over; the device stays out until the gates are passed", m.Ticket)
		}
	case VerbRetire:
		if c.Phase != PhaseRetired {
			d.stopAttempt("retired by an operator")
			c.Phase, c.Confirmed, c.Outage, c.OnTrial = PhaseRetired, true, nil, false
			if c.Mark.State == MarkLifting {
				d.keepMark()
			}
			d.sayOnMark()
		}
		text = "retired: out until it is repaired or replaced"
	case VerbExtend:
		by := m.For
		if by == 0 {
			by = d.p.Lease
		}
		d.extend(by)
		text = fmt.Sprintf("lease extended until %s", stamp(c.LeaseUntil))
	}
	d.notifyAs(m.Actor, NoticeMessage, true, text)
	c.Notices[len(c.Notices)-1].Sent = m.Sent
}

// handHolds tells whether an operator's hand keeps the device out still.
func (d *decision) handHolds() bool { return d.c.ByHandUntil.After(d.now) }
