package e2e

// This file has more devices go bad than may be kept out at once.

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sickbay-dev/sickbay/cmd/show"
	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
	permitswf "github.com/sickbay-dev/sickbay/workflows/permits"
)

// budgets asks for them as an operator's script does.
func (o *operator) budgets() (b show.Budgets, err error) {
	said := o.types(o.binary, "budgets", "-o", "json")
	if said.code != 0 {
		return b, fmt.Errorf("exit %d: %s", said.code, said.err)
	}
	return b, json.Unmarshal([]byte(said.out), &b)
}

// awaitMarks waits until there are so many marks, and so many devices that wait.
func (o *operator) awaitMarks(what string, marks, waiting int, within time.Duration) {
	o.t.Helper()
	o.eventually(what, within, func(ctx context.Context) error {
		rules, err := o.rules(ctx)
		if err != nil {
			return err
		}
		b, err := o.budgets()
		if err == nil && (len(rules) != marks || len(b.Waiting) != waiting) {
			err = fmt.Errorf("%d marks, %d waiting: %+v", len(rules), len(b.Waiting), b)
		}
		return err
	})
}

// mostMarks counts, until it is stopped, how many marks there are at once at most.
func (c *cluster) mostMarks() (stop func() int) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var work sync.WaitGroup
	most := 0
	work.Go(func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			if rules, err := c.rules(ctx); err == nil {
				most = max(most, len(rules))
			}
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
	return func() int {
		cancel()
		work.Wait()
		return most
	}
}

