package device_test

import (
	"strings"
	"testing"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// updates receives an update's answer.
type updates struct {
	t           *testing.T
	wantRefusal string
}

func (u *updates) Accept() {
	if u.wantRefusal != "" {
		u.t.Errorf("accepted, want it refused with %q", u.wantRefusal)
	}
}

func (u *updates) Reject(err error) {
	if u.wantRefusal == "" || !strings.Contains(err.Error(), u.wantRefusal) {
		u.t.Errorf("refused with %q, want %q", err, u.wantRefusal)
	}
}

func (u *updates) Complete(_ any, err error) {
	if err != nil && u.wantRefusal == "" {
		u.t.Errorf("ended with %v", err)
	}
}

func decode(payloads *commonpb.Payloads, into any) error {
	return converter.GetDefaultDataConverter().FromPayloads(payloads, into)
}
