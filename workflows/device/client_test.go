package device_test

import (
	"strings"
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/device"
	workflow "github.com/sickbay-dev/sickbay/workflows/device"
)

// A plugin's ID can be any text. A workflow's travels in a header and has 1,000
// characters at most.
func TestEveryDeviceHasAWorkflowIDThatTemporalTakes(t *testing.T) {
	long := strings.Repeat("x", 1100)
	of := map[string]string{} // workflow ID → plugin's ID
	for id, want := range map[string]string{
		"GPU-3f":                 "device/anvil-07/example.com/gpu/GPU-3f",
		"a/b:c":                  "device/anvil-07/example.com/gpu/a/b:c",
		"carte-é":                "device/anvil-07/example.com/gpu/carte-%C3%A9",
		"tab\there":              "device/anvil-07/example.com/gpu/tab%09here",
		"tab%09here":             "device/anvil-07/example.com/gpu/tab%2509here",
		"a b~":                   "device/anvil-07/example.com/gpu/a%20b%7E",
		long:                     "",
		long + "y":               "",
		strings.Repeat("é", 200): "",
	} {
		got := workflow.ID(device.Key{Node: "anvil-07", Resource: "example.com/gpu", ID: id})
		if want != "" && got != want {
			t.Errorf("%q has workflow %q, want %q", id, got, want)
		}
		if len(got) > 1000 || strings.ContainsFunc(got, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Errorf("%q has workflow %q", id, got)
		}
		if other, twice := of[got]; twice {
			t.Errorf("%q and %q have the same workflow %q", id, other, got)
		}
		of[got] = id
	}
}
