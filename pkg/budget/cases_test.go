package budget_test

import (
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/budget"
)

// B1. Case 27, rows 1 and 2, must: documented rounding and denominators, full at reached,
// and a device counted once; separate limits of class, node, tenant and all; and never: the
// only bad device of three is kept waiting for ever. Case 07, never: two faults of one
// device count as two.
func TestCase27TheArithmeticOfLimits(t *testing.T) {
	for name, row := range map[string]struct {
		eligible, bad int
		limit         budget.Limit
		granted       int
	}{
		"kestrel-a: the only bad one of three, at 20 %": {3, 1, budget.Limit{Percent: 20}, 1},
		"two of three, at 20 %":                         {3, 2, budget.Limit{Percent: 20}, 1},
		"osprey-b: three of 288, at 1 %":                {288, 3, budget.Limit{Percent: 1}, 2},
		"two of 288, at 1 %: reached and not exceeded":  {288, 2, budget.Limit{Percent: 1}, 2},
		"three of 300, at 1 %":                          {300, 3, budget.Limit{Percent: 1}, 3},
		"140 of 320, at 10 %":                           {320, 140, budget.Limit{Percent: 10, Min: 2}, 32},
	} {
		d := newDesk(t, row.eligible, only(row.limit))
		asks := gpus(0, row.bad)
		// Both Pods of a shared device report it, and its case asks again: it is one device.
		twice := append(append([]budget.Ask{}, asks...), asks...)
		d.ask(twice...)
		if n := len(d.book.Marks.Grants); n != row.granted {
			t.Errorf("%s: %d are kept out, want %d", name, n, row.granted)
		}
		if n := len(d.book.Marks.Waiters); n != row.bad-row.granted {
			t.Errorf("%s: %d wait, want %d", name, n, row.bad-row.granted)
		}
		// The denominator stays what it is, however many are out already: a limit that shrank
		// with what it took would never be what was configured.
		marks := make([]budget.Standing, 0, row.granted)
		for _, g := range d.book.Marks.Grants {
			marks = append(marks, budget.Standing{Device: g.Device, Epoch: g.Epoch, Scopes: g.Scopes})
		}
		d.count(row.eligible, marks...)
		if used, allowed := d.book.Marks.Used(budget.Scope{Kind: budget.Class, Name: class}), row.limit.Of(row.eligible); used != row.granted || used > allowed {
			t.Errorf("%s: %d in force of %d", name, used, allowed)
		}
	}
}

// B2. Case 19, each row as far as marks go: while all is paused one device goes bad and
// recovers and nineteen others go bad and stay so. Who would be kept out is there to see.
// When an operator ends the pause after three days, what is bad now is let in one by one
// within the limit; and never: the recovered one, or all at once.
func TestCase19TheEndOfAPauseReplaysNothing(t *testing.T) {
	d := newDesk(t, 100, only(budget.Limit{Percent: 10}))
	if err := d.say(budget.VerbPause, "cluster", "oncall@example.com", 7*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	recovers := gpu(98)
	d.after(time.Hour)
	if a := d.ask(recovers); a[0].Granted {
		t.Fatalf("while all is paused: %+v", a)
	}
	d.after(time.Hour).decide(budget.Returned{Permits: []budget.Permit{{Device: recovers.Device, Epoch: recovers.Epoch, Purpose: budget.Mark}}})
	bad := gpus(0, 19)
	for d.now = start.Add(150 * time.Minute); d.now.Before(start.Add(72 * time.Hour)); d.now = d.now.Add(15 * time.Minute) {
		if n := granted(d.ask(bad...)); n != 0 {
			t.Fatalf("%d are granted while all is paused", n)
		}
	}
	if n := len(d.book.Marks.Waiters); n != len(bad) {
		t.Fatalf("%d would be kept out, want those that are bad now, %d", n, len(bad))
	}
	at := d.now
	s, err := budget.ParseScope("cluster")
	if err != nil {
		t.Fatal(err)
	}
	out := d.decide(budget.Message{Verb: budget.VerbResume, Scope: s, Actor: "oncall@example.com", Reason: "the fleet is well"})
	offered := out.Offers
	for d.now.Before(at.Add(30 * time.Minute)) {
		if n := len(out.Offers); n > 1 {
			t.Errorf("%d are let in at once", n)
		}
		out = d.after(time.Second).decide(budget.Woke{})
		offered = append(offered, out.Offers...)
		if len(offered) == 2 && d.now.Sub(at) < time.Duration(d.limits.Pace)*time.Second {
			t.Errorf("the second is let in %s after the first", d.now.Sub(at))
		}
		// Each is read anew, and marked.
		for _, o := range out.Offers {
			for _, a := range bad {
				if a.Device == o.Device {
					d.ask(a)
				}
			}
		}
	}
	for _, o := range offered {
		if o.Device == recovers.Device {
			t.Errorf("%s is kept out, which has been well for three days", o.Device)
		}
	}
	if n := len(offered); n != 10 {
		t.Errorf("%d were let in, want what 10 %% of 100 allow", n)
	}
}
