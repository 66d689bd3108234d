package permits

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/workflows/operator"
)

// Payload is what an operator's message carries, by signal and by update: a scope like
// "node/anvil-07", and for a pause how long.
type Payload struct {
	operator.Payload
	Scope string `json:"scope"`
	// Upgrade announces that the scope's driver is upgraded meanwhile.
	Upgrade bool `json:"upgrade,omitempty"`
}

// Accepted is what an accepted operator's update returns.
type Accepted struct {
	Text string `json:"text"`
	// Until is the end of a pause.
	Until time.Time `json:"until,omitzero"`
}

// room tells whether an operator's message can be taken in now.
func (r *runner) room() bool { return len(r.Book.Notices) < backlog }

// take takes in an operator's signal.
func (r *runner) take(verb budget.Verb, raw converter.RawValue) { r.apply(decodeMessage(verb, raw)) }

func decodeMessage(verb budget.Verb, raw converter.RawValue) budget.Message {
	payload, malformed := operator.DecodeAs[Payload](raw)
	m := budget.Message{Verb: verb, Actor: payload.Actor, Reason: payload.Reason, For: time.Duration(payload.For), Upgrade: payload.Upgrade, Malformed: malformed}
	if malformed == "" {
		scope, err := budget.ParseScope(payload.Scope)
		if err != nil {
			m.Malformed = err.Error()
		}
		m.Scope = scope
	}
	return m
}

// handle registers the query, and the updates of cases, starters and operators.
func (r *runner) handle() error {
	err := workflow.SetQueryHandler(r.ctx, QueryPermits, func() (View, error) { return View{r.State, r.knobs.Limits}, nil })
	if err != nil {
		return fmt.Errorf("register query %s: %w", QueryPermits, err)
	}
	err = workflow.SetQueryHandler(r.ctx, QueryUpgrades, func() ([]budget.Pause, error) { return r.Book.Upgrades(), nil })
	if err != nil {
		return fmt.Errorf("register query %s: %w", QueryUpgrades, err)
	}
	err = workflow.SetUpdateHandlerWithOptions(r.ctx, UpdateAsk,
		func(_ workflow.Context, asked budget.Asked) ([]budget.Answer, error) {
			return r.answer(asked).Answers, nil
		}, workflow.UpdateHandlerOptions{Description: "Cases ask for permits to keep their devices out."})
	if err != nil {
		return fmt.Errorf("register update %s: %w", UpdateAsk, err)
	}
	err = workflow.SetUpdateHandlerWithOptions(r.ctx, UpdateReturn,
		func(_ workflow.Context, returned budget.Returned) error {
			r.answer(returned)
			return nil
		}, workflow.UpdateHandlerOptions{Description: "Permits come back: their marks are lifted, or their cases over."})
	if err != nil {
		return fmt.Errorf("register update %s: %w", UpdateReturn, err)
	}
	err = workflow.SetUpdateHandlerWithOptions(r.ctx, UpdateCount,
		func(_ workflow.Context, counted budget.Counted) (bool, error) {
			return r.answer(counted).Tell, nil
		}, workflow.UpdateHandlerOptions{Description: "A starter tells which marks exist, and how many devices there are."})
	if err != nil {
		return fmt.Errorf("register update %s: %w", UpdateCount, err)
	}
	err = workflow.SetUpdateHandlerWithOptions(r.ctx, UpdateTurn,
		func(_ workflow.Context, asked budget.TurnsAsked) ([]budget.Turn, error) {
			return r.answer(asked).Turns, nil
		}, workflow.UpdateHandlerOptions{Description: "Cases whose devices passed all gates ask whether it is their turn to be given back."})
	if err != nil {
		return fmt.Errorf("register update %s: %w", UpdateTurn, err)
	}
	for _, verb := range budget.Verbs {
		err := operator.HandleUpdate(r.ctx, verb, describeVerb(verb), r.room,
			func(ctx workflow.Context, raw converter.RawValue) error {
				return budget.Refuse(r.Book, decodeMessage(verb, raw), workflow.Now(ctx))
			},
			func(raw converter.RawValue) (Accepted, error) { return r.accept(decodeMessage(verb, raw)) })
		if err != nil {
			return err
		}
	}
	return nil
}

// answer takes an update's event in and wakes the main loop.
func (r *runner) answer(event budget.Event) budget.Outcome {
	out := r.apply(event)
	r.changed.SendAsync(true)
	return out
}

// accept takes in an operator's message that came as an update. The validator judged
// the book as it was when the update came, so the message is judged once more.
func (r *runner) accept(m budget.Message) (Accepted, error) {
	if refusal := r.answer(m).Refusal; refusal != nil {
		return Accepted{}, refusal
	}
	accepted := Accepted{Text: fmt.Sprintf("%s accepted for %s", m.Verb, m.Scope)}
	for _, p := range r.Book.Pauses {
		if m.Verb == budget.VerbPause && p.Scope == m.Scope && p.Actor == m.Actor {
			accepted.Until = p.Until
		}
	}
	return accepted, nil
}

func describeVerb(verb budget.Verb) string {
	switch verb {
	case budget.VerbPause:
		return "Make no new marks in a scope for a time; evidence is still gathered."
	case budget.VerbResume:
		return "End a scope's pauses."
	}
	return string(verb)
}
