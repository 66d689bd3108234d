package activities_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/sickbay-dev/sickbay/activities"
	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// The devices of a node come back one after the other, and those of a device plugin's
// resource, too; what their budgets know of marks is nothing to that. Without an answer
// it is nobody's turn. Proves a part of R3.
func TestWhoseTurnItIsIsAskedByDevice(t *testing.T) {
	d := &desk{limits: budget.DefaultLimits()}
	permits := activities.NewPermits(d, marks(nil), "worker-a", slog.New(slog.DiscardHandler))
	ask := func(key device.Key, node string, token int64) quarantine.ReturnAnswered {
		t.Helper()
		answer, err := permits.AskReturn(t.Context(), devicewf.Task[quarantine.AskReturn]{Command: quarantine.AskReturn{Device: key, Node: node, Epoch: 7, Token: token}})
		if err != nil || answer.Token != token || !answer.Granted && (answer.Why == "" || answer.Again <= 0) {
			t.Fatalf("%s: %+v, %v", key, answer, err)
		}
		return answer
	}
	dra := func(pool, name string) device.Key {
		return device.Key{Driver: "gpu.example.com", Pool: pool, Device: name}
	}
	plugin := func(node, id string) device.Key {
		return device.Key{Node: node, Resource: "example.com/gpu", ID: id}
	}
	for i, row := range []struct {
		key     device.Key
		node    string
		granted bool
	}{
		{dra("anvil-07", "gpu-0"), "anvil-07", true},
		{dra("anvil-07", "gpu-1"), "anvil-07", false},
		{dra("anvil-07", "gpu-0"), "anvil-07", true}, // asked again, below, by the same attempt
		{dra("anvil-08", "gpu-0"), "anvil-08", true},
		{plugin("anvil-09", "3"), "", true},
		{plugin("anvil-09", "4"), "", false},
		{plugin("anvil-07", "3"), "", false}, // the node is one, whatever it offers
	} {
		token := int64(100 + i)
		if i == 2 {
			token = 100
		}
		if got := ask(row.key, row.node, token); got.Granted != row.granted {
			t.Errorf("%s: %+v, want granted %t", row.key, got, row.granted)
		}
	}
	d.away = errors.New("temporal is away")
	answer, err := permits.AskReturn(t.Context(), devicewf.Task[quarantine.AskReturn]{Command: quarantine.AskReturn{Device: dra("anvil-10", "gpu-0"), Epoch: 7, Token: 200}})
	if err == nil || answer.Granted || !strings.Contains(err.Error(), "temporal is away") {
		t.Errorf("%+v, %v", answer, err)
	}
}
