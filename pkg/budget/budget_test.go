package budget_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/budget"
)

var start = time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)

const class = "gpu.example.com"

// desk is a budget under test, with its clock.
type desk struct {
	t      *testing.T
	book   budget.Book
	limits budget.Limits
	now    time.Time
}

// newDesk has a class with so many eligible devices, of which none is kept out.
func newDesk(t *testing.T, eligible int, limits budget.Limits) *desk {
	t.Helper()
	d := &desk{t: t, limits: limits, now: start}
	d.count(eligible)
	return d
}

func only(class budget.Limit) budget.Limits {
	all := budget.Limit{Percent: 100}
	return budget.Limits{Cluster: all, Class: class, Tenant: all, Node: all, Pace: 10}
}

func (d *desk) decide(e budget.Event) budget.Outcome {
	d.t.Helper()
	var out budget.Outcome
	d.book, out = budget.Decide(d.book, e, d.now, d.limits)
	return out
}

// count tells how many devices the class and the cluster have, and which marks exist.
func (d *desk) count(eligible int, marks ...budget.Standing) budget.Outcome {
	return d.decide(budget.Counted{Marks: marks, Sizes: []budget.Size{
		{Scope: budget.Everything, Eligible: eligible}, {Scope: budget.Scope{Kind: budget.Class, Name: class}, Eligible: eligible},
	}, By: "a"})
}

func (d *desk) ask(asks ...budget.Ask) []budget.Answer {
	return d.decide(budget.Asked{Asks: asks}).Answers
}

func (d *desk) after(wait time.Duration) *desk { d.now = d.now.Add(wait); return d }

// gpu asks for device n, two of which are on each node.
func gpu(n int) budget.Ask {
	node := fmt.Sprintf("node-%d", n/2)
	return budget.Ask{
		Device: fmt.Sprintf("gpu.example.com/%s/gpu-%d", node, n%2), Epoch: int64(n + 1), Purpose: budget.Mark,
		Scopes:   []budget.Scope{{Kind: budget.Driver, Name: "gpu.example.com"}, {Kind: budget.Class, Name: class}, {Kind: budget.Node, Name: node}},
		Sizes:    []budget.Size{{Scope: budget.Scope{Kind: budget.Node, Name: node}, Eligible: 2}},
		Severity: 3, Since: start,
	}
}

func gpus(from, to int) []budget.Ask {
	var asks []budget.Ask
	for n := from; n < to; n++ {
		asks = append(asks, gpu(n))
	}
	return asks
}

func granted(answers []budget.Answer) int {
	n := 0
	for _, a := range answers {
		if a.Granted {
			n++
		}
	}
	return n
}

func standing(a budget.Ask) budget.Standing {
	return budget.Standing{Device: a.Device, Epoch: a.Epoch, Scopes: a.Scopes}
}

// B1 in part. A limit is a percentage rounded down, with a floor and a ceiling; a scope is
// full when the limit is reached. Case 27, rows 1 and 2: 1 of 3, and 3 of 288.
func TestALimitIsRoundedDownAndNeverLessThanOne(t *testing.T) {
	for name, row := range map[string]struct {
		limit    budget.Limit
		eligible int
		want     int
	}{
		"20 % of 3 are 0.6, and the only bad one of three may go": {budget.Limit{Percent: 20}, 3, 1},
		"1 % of 288 are 2.88, and the third waits":                {budget.Limit{Percent: 1}, 288, 2},
		"1 % of 300 are 3": {budget.Limit{Percent: 1}, 300, 3},
		"10 % of 30 are 3, whatever binary fractions say": {budget.Limit{Percent: 10}, 30, 3},
		"0.1 % of 3000 are 3":                             {budget.Limit{Percent: 0.1}, 3000, 3},
		"100 % are all":                                   {budget.Limit{Percent: 100}, 8, 8},
		"no more than the ceiling":                        {budget.Limit{Percent: 50, Max: 4}, 100, 4},
		"no less than the floor":                          {budget.Limit{Percent: 1, Min: 2}, 10, 2},
		"a number that isn't known leaves the floor":      {budget.Limit{Percent: 50, Min: 2}, 0, 2},
		"nothing at all still leaves one":                 {budget.Limit{}, 100, 1},
	} {
		if got := row.limit.Of(row.eligible); got != row.want {
			t.Errorf("%s: got %d, want %d", name, got, row.want)
		}
	}
	d := newDesk(t, 288, only(budget.Limit{Percent: 1}))
	answers := d.ask(gpus(0, 3)...)
	if granted(answers) != 2 || !strings.Contains(answers[2].Why, "2 of the 2 that class/gpu.example.com allows are in force") {
		t.Errorf("3 of 288 at 1 %%: %+v", answers)
	}
	d = newDesk(t, 3, only(budget.Limit{Percent: 20}))
	if answers := d.ask(gpu(0), gpu(2)); granted(answers) != 1 {
		t.Errorf("2 of 3 at 20 %%: %+v", answers)
	}
}

