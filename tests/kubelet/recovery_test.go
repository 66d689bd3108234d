package kubelet

// This file has a device of a real kubelet fail, be proven healthy and given out again; and
// then fail under load, be retired, be repaired, and come back.

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/fakedriver"
)

// probes is the namespace of deploy/components/enforce/recovery.
const probes = "sickbay-probes"

// policyOfRecovery has canaries run for as long as a test can wait.
const policyOfRecovery = `apiVersion: sickbay.dev/v1
kind: Policy
recovery:
  canary: {args: [--for, 8s, --every, 1s]}
`

// recoveryWindows are the settings of shortWindows, with attempts, and quick ones.
func recoveryWindows() map[string]string {
	settings := shortWindows()
	settings["SICKBAY_PROBE_NAMESPACE"] = probes
	settings["SICKBAY_ATTEMPTS"], settings["SICKBAY_ATTEMPT_PAUSE"], settings["SICKBAY_RETURN_SETTLE"] = "2", "2s", "1s"
	return settings
}

// governRecovery writes the policy under which the suite's devices are tried.
func (s *suite) governRecovery(t *testing.T) {
	t.Helper()
	_, err := s.client.CoreV1().ConfigMaps("sickbay").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "sickbay-policy"}, Data: map[string]string{"policy.yaml": policyOfRecovery},
	}, metav1.CreateOptions{})
	must(t, err)
}

// awaitGate waits until an attempt is at a gate, or past it.
func (s *suite) awaitGate(t *testing.T, key device.Key, gate quarantine.Gate, attempt int) {
	t.Helper()
	s.awaitCase(t, key, fmt.Sprintf("is at gate %s in attempt %d", gate, attempt), func(c quarantine.Case) error {
		if r := c.Recovery; r == nil || r.Gate != gate || c.Attempt != attempt {
			return fmt.Errorf("it is %s, waiting for %s: %+v; before that %+v", c.Phase, c.Waiting, r, c.Last)
		}
		return nil
	})
}

// comesBack waits until a device is given back by all gates, and wants nothing of it left.
func (s *suite) comesBack(t *testing.T, key device.Key) quarantine.Case {
	t.Helper()
	var released quarantine.Case
	within(t, 3*soon, fmt.Sprintf("%s is given back", key), func(ctx context.Context) error {
		state, err := s.sickbay.cases.State(ctx, key)
		if err != nil {
			return err
		}
		if c := state.Case; c.Phase != quarantine.PhaseReleased {
			return fmt.Errorf("it is %s, waiting for %s: %+v; before that %+v", c.Phase, c.Waiting, c.Recovery, c.Last)
		}
		released = state.Case
		return nil
	})
	gates := []quarantine.Gate{}
	for _, passed := range released.Last.Passed {
		gates = append(gates, passed.Gate)
		t.Logf("%s: %s after %s: %s", passed.Gate, passed.Verdict, passed.Ended.Sub(passed.Began), passed.Evidence)
	}
	if !slices.Equal(gates, quarantine.Gates[:]) {
		t.Errorf("passed %v, want %v", gates, quarantine.Gates)
	}
	if marks := s.marked(t, key.Driver); len(marks) != 0 {
		t.Errorf("marks of %s: %v, want none", key.Driver, marks)
	}
	s.nothingTried(t, key)
	return released
}

// nothingTried wants nothing to be left of a device's attempts.
func (s *suite) nothingTried(t *testing.T, key device.Key) {
	t.Helper()
	within(t, soon, "nothing is left of its attempts", func(ctx context.Context) error {
		pods, err := s.client.CoreV1().Pods(probes).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		claims, err := s.client.ResourceV1().ResourceClaims(probes).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if pod.Annotations[kube.AnnotationDevice] == key.String() {
				return fmt.Errorf("pod %s is", pod.Name)
			}
		}
		for _, claim := range claims.Items {
			if claim.Annotations[kube.AnnotationDevice] == key.String() {
				return fmt.Errorf("claim %s is", claim.Name)
			}
		}
		return nil
	})
}

// The driver's CDI specs are all that a container sees of its device, and what Sickbay's
// own probe looks for.
func comesBackByItsGates(t *testing.T, s *suite) {
	d := s.driver(t, func(c *fakedriver.Config) { c.CDI, c.OwnTaints, c.Devices = fakedriver.CDIDevice, false, 1 })
	key := s.key(t, d.Config.Name, "gpu-0")
	fails := func(pod string) quarantine.Case {
		t.Helper()
		must(t, d.Xid(t.Context(), "gpu-0", 119))
		marked := s.awaitCase(t, key, "is in force", inForce)
		must(t, s.remove(t.Context(), pod))
		return marked
	}

	first := fails(s.awaitRunning(t, s.draPod(t, d.Config.Name, 1, nil).Name).Name)
	// Its driver says Unhealthy still, so that it is nobody's but the driver's turn.
	next := s.draPod(t, d.Config.Name, 1, nil)
	must(t, d.Healthy(t.Context(), "gpu-0"))
	released := s.comesBack(t, key)
	if released.Epoch != first.Epoch {
		t.Errorf("epoch %d, then %d: want one case", first.Epoch, released.Epoch)
	}
	tenant := s.awaitRunning(t, next.Name)
	if _, held := s.held(t, tenant); !slices.Equal(held, []string{"gpu-0"}) {
		t.Errorf("the next Pod has %v", held)
	}

	// Idle it is well. It fails whenever the canary runs, and is retired for it.
	again := fails(tenant.Name)
	if again.Epoch <= first.Epoch || again.Relapse.Count != 1 {
		t.Errorf("epoch %d, relapse %+v: want a new case that counts one", again.Epoch, again.Relapse)
	}
	must(t, d.Healthy(t.Context(), "gpu-0"))
	for attempt := 1; attempt <= 2; attempt++ {
		s.awaitGate(t, key, quarantine.GateCanary, attempt)
		must(t, d.Xid(t.Context(), "gpu-0", 119))
		failed := s.awaitCase(t, key, "failed under load", func(c quarantine.Case) error {
			if c.Last == nil || c.Last.Attempt != attempt || !c.Last.Counted {
				return fmt.Errorf("it is %s, waiting for %s: %+v; before that %+v", c.Phase, c.Waiting, c.Recovery, c.Last)
			}
			return nil
		})
		if failed.Last.Result.Gate != quarantine.GateCanary || !strings.Contains(failed.Last.Result.Evidence, "119") {
			t.Errorf("attempt %d came to %+v", attempt, failed.Last)
		}
		must(t, d.Healthy(t.Context(), "gpu-0"))
	}
	s.awaitCase(t, key, "is retired", func(c quarantine.Case) error {
		if c.Phase != quarantine.PhaseRetired || c.Waiting != quarantine.WaitingForOperator {
			return fmt.Errorf("it is %s, waiting for %s", c.Phase, c.Waiting)
		}
		return nil
	})
	if marks := s.marked(t, key.Driver); !marks[key] {
		t.Errorf("marks of %s: %v, want the retired device's", key.Driver, marks)
	}
	s.nothingTried(t, key)
	_, err := s.sickbay.cases.Send(t.Context(), key, quarantine.Message{Verb: quarantine.VerbRepaired, Actor: "oncall@example.com", Reason: "new riser"})
	must(t, err)
	s.comesBack(t, key)
}
