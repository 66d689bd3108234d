package e2e

// This file has devices proven healthy and given back, by the whole of Sickbay on a real
// control plane. The programs of probes and canaries are ended by the tests.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// engineFault is a fault that a reset may mend.
const engineFault = "critical XID 109 reported by NVML"

// recovers runs a worker and a starter that prove devices healthy.
func (c *cluster) recovers(more ...string) {
	c.t.Helper()
	place := []string{"SICKBAY_PROBE_NAMESPACE=" + probes, "SICKBAY_PROBE_IMAGE=registry.example.com/sickbay:1"}
	settings := append(fastEnvironment(), "SICKBAY_ATTEMPTS=2", "SICKBAY_ATTEMPT_PAUSE=2s", "SICKBAY_ATTEMPT_PAUSE_MAX=1h", "SICKBAY_RELAPSE_WATCH=10m", "SICKBAY_RETURN_SETTLE=1s")
	c.process("worker", "worker", "", slices.Concat(settings, place, more)...)
	c.process("starter", "starter", "", append(starterEnvironment(), place...)...)
}

// fails lets a device fail that a Pod has, and the Pod leave.
func (c *cluster) failsAndIsFree(key device.Key, pod string) quarantine.Case {
	c.t.Helper()
	c.set(key, corev1.ResourceHealthStatusUnhealthy, engineFault)
	marked := c.awaitInForce(key)
	// Its driver takes it back once it was reset.
	c.set(key, corev1.ResourceHealthStatusHealthy, "")
	c.deletePod(pod)
	return marked
}

// program waits until a gate's program runs on the device, and returns its Pod.
func (c *cluster) program(key device.Key, gate quarantine.Gate) (pod types.NamespacedName) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("the program of gate %s runs", gate), 60*time.Second, func(ctx context.Context) error {
		state, err := c.cases.State(ctx, key)
		if err != nil {
			return err
		}
		r := state.Case.Recovery
		if r == nil || r.Gate != gate {
			return fmt.Errorf("%s, %s: %+v, last %+v", state.Case.Phase, state.Case.Waiting, r, state.Case.Last)
		}
		pods, err := c.kube.CoreV1().Pods(probes).List(ctx, metav1.ListOptions{
			LabelSelector: fmt.Sprintf("%s=%d,%s=%s", kube.LabelAttempt, r.Token, kube.LabelPart, strings.ToLower(string(gate))),
		})
		if err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].Status.Phase != corev1.PodRunning {
			return fmt.Errorf("%d Pods: %+v", len(pods.Items), r)
		}
		pod = types.NamespacedName{Namespace: probes, Name: pods.Items[0].Name}
		return nil
	})
	return pod
}

// programEnds has a gate's program run and end.
func (c *cluster) programEnds(key device.Key, gate quarantine.Gate, code int32) {
	c.t.Helper()
	pod := c.program(key, gate)
	if _, err := c.nodes.Exit(c.t.Context(), pod.Namespace, pod.Name, code); err != nil {
		c.t.Fatal(err)
	}
}

// awaitReleased waits until a device is given back, by all gates, and with nothing left of
// what it took.
func (c *cluster) awaitReleased(key device.Key) quarantine.Case {
	c.t.Helper()
	var released quarantine.Case
	c.eventually("the device is given back", 90*time.Second, func(ctx context.Context) error {
		state, err := c.cases.State(ctx, key)
		if err != nil {
			return err
		}
		released = state.Case
		if released.Phase != quarantine.PhaseReleased {
			return fmt.Errorf("%s, %s: %+v", released.Phase, released.Waiting, released.Recovery)
		}
		return nil
	})
	var gates []quarantine.Gate
	for _, passed := range released.Last.Passed {
		if passed.Verdict != quarantine.VerdictPassed {
			c.t.Errorf("gate %+v", passed)
		}
		gates = append(gates, passed.Gate)
	}
	if !slices.Equal(gates, quarantine.Gates[:]) {
		c.t.Errorf("passed %v, want %v", gates, quarantine.Gates)
	}
	c.nothingLeft()
	if rules, err := c.rules(c.t.Context()); err != nil || len(rules) != 0 {
		c.t.Errorf("%d marks, %v; want none", len(rules), err)
	}
	return released
}

