package device

import (
	"context"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// This file finds out who sent an operator's message. A message says who it is from, and
// anybody can say anything. The server notes in the run's history what the sender's client
// called itself, its identity, which is claimed as well; and of a signal, where it
// authenticates its callers and is told to (frontend.enablePrincipalPropagation), whom it
// let through. Of an update it notes no such thing: its event comes from the worker.

// Senders finds the senders of a run's operators' messages in its history.
type Senders struct {
	run   string
	came  map[quarantine.Sent]int
	found map[quarantine.Sent]sender
}

// sender is what the server noted of who sent a message.
type sender struct {
	identity, caller string
}

// maxSender bounds each of the two texts.
const maxSender = 256

// NewSenders finds none, yet.
func NewSenders(run string) *Senders {
	return &Senders{run: run, came: map[quarantine.Sent]int{}, found: map[quarantine.Sent]sender{}}
}

// Note takes in the next event of the run's history. All have to come, in their order.
func (s *Senders) Note(event *historypb.HistoryEvent) {
	if signaled := event.GetWorkflowExecutionSignaledEventAttributes(); signaled != nil {
		caller := ""
		if p := event.GetPrincipal(); p.GetName() != "" {
			caller = p.GetType() + ":" + p.GetName()
		}
		s.note(quarantine.Sent{Run: s.run, Verb: quarantine.Verb(signaled.GetSignalName())}, sender{signaled.GetIdentity(), caller})
	}
	if accepted := event.GetWorkflowExecutionUpdateAcceptedEventAttributes(); accepted != nil {
		request := accepted.GetAcceptedRequest()
		s.note(quarantine.Sent{Run: s.run, Verb: quarantine.Verb(request.GetInput().GetName()), Update: true}, sender{identity: request.GetMeta().GetIdentity()})
	}
}

func (s *Senders) note(sent quarantine.Sent, from sender) {
	s.came[sent]++
	sent.Nth = s.came[sent]
	s.found[sent] = from
}

// Tell adds to decisions that an operator's message led to who sent it, as far as it was
// found.
func (s *Senders) Tell(notices []quarantine.Notice) {
	for i := range notices {
		if from, known := s.found[notices[i].Sent]; known {
			notices[i].Identity, notices[i].Caller = short(from.identity), short(from.caller)
		}
	}
}

func short(text string) string {
	if len(text) > maxSender {
		return text[:maxSender]
	}
	return text
}

// TellSenders is Tell for decisions of one workflow, from the histories of their runs.
func (c *Client) TellSenders(ctx context.Context, workflowID string, notices []quarantine.Notice) error {
	read := map[string]bool{}
	for _, n := range notices {
		if n.Sent.Run == "" || read[n.Sent.Run] {
			continue
		}
		read[n.Sent.Run] = true
		senders := NewSenders(n.Sent.Run)
		events := c.temporal.GetWorkflowHistory(ctx, workflowID, n.Sent.Run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for events.HasNext() {
			event, err := events.Next()
			if err != nil {
				return fmt.Errorf("read the history of workflow %s, run %s: %w", workflowID, n.Sent.Run, err)
			}
			senders.Note(event)
		}
		senders.Tell(notices)
	}
	return nil
}
