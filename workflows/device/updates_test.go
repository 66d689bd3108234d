package device_test

import (
	"strings"
	"testing"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// updates receives an update's answer: wantRefusal is that of one which the case
// refuses on record, wantTurnedAway of one that leaves no trace.
type updates struct {
	t                           *testing.T
	wantRefusal, wantTurnedAway string
}

func (u *updates) Accept() {
	if u.wantTurnedAway != "" {
		u.t.Errorf("taken in, want it turned away with %q", u.wantTurnedAway)
	}
}

func (u *updates) Reject(err error) {
	if u.wantTurnedAway == "" || !strings.Contains(err.Error(), u.wantTurnedAway) {
		u.t.Errorf("turned away with %q, want %q", err, u.wantTurnedAway)
	}
}

func (u *updates) Complete(_ any, err error) {
	switch {
	case err == nil && u.wantRefusal != "":
		u.t.Errorf("accepted, want it refused with %q", u.wantRefusal)
	case err != nil && (u.wantRefusal == "" || !strings.Contains(err.Error(), u.wantRefusal)):
		u.t.Errorf("refused with %q, want %q", err, u.wantRefusal)
	}
}

func decode(payloads *commonpb.Payloads, into any) error {
	return converter.GetDefaultDataConverter().FromPayloads(payloads, into)
}
