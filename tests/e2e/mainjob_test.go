package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

const fallenOff = "XID 79: GPU has fallen off the bus"

// sickbay runs a starter and a worker as processes.
func (c *cluster) sickbay() {
	c.t.Helper()
	c.process("worker", "worker", "", fastEnvironment()...)
	c.process("starter", "starter", "", starterEnvironment()...)
}

// set changes a device's health where its holders' Pods show it.
func (c *cluster) set(key device.Key, health corev1.ResourceHealthStatus, message string) {
	c.t.Helper()
	if _, err := c.nodes.Set(c.t.Context(), key.Pool, key.Device, health, message); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) awaitInForce(key device.Key) quarantine.Case {
	c.t.Helper()
	return c.awaitCase(key, "in force", func(s quarantine.Case) error {
		if s.Mark.State != quarantine.MarkInForce || s.Mark.Written != s.Mark.Revision {
			return fmt.Errorf("%s %s: mark %s %s", s.Phase, s.Waiting, s.Mark.State, s.Mark.Detail)
		}
		return nil
	})
}

// oneMark checks that there is exactly one mark in the cluster.
func (c *cluster) oneMark() {
	c.t.Helper()
	rules, err := c.rules(c.t.Context())
	if err != nil || len(rules) != 1 {
		c.t.Errorf("%d marks, %v; want one", len(rules), err)
	}
}

