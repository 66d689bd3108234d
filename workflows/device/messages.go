package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/workflows/operator"
)

// OperatorPayload is what an operator's message carries, by signal and by update.
type OperatorPayload struct {
	Actor  string `json:"actor"`
	Reason string `json:"reason"`
	// For goes with extend and quarantine ("4h").
	For operator.Duration `json:"for,omitempty"`
	// Epoch is that of the case that is meant. Any epoch but the open case's is refused.
	Epoch operator.Whole `json:"epoch,omitempty"`
	// Ticket goes with repaired, Force with release.
	Ticket string `json:"ticket,omitempty"`
	Force  bool   `json:"force,omitempty"`
}

// payloadOf is what says a message.
func payloadOf(m quarantine.Message) OperatorPayload {
	return OperatorPayload{
		Actor: m.Actor, Reason: m.Reason, For: operator.Duration(m.For), Epoch: operator.Whole(m.Epoch), Ticket: m.Ticket, Force: m.Force,
	}
}

// Answer is what an accepted update returns.
type Answer struct {
	Text    string             `json:"text"`
	Phase   quarantine.Phase   `json:"phase"`
	Waiting quarantine.Waiting `json:"waiting,omitempty"`
	Epoch   int64              `json:"epoch"`
	// Until is the end of the record's lease.
	Until time.Time `json:"until,omitzero"`
}

// Standing is how the case stands, as "Quarantined, waiting for CoolDown".
func (a Answer) Standing() string {
	return standing(quarantine.Case{Phase: a.Phase, Waiting: a.Waiting})
}

// subscription is one signal channel and how its payload becomes an event.
type subscription struct {
	name string
	// operator is set for what people send; see roomFor.
	operator bool
	channel  workflow.ReceiveChannel
	decode   func(r *runner, raw converter.RawValue) quarantine.Event
}

// subscribe opens all channels. Payloads are received raw: what can't be decoded
// is refused on record instead of being dropped by the SDK.
func (r *runner) subscribe() []subscription {
	subscriptions := []subscription{
		// Of what came together the mark is first: a case that it stands for goes on
		// under its epoch, whatever else is seen.
		{name: SignalMark, decode: decodeSeen[quarantine.MarkSeen]},
		{name: SignalInventory, decode: decodeSeen[quarantine.Inventory]},
		{name: SignalObserved, decode: decodeSeen[quarantine.Observed]},
		{name: SignalPermit, decode: decodePermit},
	}
	for _, verb := range quarantine.Verbs {
		subscriptions = append(subscriptions, subscription{
			name:     string(verb),
			operator: true,
			decode: func(r *runner, raw converter.RawValue) quarantine.Event {
				m := decodeMessage(verb, raw)
				m.Sent = r.sent(verb, false)
				return m
			},
		})
	}
	for i := range subscriptions {
		subscriptions[i].channel = workflow.GetSignalChannel(r.ctx, subscriptions[i].name)
	}
	return subscriptions
}

// backlog is how many decisions may wait to be announced before operators'
// messages are left in their channels. The case keeps a bounded number of
// notices, and no operator's word may be missing from the audit trail.
const backlog = 12

// roomFor tells whether a message of the subscription can be taken in now. What
// the starter saw is always taken in: a fault never waits behind paperwork.
func (r *runner) roomFor(s subscription) bool {
	return !s.operator || len(r.Case.Notices) < backlog
}

// drain takes in every signal that is there and has room.
func (r *runner) drain() {
	for r.readable() {
		for _, s := range r.signals {
			for s.channel.Len() > 0 && r.roomFor(s) {
				r.receive(s)
			}
		}
	}
}

func (r *runner) readable() bool {
	for _, s := range r.signals {
		if s.channel.Len() > 0 && r.roomFor(s) {
			return true
		}
	}
	return false
}

func (r *runner) unread() bool {
	for _, s := range r.signals {
		if s.channel.Len() > 0 {
			return true
		}
	}
	return false
}

func (r *runner) receive(s subscription) {
	var raw converter.RawValue
	s.channel.Receive(r.ctx, &raw)
	r.apply(s.decode(r, raw))
}

// traceParentLength is that of a traceparent of version 00 (W3C Trace Context, 3.2).
// Nothing else is carried on: it would be in every task's input.
const traceParentLength = 55