// B1 in part. Limits of the class, the node, the tenant and the cluster hold together: a
// permit counts in all of them, or in none.
func TestAllScopesGrantOrNone(t *testing.T) {
	limits := budget.Limits{
		Cluster: budget.Limit{Percent: 100, Max: 3}, Class: budget.Limit{Percent: 100},
		Classes: map[string]budget.Limit{"rare": {Max: 1}},
		Node:    budget.Limit{Percent: 50}, Tenant: budget.Limit{Percent: 100, Max: 1},
	}
	d := newDesk(t, 100, limits)
	if a := d.ask(gpu(0), gpu(1)); granted(a) != 1 || a[1].For != (budget.Scope{Kind: budget.Node, Name: "node-0"}) {
		t.Errorf("two of two on a node at 50 %%: %+v", a)
	}
	tenant := func(n int, of, class string) budget.Ask {
		a := gpu(n)
		a.Scopes = append(a.Scopes, budget.Scope{Kind: budget.Tenant, Name: of}, budget.Scope{Kind: budget.Class, Name: class})
		return a
	}
	if a := d.ask(tenant(2, "ml", "rare")); granted(a) != 1 {
		t.Errorf("another node: %+v", a)
	}
	if a := d.ask(tenant(4, "ml", "common")); granted(a) != 0 || a[0].For.Kind != budget.Tenant {
		t.Errorf("a tenant's second: %+v", a)
	}
	// What waits for its tenant takes nothing from the cluster's last permit.
	if a := d.ask(tenant(6, "web", "rare")); granted(a) != 0 || a[0].For.Name != "rare" {
		t.Errorf("a class's second: %+v", a)
	}
	if a := d.ask(tenant(8, "web", "common")); granted(a) != 1 {
		t.Errorf("the cluster's third: %+v", a)
	}
	if a := d.ask(gpu(10)); granted(a) != 0 || a[0].For != budget.Everything {
		t.Errorf("the cluster's fourth: %+v", a)
	}
}

// B2 in part. By severity, then by how long it has been bad; who comes later with less
// doesn't overtake.
func TestTheGravestAndOldestComesFirst(t *testing.T) {
	d := newDesk(t, 10, only(budget.Limit{Max: 1}))
	old, young, grave := gpu(0), gpu(2), gpu(4)
	old.Since, young.Since, grave.Since = start.Add(-time.Hour), start.Add(-time.Minute), start
	grave.Severity = 4
	if a := d.ask(young, old, grave); a[0].Granted || a[1].Granted || !a[2].Granted {
		t.Fatalf("of three at once: %+v", a)
	}
	for _, want := range []string{old.Device, young.Device} {
		first := d.book.Marks.Grants[0]
		out := d.after(time.Minute).decide(budget.Returned{Permits: []budget.Permit{{Device: first.Device, Epoch: first.Epoch, Purpose: budget.Mark}}})
		if len(out.Offers) != 1 || out.Offers[0].Device != want {
			t.Fatalf("offered %+v, want %s", out.Offers, want)
		}
	}
	if a := d.ask(gpu(6)); a[0].Granted {
		t.Errorf("a fourth: %+v", a)
	}
}

// B2. Used up, it refuses new marks, says so once and loudly, and takes every permit
// back; then those who waited are let in one by one.
func TestAUsedUpBudgetOpensAgainOneByOne(t *testing.T) {
	d := newDesk(t, 40, only(budget.Limit{Percent: 10}))
	if n := granted(d.ask(gpus(0, 20)...)); n != 4 {
		t.Fatalf("%d of 40 at 10 %%", n)
	}
	if said := notices(d.book, budget.NoticeHeld); len(said) != 1 || !said[0].Alert {
		t.Errorf("said %+v", d.book.Notices)
	}
	var back []budget.Permit
	for _, g := range d.book.Marks.Grants {
		back = append(back, budget.Permit{Device: g.Device, Epoch: g.Epoch, Purpose: budget.Mark})
	}
	offers := len(d.decide(budget.Returned{Permits: back}).Offers)
	if offers != 1 {
		t.Errorf("four permits come back, and %d are let in at once; want 1", offers)
	}
	for range 3 {
		if n := len(d.after(9 * time.Second).decide(budget.Woke{}).Offers); n != 0 {
			t.Errorf("%d let in before the pace is over", n)
		}
		if n := len(d.after(time.Second).decide(budget.Woke{}).Offers); n != 1 {
			t.Errorf("%d let in when it is over; want 1", n)
		}
	}
	if n := d.book.Marks.Used(budget.Scope{Kind: budget.Class, Name: class}); n != 4 {
		t.Errorf("%d in force", n)
	}
	if wake := d.book.NextWake(d.now); wake.IsZero() {
		t.Error("nothing wakes it although somebody waits")
	}
}

