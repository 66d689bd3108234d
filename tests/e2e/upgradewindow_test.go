package e2e

// This file upgrades drivers in a window that an operator announced.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
	incidentwf "github.com/sickbay-dev/sickbay/workflows/incident"
)

// B4. A driver is restarted on one node after the other, and on all at once, for longer
// than Unknown is waited out. Because it was announced there is no case, no incident, no
// alert and no mark; what the devices say is shown all the same. A fault meanwhile has its
// case and waits for the end of the pause. When the window is called off the fault is
// marked, and what is still Unknown begins its grace then and is restricted after it.
func TestADriverRestartInAnAnnouncedWindowRaisesNothing(t *testing.T) {
	const nodes = 4
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, nodes, 2)
	c.process("worker", "worker", "", append(fastEnvironment(), "SICKBAY_GRACE=3s", "SICKBAY_BUDGET_CLASS=none", "SICKBAY_BUDGET_CLUSTER=none")...)
	address := c.process("starter", "starter", "", starterEnvironment()...)
	key := func(node, gpu int) device.Key {
		return device.Key{Driver: simnode.DefaultDriver, Pool: fmt.Sprintf("node-%d", node), Device: fmt.Sprintf("gpu-%d", gpu)}
	}
	both := func(node int, health corev1.ResourceHealthStatus) {
		t.Helper()
		for gpu := range 2 {
			c.set(key(node, gpu), health, "")
		}
	}
	for node := range nodes {
		for gpu := range 2 {
			if _, err := c.nodes.Place(t.Context(), "default", fmt.Sprintf("train-%d-%d", node, gpu), fmt.Sprintf("node-%d", node), fmt.Sprintf("gpu-%d", gpu)); err != nil {
				t.Fatal(err)
			}
		}
	}
	o := c.operator()
	shows := func(what, name string, want float64, labels ...string) {
		t.Helper()
		c.eventually(what, 20*time.Second, func(ctx context.Context) error {
			shown, err := scrape(ctx, address)
			if err == nil {
				err = valued(shown, name, want, labels...)
			}
			return err
		})
	}
	shows("all were seen healthy", "sickbay_reported_devices", 2*nodes, "health", "Healthy")
	scope := "driver/" + simnode.DefaultDriver
	pause := func(more ...string) answer {
		return o.types(o.binary, append([]string{"pause", scope, "--actor", "oncall@example.com", "--reason", "driver 580.95"}, more...)...)
	}
	o.wants("an upgrade of a class", o.types(o.binary, "pause", "class/gpus", "--for", "1h", "--upgrade", "--reason", "x"), 1,
		"a driver's upgrade is announced for driver/NAME, pool/DRIVER/POOL or node/NAME")
	o.wants("an upgrade without an end", pause("--upgrade"), 2, "Say it with --for")
	o.wants("the announcement", pause("--for", "1h", "--upgrade"), 0, "pause accepted for "+scope+", until")
	c.eventually("the starter knows of it", 20*time.Second, func(context.Context) error {
		if len(c.logged("starter", "a driver is upgraded; Unknown is expected there and opens no case")) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	expected := func(want float64) {
		t.Helper()
		shows(fmt.Sprintf("%v devices wait for the upgrade", want), "sickbay_held_devices", want, "kind", "Upgrade")
	}
	for node := range nodes {
		both(node, corev1.ResourceHealthStatusUnknown)
		expected(2)
		both(node, corev1.ResourceHealthStatusHealthy)
		expected(0)
	}

	for node := range nodes {
		both(node, corev1.ResourceHealthStatusUnknown)
	}
	expected(2 * nodes)
	since, grace := time.Now(), 6*time.Second
	o.wants("what they say is shown", o.types(o.binary, "devices", key(3, 1).String()), 0, "Unknown")
	o.wants("so is the announcement", o.types(o.binary, "budgets"), 0, scope, "driver 580.95 (driver upgrade)")
	sick := key(0, 0)
	c.set(sick, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	c.awaitCase(sick, "held by the pause", func(s quarantine.Case) error {
		if s.Phase != quarantine.PhaseQuarantined || s.Mark.State != quarantine.MarkHeld || !strings.Contains(s.Mark.Detail, "paused until") {
			return fmt.Errorf("%s, mark %s %s", s.Phase, s.Mark.State, s.Mark.Detail)
		}
		return nil
	})
	c.eventually("they have been Unknown for longer than the grace", 2*grace, func(context.Context) error {
		if time.Since(since) < grace {
			return errors.New("not yet")
		}
		return nil
	})
	expected(2*nodes - 1)
	if n := c.count(devicewf.WorkflowType); n != 1 {
		t.Errorf("%d cases were opened, want that of the fault", n)
	}
	if n := c.count(incidentwf.WorkflowType); n != 0 {
		t.Errorf("%d incidents began", n)
	}
	if rules, err := c.rules(t.Context()); err != nil || len(rules) != 0 {
		t.Errorf("%d marks, %v", len(rules), err)
	}
	for _, line := range c.logged("worker", "decision") {
		if line["alert"] == true && line["device"] != sick.String() && line["budget"] == nil {
			t.Errorf("an alert: %v", line)
		}
	}

	// All come back but one, and the fault.
	for node := range nodes {
		both(node, corev1.ResourceHealthStatusHealthy)
	}
	lost := key(2, 1)
	c.set(sick, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	c.set(lost, corev1.ResourceHealthStatusUnknown, "")
	expected(1)
	called := time.Now()
	o.wants("the end of it", o.types(o.binary, "resume", scope, "--reason", "it is in", "--actor", "oncall@example.com"), 0, "resume accepted")
	c.awaitInForce(sick)
	s := c.awaitCase(lost, "restricted after its grace", func(s quarantine.Case) error {
		if s.Phase != quarantine.PhaseRestricted || s.Mark.State != quarantine.MarkInForce {
			return fmt.Errorf("%s, mark %s", s.Phase, s.Mark.State)
		}
		return nil
	})
	if s.FirstNotGood.Before(called) {
		t.Errorf("its grace began at %s, before the window ended at %s", s.FirstNotGood, called)
	}
	c.eventually("who announced it, and who ended it, is in the trail", 20*time.Second, func(context.Context) error {
		trail, said := o.trail(nil, "--since", "1h", "--actor", "oncall@example.com", "--driver", simnode.DefaultDriver)
		if said.code != 0 || len(trail.Decisions) != 2 {
			return fmt.Errorf("exit %d: %+v %s", said.code, trail.Decisions, said.err)
		}
		begun, ended := trail.Decisions[0], trail.Decisions[1]
		if begun.Kind != "Paused" || !strings.Contains(begun.Text, "a driver's upgrade is announced") || !strings.Contains(begun.Text, "driver 580.95") ||
			ended.Kind != "Resumed" || !strings.Contains(ended.Text, "it is in") || ended.Budget != scope {
			t.Errorf("the trail says %+v and %+v", begun, ended)
		}
		return nil
	})
}

// count counts the workflows of a type that were ever started, as Temporal's visibility
// knows them.
func (c *cluster) count(workflow string) int64 {
	c.t.Helper()
	counted, err := c.temporal.CountWorkflow(c.t.Context(), &workflowservice.CountWorkflowExecutionsRequest{
		Query: fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus != 'ContinuedAsNew'", workflow),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return counted.GetCount()
}
