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

// subscription is one operator's signal.
type subscription struct {
	verb    incident.Verb
	channel workflow.ReceiveChannel
}

// subscribe opens all channels. Payloads are received raw: what can't be decoded is
// refused on record instead of being dropped by the SDK.
func (r *runner) subscribe() []subscription {
	var all []subscription
	for _, verb := range incident.Verbs {
		all = append(all, subscription{verb, workflow.GetSignalChannel(r.ctx, string(verb))})
	}
	return all
}

// room tells whether an operator's message can be taken in now.
func (r *runner) room() bool { return len(r.Incident.Notices) < backlog }

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
	r.apply(decodeMessage(s.verb, raw))
}

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
					return incident.Refuse(r.Incident, decodeMessage(verb, raw))
				},
			})
		if err != nil {
			return fmt.Errorf("register update %s: %w", verb, err)
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