// B1, B2, B4. Ten devices go bad where three may be kept out, with two workers that ask at
// once: three are, at no moment more, and seven wait in sight, in the order of their turns.
// That outlives the loss of everything that the budgets knew. What becomes healthy
// meanwhile was never marked. An operator's pause holds what a raised limit would let in,
// and after it those that waited are read anew and let in one by one. Case 19, each row, and
// never: what went bad and recovered while all was paused is marked at its end. Proves a
// part of R3.
func TestNoMoreDevicesAreKeptOutThanMayBe(t *testing.T) {
	const devices, rack = 12, 48
	c := start(t, stack.Options{
		Kubernetes: "1.37", Temporal: true,
		DynamicConfig: map[string]any{"limit.historyCount.suggestContinueAsNew": 80},
	}, 2, devices/2)
	if err := c.nodes.Add(t.Context(), simnode.MakeNode("rack-0", rack)); err != nil {
		t.Fatal(err)
	}
	for n := range devices {
		if _, err := c.nodes.Place(t.Context(), "default", fmt.Sprintf("train-%d", n), fmt.Sprintf("node-%d", n%2), fmt.Sprintf("gpu-%d", n/2)); err != nil {
			t.Fatal(err)
		}
	}
	key := func(n int) device.Key {
		return device.Key{Driver: simnode.DefaultDriver, Pool: fmt.Sprintf("node-%d", n%2), Device: fmt.Sprintf("gpu-%d", n/2)}
	}
	bounds := func(limit string) []string {
		return append(fastEnvironment(), "SICKBAY_BUDGET_CLASS="+limit, "SICKBAY_BUDGET_PACE=2s")
	}
	c.process("worker-a", "worker", "", bounds("5%")...)
	c.process("worker-b", "worker", "", bounds("5%")...)
	c.process("starter", "starter", "", append(starterEnvironment(), "SICKBAY_CROWD_DEVICES=1000")...)
	o := c.operator()
	o.wants("before anything was bad", o.types(o.binary, "budgets"), 0, "No budget is in use")
	most := c.mostMarks()
	for n := range 10 {
		c.set(key(n), corev1.ResourceHealthStatusUnhealthy, fallenOff)
	}
	o.awaitMarks("three are kept out, and seven wait", 3, 7, 20*time.Second)
	o.wants("the budgets", o.types(o.binary, "budgets"), 0, "class/gpu.example.com", "5%", "3 of the 3 that class/gpu.example.com allows are in force")
	held := c.waiting(o, 0)
	c.awaitCase(held, "waits in sight", func(s quarantine.Case) error {
		if s.Waiting != quarantine.WaitingForPermit || s.Mark.State != quarantine.MarkHeld {
			return fmt.Errorf("%s %s, mark %s", s.Phase, s.Waiting, s.Mark.State)
		}
		return nil
	})

	// The budgets lose all that they knew: what exists counts all the same.
	if err := c.temporal.TerminateWorkflow(t.Context(), permitswf.ID, "", "to lose what it knows"); err != nil {
		t.Fatal(err)
	}
	// Whether it was begun anew meanwhile or not.
	if said := o.types(o.binary, "budgets"); strings.Contains(said.out, "3 of the 3") || said.code != 0 && !strings.Contains(said.err, "was ended") {
		t.Errorf("of budgets that were ended it is said, with exit code %d: %s%s", said.code, said.out, said.err)
	}
	c.set(key(10), corev1.ResourceHealthStatusUnhealthy, fallenOff)
	c.awaitCase(key(10), "held by budgets that were emptied", func(s quarantine.Case) error {
		if s.Mark.State != quarantine.MarkHeld || !strings.Contains(s.Mark.Detail, "3 of the 3") {
			return fmt.Errorf("mark %s %s", s.Mark.State, s.Mark.Detail)
		}
		return nil
	})

	// What gets well while it waits was never marked.
	c.set(held, corev1.ResourceHealthStatusHealthy, "")
	c.awaitCase(held, "over, never marked", func(s quarantine.Case) error {
		if s.End != quarantine.EndNeverMarked {
			return fmt.Errorf("%s %s %s", s.Phase, s.End, s.Waiting)
		}
		return nil
	})
	if n := most(); n != 3 {
		t.Errorf("at most %d were kept out at once, and 3 may be", n)
	}

	// A pause holds what a raised limit would let in.
	o.wants("a pause", o.types(o.binary, "pause", "driver/"+simnode.DefaultDriver, "--for", "1h", "--reason", "we look into it", "--actor", "oncall@example.com"),
		0, "pause accepted for driver/gpu.example.com, until")
	for _, name := range []string{"worker-a", "worker-b"} {
		c.kill(name)
	}
	c.process("worker-c", "worker", "", bounds("50%")...)
	c.set(key(11), corev1.ResourceHealthStatusUnhealthy, fallenOff)
	c.awaitCase(key(11), "held by the pause", func(s quarantine.Case) error {
		if s.Mark.State != quarantine.MarkHeld || !strings.Contains(s.Mark.Detail, "paused until") || !strings.Contains(s.Mark.Detail, "oncall@example.com (we look into it)") {
			return fmt.Errorf("mark %s %s", s.Mark.State, s.Mark.Detail)
		}
		return nil
	})
	if rules, err := c.rules(t.Context()); err != nil || len(rules) != 3 {
		t.Errorf("%d marks in a paused scope, %v", len(rules), err)
	}
	c.set(held, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	c.awaitCase(held, "bad while it is paused", func(s quarantine.Case) error {
		if !s.Open() || s.Mark.State != quarantine.MarkHeld || !strings.Contains(s.Mark.Detail, "paused until") {
			return fmt.Errorf("%s, mark %s %s", s.Phase, s.Mark.State, s.Mark.Detail)
		}
		return nil
	})
	c.set(held, corev1.ResourceHealthStatusHealthy, "")
	c.awaitCase(held, "well again while it is paused, which is on record", func(s quarantine.Case) error {
		if s.End != quarantine.EndNeverMarked {
			return fmt.Errorf("%s %s %s", s.Phase, s.End, s.Waiting)
		}
		return nil
	})
	c.eventually("what would be done at the end of the pause is shown, and it isn't in line", 10*time.Second, func(context.Context) error {
		would, err := o.budgets()
		for _, w := range would.Waiting {
			if w.Device == held.String() || !strings.Contains(w.Why, "is paused until") {
				err = fmt.Errorf("%+v", w)
			}
		}
		return err
	})
	o.wants("a resume without a reason", o.types(o.binary, "resume", "driver/"+simnode.DefaultDriver), 2, "say why with --reason")
	o.wants("a scope that isn't", o.types(o.binary, "pause", "rack/7", "--for", "1h", "--reason", "x"), 2, "want cluster, driver/NAME")
	o.wants("what isn't paused", o.types(o.binary, "resume", "node/node-1", "--reason", "x"), 1, "resume refused for node/node-1: it isn't paused; paused are driver/gpu.example.com")
	o.wants("the resume", o.types(o.binary, "resume", "driver/"+simnode.DefaultDriver, "--reason", "done", "--actor", "oncall@example.com"), 0, "resume accepted")
	o.wants("what came of it", o.types(o.binary, "report", "--since", "1h", "-o", "wide"), 0, "XidFallenOffBus", "in all", "made", "not made")
	// Two have asked since the budgets were emptied; the others ask again within a quarter
	// of an hour.
	c.eventually("those that stand in line are let in", 30*time.Second, func(ctx context.Context) error {
		rules, err := c.rules(ctx)
		if err == nil && len(rules) != 5 {
			err = fmt.Errorf("%d marks, want 5", len(rules))
		}
		for _, rule := range rules {
			if rule.GetAnnotations()[kube.AnnotationDevice] == held.String() {
				t.Fatalf("%s is kept out, which was well when the pause ended", held)
			}
		}
		return err
	})

	// Of two devices of a node that are proven healthy one comes back, and the other waits.
	for n, granted := range []bool{true, false} {
		back := device.Key{Driver: simnode.DefaultDriver, Pool: "rack-0", Device: fmt.Sprintf("gpu-%d", n)}
		turn, err := permitswf.NewClient(c.temporal, taskQueue).Turn(t.Context(), budget.AskTurn{
			Device: back.String(), Epoch: 1, Token: int64(n + 1), Scopes: budget.ScopesOf(back, back.Pool, nil, nil),
		})
		if err != nil || turn.Granted != granted {
			t.Errorf("the turn of %s: %+v, %v; want granted %t", back, turn, err, granted)
		}
	}
	o.wants("who comes back", o.types(o.binary, "budgets"), 0, "COMING BACK", "gpu.example.com/rack-0/gpu-0", "NEXT BACK", "1 of node/rack-0 may be coming back at once, and 1 are")

	// Many at once have their marks made ahead of their cases, within the same bounds. What
	// had just come back is among them, which stops the others.
	c.burstOf("rack-0", rack, 30)
	c.eventually("the relapse is told", 60*time.Second, func(context.Context) error {
		b, err := o.budgets()
		if err == nil && (len(b.Returns.Coming) != 1 || b.Returns.Coming[0].Relapsed.IsZero()) {
			err = fmt.Errorf("%+v", b.Returns)
		}
		return err
	})
	o.wants("on record", o.types(o.binary, "audit", "--kind", "ReturnsStopped"), 0, "gpu.example.com/rack-0/gpu-0 failed again")
}

// burstOf has all devices of a node go bad at once, and wants marks to be made ahead of
// their cases, until so many are kept out as may be and never more.
func (c *cluster) burstOf(node string, devices, allowed int) {
	c.t.Helper()
	var names []string
	for n := range devices {
		names = append(names, fmt.Sprintf("gpu-%d", n))
		if _, err := c.nodes.Place(c.t.Context(), "default", fmt.Sprintf("%s-%d", node, n), node, names[n]); err != nil {
			c.t.Fatal(err)
		}
	}
	most := c.mostMarks()
	var breaking sync.WaitGroup
	for _, name := range names {
		breaking.Go(func() {
			if _, err := c.nodes.Set(c.t.Context(), node, name, corev1.ResourceHealthStatusUnhealthy, fallenOff); err != nil {
				c.t.Error(err)
			}
		})
	}
	breaking.Wait()
	c.eventually("the budget is used up", 30*time.Second, func(ctx context.Context) error {
		rules, err := c.rules(ctx)
		if err == nil && len(rules) != allowed {
			err = fmt.Errorf("%d marks, want %d", len(rules), allowed)
		}
		return err
	})
	c.eventually("marks are made ahead of their cases", 20*time.Second, func(context.Context) error {
		lines := c.logged("starter", "many faults at once: marks made ahead of their cases")
		for _, line := range lines {
			if made, _ := line["marks"].(float64); made > 0 {
				return nil
			}
		}
		return fmt.Errorf("%v", lines)
	})
	if n := most(); n != allowed {
		c.t.Errorf("at most %d were kept out at once, and %d may be", n, allowed)
	}
}

// waiting is the device whose turn is next but skip.
func (c *cluster) waiting(o *operator, skip int) device.Key {
	c.t.Helper()
	b, err := o.budgets()
	if err != nil || len(b.Waiting) <= skip {
		c.t.Fatalf("who waits: %+v, %v", b, err)
	}
	key, err := device.ParseKey(b.Waiting[skip].Device)
	if err != nil {
		c.t.Fatal(err)
	}
	return key
}
