package isolation

import (
	"fmt"
	"strings"
	"time"
)

// Verb is what an operator asks for.
type Verb string

// VerbLift lifts the isolation, and keeps it lifted: for a time, or until nothing
// justifies it any more.
const VerbLift Verb = "lift"

// Verbs lists all verbs.
var Verbs = [...]Verb{VerbLift}

const (
	// maxWords bounds the operators' words that are remembered.
	maxWords = 8
	// leastFor and mostFor bound how long a word holds.
	leastFor, mostFor = time.Minute, 30 * 24 * time.Hour
	// maxActor and maxReason bound what people write, in bytes.
	maxActor, maxReason = 256, 512
)

// Message is an operator's word on a node. Actor and reason are what the sender claims;
// who really called is for the server's authorizer to know.
type Message struct {
	Verb   Verb   `json:"verb"`
	Actor  string `json:"actor"`
	Reason string `json:"reason"`
	// For is how long it holds; zero is until nothing justifies the isolation any more.
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

// Refuse says why a message can't be accepted now, or nil. The text names the node and
// the remedy.
func Refuse(i Isolation, m Message) error {
	if m.Verb == "" {
		m.Verb = "a message without a name"
	}
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%s refused for node %s: %w", m.Verb, i.Node, fmt.Errorf(format, args...))
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
	case m.Verb != VerbLift:
		return refuse("no such message; want one of %v", Verbs)
	case m.For != 0 && (m.For < leastFor || m.For > mostFor):
		return refuse("for is %s; want 1m to 720h, or nothing for as long as it is justified", m.For)
	case !i.Open():
		return refuse("nothing isolates it, and nothing is about to")
	case i.Phase == Spared:
		return refuse("it is lifted already")
	}
	return nil
}

// message takes in an operator's word.
func (d *decision) message(m Message) {
	if err := Refuse(d.Isolation, m); err != nil {
		actor := clip(m.Actor, maxActor)
		if strings.TrimSpace(actor) == "" {
			actor = "unnamed"
		}
		d.notifyAs(actor, NoticeUnheard, true, m.Reason, err.Error())
		return
	}
	d.Words = append(d.Words, Word{Verb: m.Verb, Actor: m.Actor, Reason: m.Reason, At: d.now})
	d.Words = d.Words[max(len(d.Words)-maxWords, 0):]
	d.SparedUntil, d.RetryAt, d.Tries = time.Time{}, time.Time{}, 0
	until := "until nothing justifies it any more"
	if m.For > 0 {
		d.SparedUntil = d.now.Add(m.For)
		until = "until " + stamp(d.SparedUntil)
	}
	if d.Mark.Way != "" {
		d.Lifting = true
	} else {
		d.spare()
	}
	d.notifyAs(m.Actor, NoticeMessage, false, m.Reason, "an operator has node "+d.Node+" given back, and left alone "+until)
}

// spare leaves the node alone.
func (d *decision) spare() {
	d.Phase, d.Lifting, d.Waiting, d.Detail = Spared, false, "", ""
	d.LookAt = d.now.Add(lookPause)
	if !d.SparedUntil.IsZero() && d.SparedUntil.Before(d.LookAt) {
		d.LookAt = d.SparedUntil
	}
}
