package device_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.temporal.io/api/serviceerror"

	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// A fault isn't held back for long because its signal came while Temporal was away,
// busy, or just getting its namespace; what can't become right by itself isn't sent
// over and over.
func TestWhatMayPassIsTriedAgainAndWhatIsWrongIsNot(t *testing.T) {
	for what, c := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":                         {nil, false},
		"Temporal is away":                {serviceerror.NewUnavailable("connection refused"), true},
		"it is busy":                      {&serviceerror.ResourceExhausted{}, true},
		"it has no such namespace yet":    {serviceerror.NewNamespaceNotFound("sickbay"), true},
		"the signal is wrong":             {serviceerror.NewInvalidArgument("too long"), false},
		"the right to send it is missing": {serviceerror.NewPermissionDenied("no", ""), false},
		"there is no case":                {devicewf.ErrNoCase, false},
		"the sender ends":                 {context.Canceled, false},
		"it isn't known what":             {errors.New("something"), true},
	} {
		for _, err := range []error{c.err, fmt.Errorf("signal: %w", c.err)} {
			if c.err == nil {
				err = nil
			}
			if got := devicewf.Retryable(err); got != c.want {
				t.Errorf("%s: tried again %t, want %t", what, got, c.want)
			}
		}
	}
}
