package node

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/workflows/operator"
)

// Accepted is what an accepted operator's update returns.
type Accepted struct {
	Text  string          `json:"text"`
	Phase isolation.Phase `json:"phase"`
	Until time.Time       `json:"until,omitzero"`
}

// subscription is one signal: an operator's, or that of the permits workflow.
type subscription struct {
	verb    isolation.Verb
	channel workflow.ReceiveChannel
}

// subscribe opens all channels. Payloads are received raw: what can't be decoded is
// refused on record instead of being dropped by the SDK.
func (r *runner) subscribe() []subscription {
	var all []subscription
	for _, verb := range isolation.Verbs {
		all = append(all, subscription{verb, workflow.GetSignalChannel(r.ctx, string(verb))})
	}
	all = append(all, subscription{SignalPermit, workflow.GetSignalChannel(r.ctx, SignalPermit)})
	return all
}

// room tells whether an operator's message can be taken in now.
func (r *runner) room() bool { return len(r.Isolation.Notices) < backlog }

// drain takes in every signal that is there and has room.
func (r *runner) drain() {
	for _, s := range r.signals {
		for s.channel.Len() > 0 && r.room() {
			r.receive(s)
		}
	}
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
	if s.verb == SignalPermit {
		if signal, malformed := operator.DecodeAs[PermitSignal](raw); malformed == "" {
			r.apply(isolation.Offered{Epoch: signal.Epoch})
			return
		}
	}
	r.apply(decodeMessage(s.verb, raw))
}

func decodeMessage(verb isolation.Verb, raw converter.RawValue) isolation.Message {
	payload, malformed := operator.Decode(raw)
	return isolation.Message{Verb: verb, Actor: payload.Actor, Reason: payload.Reason, For: time.Duration(payload.For), Malformed: malformed}
}

// handle registers the query, and the updates of starters and operators.
func (r *runner) handle() error {
	if err := workflow.SetQueryHandler(r.ctx, QueryIsolation, func() (State, error) { return r.State, nil }); err != nil {
		return fmt.Errorf("register query %s: %w", QueryIsolation, err)
	}
	err := workflow.SetUpdateHandlerWithOptions(r.ctx, UpdateReport,
		func(_ workflow.Context, levels isolation.Levels) (isolation.Answer, error) {
			return r.answer(isolation.Reported{Levels: levels}), nil
		}, workflow.UpdateHandlerOptions{Description: "A starter tells what the node's devices are like."})
	if err != nil {
		return fmt.Errorf("register update %s: %w", UpdateReport, err)
	}
	for _, verb := range isolation.Verbs {
		err := workflow.SetUpdateHandlerWithOptions(r.ctx, string(verb),
			func(ctx workflow.Context, raw converter.RawValue) (Accepted, error) {
				if err := workflow.Await(ctx, r.room); err != nil {
					return Accepted{}, err
				}
				return r.accept(decodeMessage(verb, raw))
			},
			workflow.UpdateHandlerOptions{
				Description: describeVerb(verb),
				Validator: func(_ workflow.Context, raw converter.RawValue) error {
					return isolation.Refuse(r.Isolation, decodeMessage(verb, raw))
				},
			})
		if err != nil {
			return fmt.Errorf("register update %s: %w", verb, err)
		}
	}
	return nil
}

// answer takes an update's event in and wakes the main loop.
func (r *runner) answer(event isolation.Event) isolation.Answer {
	answer := r.apply(event)
	r.changed.SendAsync(true)
	return answer
}

// accept takes in an operator's message that came as an update. The validator
// judged what was known when the update came, so the message is judged once
// more.
func (r *runner) accept(m isolation.Message) (Accepted, error) {
	refusal := isolation.Refuse(r.Isolation, m)
	r.answer(m)
	if refusal != nil {
		return Accepted{}, refusal
	}
	accepted := Accepted{Text: fmt.Sprintf("%s accepted for node %s", m.Verb, r.Isolation.Node), Phase: r.Isolation.Phase}
	accepted.Until = r.Isolation.SparedUntil
	return accepted, nil
}

func describeVerb(verb isolation.Verb) string {
	if verb == isolation.VerbLift {
		return "Give the node back, and leave it alone: for a time, or until nothing justifies it any more."
	}
	return string(verb)
}
