package show

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	permitswf "github.com/sickbay-dev/sickbay/workflows/permits"
)

// Who comes back, what failed again and who waits for its turn is in sight, for people and
// for machines; a settling time that is over is no more. Proves a part of R3.
func TestWhoComesBackIsShown(t *testing.T) {
	now := time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)
	v := permitswf.View{Limits: budget.DefaultLimits()}
	asks := func(token int64, pool, name string) budget.AskTurn {
		return budget.AskTurn{Device: "gpu.example.com/" + pool + "/" + name, Epoch: 7, Token: token, Scopes: []budget.Scope{{Kind: budget.Class, Name: "gpu.example.com"}, {Kind: budget.Node, Name: pool}}}
	}
	decide := func(e budget.Event) { v.Book, _ = budget.Decide(v.Book, e, now, v.Limits) }
	decide(budget.TurnsAsked{Asks: []budget.AskTurn{asks(1, "anvil-07", "gpu-0")}})
	now = now.Add(5 * time.Minute)
	decide(budget.TurnsAsked{Asks: []budget.AskTurn{asks(2, "anvil-08", "gpu-0"), asks(3, "anvil-08", "gpu-1")}})
	decide(budget.Asked{Asks: []budget.Ask{{Device: "gpu.example.com/anvil-08/gpu-0", Epoch: 8, Purpose: budget.Mark}}})
	now = now.Add(3 * time.Minute)
	decide(budget.TurnsAsked{Asks: []budget.AskTurn{asks(3, "anvil-08", "gpu-1")}})
	print := func(format Format) string {
		var out strings.Builder
		if err := PrintBudgets(&out, BudgetsOf(v, now), format, false); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	said := print(Table)
	for _, line := range []string{
		"gpu.example.com/anvil-07/gpu-0  8m     2m",
		"gpu.example.com/anvil-08/gpu-0  3m     7m          failed again; nothing of its class comes back until then",
		"1          gpu.example.com/anvil-08/gpu-1  3m     gpu.example.com/anvil-08/gpu-0 failed again soon",
		"Of a node 1 may be coming back at once, of a class 4, 8 in all; each settles for 10m0s.",
	} {
		if !strings.Contains(said, line) {
			t.Errorf("it doesn't say %q:\n%s", line, said)
		}
	}
	now = now.Add(2 * time.Minute)
	var b Budgets
	if err := json.Unmarshal([]byte(print(JSON)), &b); err != nil {
		t.Fatal(err)
	}
	if r := b.Returns; len(r.Coming) != 1 || r.Coming[0].Relapsed.IsZero() || len(r.Waiting) != 1 || r.Waiting[0].For != "class/gpu.example.com" || r.PerNode != 1 {
		t.Errorf("%+v", r)
	}
	v.Book.Returns = budget.Returns{}
	if said := print(Table); strings.Contains(said, "BACK") || strings.Contains(said, "coming back") {
		t.Errorf("nothing comes back:\n%s", said)
	}
}
