package kubelet

// This file is the main job on a real kubelet: what a driver says of its device
// becomes a case and a mark, and what nobody can know changes nothing.

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/fakedriver"
)

func mainJob() []test {
	return []test{
		{name: "a fault is marked, and the next Pods get other devices", run: faultIsMarked},
		{name: "a killed driver restricts its device past its window, and whoever has it keeps it", run: killedDriverRestrictsItsDevice},
		{name: "a fault whose entry names a claim finds the claim's one device", run: claimNamesOneDevice},
		{name: "a fault of one of several devices is listed and not guessed", run: mixedClaimIsNotGuessed},
		{name: "a fault outlives its Pod and a kubelet that restarts", run: faultOutlivesItsPod, alone: true},
	}
}

// key is the device of a driver on the node.
func (s *suite) key(t *testing.T, driver, name string) device.Key {
	t.Helper()
	key, err := device.NewDRA(driver, s.node.Name(), name)
	must(t, err)
	return key
}

// The driver sets no taints of its own here: what keeps Pods off is the mark.
func faultIsMarked(t *testing.T, s *suite) {
	d := s.driver(t, func(c *fakedriver.Config) { c.CDI, c.OwnTaints = fakedriver.CDIOff, false })
	pod := s.awaitRunning(t, s.draPod(t, d.Config.Name, 1, nil).Name)
	_, held := s.held(t, pod)
	bad := s.key(t, d.Config.Name, held[0])
	s.shows(t, soon, pod.Name, "dra-healthy", map[string]string{"driver": d.Config.Name, "pool": s.node.Name(), "device": held[0]})

	began := time.Now()
	must(t, d.Xid(t.Context(), held[0], 79))
	state := s.awaitCase(t, bad, "is in force", inForce)
	t.Logf("from the driver's word to the mark: %s", time.Since(began).Round(10*time.Millisecond))
	if state.Reason.Rule != "nvidia/xid-79" || !strings.Contains(state.Message, "79") {
		t.Errorf("the reason is %s with message %q, want Xid 79 in the driver's words", state.Reason.Rule, state.Message)
	}
	s.awaitCase(t, bad, "knows its holder", func(c quarantine.Case) error {
		if len(c.Holders) != 1 || c.Holders[0].Pod.UID != string(pod.UID) {
			return fmt.Errorf("holders %+v", c.Holders)
		}
		return nil
	})
	if marks := s.marked(t, d.Config.Name); len(marks) != 1 || !marks[bad] {
		t.Errorf("marks of %s: %v, want one of %s", d.Config.Name, marks, bad)
	}

	// The bad device becomes free. Of two Pods the first gets the other device,
	// and the second none.
	must(t, s.remove(t.Context(), pod.Name))
	next := s.awaitRunning(t, s.draPod(t, d.Config.Name, 1, nil).Name)
	if _, got := s.held(t, next); got[0] == held[0] {
		t.Errorf("the next Pod got %s, which is quarantined", got[0])
	}
	last := s.draPod(t, d.Config.Name, 1, nil)
	within(t, soon, "the scheduler has no device for another Pod", func(ctx context.Context) error {
		p, err := s.client.CoreV1().Pods(namespace).Get(ctx, last.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable && strings.Contains(c.Message, "cannot allocate all claims") {
				return nil
			}
		}
		return fmt.Errorf("it is %s: %+v", p.Status.Phase, p.Status.Conditions)
	})
	s.awaitCase(t, bad, "rests", func(c quarantine.Case) error {
		if len(c.Holders) != 0 || c.Mark.State != quarantine.MarkInForce {
			return fmt.Errorf("holders %+v, mark %s", c.Holders, c.Mark.State)
		}
		return nil
	})
}