// B2 in part. What exists counts, whoever asked for it: a book that was emptied grants
// nothing before it knows, and then no more than what is left.
func TestTheCountIsRebuiltFromTheMarksThatExist(t *testing.T) {
	d := &desk{t: t, limits: only(budget.Limit{Percent: 10}), now: start}
	a := d.ask(gpu(0))
	if a[0].Granted || !a[0].Unknown || a[0].Again <= 0 || a[0].Again > 10*time.Second {
		t.Fatalf("before it knows: %+v", a)
	}
	d.count(40, standing(gpu(10)), standing(gpu(12)), standing(gpu(14)))
	if n := d.book.Notices; len(n) != 1 || n[0].Kind != budget.NoticeRebuilt || !n[0].Alert || !strings.Contains(n[0].Text, "3 are there") {
		t.Errorf("it is told of as %+v", n)
	}
	if n := granted(d.ask(gpu(0), gpu(2))); n != 1 {
		t.Errorf("%d granted beside three marks of four", n)
	}
	if a := d.ask(gpu(10)); !a[0].Granted {
		t.Errorf("the mark that stands: %+v", a)
	}
	// More marks than the limit stand as they are.
	var all []budget.Standing
	for n := range 8 {
		all = append(all, standing(gpu(20+n)))
	}
	d.count(40, all...)
	if a := d.ask(gpu(0)); !a[0].Granted {
		t.Errorf("its permit was in force: %+v", a)
	}
	if a := d.ask(gpu(2)); a[0].Granted || !strings.Contains(a[0].Why, "of the 4") {
		t.Errorf("beside too many: %+v", a)
	}
}

// A permit whose mark never came, or is gone, comes back by itself; one whose mark a
// starter sees stands for as long as the mark.
func TestAPermitWithoutAMarkComesBack(t *testing.T) {
	d := newDesk(t, 10, only(budget.Limit{Max: 1}))
	d.ask(gpu(0), gpu(2))
	d.count(10, standing(gpu(0)))
	if n := len(d.after(24 * time.Hour).decide(budget.Woke{}).Offers); n != 0 {
		t.Fatalf("%d let in beside a mark that stands", n)
	}
	d.ask(gpu(2)) // it waits no longer than it asks
	d.count(10)   // somebody removed the mark by hand
	if a := d.ask(gpu(0)); !a[0].Granted {
		t.Errorf("to put it back: %+v", a)
	}
	if n := len(d.after(3 * time.Minute).decide(budget.Woke{}).Offers); n != 0 {
		t.Errorf("%d let in while nobody tells whether the mark is back", n)
	}
	same := budget.Counted{Same: true, By: "a"}
	if out := d.decide(same); len(out.Offers) != 1 || out.Tell {
		t.Errorf("after the mark was gone for good: %+v", out)
	}
	if out := d.after(10 * time.Minute).decide(same); len(out.Offers) != 0 || len(d.book.Marks.Grants) != 0 {
		t.Errorf("an offer that nobody took: %+v, %+v", out, d.book.Marks.Grants)
	}
	if out := d.decide(budget.Counted{Same: true, By: "b"}); !out.Tell {
		t.Errorf("another starter's marks can't be the same: %+v", out)
	}
	if n := granted(d.ask(gpu(4))); n != 1 {
		t.Error("the budget isn't free again")
	}
}

