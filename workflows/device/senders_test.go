package device_test

import (
	"testing"

	commonpb "go.temporal.io/api/common/v1"
	historypb "go.temporal.io/api/history/v1"
	updatepb "go.temporal.io/api/update/v1"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// Proves a part of R6. Who a message says that it is from is what its sender claims. What
// the server noted of the sender stands beside it, for the message that led to a decision
// and for no other; of an update the server notes no caller, and the worker that took it in
// isn't taken for one.
func TestWhoSentAMessageIsToldApartFromWhoItSaysItIsFrom(t *testing.T) {
	signal := func(name, identity, caller string) *historypb.HistoryEvent {
		event := &historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_WorkflowExecutionSignaledEventAttributes{
			WorkflowExecutionSignaledEventAttributes: &historypb.WorkflowExecutionSignaledEventAttributes{SignalName: name, Identity: identity},
		}}
		if caller != "" {
			event.Principal = &commonpb.Principal{Type: "jwt", Name: caller}
		}
		return event
	}
	update := &historypb.HistoryEvent{
		Principal: &commonpb.Principal{Type: "jwt", Name: "worker"},
		Attributes: &historypb.HistoryEvent_WorkflowExecutionUpdateAcceptedEventAttributes{
			WorkflowExecutionUpdateAcceptedEventAttributes: &historypb.WorkflowExecutionUpdateAcceptedEventAttributes{AcceptedRequest: &updatepb.Request{
				Meta: &updatepb.Meta{Identity: "sickbay-release@laptop"}, Input: &updatepb.Input{Name: "release"},
			}},
		},
	}
	senders := devicewf.NewSenders("run-1")
	for _, event := range []*historypb.HistoryEvent{
		signal("release", "tctl@laptop", "alice@example.com"), signal("observed", "starter", "starter"), update,
		signal("release", "temporal-cli:eve@laptop", "eve@example.com"), signal("retire", "nobody", ""),
	} {
		senders.Note(event)
	}
	sent := func(run string, verb quarantine.Verb, update bool, nth int) quarantine.Notice {
		return quarantine.Notice{Actor: "bob@example.com", Sent: quarantine.Sent{Run: run, Verb: verb, Update: update, Nth: nth}}
	}
	notices := []quarantine.Notice{
		sent("run-1", "release", false, 1), sent("run-1", "release", false, 2), sent("run-1", "release", true, 1), sent("run-1", "retire", false, 1),
		sent("run-0", "release", false, 1), {Actor: "sickbay"},
	}
	senders.Tell(notices)
	for i, want := range [][2]string{
		{"tctl@laptop", "jwt:alice@example.com"}, {"temporal-cli:eve@laptop", "jwt:eve@example.com"}, {"sickbay-release@laptop", ""}, {"nobody", ""}, {"", ""}, {"", ""},
	} {
		n := notices[i]
		if n.Identity != want[0] || n.Caller != want[1] {
			t.Errorf("%+v was sent by %q, whose client calls itself %q; want %q", n.Sent, n.Caller, n.Identity, want)
		}
		if i < 5 && n.Actor != "bob@example.com" {
			t.Errorf("%+v says that it is from %q", n.Sent, n.Actor)
		}
	}
}