// nothingLeft wants nothing to be left of attempts.
func (c *cluster) nothingLeft() {
	c.t.Helper()
	ctx := c.t.Context()
	pods, err := c.kube.CoreV1().Pods(probes).List(ctx, metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	jobs, err := c.kube.BatchV1().Jobs(probes).List(ctx, metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	claims, err := c.kube.ResourceV1().ResourceClaims(probes).List(ctx, metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	if len(pods.Items)+len(jobs.Items)+len(claims.Items) > 0 {
		c.t.Errorf("%d Pods, %d Jobs and %d claims are left", len(pods.Items), len(jobs.Items), len(claims.Items))
	}
}

// refusesAmidAnAttempt asks for a device while its probe runs, after an attempt that failed:
// each way of asking is told which gate is in the way, and what failed before that.
func (c *cluster) refusesAmidAnAttempt(key device.Key) {
	c.t.Helper()
	c.program(key, quarantine.GateProbe)
	o := c.operator()
	for _, force := range []bool{false, true} {
		typed := []string{"release", key.String(), "--actor", "eager@example.com", "--reason", "it works, I tried it"}
		if force {
			typed = append(typed, "--force")
		}
		o.wants("a release amid an attempt", o.types(o.binary, typed...), 1,
			"release refused for "+key.String(), "gate Probe", "gate Canary failed in attempt 1", "exit code 7")
	}
	signal := devicewf.OperatorPayload{Actor: "eager@example.com", Reason: "by signal", Force: true}
	if err := c.temporal.SignalWorkflow(c.t.Context(), devicewf.ID(key), "", "release", signal); err != nil {
		c.t.Fatal(err)
	}
	c.awaitCase(key, "has the refusals on record, and goes on", func(s quarantine.Case) error {
		if len(s.RefusedWords) < 3 || s.Recovery == nil || s.Recovery.Gate != quarantine.GateProbe {
			return fmt.Errorf("%d refused, %+v", len(s.RefusedWords), s.Recovery)
		}
		return nil
	})
}

// R1, R2, R4, R5. A device fails, is kept out, and comes back by all gates in their order; the
// scheduler gives it out again. It fails again within its watch: a new case, which
// remembers the old one. Idle it looks well, and under load it fails, until its tries are
// used up, and no release gets it past a gate meanwhile: it is retired, and stays so until somebody says that it was repaired, which is
// an attempt like any other.
func TestADeviceIsProvenHealthyAndGivenBack(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 1)
	c.recovers()
	key := c.runPod("train-0")
	first := c.failsAndIsFree(key, "train-0")
	c.askForDevice("train-1", simnode.DefaultDriver)
	c.programEnds(key, quarantine.GateProbe, 0)
	c.awaitUnschedulable("train-1")
	c.programEnds(key, quarantine.GateCanary, 0)
	c.awaitCase(key, "stays healthy for a while", func(s quarantine.Case) error {
		if s.Phase == quarantine.PhaseReleased || s.Recovery != nil && slices.Index(quarantine.Gates[:], s.Recovery.Gate) >= 3 {
			return nil
		}
		return fmt.Errorf("%s: %+v", s.Phase, s.Recovery)
	})
	released := c.awaitReleased(key)
	if released.Epoch != first.Epoch || released.Attempt != 1 || !released.Relapse.FirstTry {
		t.Errorf("epoch %d, attempt %d, %+v; want epoch %d and the first attempt", released.Epoch, released.Attempt, released.Relapse, first.Epoch)
	}
	if _, err := c.nodes.AwaitPod(t.Context(), "default", "train-1", simnode.Running); err != nil {
		t.Fatal(err)
	}
	if got := c.allocated("train-1"); got != key {
		t.Errorf("the next Pod got %s, want %s", got, key)
	}

	again := c.failsAndIsFree(key, "train-1")
	if again.Epoch <= first.Epoch || again.Relapse.Count != 1 || again.Relapse.Epoch != first.Epoch {
		t.Errorf("the next case has epoch %d and remembers %+v; want one above %d that counts a relapse", again.Epoch, again.Relapse, first.Epoch)
	}
	for attempt := 1; attempt <= 2; attempt++ {
		if attempt == 2 {
			c.refusesAmidAnAttempt(key)
		}
		c.programEnds(key, quarantine.GateProbe, 0)
		c.programEnds(key, quarantine.GateCanary, 7)
		failed := c.awaitCase(key, "fails under load", func(s quarantine.Case) error {
			if s.Last == nil || s.Last.Attempt != attempt {
				return fmt.Errorf("last attempt %+v", s.Last)
			}
			return nil
		})
		if r := failed.Last.Result; r.Gate != quarantine.GateCanary || r.Verdict != quarantine.VerdictFailed || !strings.Contains(r.Evidence, "exit code 7") || !failed.Last.Counted {
			t.Errorf("attempt %d came to %+v", attempt, failed.Last)
		}
	}
	c.awaitCase(key, "is retired", func(s quarantine.Case) error {
		if s.Phase != quarantine.PhaseRetired || s.Waiting != quarantine.WaitingForOperator || s.Litter != 0 {
			return fmt.Errorf("%s, %s", s.Phase, s.Waiting)
		}
		return nil
	})
	c.nothingLeft()
	repaired := quarantine.Message{Verb: quarantine.VerbRepaired, Actor: "oncall@example.com", Reason: "new riser"}
	if _, err := c.cases.Send(t.Context(), key, repaired); err != nil {
		t.Fatal(err)
	}
	c.programEnds(key, quarantine.GateProbe, 0)
	c.programEnds(key, quarantine.GateCanary, 0)
	c.awaitReleased(key)
}

// R3. Two devices of a node that are proven at the same time come back one after the other:
// the second waits for its turn until the first has been back for a while.
func TestDevicesOfANodeComeBackOneAfterTheOther(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 2)
	const settle = 10 * time.Second
	c.recovers("SICKBAY_RETURN_SETTLE="+settle.String(), "SICKBAY_BUDGET_NODE=none", "SICKBAY_BUDGET_CLASS=none", "SICKBAY_BUDGET_CLUSTER=none")
	keys := []device.Key{c.runPod("train-0"), c.runPod("train-1")}
	for i, key := range keys {
		c.failsAndIsFree(key, fmt.Sprintf("train-%d", i))
	}
	for _, gate := range []quarantine.Gate{quarantine.GateProbe, quarantine.GateCanary} {
		for _, key := range keys {
			c.programEnds(key, gate, 0)
		}
	}
	waited := map[device.Key]bool{}
	back := map[device.Key]time.Time{}
	c.eventually("both are back", 2*time.Minute, func(ctx context.Context) error {
		for _, key := range keys {
			state, err := c.cases.State(ctx, key)
			if err != nil {
				return err
			}
			switch s := state.Case; {
			case s.Phase == quarantine.PhaseReleased:
				back[key] = s.Relapse.ReleasedAt
			case s.Waiting == quarantine.WaitingForTurn:
				waited[key] = true
			}
		}
		if len(back) < len(keys) {
			return fmt.Errorf("back are %v, waiting was seen of %v", back, waited)
		}
		return nil
	})
	first, second := keys[0], keys[1]
	if back[second].Before(back[first]) {
		first, second = second, first
	}
	// The turn begins with the grant, a moment before the release.
	if apart := back[second].Sub(back[first]); apart < settle/2 {
		t.Errorf("%s came back %s after %s, want about %s", second, apart, first, settle)
	}
	if !waited[second] {
		t.Errorf("%s was never seen to wait for its turn", second)
	}
}

// outlivesItsLease has nobody of Sickbay there for longer than a record is valid: its mark
// stays, and whoever comes back looks again and extends it.
func (c *cluster) outlivesItsLease(key device.Key, marked quarantine.Case) {
	c.t.Helper()
	c.kill("worker")
	c.kill("starter")
	c.eventually("the record's lease is over", 60*time.Second, func(context.Context) error {
		if left := time.Until(marked.LeaseUntil); left > -time.Second {
			return fmt.Errorf("%s are left", left)
		}
		return nil
	})
	if rules, err := c.rules(c.t.Context()); err != nil || len(rules) != 1 {
		c.t.Fatalf("%d marks, %v; want the one that nobody looks after", len(rules), err)
	}
	c.restart("worker")
	c.restart("starter")
	c.awaitCase(key, "is looked at again, and its record extended", func(s quarantine.Case) error {
		if s.Epoch != marked.Epoch || s.Mark.State != quarantine.MarkInForce || !s.LeaseUntil.After(marked.LeaseUntil) || !s.LookedAt.After(marked.LeaseUntil) {
			return fmt.Errorf("epoch %d, mark %s, lease until %s, looked at %s", s.Epoch, s.Mark.State, s.LeaseUntil, s.LookedAt)
		}
		return nil
	})
}

// R1, R7, Q4. A record that nobody looks after for longer than it is valid frees nothing. A worker that is killed at any gate loses nothing and skips nothing: the gate
// goes on where it was, its program isn't run again, and the attempt is still the first.
func TestAWorkerKilledAtAnyGateSkipsNothing(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 1)
	c.recovers("SICKBAY_STABILITY=10s", "SICKBAY_LEASE=5s")
	key := c.runPod("train-0")
	ctx := t.Context()
	killed := func(gate quarantine.Gate) {
		t.Helper()
		c.kill("worker")
		c.restart("worker")
		t.Logf("killed at gate %s", gate)
	}
	at := func(gate quarantine.Gate) quarantine.Case {
		t.Helper()
		return c.awaitCase(key, "is at gate "+string(gate), func(s quarantine.Case) error {
			if s.Recovery == nil || s.Recovery.Gate != gate || s.Recovery.Pod.Name == "" && gate != quarantine.GateEvidence {
				return fmt.Errorf("%s, %s: %+v, last %+v", s.Phase, s.Waiting, s.Recovery, s.Last)
			}
			return nil
		})
	}
	// Its driver is silent, so that the first gate waits.
	c.set(key, corev1.ResourceHealthStatusUnhealthy, engineFault)
	marked := c.awaitInForce(key)
	epoch := marked.Epoch
	c.outlivesItsLease(key, marked)
	c.deletePod("train-0")
	c.set(key, corev1.ResourceHealthStatusUnknown, "")
	c.awaitCase(key, "waits for its driver", func(s quarantine.Case) error {
		if s.Recovery == nil || s.Recovery.Health != device.Unknown || s.Waiting != quarantine.WaitingForDriver {
			return fmt.Errorf("%s, %s: %+v", s.Phase, s.Waiting, s.Recovery)
		}
		return nil
	})
	killed(quarantine.GateEvidence)
	c.set(key, corev1.ResourceHealthStatusHealthy, "")
	token := at(quarantine.GateProbe).Token
	for _, gate := range []quarantine.Gate{quarantine.GateProbe, quarantine.GateCanary} {
		before := c.program(key, gate)
		killed(gate)
		// Another answer is in, so that the new worker has tended to it.
		tended := at(gate).Recovery.Tended
		c.awaitCase(key, "is tended to again", func(s quarantine.Case) error {
			if s.Recovery == nil || !s.Recovery.Tended.After(tended) {
				return fmt.Errorf("%+v", s.Recovery)
			}
			return nil
		})
		if after := c.program(key, gate); after != before {
			t.Errorf("gate %s has program %s, and had %s before the worker was killed", gate, after, before)
		}
		c.programEnds(key, gate, 0)
	}
	at(quarantine.GateStability)
	// What was made can't go, so that the last gate waits.
	claims, err := c.kube.ResourceV1().ResourceClaims(probes).List(ctx, metav1.ListOptions{})
	if err != nil || len(claims.Items) != 1 {
		t.Fatalf("%d claims, %v", len(claims.Items), err)
	}
	claim := claims.Items[0].Name
	c.finalize(claim, `[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/hold"}]`)
	killed(quarantine.GateStability)
	c.awaitCase(key, "waits for what was made to go", func(s quarantine.Case) error {
		if s.Waiting != quarantine.WaitingForCleanUp {
			return fmt.Errorf("%s, %s: %+v", s.Phase, s.Waiting, s.Recovery)
		}
		return nil
	})
	if rules, err := c.rules(ctx); err != nil || len(rules) != 1 {
		t.Fatalf("%d marks, %v; want one as long as something is left", len(rules), err)
	}
	killed(quarantine.GateReturn)
	c.finalize(claim, "")
	released := c.awaitReleased(key)
	if released.Epoch != epoch || released.Token != token || released.Attempt != 1 {
		t.Errorf("epoch %d, token %d, attempt %d; want %d, %d and 1", released.Epoch, released.Token, released.Attempt, epoch, token)
	}
}

// finalize patches the finalizers of a claim of ours; the empty patch takes away the test's.
func (c *cluster) finalize(claim, patch string) {
	c.t.Helper()
	ctx := c.t.Context()
	claims := c.kube.ResourceV1().ResourceClaims(probes)
	c.eventually("the claim's finalizers are changed", 20*time.Second, func(context.Context) error {
		if patch != "" {
			_, err := claims.Patch(ctx, claim, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
			return err
		}
		object, err := claims.Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		kept := slices.DeleteFunc(slices.Clone(object.Finalizers), func(f string) bool { return f == "example.com/hold" })
		if len(kept) == len(object.Finalizers) {
			return errors.New("it has none of the test's")
		}
		object.Finalizers = kept
		_, err = claims.Update(ctx, object, metav1.UpdateOptions{})
		return err
	})
}