func killedDriverRestrictsItsDevice(t *testing.T, s *suite) {
	d, pod, fill := s.healthy(t, nil)
	key := s.key(t, d.Config.Name, "gpu-0")
	s.noCase(t, key)
	must(t, d.Crash(t.Context()))
	s.shows(t, soon, pod.Name, "dra-unknown", fill)
	suspect := s.awaitCase(t, key, "is suspect", func(c quarantine.Case) error {
		if c.Phase != quarantine.PhaseSuspect {
			return fmt.Errorf("it is %s", c.Phase)
		}
		return nil
	})
	if marks := s.marked(t, d.Config.Name); len(marks) != 0 && time.Now().Before(suspect.GraceUntil) {
		t.Errorf("marks of %s inside the window: %v, want none", d.Config.Name, marks)
	}
	// Its window ends: it is kept from new Pods, and who has it keeps it.
	s.awaitCase(t, key, "outlasts its window", func(c quarantine.Case) error {
		if c.Phase != quarantine.PhaseRestricted || c.Waiting != quarantine.WaitingForHealth || c.Mark.State != quarantine.MarkInForce {
			return fmt.Errorf("it is %s, waiting for %s, its mark %s", c.Phase, c.Waiting, c.Mark.State)
		}
		return nil
	})
	if marks := s.marked(t, d.Config.Name); len(marks) != 1 {
		t.Errorf("marks of %s: %v, want the restricted device's", d.Config.Name, marks)
	}
	after, err := s.client.CoreV1().Pods(namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	must(t, err)
	if after.UID != pod.UID || after.DeletionTimestamp != nil || after.Status.Phase != corev1.PodRunning || after.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the Pod is %s, deleted %v, restarted %d times: want it as it was", after.Status.Phase, after.DeletionTimestamp, after.Status.ContainerStatuses[0].RestartCount)
	}
	// The driver comes back, and with it the health: the case is over.
	must(t, d.Start(t.Context()))
	s.shows(t, soon, pod.Name, "dra-healthy", fill)
	closed := s.awaitCase(t, key, "is over", func(c quarantine.Case) error {
		if c.Phase != quarantine.PhaseClosed {
			return fmt.Errorf("it is %s, waiting for %s", c.Phase, c.Waiting)
		}
		return nil
	})
	if closed.Epoch != suspect.Epoch {
		t.Errorf("epoch %d, then %d: want one case", suspect.Epoch, closed.Epoch)
	}
	if marks := s.marked(t, d.Config.Name); len(marks) != 0 {
		t.Errorf("marks of %s: %v, want none: its health is back", d.Config.Name, marks)
	}
}

// NVIDIA's driver returns CDI IDs that name the claim. With one device in the
// claim that is enough.
func claimNamesOneDevice(t *testing.T, s *suite) {
	d := s.driver(t, func(c *fakedriver.Config) { c.OwnTaints = false })
	pod := s.awaitRunning(t, s.draPod(t, d.Config.Name, 1, nil).Name)
	_, held := s.held(t, pod)
	must(t, d.Xid(t.Context(), held[0], 79))
	s.awaitCase(t, s.key(t, d.Config.Name, held[0]), "is in force", inForce)
}

// With several devices it isn't, unless they are all alike.
func mixedClaimIsNotGuessed(t *testing.T, s *suite) {
	d := s.driver(t, nil)
	pod := s.awaitRunning(t, s.draPod(t, d.Config.Name, 2, nil).Name)
	must(t, d.Lost(t.Context(), "gpu-1"))
	within(t, soon, "the fault is listed as unmapped", func(ctx context.Context) error {
		l, err := s.devicesCommand(ctx)
		if err != nil {
			return err
		}
		for _, u := range l.Unmapped {
			if u.Pod.Name == pod.Name && u.Health == device.Unhealthy && len(u.Candidates) == 2 {
				return nil
			}
		}
		return fmt.Errorf("unmapped: %+v", l.Unmapped)
	})
	for _, name := range []string{"gpu-0", "gpu-1"} {
		s.noCase(t, s.key(t, d.Config.Name, name))
	}
	if marks := s.marked(t, d.Config.Name); len(marks) != 0 {
		t.Errorf("marks of %s: %v, want none: nobody can tell which device it is", d.Config.Name, marks)
	}
	// The other one fails too: now both are known.
	must(t, d.Lost(t.Context(), "gpu-0"))
	for _, name := range []string{"gpu-0", "gpu-1"} {
		s.awaitCase(t, s.key(t, d.Config.Name, name), "is in force", inForce)
	}
}

func faultOutlivesItsPod(t *testing.T, s *suite) {
	d := s.driver(t, func(c *fakedriver.Config) { c.Devices, c.CDI, c.OwnTaints = 1, fakedriver.CDIOff, false })
	pod := s.awaitRunning(t, s.draPod(t, d.Config.Name, 1, nil).Name)
	key := s.key(t, d.Config.Name, "gpu-0")
	must(t, d.Xid(t.Context(), "gpu-0", 79))
	before := s.awaitCase(t, key, "is in force", inForce)
	must(t, s.remove(t.Context(), pod.Name))
	must(t, s.node.KillKubelet())
	must(t, s.node.StartKubelet(t.Context()))
	must(t, d.WaitRegistered(t.Context()))
	s.awaitDevices(t, d.Config.Name, 1)
	after := s.awaitCase(t, key, "waits for recovery", func(c quarantine.Case) error {
		if c.Waiting != quarantine.WaitingForRecovery {
			return fmt.Errorf("it is %s, waiting for %s", c.Phase, c.Waiting)
		}
		return nil
	})
	if after.Epoch != before.Epoch || after.Reason.Rule != before.Reason.Rule || !s.marked(t, d.Config.Name)[key] {
		t.Errorf("epoch %d %s, then %d %s, marks %v: want the same case with its mark",
			before.Epoch, before.Reason.Rule, after.Epoch, after.Reason.Rule, s.marked(t, d.Config.Name))
	}
}
