package budget

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Pause is an operator's word that nothing is to be done in a scope for a while. Two
// operators' pauses of one scope stand beside each other.
type Pause struct {
	Scope  Scope     `json:"scope"`
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	// Upgrade tells that the scope's driver is upgraded meanwhile, so that Unknown is
	// expected.
	Upgrade bool `json:"upgrade,omitempty"`
}

// Upgrades are the pauses that announce a driver's upgrade.
func (b *Book) Upgrades() []Pause {
	return slices.DeleteFunc(slices.Clone(b.Pauses), func(p Pause) bool { return !p.Upgrade })
}

// Verb is what an operator asks for.
type Verb string

const (
	// VerbPause stops new marks and moves in a scope for a time.
	VerbPause Verb = "pause"
	// VerbResume ends a scope's pauses.
	VerbResume Verb = "resume"
)

// Verbs lists all verbs, in the order in which help texts show them.
var Verbs = [...]Verb{VerbPause, VerbResume}

const (
	// maxPause bounds a pause: what lasts longer is said again, or is policy.
	maxPause = 7 * 24 * time.Hour
	// maxPauses bounds the pauses that are in force at once.
	maxPauses = 64
	// maxActor and maxReason bound what people write, in bytes.
	maxActor, maxReason = 256, 512
)

// Message is an operator's word. Actor and reason are what the sender claims; who
// really called is for the server's authorizer to know.
type Message struct {
	Verb    Verb          `json:"verb"`
	Scope   Scope         `json:"scope"`
	For     time.Duration `json:"for,omitempty"`
	Upgrade bool          `json:"upgrade,omitempty"`
	Actor   string        `json:"actor"`
	Reason  string        `json:"reason"`
	// Malformed is set when the payload could not be read; it is refused on record.
	Malformed string `json:"malformed,omitempty"`
}

// Refuse says why a message can't be accepted now, or nil. The text names the scope
// and the remedy.
func Refuse(b Book, m Message, now time.Time) error {
	verb := cmp.Or(string(m.Verb), "a message without a name")
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%s refused for %s: %s", verb, cmp.Or(m.Scope.String(), "no scope"), fmt.Sprintf(format, args...))
	}
	switch {
	case m.Malformed != "":
		return refuse("%s; want JSON like {\"scope\":\"node/anvil-07\",\"for\":\"2h\",\"actor\":\"you@example.com\",\"reason\":\"why\"}", m.Malformed)
	case !slices.Contains(Verbs[:], m.Verb):
		return refuse("no such message; want one of %v", Verbs)
	case strings.TrimSpace(m.Actor) == "":
		return refuse("actor is empty; say who you are")
	case strings.TrimSpace(m.Reason) == "":
		return refuse("reason is empty; say why")
	case len(m.Actor) > maxActor:
		return refuse("actor is %d bytes long; want at most %d", len(m.Actor), maxActor)
	case len(m.Reason) > maxReason:
		return refuse("reason is %d bytes long; want at most %d", len(m.Reason), maxReason)
	}
	if _, err := ParseScope(m.Scope.String()); err != nil {
		return refuse("%v", err)
	}
	standing := slices.ContainsFunc(b.Pauses, func(p Pause) bool { return p.Scope == m.Scope && p.Until.After(now) })
	switch {
	case m.Verb == VerbResume && !standing:
		return refuse("it isn't paused%s", b.pausedBeside(now))
	case m.Verb == VerbResume && (m.For != 0 || m.Upgrade):
		return refuse("a resume has neither for nor upgrade")
	case m.Verb == VerbResume:
		return nil
	case m.For < time.Second || m.For > maxPause:
		return refuse("for is %s; want 1s to %s: a pause ends by itself, and what lasts longer is said again", m.For, maxPause)
	case m.Upgrade && m.Scope.Kind != Driver && m.Scope.Kind != Node && m.Scope.Kind != Pool:
		return refuse("a driver's upgrade is announced for driver/NAME, pool/DRIVER/POOL or node/NAME")
	case len(b.Pauses) >= maxPauses && !standing:
		return refuse("%d pauses are in force, and more aren't kept; resume one, or pause a wider scope", len(b.Pauses))
	}
	return nil
}

// pausedBeside names what is paused instead.
func (b *Book) pausedBeside(now time.Time) string {
	var scopes []string
	for _, p := range b.Pauses {
		if p.Until.After(now) && !slices.Contains(scopes, p.Scope.String()) {
			scopes = append(scopes, p.Scope.String())
		}
	}
	if len(scopes) == 0 {
		return "; nothing is"
	}
	return "; paused are " + strings.Join(scopes, ", ")
}

// message takes in an operator's word, and returns why it is refused if it is.
func (d *decision) message(m Message) error {
	if err := Refuse(d.Book, m, d.now); err != nil {
		d.notifyAs(cmp.Or(clip(strings.TrimSpace(m.Actor), maxActor), "unnamed"), NoticeRefused, true, m.Scope, err.Error())
		return err
	}
	if m.Verb == VerbResume {
		var whose []string
		d.Pauses = slices.DeleteFunc(d.Pauses, func(p Pause) bool {
			if p.Scope == m.Scope {
				whose = append(whose, fmt.Sprintf("%s's until %s", p.Actor, stamp(p.Until)))
			}
			return p.Scope == m.Scope
		})
		d.notifyAs(m.Actor, NoticeResumed, false, m.Scope, fmt.Sprintf("resumed (%s); this ends %s", m.Reason, strings.Join(whose, " and ")))
		return nil
	}
	pause := Pause{Scope: m.Scope, Actor: m.Actor, Reason: m.Reason, Since: d.now, Until: d.now.Add(m.For), Upgrade: m.Upgrade}
	d.Pauses = slices.DeleteFunc(d.Pauses, func(p Pause) bool { return p.Scope == m.Scope && p.Actor == m.Actor })
	d.Pauses = append(d.Pauses, pause)
	what := "paused"
	if m.Upgrade {
		what = "a driver's upgrade is announced, and no new marks are made,"
	}
	d.notifyAs(m.Actor, NoticePaused, false, m.Scope, fmt.Sprintf("%s until %s (%s)", what, stamp(pause.Until), m.Reason))
	return nil
}