// workflows counts the device workflows that were ever started, without those
// runs that another one continued.
func (c *cluster) workflows() int {
	c.t.Helper()
	list, err := c.temporal.ListWorkflow(c.t.Context(), &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("WorkflowType = '%s'", devicewf.WorkflowType),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	count := 0
	for _, info := range list.GetExecutions() {
		if info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW {
			count++
		}
	}
	return count
}

// What a Pod's status says becomes a mark that the scheduler obeys: the next Pod
// gets another device. The healthy devices of the cluster cost no workflow.
// Proves Q1 and O9 end to end, and shows O1.
func TestAFaultInPodStatusKeepsTheDeviceOut(t *testing.T) {
	for _, version := range stack.Versions() {
		t.Run(version, func(t *testing.T) {
			c := start(t, stack.Options{Kubernetes: version, Temporal: true}, 2, 2)
			c.sickbay()
			held := []device.Key{c.runPod("train-0"), c.runPod("train-1"), c.runPod("train-2")}
			c.set(held[0], corev1.ResourceHealthStatusUnhealthy, fallenOff)
			state := c.awaitInForce(held[0])
			if state.Reason.Rule != "nvidia/xid-79" || state.Reason.Catalogue == "" {
				t.Errorf("rule %q of catalogue %q, want both on record", state.Reason.Rule, state.Reason.Catalogue)
			}
			c.awaitCase(held[0], "knows its holder", func(s quarantine.Case) error {
				if len(s.Holders) != 1 || s.Holders[0].Pod.Name != "train-0" || s.Waiting != quarantine.WaitingForHolder {
					return fmt.Errorf("%s, holders %v", s.Waiting, s.Holders)
				}
				return nil
			})
			c.oneMark()
			if got := c.workflows(); got != 1 {
				t.Errorf("%d workflows, want one for the one faulty device", got)
			}

			// The holder leaves; its device stays out, and the next Pod gets the
			// last one that is free.
			c.deletePod("train-0")
			next := c.runPod("train-3")
			if next == held[0] {
				t.Errorf("train-3 got %s, which is quarantined", next)
			}
			c.awaitCase(held[0], "waiting for recovery", func(s quarantine.Case) error {
				if s.Waiting != quarantine.WaitingForRecovery {
					return fmt.Errorf("%s %s", s.Phase, s.Waiting)
				}
				return nil
			})
		})
	}
}

// deletePod deletes a Pod and its claim and waits until both are gone.
func (c *cluster) deletePod(name string) {
	c.t.Helper()
	ctx := c.t.Context()
	if err := c.kube.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.nodes.AwaitPod(ctx, "default", name, simnode.Gone); err != nil {
		c.t.Fatal(err)
	}
	if err := c.kube.ResourceV1().ResourceClaims("default").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// Worker and starter are killed while the case is being opened, and again while
// it waits. After the restart the same case goes on, under the same epoch, with
// one mark. Proves K4 in part: nothing that matters was in memory.
func TestACaseSurvivesKilledProcesses(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 4)
	c.sickbay()
	key := c.runPod("train-0")
	c.kill("worker")
	c.set(key, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	c.eventually("the case is open", 20*time.Second, func(ctx context.Context) error {
		running, err := c.cases.Running(ctx, key)
		if err == nil && !running {
			return errors.New("no workflow")
		}
		return err
	})
	c.kill("starter")
	c.restart("worker")
	c.restart("starter")
	epoch := c.awaitInForce(key).Epoch
	c.kill("worker")
	c.kill("starter")
	c.restart("starter")
	c.restart("worker")
	c.set(key, corev1.ResourceHealthStatusUnhealthy, "XID 48: double bit ECC error")
	c.deletePod("train-0")
	state := c.awaitCase(key, "waiting for recovery", func(s quarantine.Case) error {
		if s.Waiting != quarantine.WaitingForRecovery {
			return fmt.Errorf("%s %s", s.Phase, s.Waiting)
		}
		return nil
	})
	if state.Epoch != epoch {
		t.Errorf("epoch %d, then %d: want one case", epoch, state.Epoch)
	}
	if state.Reason.Rule != "nvidia/xid-79" {
		t.Errorf("reason %s: a milder fault hides the fatal one", state.Reason.Rule)
	}
	c.oneMark()
	if got := c.workflows(); got != 1 {
		t.Errorf("%d workflows, want 1", got)
	}
}

func (c *cluster) kill(name string) {
	c.t.Helper()
	if err := c.stack.KillPart(name); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) restart(name string) {
	c.t.Helper()
	if err := c.stack.StartPart(c.t.Context(), name); err != nil {
		c.t.Fatal(err)
	}
}

// A Temporal that lost everything gets its cases back from the marks within a
// minute, and none is lifted. Proves Q4 in part.
func TestAnEmptyTemporalGetsItsCasesBackFromTheMarks(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.36", Temporal: true}, 1, 4)
	c.sickbay()
	key := c.runPod("train-0")
	c.set(key, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	before := c.awaitInForce(key)
	// Nobody reports on the device any more; the mark is all that is left of it.
	c.deletePod("train-0")
	c.kill("temporal")
	for _, file := range []string{"temporal.db", "temporal.db-wal", "temporal.db-shm"} {
		if err := os.Remove(filepath.Join(c.stack.Dir(), file)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	c.restart("temporal")
	began := time.Now()
	after := c.awaitCase(key, "back", func(s quarantine.Case) error {
		if s.Phase != quarantine.PhaseQuarantined || s.Mark.State != quarantine.MarkInForce {
			return fmt.Errorf("%s, mark %s", s.Phase, s.Mark.State)
		}
		return nil
	})
	t.Logf("the case was back %s after Temporal", time.Since(began).Round(100*time.Millisecond))
	if after.Epoch != before.Epoch || after.Severity != before.Severity || after.Reason.Code != before.Reason.Code {
		t.Errorf("epoch %d %s %s, want %d %s %s as before", after.Epoch, after.Severity, after.Reason.Code,
			before.Epoch, before.Severity, before.Reason.Code)
	}
	c.oneMark()
}

// A mark that somebody deletes by hand while the case is open is put back, and
// that it was is on record. Proves Q5.
func TestAMarkDeletedByHandIsPutBack(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 2)
	c.sickbay()
	key := c.runPod("train-0")
	c.set(key, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	state := c.awaitInForce(key)
	c.deleteRule(state.Mark.Name)
	after := c.awaitCase(key, "restored", func(s quarantine.Case) error {
		if s.Mark.Restored != 1 || s.Mark.State != quarantine.MarkInForce {
			return fmt.Errorf("mark %+v", s.Mark)
		}
		return nil
	})
	if after.Epoch != state.Epoch {
		t.Errorf("epoch %d, want %d", after.Epoch, state.Epoch)
	}
	c.oneMark()
	c.eventually("the deletion is in the audit trail", 10*time.Second, func(context.Context) error {
		for _, line := range c.logged("worker", "decision") {
			if line["kind"] == string(quarantine.NoticeMarkRestored) {
				return nil
			}
		}
		return errors.New("no such decision")
	})
}

// Of two starters one sends. When it is killed the other one takes over, without
// repeating what is known, and sees what comes next.
func TestASecondStarterTakesOver(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 4)
	c.sickbay()
	first, second := c.runPod("train-0"), c.runPod("train-1")
	c.set(first, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	c.awaitInForce(first)
	c.process("starter-2", "starter", "", starterEnvironment()...)
	c.kill("starter")
	c.set(second, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	c.awaitInForce(second)
	if got := c.workflows(); got != 2 {
		t.Errorf("%d workflows, want one per faulty device", got)
	}
}

// Temporal is away when the starter begins and goes away again while a fault
// comes. No fault is lost and no process ends.
func TestFaultsWaitForTemporal(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 4)
	first, second := c.runPod("train-0"), c.runPod("train-1")
	c.kill("temporal")
	c.sickbay()
	c.set(first, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	c.restart("temporal")
	c.awaitInForce(first)
	c.kill("temporal")
	c.set(second, corev1.ResourceHealthStatusUnhealthy, "XID 48: double bit ECC error")
	// It heals before Temporal is back: nothing is to be done any more.
	c.set(second, corev1.ResourceHealthStatusHealthy, "")
	third := c.runPod("train-2")
	c.set(third, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	c.restart("temporal")
	c.awaitInForce(third)
}

// SIGTERM ends both processes cleanly, and a fault that came just before is not
// lost: the next processes have it.
func TestAnEndedProcessLosesNothing(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 8)
	c.sickbay()
	var keys []device.Key
	for i := range 6 {
		keys = append(keys, c.runPod(fmt.Sprintf("train-%d", i)))
	}
	for _, key := range keys {
		c.set(key, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	}
	for _, name := range []string{"starter", "worker"} {
		began := time.Now()
		if err := c.stack.StopPart(t.Context(), name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(began); took > 12*time.Second {
			t.Errorf("%s took %s to end", name, took)
		}
	}
	c.restart("worker")
	c.restart("starter")
	for _, key := range keys {
		c.awaitInForce(key)
	}
	if got := c.workflows(); got != len(keys) {
		t.Errorf("%d workflows, want %d", got, len(keys))
	}
}

// In mode observe nothing in the cluster changes, no right to change it is needed, and
// the case shows what would have been done. The same goes for an API server that can't
// begin a watch with a list.
func TestObservingChangesNothing(t *testing.T) {
	c := startWith(t, stack.Options{Kubernetes: "1.37", Temporal: true, FeatureGates: map[string]bool{"WatchList": false}}, 1, 2)
	c.process("worker", "worker", "")
	c.process("starter", "starter", "", starterEnvironment()...)
	key := c.runPod("train-0")
	c.set(key, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	state := c.awaitCase(key, "observed", func(s quarantine.Case) error {
		if s.Mark.State != quarantine.MarkObserved || s.LookedAt.IsZero() {
			return fmt.Errorf("%s, mark %s", s.Phase, s.Mark.State)
		}
		return nil
	})
	if rules, err := c.rules(t.Context()); err != nil || len(rules) != 0 {
		t.Errorf("%d marks, %v; want none", len(rules), err)
	}
	t.Log(devicewf.Details(state, reason.Builtin().Meaning))

	// Workers come back with the other mode, and the next word about the device has
	// it marked by the same case, in the same run.
	if err := c.stack.StopPart(t.Context(), "worker"); err != nil {
		t.Fatal(err)
	}
	if _, err := deploy.Grant(t.Context(), c.stack, deploy.Enforce); err != nil {
		t.Fatal(err)
	}
	c.process("worker-that-marks", "worker", "", fastEnvironment()...)
	c.set(key, corev1.ResourceHealthStatusUnhealthy, "XID 48: double bit ECC error")
	if followed := c.awaitInForce(key); followed.Epoch != state.Epoch {
		t.Errorf("epoch %d, then %d: want the same case", state.Epoch, followed.Epoch)
	}
}
