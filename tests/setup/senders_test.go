package setup

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.temporal.io/api/serviceerror"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// decided is what the trail says of an operator's message.
type decided struct {
	Kind                            quarantine.NoticeKind
	Actor, Identity, Caller, Reason string
	Text                            string
}

// trail is what was decided about operators' messages, by who is said to have sent them.
func (s *site) trail(t *testing.T, actor string) []decided {
	t.Helper()
	a := s.sickbay(nil, "audit", "--kind", "OperatorMessage*", "--actor", actor, "-o", "json")
	a.wants(t, 0)
	var trail struct{ Decisions []decided }
	if err := json.Unmarshal([]byte(a.out), &trail); err != nil {
		t.Fatalf("%v\n%s", err, a.out)
	}
	return trail.Decisions
}

// speaking is who may speak to cases: Temporal's authorizer settles it by the caller's
// key, whatever name the message carries.
func (s *secured) speaking(t *testing.T) {
	key, _ := faultyDevice(t)
	keyOf := func(subject string, right string) (file, content string) {
		content, err := s.stack.TemporalKey(subject, time.Hour, "sickbay:"+right)
		if err != nil {
			t.Fatal(err)
		}
		return s.file("key-of-"+subject, content), content
	}
	readers, reading := keyOf("eve@example.com", "read")
	writers, writing := keyOf("alice@example.com", "write")
	const claimed = "bob@example.com"

	// Who may only read sends nothing, under no name.
	a := s.sickbay([]string{"SICKBAY_TEMPORAL_API_KEY_FILE=" + readers}, "release", key.String(), "--reason", "looks fine", "--actor", claimed)
	a.wants(t, 1, "Request unauthorized", readers, "docs/temporal.md")
	err := s.dial("sickbay", reading).SignalWorkflow(t.Context(), devicewf.ID(key), "", "release", devicewf.OperatorPayload{Actor: claimed, Reason: "looks fine"})
	if _, denied := err.(*serviceerror.PermissionDenied); !denied {
		t.Errorf("a reader's signal: %v", err)
	}

	// Who may write does, under any name; whom Temporal let through stands beside it.
	err = s.dial("sickbay", writing).SignalWorkflow(t.Context(), devicewf.ID(key), "", "release", devicewf.OperatorPayload{Actor: claimed, Reason: "reseated"})
	if err != nil {
		t.Fatal(err)
	}
	a = s.sickbay([]string{"SICKBAY_TEMPORAL_API_KEY_FILE=" + writers}, "extend", key.String(), "--reason", "a spare is ordered", "--actor", claimed, "--for", "48h")
	a.wants(t, 0, "extend accepted for "+key.String(), ", until ", "Quarantined")
	s.checkSenders(t, key, claimed)
}

// checkSenders wants the claimed and the authenticated sender apart: in the trail, and in
// the worker's log.
func (s *secured) checkSenders(t *testing.T, key device.Key, claimed string) {
	t.Helper()
	s.eventually("the trail tells who sent what", func(context.Context) error {
		var signal, update *decided
		for _, d := range s.trail(t, claimed) {
			switch {
			case strings.HasPrefix(d.Text, "release accepted"):
				signal = &d
			case strings.HasPrefix(d.Text, "lease extended"):
				update = &d
			default:
				return fmt.Errorf("somebody said: %+v", d)
			}
		}
		switch {
		case signal == nil || update == nil:
			return fmt.Errorf("signal %+v, update %+v", signal, update)
		case signal.Caller != "jwt:alice@example.com" || signal.Identity == "":
			return fmt.Errorf("the signal was sent by %q, whose client calls itself %q", signal.Caller, signal.Identity)
		case update.Caller != "" || !strings.Contains(update.Identity, "sickbay-extend"):
			// Temporal notes no caller of an update.
			return fmt.Errorf("the update was sent by %q, whose client calls itself %q", update.Caller, update.Identity)
		}
		return nil
	})
	s.eventually("the log tells who sent what", func(context.Context) error {
		if log := s.log("worker"); !strings.Contains(log, `"actor":"bob@example.com"`) || !strings.Contains(log, `"caller":"jwt:alice@example.com"`) {
			return fmt.Errorf("it says %s", log)
		}
		return nil
	})
	s.sickbay(nil, "audit", "--actor", claimed, "-o", "wide").wants(t, 0, "CALLER", "jwt:alice@example.com")
}
