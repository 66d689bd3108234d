package device

import (
	"encoding/json"
	"fmt"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/workflows/operator"
)

// OperatorPayload is what an operator's message carries, by signal and by update. An
// extend may add "for":"4h".
type OperatorPayload = operator.Payload

// Answer is what an accepted update returns.
type Answer struct {
	Text    string             `json:"text"`
	Phase   quarantine.Phase   `json:"phase"`
	Waiting quarantine.Waiting `json:"waiting,omitempty"`
	Epoch   int64              `json:"epoch"`
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
			decode: func(_ *runner, raw converter.RawValue) quarantine.Event {
				return decodeMessage(verb, raw)
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
	payload, malformed := operator.Decode(raw)
	return quarantine.Message{Verb: verb, Actor: payload.Actor, Reason: payload.Reason, For: time.Duration(payload.For), Malformed: malformed}
}

// handle registers the query and the operators' updates.
func (r *runner) handle() error {
	if err := workflow.SetQueryHandler(r.ctx, QueryCase, func() (State, error) { return r.State, nil }); err != nil {
		return fmt.Errorf("register query %s: %w", QueryCase, err)
	}
	for _, verb := range quarantine.Verbs {
		err := workflow.SetUpdateHandlerWithOptions(r.ctx, string(verb),
			func(ctx workflow.Context, raw converter.RawValue) (Answer, error) {
				// A case can't be cancelled, and nor can what is asked of it.
				own, cancel := workflow.NewDisconnectedContext(ctx)
				defer cancel()
				if err := workflow.Await(own, func() bool { return len(r.Case.Notices) < backlog }); err != nil {
					return Answer{}, err
				}
				return r.answer(decodeMessage(verb, raw))
			},
			workflow.UpdateHandlerOptions{
				Description: describeVerb(verb),
				Validator: func(_ workflow.Context, raw converter.RawValue) error {
					return quarantine.Refuse(r.Case, decodeMessage(verb, raw))
				},
			})
		if err != nil {
			return fmt.Errorf("register update %s: %w", verb, err)
		}
	}
	return nil
}

// answer takes in an operator's message that came as an update. The validator
// judged the case as it was when the update came; signals may have changed it
// since, so the message is judged once more.
func (r *runner) answer(m quarantine.Message) (Answer, error) {
	refusal := quarantine.Refuse(r.Case, m)
	r.apply(m)
	r.changed.SendAsync(true)
	if refusal != nil {
		return Answer{}, refusal
	}
	return Answer{
		Text:  fmt.Sprintf("%s accepted for %s", m.Verb, r.Case.Device),
		Phase: r.Case.Phase, Waiting: r.Case.Waiting, Epoch: r.Case.Epoch,
	}, nil
}

func describeVerb(verb quarantine.Verb) string {
	switch verb {
	case quarantine.VerbRelease:
		return "Close the reason and let recovery begin. Skips no gate. Of a restricted device that nobody holds: let one more Pod have it."
	case quarantine.VerbRepaired:
		return "The device was repaired; attempts start over."
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
