package incident

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/workflows/operator"
)

// Accepted is what an accepted operator's update returns.
type Accepted struct {
	Text  string         `json:"text"`
	Phase incident.Phase `json:"phase"`
	Until time.Time      `json:"until,omitzero"`
}

// room tells whether an operator's message can be taken in now.
func (r *runner) room() bool { return len(r.Incident.Notices) < backlog }

// take takes in an operator's signal.
func (r *runner) take(verb incident.Verb, raw converter.RawValue) { r.apply(decodeMessage(verb, raw)) }

func decodeMessage(verb incident.Verb, raw converter.RawValue) incident.Message {
	payload, malformed := operator.Decode(raw)
	return incident.Message{Verb: verb, Actor: payload.Actor, Reason: payload.Reason, For: time.Duration(payload.For), Malformed: malformed}
}

// handle registers the query, and the updates of starters, cases and operators.
func (r *runner) handle() error {
	if err := workflow.SetQueryHandler(r.ctx, QueryIncident, func() (State, error) { return r.State, nil }); err != nil {
		return fmt.Errorf("register query %s: %w", QueryIncident, err)
	}
	err := workflow.SetUpdateHandlerWithOptions(r.ctx, UpdateReport,
		func(_ workflow.Context, levels incident.Levels) (incident.Answer, error) {
			return r.answer(incident.Reported{Levels: levels}), nil
		}, workflow.UpdateHandlerOptions{Description: "A starter tells how many devices it counts."})
	if err != nil {
		return fmt.Errorf("register update %s: %w", UpdateReport, err)
	}
	err = workflow.SetUpdateHandlerWithOptions(r.ctx, UpdateAsk,
		func(_ workflow.Context, device string, since time.Time) (incident.Answer, error) {
			return r.answer(incident.Asked{Device: device, Since: since}), nil
		}, workflow.UpdateHandlerOptions{Description: "A device's case asks whether it may restrict the device."})
	if err != nil {
		return fmt.Errorf("register update %s: %w", UpdateAsk, err)
	}
	for _, verb := range incident.Verbs {
		err := operator.HandleUpdate(r.ctx, verb, describeVerb(verb), r.room,
			func(_ workflow.Context, raw converter.RawValue) error {
				return incident.Refuse(r.Incident, decodeMessage(verb, raw))
			},
			func(raw converter.RawValue) (Accepted, error) { return r.accept(decodeMessage(verb, raw)) })
		if err != nil {
			return err
		}
	}
	return nil
}

// answer takes an update's event in and wakes the main loop.
func (r *runner) answer(event incident.Event) incident.Answer {
	answer := r.apply(event)
	r.changed.SendAsync(true)
	return answer
}

// accept takes in an operator's message that came as an update. The validator
// judged the incident as it was when the update came, so the message is judged once
// more.
func (r *runner) accept(m incident.Message) (Accepted, error) {
	refusal := incident.Refuse(r.Incident, m)
	r.answer(m)
	if refusal != nil {
		return Accepted{}, refusal
	}
	accepted := Accepted{Text: fmt.Sprintf("%s accepted for incident %s", m.Verb, r.Incident.Scope), Phase: r.Incident.Phase}
	if r.Incident.Phase == incident.Holding {
		accepted.Until = r.Incident.Until
	}
	return accepted, nil
}

func describeVerb(verb incident.Verb) string {
	switch verb {
	case incident.VerbWait:
		return "Hold its devices longer."
	case incident.VerbAdmit:
		return "Let all its devices through now."
	case incident.VerbClose:
		return "End it; nothing is left of it."
	}
	return string(verb)
}
