package cmd

import (
	"strings"
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/budget"
)

// A pause of a driver or class that no device has is most likely a slip of the hand, and
// what was meant isn't paused.
func TestAPauseOfWhatNobodyHasIsNoted(t *testing.T) {
	sizes := []budget.Size{
		{Scope: budget.Everything, Eligible: 11},
		{Scope: budget.Scope{Kind: budget.Class, Name: "example.com/gpu"}, Eligible: 3},
		{Scope: budget.Scope{Kind: budget.Class, Name: "gpu.example.com"}, Eligible: 8},
	}
	for name, noted := range map[string]bool{
		"driver/gpu.example.com": false, "class/example.com/gpu": false, "pool/gpu.example.com/anvil-07": false, "cluster": false, "node/anvil-07": false,
		"driver/gpu.exmple.com": true, "class/gpu": true, "pool/gpu/anvil-07": true,
	} {
		scope, err := budget.ParseScope(name)
		if err != nil {
			t.Fatal(err)
		}
		said := strings.Join(uncounted(scope, sizes), "")
		if (said != "") != noted || noted && !strings.Contains(said, "those of example.com/gpu, gpu.example.com are") {
			t.Errorf("%s: %q", name, said)
		}
		if said := uncounted(scope, nil); len(said) > 0 {
			t.Errorf("%s, where nobody counted yet: %q", name, said)
		}
	}
}
