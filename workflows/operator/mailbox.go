package operator

import (
	"fmt"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
)

// Mailbox holds the signals of one run until there is room for what they say. None is
// lost: a run doesn't end while one is unread.
type Mailbox[V ~string] struct {
	room  func() bool
	take  func(V, converter.RawValue)
	slots []slot[V]
}

// slot is one signal.
type slot[V ~string] struct {
	verb    V
	channel workflow.ReceiveChannel
}

// OpenMailbox opens the channels of all verbs. Payloads are received raw: what can't be
// decoded is refused on record by take, instead of being dropped by the SDK.
func OpenMailbox[V ~string](ctx workflow.Context, verbs []V, room func() bool, take func(V, converter.RawValue)) *Mailbox[V] {
	m := &Mailbox[V]{room: room, take: take}
	for _, verb := range verbs {
		m.slots = append(m.slots, slot[V]{verb, workflow.GetSignalChannel(ctx, string(verb))})
	}
	return m
}

// Drain takes in every signal that is there and has room.
func (m *Mailbox[V]) Drain(ctx workflow.Context) {
	for _, s := range m.slots {
		for s.channel.Len() > 0 && m.room() {
			m.receive(ctx, s)
		}
	}
}

// Unread tells whether a signal is there that wasn't taken in.
func (m *Mailbox[V]) Unread() bool {
	for _, s := range m.slots {
		if s.channel.Len() > 0 {
			return true
		}
	}
	return false
}

// Await adds the signals for which there is room to a selector.
func (m *Mailbox[V]) Await(ctx workflow.Context, selector workflow.Selector) {
	for _, s := range m.slots {
		if m.room() {
			selector.AddReceive(s.channel, func(workflow.ReceiveChannel, bool) { m.receive(ctx, s) })
		}
	}
}

func (m *Mailbox[V]) receive(ctx workflow.Context, s slot[V]) {
	var raw converter.RawValue
	s.channel.Receive(ctx, &raw)
	m.take(s.verb, raw)
}

// HandleUpdate registers the update by which an operator's message is answered at once:
// refuse judges it before it is accepted, and accept takes it in once there is room. What
// was judged may have changed by then, so accept judges once more.
func HandleUpdate[V ~string, A any](
	ctx workflow.Context, verb V, description string, room func() bool,
	refuse func(workflow.Context, converter.RawValue) error, accept func(converter.RawValue) (A, error),
) error {
	err := workflow.SetUpdateHandlerWithOptions(ctx, string(verb),
		func(ctx workflow.Context, raw converter.RawValue) (A, error) {
			if err := workflow.Await(ctx, room); err != nil {
				var none A
				return none, err
			}
			return accept(raw)
		},
		workflow.UpdateHandlerOptions{Description: description, Validator: refuse})
	if err != nil {
		return fmt.Errorf("register update %s: %w", verb, err)
	}
	return nil
}
