package budget_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sickbay-dev/sickbay/pkg/budget"
)

// world is a fleet whose cases ask at random.
type world struct {
	book   budget.Book
	limits budget.Limits
	now    time.Time
	sizes  []budget.Size
	// marks are those that exist, by device.
	marks map[string]budget.Standing
}

func drawLimit(rt *rapid.T, name string) budget.Limit {
	l := budget.Limit{Percent: float64(rapid.IntRange(0, 100).Draw(rt, name)), Min: rapid.IntRange(0, 3).Draw(rt, name+" min")}
	if rapid.Bool().Draw(rt, name+" has a max") {
		l.Max = max(rapid.IntRange(1, 20).Draw(rt, name+" max"), l.Min)
	}
	return l
}

func drawWorld(rt *rapid.T) *world {
	w := &world{now: start, marks: map[string]budget.Standing{}, limits: budget.Limits{
		Cluster: drawLimit(rt, "cluster"), Class: drawLimit(rt, "class"), Node: drawLimit(rt, "node"), Tenant: drawLimit(rt, "tenant"),
		Pace: rapid.IntRange(0, 60).Draw(rt, "pace"),
	}}
	w.sizes = []budget.Size{{Scope: budget.Everything, Eligible: 80}}
	for _, class := range []string{"a", "b"} {
		w.sizes = append(w.sizes, budget.Size{Scope: budget.Scope{Kind: budget.Class, Name: class}, Eligible: 40})
	}
	return w
}

// drawAsk asks for one of 80 devices, eight on each of ten nodes.
func drawAsk(rt *rapid.T) budget.Ask {
	n := rapid.IntRange(0, 79).Draw(rt, "device")
	node := budget.Scope{Kind: budget.Node, Name: fmt.Sprintf("node-%d", n/8)}
	a := budget.Ask{
		Device: fmt.Sprintf("d/node-%d/gpu-%d", n/8, n%8), Epoch: int64(rapid.IntRange(1, 3).Draw(rt, "epoch")),
		Purpose:  rapid.SampledFrom(budget.Purposes()).Draw(rt, "purpose"),
		Scopes:   []budget.Scope{{Kind: budget.Driver, Name: "d"}, {Kind: budget.Class, Name: []string{"a", "b"}[n%2]}, node},
		Sizes:    []budget.Size{{Scope: node, Eligible: 8}},
		Severity: rapid.IntRange(1, 4).Draw(rt, "severity"), Since: start.Add(time.Duration(rapid.IntRange(0, 600).Draw(rt, "since")) * time.Second),
	}
	if tenant := rapid.SampledFrom([]string{"", "ml", "web"}).Draw(rt, "tenant"); tenant != "" {
		s := budget.Scope{Kind: budget.Tenant, Name: tenant}
		a.Scopes, a.Sizes = append(a.Scopes, s), append(a.Sizes, budget.Size{Scope: s, Eligible: 20})
	}
	if n%8 == 0 && rapid.IntRange(0, 9).Draw(rt, "whole node") == 0 {
		a.Device, a.Cost = budget.Whole(node.Name), 8
		a.Scopes = []budget.Scope{{Kind: budget.Class, Name: "a"}, {Kind: budget.Class, Name: "b"}, node}
		a.Costs = []budget.Size{{Scope: a.Scopes[0], Eligible: 4}, {Scope: a.Scopes[1], Eligible: 4}}
	}
	return a
}

func (w *world) list() []budget.Standing {
	var all []budget.Standing
	for _, m := range w.marks {
		all = append(all, m)
	}
	return all
}

// limitOf is what a scope allows by the sizes that were told.
func (w *world) limitOf(s budget.Scope) int {
	switch s.Kind {
	case budget.Cluster:
		return w.limits.Cluster.Of(80)
	case budget.Class:
		return w.limits.Class.Of(40)
	case budget.Node:
		return w.limits.Node.Of(8)
	}
	return w.limits.Tenant.Of(20)
}