// An answer is the same however often somebody asks, and a later epoch takes over what
// its predecessor had; an earlier one gives nothing of it back.
func TestAskingAgainChangesNothing(t *testing.T) {
	d := newDesk(t, 10, only(budget.Limit{Max: 1}))
	for range 3 {
		if a := d.ask(gpu(0), gpu(0)); granted(a) != 2 || len(d.book.Marks.Grants) != 1 {
			t.Fatalf("%+v, %+v", a, d.book.Marks.Grants)
		}
		if a := d.ask(gpu(2)); granted(a) != 0 || len(d.book.Marks.Waiters) != 1 {
			t.Fatalf("%+v, %+v", a, d.book.Marks.Waiters)
		}
	}
	later := gpu(0)
	later.Epoch = 99
	if a := d.ask(later); !a[0].Granted || d.book.Marks.Grants[0].Epoch != 99 {
		t.Errorf("a later epoch: %+v", a)
	}
	d.decide(budget.Returned{Permits: []budget.Permit{{Device: later.Device, Epoch: 1, Purpose: budget.Mark}}})
	if len(d.book.Marks.Grants) != 1 {
		t.Error("an earlier epoch gave back what a later one has")
	}
}

// What only observes takes nothing from what is enforced, and sees what would be
// refused.
func TestObservingUsesABudgetOfItsOwn(t *testing.T) {
	d := newDesk(t, 10, only(budget.Limit{Max: 1}))
	observed := gpus(0, 2)
	for i := range observed {
		observed[i].Purpose = budget.Observe
	}
	if a := d.ask(observed...); granted(a) != 1 {
		t.Errorf("observed: %+v", a)
	}
	if a := d.ask(gpu(4)); granted(a) != 1 {
		t.Errorf("enforced: %+v", a)
	}
	if said := notices(d.book, budget.NoticeHeld); len(said) != 1 || said[0].Alert {
		t.Errorf("what would be refused is no alert: %+v", said)
	}
	odd := gpu(6)
	odd.Purpose = "eviction"
	if a := d.ask(odd); a[0].Granted || !strings.Contains(a[0].Why, `purpose "eviction"`) {
		t.Errorf("a purpose that isn't: %+v", a)
	}
}

// B2 in part. Whoever is gone keeps nobody waiting: a case that is over leaves the line and
// gives back what it didn't use, in both counts, and a turn that went to nobody is no turn.
// What a mark was seen of stays.
func TestWhoIsGoneKeepsNobodyWaiting(t *testing.T) {
	d := newDesk(t, 40, only(budget.Limit{Min: 2}))
	standing := func(asks []budget.Ask) (all []budget.Standing) {
		for _, a := range asks {
			all = append(all, budget.Standing{Device: a.Device, Epoch: a.Epoch, Scopes: a.Scopes})
		}
		return all
	}
	over := func(asks ...budget.Ask) budget.Outcome {
		var back []budget.Permit
		for _, a := range asks {
			for _, purpose := range budget.Purposes() {
				back = append(back, budget.Permit{Device: a.Device, Epoch: a.Epoch, Purpose: purpose, Unused: true})
			}
		}
		return d.decide(budget.Returned{Permits: back})
	}
	d.ask(gpus(0, 8)...)
	d.count(40, standing(gpus(0, 2))...)
	if out := over(gpus(0, 4)...); len(out.Offers) != 0 || d.book.Marks.Used(budget.Everything) != 2 || len(d.book.Marks.Waiters) != 4 {
		t.Errorf("of two that are marked and two that waited: offers %+v, %d in force, %d wait; want none, 2 and 4", out.Offers, d.book.Marks.Used(budget.Everything), len(d.book.Marks.Waiters))
	}
	// One mark is lifted: the next two in line are gone, and the third is let in now.
	turn := d.decide(budget.Returned{Permits: []budget.Permit{{Device: gpu(0).Device, Epoch: 1, Purpose: budget.Mark}}}).Offers
	for n := 4; n < 6; n++ {
		if len(turn) != 1 || turn[0].Device != gpu(n).Device {
			t.Fatalf("the turn is %+v, want %s", turn, gpu(n).Device)
		}
		turn = d.decide(budget.Returned{Permits: []budget.Permit{{Device: turn[0].Device, Epoch: turn[0].Epoch, Purpose: turn[0].Purpose}}}).Offers
	}
	if len(turn) != 1 || turn[0].Device != gpu(6).Device {
		t.Errorf("after two turns that went to nobody it is %+v, want %s at once", turn, gpu(6).Device)
	}

	observed := gpus(10, 13)
	for i := range observed {
		observed[i].Purpose = budget.Observe
	}
	d.ask(observed[:2]...)
	over(observed[0])
	if a := d.ask(observed[2]); granted(a) != 1 {
		t.Errorf("observed, where one of two is over: %+v", a)
	}
	// A case whose mode was changed wants what it asked for last, and nothing else.
	d.ask(gpu(11))
	if n := d.book.Observed.Used(budget.Everything); n != 1 {
		t.Errorf("%d observed where one of two asks for a mark now", n)
	}
	d.ask(observed[1])
	if d.book.Marks.Waiting(budget.Scope{Kind: budget.Class, Name: class}) != 1 {
		t.Errorf("waiting are %+v; want only %s", d.book.Marks.Waiters, gpu(7).Device)
	}
}

