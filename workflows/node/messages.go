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

// room tells whether an operator's message can be taken in now.
func (r *runner) room() bool { return len(r.Isolation.Notices) < backlog }

// take takes in a signal: an operator's, or that of the permits workflow.
func (r *runner) take(verb isolation.Verb, raw converter.RawValue) {
	if verb == SignalPermit {
		if signal, malformed := operator.DecodeAs[PermitSignal](raw); malformed == "" {
			r.apply(isolation.Offered{Epoch: signal.Epoch})
			return
		}
	}
	r.apply(decodeMessage(verb, raw))
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
		err := operator.HandleUpdate(r.ctx, verb, describeVerb(verb), r.room,
			func(_ workflow.Context, raw converter.RawValue) error {
				return isolation.Refuse(r.Isolation, decodeMessage(verb, raw))
			},
			func(raw converter.RawValue) (Accepted, error) { return r.accept(decodeMessage(verb, raw)) })
		if err != nil {
			return err
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