func (w *world) decide(rt *rapid.T, e budget.Event) budget.Outcome {
	var out budget.Outcome
	w.book, out = budget.Decide(w.book, e, w.now, w.limits)
	content, err := json.Marshal(w.book)
	if err != nil {
		rt.Fatal(err)
	}
	// What was written down decides as what was in memory.
	w.book = budget.Book{}
	if err := json.Unmarshal(content, &w.book); err != nil {
		rt.Fatal(err)
	}
	w.book = w.book.Announced(w.book.NoticeSeq)
	return out
}

func (w *world) scopes() []budget.Scope {
	all := []budget.Scope{budget.Everything, {Kind: budget.Class, Name: "a"}, {Kind: budget.Class, Name: "b"}, {Kind: budget.Tenant, Name: "ml"}, {Kind: budget.Tenant, Name: "web"}}
	for n := range 10 {
		all = append(all, budget.Scope{Kind: budget.Node, Name: fmt.Sprintf("node-%d", n)})
	}
	return all
}

// B1. Whatever is asked, returned, paused and counted, in whatever order: never is more
// granted than a limit allows in any scope, nothing in a paused scope, nothing before it
// is known what exists, and nobody overtakes somebody graver that waits for the same.
func TestNoLimitIsEverExceeded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 300).Draw(rt, "seconds")) * time.Second)
			w.book, _ = budget.Decide(w.book, budget.Woke{}, w.now, w.limits)
			before := w.book
			known := !before.Known.IsZero()
			var out budget.Outcome
			var asks []budget.Ask
			counted := false
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				counted = true
				out = w.decide(rt, budget.Counted{Marks: w.list(), Sizes: w.sizes, By: "a"})
			case 1:
				if len(before.Marks.Grants) > 0 {
					g := rapid.SampledFrom(before.Marks.Grants).Draw(rt, "back")
					delete(w.marks, g.Device)
					out = w.decide(rt, budget.Returned{Permits: []budget.Permit{{Device: g.Device, Epoch: g.Epoch, Purpose: budget.Mark}}})
				}
			case 2:
				scope := rapid.SampledFrom(w.scopes()).Draw(rt, "scope")
				verb := rapid.SampledFrom(budget.Verbs[:]).Draw(rt, "verb")
				m := budget.Message{Verb: verb, Scope: scope, Actor: "x", Reason: "x"}
				if verb == budget.VerbPause {
					m.For = time.Duration(rapid.IntRange(1, 900).Draw(rt, "for")) * time.Second
				}
				out = w.decide(rt, m)
			case 3:
				// A granted mark is made.
				for _, g := range before.Marks.Grants {
					w.marks[g.Device] = budget.Standing{Device: g.Device, Epoch: g.Epoch, Scopes: g.Scopes, Cost: g.Cost}
				}
				continue
			default:
				for range rapid.IntRange(1, 12).Draw(rt, "asks") {
					asks = append(asks, drawAsk(rt))
				}
				out = w.decide(rt, budget.Asked{Asks: asks})
			}
			if !known && !counted && (granted(out.Answers) > 0 || len(out.Offers) > 0) {
				rt.Fatalf("granted before it knows what exists: %+v", out)
			}
			if len(out.Answers) != len(asks) {
				rt.Fatalf("%d answers to %d asks", len(out.Answers), len(asks))
			}
			for i, a := range out.Answers {
				if a.Device != asks[i].Device || !a.Granted && (a.Why == "" || a.Again <= 0) {
					rt.Fatalf("asked %+v, answered %+v", asks[i], a)
				}
			}
			w.check(rt, before)
		}
	})
}

func (w *world) check(rt *rapid.T, before budget.Book) {
	for _, p := range budget.Purposes() {
		ledger, was := w.book.Ledger(p), before.Ledger(p)
		for _, s := range w.scopes() {
			used := ledger.Used(s)
			// Tenants come and go on a mark; what changed hands isn't a new permit.
			if limit := w.limitOf(s); used > limit && used > was.Used(s) && s.Kind != budget.Tenant {
				rt.Fatalf("%s: %d in force for %s, and %d are allowed", s, used, p, limit)
			}
		}
		if !slices.IsSortedFunc(ledger.Grants, func(a, b budget.Grant) int { return stringsCompare(a.Device, b.Device) }) {
			rt.Fatalf("the permits aren't sorted: %+v", ledger.Grants)
		}
		for i, x := range ledger.Waiters {
			if slices.ContainsFunc(ledger.Grants, func(g budget.Grant) bool { return g.Device == x.Device && g.Epoch >= x.Epoch }) {
				rt.Fatalf("%s waits and has a permit", x.Device)
			}
			for _, y := range ledger.Waiters[:i] {
				if y.Severity < x.Severity || y.Severity == x.Severity && y.Since.After(x.Since) {
					rt.Fatalf("%+v stands before %+v", y, x)
				}
			}
		}
	}
}

