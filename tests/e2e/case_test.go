package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/tests/stack"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// fault is what the starter sends for an Unhealthy that a Pod's status shows.
func (c *cluster) fault(key device.Key, pod, message, version string) quarantine.Observed {
	match := reason.Builtin().Match(key.Driver, message)
	return quarantine.Observed{
		Node: key.Pool, Lost: true,
		Readings: []quarantine.Reading{{
			Report: device.Report{
				Pod: device.PodRef{Namespace: "default", Name: pod, UID: pod + "-uid"}, Node: key.Pool,
				Health: device.Unhealthy, Message: message, Version: device.Version(version),
				Observed: time.Now(), Fault: match.DeviceFault(),
			},
			Reason: match,
		}},
	}
}

// A fault becomes a case with a mark; the case survives its worker, refuses and
// accepts operators' messages, and puts a deleted mark back after a look.
func TestACaseMarksItsDeviceAndOutlivesItsWorker(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 2)
	stop := c.work(fastPolicy())
	key, _ := device.NewDRA("gpu.example.com", "node-0", "gpu-1")
	if err := c.cases.Open(t.Context(), key, c.fault(key, "train-0", "XID 79: GPU has fallen off the bus", "41"), ""); err != nil {
		t.Fatal(err)
	}
	c.awaitCase(key, "in force", func(s quarantine.Case) error {
		if s.Mark.State != quarantine.MarkInForce {
			return fmt.Errorf("mark %s %s", s.Mark.State, s.Mark.Detail)
		}
		return nil
	})
	stop()
	if err := c.cases.Open(t.Context(), key, c.fault(key, "train-0", "XID 79: GPU has fallen off the bus", "41"), ""); err != nil {
		t.Fatal(err)
	}
	c.work(fastPolicy())
	state := c.awaitCase(key, "waiting for recovery", func(s quarantine.Case) error {
		if s.Waiting != quarantine.WaitingForRecovery {
			return fmt.Errorf("%s %s", s.Phase, s.Waiting)
		}
		return nil
	})
	if rules, err := c.rules(t.Context()); err != nil || len(rules) != 1 {
		t.Errorf("%d rules, %v; want one mark", len(rules), err)
	}
	_, err := c.cases.Send(t.Context(), key, quarantine.Message{Verb: quarantine.VerbRelease, Reason: "looks fine"})
	if err == nil {
		t.Error("a release without an actor was accepted")
	} else {
		t.Log(err)
	}
	answer, err := c.cases.Send(t.Context(), key, quarantine.Message{Verb: quarantine.VerbRelease, Actor: "ops@example.com", Reason: "looks fine"})
	if err != nil || answer.Epoch != state.Epoch {
		t.Errorf("release: %+v, %v", answer, err)
	}
	c.deleteRule(state.Mark.Name)
	if err := c.cases.Tell(t.Context(), key, quarantine.MarkSeen{Mark: quarantine.MarkFound{Name: state.Mark.Name, Epoch: state.Epoch}}, ""); err != nil {
		t.Fatal(err)
	}
	c.awaitCase(key, "mark restored", func(s quarantine.Case) error {
		if s.Mark.Restored != 1 || s.Mark.State != quarantine.MarkInForce {
			return fmt.Errorf("mark %+v", s.Mark)
		}
		return nil
	})
	if rules, err := c.rules(t.Context()); err != nil || len(rules) != 1 {
		t.Errorf("%d rules, %v; want one mark", len(rules), err)
	}
}