func decodeSeen[E quarantine.Observed | quarantine.Inventory | quarantine.MarkSeen](r *runner, raw converter.RawValue) quarantine.Event {
	var signal Signal[E]
	if err := json.Unmarshal(raw.Payload().GetData(), &signal); err != nil {
		return quarantine.Message{Verb: "signal", Malformed: fmt.Sprintf("the payload can't be read: %v", err)}
	}
	if signal.Device != r.Case.Device {
		return quarantine.Message{Verb: "signal", Malformed: fmt.Sprintf("it is about %s and not about this device", signal.Device)}
	}
	if len(signal.TraceParent) == traceParentLength && !r.Case.Open() {
		r.TraceParent, r.TraceBegan = signal.TraceParent, workflow.Now(r.ctx)
	}
	return any(signal.Event).(quarantine.Event)
}

func decodeMessage(verb quarantine.Verb, raw converter.RawValue) quarantine.Message {
	payload, malformed := operator.DecodeAs[OperatorPayload](raw)
	m := quarantine.Message{
		Verb: verb, Actor: payload.Actor, Reason: payload.Reason, For: time.Duration(payload.For),
		Epoch: int64(payload.Epoch), Ticket: payload.Ticket, Force: payload.Force, Malformed: malformed,
	}
	if malformed == "" {
		// A run that was recorded by earlier rules refused what is new in it.
		_, m.Before = operator.Decode(raw)
	}
	return m
}

// sent numbers an operator's message that is taken in now, so that it is found in the
// run's history.
func (r *runner) sent(verb quarantine.Verb, update bool) quarantine.Sent {
	s := quarantine.Sent{Run: workflow.GetInfo(r.ctx).WorkflowExecution.RunID, Verb: verb, Update: update}
	r.came[s]++
	s.Nth = r.came[s]
	return s
}

// handle registers the query and the operators' updates.
func (r *runner) handle() error {
	if err := workflow.SetQueryHandler(r.ctx, QueryCase, func() (State, error) { return r.State, nil }); err != nil {
		return fmt.Errorf("register query %s: %w", QueryCase, err)
	}
	for _, verb := range quarantine.Verbs {
		err := workflow.SetUpdateHandlerWithOptions(r.ctx, string(verb),
			func(ctx workflow.Context, raw converter.RawValue) (Answer, error) {
				sent := r.sent(verb, true)
				// A case can't be cancelled, and nor can what is asked of it.
				own, cancel := workflow.NewDisconnectedContext(ctx)
				defer cancel()
				if err := workflow.Await(own, func() bool { return len(r.Case.Notices) < backlog }); err != nil {
					return Answer{}, err
				}
				m := decodeMessage(verb, raw)
				m.Sent = sent
				return r.answer(m)
			},
			workflow.UpdateHandlerOptions{
				Description: describeVerb(verb),
				// What is turned away here leaves no trace, so only what can't be put on
				// record is.
				Validator: func(_ workflow.Context, raw converter.RawValue) error {
					m := decodeMessage(verb, raw)
					refusal := quarantine.Refuse(r.Case, m)
					switch {
					case refusal == nil || quarantine.OnRecord(r.Case, m):
						return nil
					case errors.Is(refusal, quarantine.ErrNoCase):
						return temporal.NewApplicationError(refusal.Error(), ErrorNoCase)
					}
					return refusal
				},
			})
		if err != nil {
			return fmt.Errorf("register update %s: %w", verb, err)
		}
	}
	return nil
}

// answer takes in an operator's message that came as an update. The validator let
// through what can be put on record, and here it is judged: the case is as it is now.
func (r *runner) answer(m quarantine.Message) (Answer, error) {
	refusal := quarantine.Refuse(r.Case, m)
	r.apply(m)
	r.changed.SendAsync(true)
	if refusal != nil {
		// Without a type, which tools would print behind the text.
		return Answer{}, temporal.NewApplicationError(refusal.Error(), "")
	}
	return Answer{
		Text:  fmt.Sprintf("%s accepted for %s", m.Verb, r.Case.Device),
		Phase: r.Case.Phase, Waiting: r.Case.Waiting, Epoch: r.Case.Epoch, Until: r.Case.LeaseUntil,
	}, nil
}

func describeVerb(verb quarantine.Verb) string {
	switch verb {
	case quarantine.VerbRelease:
		return "Close the reason and let recovery begin. Skips no gate. Of a restricted device that nobody holds: let one more Pod have it."
	case quarantine.VerbRepaired:
		return "The device was repaired; attempts start over. May carry a ticket."
	case quarantine.VerbRetire:
		return "Take the device out until it is repaired or replaced."
	case quarantine.VerbQuarantine:
		return "Take the device out by hand until a time, whatever its health says."
	case quarantine.VerbExtend:
		return "Extend the quarantine's lease."
	case quarantine.VerbEvict:
		return "Evict the device's holders."
	case quarantine.VerbWait:
		return "Wait for the holder to leave."
	}
	return string(verb)
}