func stringsCompare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// B2. Whoever waits gets a permit in the end, as long as others give theirs back and
// nothing is paused for ever, and a batch is answered alike in whatever order it comes.
func TestWhoeverWaitsGetsAPermitInTheEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		w.decide(rt, budget.Counted{Sizes: w.sizes, By: "a"})
		wants := map[string]budget.Ask{}
		for range rapid.IntRange(1, 60).Draw(rt, "devices") {
			a := drawAsk(rt)
			a.Purpose, a.Cost, a.Costs = budget.Mark, 0, nil
			wants[a.Device] = a
		}
		var asks []budget.Ask
		for _, a := range wants {
			asks = append(asks, a)
		}
		slices.SortFunc(asks, func(a, b budget.Ask) int { return stringsCompare(a.Device, b.Device) })
		reversed := slices.Clone(asks)
		slices.Reverse(reversed)
		one, forth := budget.Decide(w.book, budget.Asked{Asks: asks}, w.now, w.limits)
		other, back := budget.Decide(w.book, budget.Asked{Asks: reversed}, w.now, w.limits)
		slices.Reverse(back.Answers)
		if a, b := toJSON(rt, one), toJSON(rt, other); a != b {
			rt.Fatalf("the order of a batch matters:\n%s\n%s", a, b)
		}
		if a, b := toJSON(rt, forth.Answers), toJSON(rt, back.Answers); a != b {
			rt.Fatalf("the order of a batch matters:\n%s\n%s", a, b)
		}
		w.book = one
		end := w.now.Add(time.Duration(len(wants)+2)*(time.Duration(w.limits.Pace)*time.Second+10*time.Second) + time.Hour)
		for len(wants) > 0 && w.now.Before(end) {
			// Who has a permit is proven healthy soon, and gives it back.
			var back []budget.Permit
			for _, g := range w.book.Marks.Grants {
				delete(wants, g.Device)
				back = append(back, budget.Permit{Device: g.Device, Epoch: g.Epoch, Purpose: budget.Mark})
			}
			w.decide(rt, budget.Returned{Permits: back})
			for device, a := range wants {
				if !slices.ContainsFunc(w.book.Marks.Waiters, func(x budget.Waiter) bool { return x.Device == device }) {
					w.decide(rt, budget.Asked{Asks: []budget.Ask{a}})
				}
			}
			next := w.book.NextWake(w.now)
			if limit := w.now.Add(10 * time.Second); next.IsZero() || next.After(limit) {
				next = limit
			}
			w.now = next
			w.decide(rt, budget.Woke{})
		}
		if len(wants) > 0 {
			rt.Fatalf("after %s %d still wait: %+v", w.now.Sub(start), len(wants), w.book.Marks.Waiters)
		}
	})
}

func toJSON(rt *rapid.T, v any) string {
	content, err := json.Marshal(v)
	if err != nil {
		rt.Fatal(err)
	}
	return string(content)
}

// What is remembered of a big cluster fits into one payload many times over, and an
// answer for a thousand at once takes milliseconds.
func TestWhatIsRememberedStaysSmall(t *testing.T) {
	d := newDesk(t, 8000, only(budget.Limit{Percent: 10}))
	d.ask(gpus(0, 3000)...)
	if g, w := len(d.book.Marks.Grants), len(d.book.Marks.Waiters); g != 800 || w != 1000 {
		t.Fatalf("%d granted, %d wait", g, w)
	}
	content, err := json.Marshal(d.book)
	if err != nil {
		t.Fatal(err)
	}
	if limit := 1 << 20; len(content) > limit {
		t.Errorf("800 permits and 1,000 who wait take %d bytes, want at most %d", len(content), limit)
	}
	t.Logf("%d bytes", len(content))
}