// A mark on a whole node costs all its devices. One that never fits says so, and nobody
// waits behind it; one that will fit isn't overtaken by smaller ones for ever.
func TestANodesMarkCostsAllItsDevices(t *testing.T) {
	d := newDesk(t, 40, only(budget.Limit{Percent: 20})) // 8 of 40
	node := gpu(0)
	node.Device, node.Cost = "node/node-0", 9
	if a := d.ask(node, gpu(2)); a[0].Granted || !strings.Contains(a[0].Why, "raise the limit") || !a[1].Granted {
		t.Errorf("9 where 8 are allowed: %+v", a)
	}
	d.decide(budget.Returned{Permits: []budget.Permit{{Device: node.Device, Epoch: node.Epoch, Purpose: budget.Mark}}})
	node.Cost, node.Since = 8, start.Add(-time.Minute)
	if a := d.ask(node); a[0].Granted {
		t.Errorf("8 where 7 are left: %+v", a)
	}
	if a := d.ask(gpu(4)); a[0].Granted || !strings.Contains(a[0].Why, "first in line") {
		t.Errorf("overtaking: %+v", a)
	}
	grave := gpu(6)
	grave.Severity = 4
	if a := d.ask(grave); !a[0].Granted {
		t.Errorf("something graver comes first: %+v", a)
	}
}

// Q2 in part. What is out with its whole node counts once: a device that has a mark of its
// own makes the node cheaper, and one that gets one later costs nothing more. Each class
// counts what it has on the node.
func TestADeviceCountsOnceBesideItsNode(t *testing.T) {
	limits := only(budget.Limit{Percent: 20}) // 8 of 40
	limits.Node = budget.Limit{None: true}
	d := newDesk(t, 40, limits)
	other := budget.Scope{Kind: budget.Class, Name: "nic.example.com"}
	node := budget.Ask{
		Device: budget.Whole("node-0"), Epoch: 9, Purpose: budget.Mark, Cost: 6, Since: start,
		Scopes: []budget.Scope{{Kind: budget.Class, Name: class}, other, {Kind: budget.Node, Name: "node-0"}},
		Costs:  []budget.Size{{Scope: budget.Scope{Kind: budget.Class, Name: class}, Eligible: 4}, {Scope: other, Eligible: 2}},
		Sizes:  []budget.Size{{Scope: other, Eligible: 20}, {Scope: budget.Scope{Kind: budget.Node, Name: "node-0"}, Eligible: 6}},
	}
	used := func(want int, scopes ...budget.Scope) {
		t.Helper()
		for _, s := range scopes {
			if got := d.book.Marks.Used(s); got != want {
				t.Errorf("%d of %s are in force, want %d", got, s, want)
			}
		}
	}
	gpuClass := budget.Scope{Kind: budget.Class, Name: class}
	d.ask(gpu(0))
	if a := d.ask(node); !a[0].Granted {
		t.Fatalf("a node of which one is out already: %+v", a)
	}
	used(6, budget.Everything, budget.Scope{Kind: budget.Node, Name: "node-0"})
	used(4, gpuClass)
	used(2, other)
	if a := d.ask(gpu(1)); !a[0].Granted {
		t.Errorf("a device that is out with its node: %+v", a)
	}
	used(4, gpuClass)
	if n := granted(d.ask(gpus(10, 20)...)); n != 4 {
		t.Errorf("%d more of the class are granted, want the 4 that are left", n)
	}
	d.decide(budget.Returned{Permits: []budget.Permit{{Device: node.Device, Epoch: node.Epoch, Purpose: budget.Mark}}})
	used(7, gpuClass) // the two of the node count by themselves again, and one that waited is let in
	d.count(40, budget.Standing{Device: node.Device, Epoch: 9, Scopes: node.Scopes, Cost: node.Cost, Costs: node.Costs})
	used(2, other)
}

func notices(b budget.Book, kind budget.NoticeKind) []budget.Notice {
	var found []budget.Notice
	for _, n := range b.Notices {
		if n.Kind == kind {
			found = append(found, n)
		}
	}
	return found
}