// What the starter sees of a device whose case was lost, its mark and what its Pod
// reports, comes in either order and at once. The case goes on under the mark's
// epoch in both. Proves Q4 in part.
func TestALostCaseGoesOnUnderItsMarksEpoch(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 2)
	const epoch = 1772352000000
	for i, order := range []string{"the mark first", "the reading first"} {
		key, _ := device.NewDRA("gpu.example.com", "node-0", fmt.Sprintf("gpu-%d", i))
		if report, err := c.marks.Put(t.Context(), put(key, epoch, 1)); err != nil || report.Outcome != quarantine.OutcomeInForce {
			t.Fatalf("%s: put: %+v, %v", order, report, err)
		}
		mark, err := c.marks.Read(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		events := []quarantine.Event{
			quarantine.MarkSeen{Node: "node-0", Present: true, Intact: true, Mark: mark.Found},
			c.fault(key, "train-0", "XID 79: GPU has fallen off the bus", "41"),
		}
		if i == 1 {
			slices.Reverse(events)
		}
		// No worker runs yet: both are there when one comes.
		for _, event := range events {
			if err := c.cases.Open(t.Context(), key, event, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.work(fastPolicy())
	for i, order := range []string{"the mark first", "the reading first"} {
		key, _ := device.NewDRA("gpu.example.com", "node-0", fmt.Sprintf("gpu-%d", i))
		c.awaitCase(key, "goes on: "+order, func(s quarantine.Case) error {
			if s.Epoch != epoch || s.Mark.State != quarantine.MarkInForce || s.Mark.Written != s.Mark.Revision {
				return fmt.Errorf("epoch %d, mark %+v; want epoch %d in force", s.Epoch, s.Mark, int64(epoch))
			}
			return nil
		})
	}
}

// That an operator retired a device outlives the workflow of its case: its mark says
// so until it is repaired. Proves Q4 in part.
func TestARetiredDeviceStaysRetiredWithoutItsWorkflow(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 1)
	c.work(fastPolicy())
	key := c.runPod("train-0")
	if err := c.cases.Open(t.Context(), key, c.fault(key, "train-0", fallenOff, "41"), ""); err != nil {
		t.Fatal(err)
	}
	c.awaitInForce(key)
	says := func(verb quarantine.Verb, retired bool) quarantine.MarkFound {
		t.Helper()
		if _, err := c.cases.Send(t.Context(), key, quarantine.Message{Verb: verb, Actor: "oncall@example.com", Reason: "it failed again"}); err != nil {
			t.Fatal(err)
		}
		var found quarantine.MarkFound
		c.eventually(fmt.Sprintf("the mark follows %s", verb), 20*time.Second, func(ctx context.Context) error {
			mark, err := c.marks.Read(ctx, key)
			if err != nil || mark == nil || !mark.Intact || mark.Found.Retired != retired {
				return fmt.Errorf("mark %+v, %w", mark, err)
			}
			found = mark.Found
			return nil
		})
		return found
	}
	found := says(quarantine.VerbRetire, true)
	if err := c.temporal.TerminateWorkflow(t.Context(), devicewf.ID(key), "", "somebody cleaned up"); err != nil {
		t.Fatal(err)
	}
	// Temporal starts no other within a second of the end.
	c.eventually("the mark gets its case back", 20*time.Second, func(ctx context.Context) error {
		return c.cases.Open(ctx, key, quarantine.MarkSeen{Node: "node-0", Present: true, Intact: true, Mark: found}, "")
	})
	c.awaitCase(key, "retired, as before", func(s quarantine.Case) error {
		if s.Phase != quarantine.PhaseRetired || s.Epoch != found.Epoch || s.Mark.State != quarantine.MarkInForce {
			return fmt.Errorf("%s in epoch %d, mark %+v", s.Phase, s.Epoch, s.Mark)
		}
		return nil
	})
	says(quarantine.VerbRepaired, false)
}

// awaitCase waits until the device's case satisfies check and returns it.
func (c *cluster) awaitCase(key device.Key, what string, check func(quarantine.Case) error) quarantine.Case {
	c.t.Helper()
	var last quarantine.Case
	c.eventually("case of "+key.String()+" "+what, 30*time.Second, func(ctx context.Context) error {
		state, err := c.cases.State(ctx, key)
		if err != nil {
			return err
		}
		last = state.Case
		return check(state.Case)
	})
	return last
}
