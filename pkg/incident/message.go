package incident

import (
	"fmt"
	"strings"
	"time"
)

// Verb is what an operator asks for.
type Verb string

const (
	// VerbWait holds longer.
	VerbWait Verb = "wait"
	// VerbAdmit lets all that wait through now.
	VerbAdmit Verb = "admit"
	// VerbClose ends an incident that nothing is left of.
	VerbClose Verb = "close"
)

// Verbs lists all verbs, in the order in which help texts show them.
var Verbs = [...]Verb{VerbWait, VerbAdmit, VerbClose}

const (
	// maxWords bounds the operators' words that an incident remembers.
	maxWords = 8
	// leastWait and maxWait bound what one word may add: a hold is to be looked at again.
	leastWait, maxWait = time.Minute, 24 * time.Hour
	// maxActor and maxReason bound what people write, in bytes.
	maxActor, maxReason = 256, 512
)

// Message is an operator's word on an incident. Actor and reason are what the
// sender claims; who really called is for the server's authorizer to know.
type Message struct {
	Verb   Verb   `json:"verb"`
	Actor  string `json:"actor"`
	Reason string `json:"reason"`
	// For is how much longer a wait holds; zero is as long as the maximum.
	For time.Duration `json:"for,omitempty"`
	// Malformed is set when the payload could not be read; it is refused on record.
	Malformed string `json:"malformed,omitempty"`
}

// Word is a message that was accepted.
type Word struct {
	Verb   Verb      `json:"verb"`
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// Refuse says why a message can't be accepted now, or nil. The text names the
// incident and the remedy.
func Refuse(i Incident, m Message) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%s refused for incident %s: %w", m.Verb, i.Scope, fmt.Errorf(format, args...))
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
	case len(m.Actor) > maxActor:
		return refuse("actor is %d bytes long; want at most %d", len(m.Actor), maxActor)
	case len(m.Reason) > maxReason:
		return refuse("reason is %d bytes long; want at most %d", len(m.Reason), maxReason)
	case !i.Open():
		return refuse("it isn't open")
	}
	return refuseInPhase(i, m, refuse)
}

// CheckWait tells whether a hold can be made longer by so much. What is too short
// would be over before anybody saw it.
func CheckWait(by time.Duration) error {
	if by < leastWait || by > maxWait {
		return fmt.Errorf("%s; want %s to %s; what lasts longer is said again", by, brief(leastWait), brief(maxWait))
	}
	return nil
}

// brief writes a duration without its zeros.
func brief(d time.Duration) string {
	text := d.String()
	for _, none := range []string{"0s", "0m"} {
		if rest, ok := strings.CutSuffix(text, none); ok && rest != "" && (rest[len(rest)-1] == 'm' || rest[len(rest)-1] == 'h') {
			text = rest
		}
	}
	return text
}

func refuseInPhase(i Incident, m Message, refuse func(string, ...any) error) error {
	switch m.Verb {
	case VerbWait:
		switch {
		case i.Phase == Noted:
			return refuse("it holds nothing; its devices are marked at once")
		case m.For != 0:
			if err := CheckWait(m.For); err != nil {
				return refuse("for is %w", err)
			}
		}
	case VerbAdmit:
		if !i.Holds() {
			return refuse("it holds nothing; its devices go on as ever")
		}
	case VerbClose:
		if i.Phase != Noted && !i.Levels.few(i.Scope) {
			return refuse("%s still %s; send admit to let them through, and it ends when they are well", people(i.Levels.Now), What(i.Scope.Kind))
		}
	default:
		return refuse("no such message; want one of %v", Verbs)
	}
	return nil
}

// message takes in an operator's word.
func (d *decision) message(m Message) {
	if err := Refuse(d.Incident, m); err != nil {
		actor := clip(m.Actor, maxActor)
		if strings.TrimSpace(actor) == "" {
			actor = "unnamed"
		}
		d.notifyAs(actor, NoticeRefused, true, err.Error())
		return
	}
	d.Words = append(d.Words, Word{Verb: m.Verb, Actor: m.Actor, Reason: m.Reason, At: d.now})
	d.Words = d.Words[max(len(d.Words)-maxWords, 0):]
	text := ""
	switch m.Verb {
	case VerbWait:
		by := m.For
		if by == 0 {
			by = d.p.max(d.Scope)
		}
		if until := d.now.Add(by); until.After(d.Until) {
			d.Until = until
		}
		d.Phase = Holding
		text = fmt.Sprintf("wait accepted: holds until %s", stamp(d.Until))
	case VerbAdmit:
		d.Phase, d.Least, d.GrewAt = Admitted, d.Levels.Now, time.Time{}
		d.Levels.Held, d.Waiting = 0, nil
		text = "admit accepted: nothing waits for this incident any more"
	case VerbClose:
		d.close(EndOperator)
		text = fmt.Sprintf("closed after %s; at most it was about %d devices", d.now.Sub(d.Since).Round(time.Second), d.Most)
	}
	d.notifyAs(m.Actor, NoticeMessage, false, text+" ("+m.Reason+")")
}
