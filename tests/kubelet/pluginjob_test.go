package kubelet

// This file is what Sickbay makes of device plugins on a real kubelet: it records
// and alerts, keeps nothing out, and takes nothing for healthy that only the
// kubelet calls so.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/tests/fakeplugin"
)

func pluginJob() []test {
	return []test{
		{name: "a plugin's fault is recorded and alerted, and keeps nothing out", run: pluginFaultIsAdvisory},
		{name: "a killed plugin makes suspects of its devices in use, and nothing is touched", run: killedPluginMakesSuspects},
		{name: "a device that leaves its plugin's list isn't taken for healthy", run: vanishedPluginDevice},
		{name: "a kubelet that restarts without its plugin ends no case", run: restartEndsNoCase, alone: true},
	}
}

// pluginKey is a plugin's device on the node.
func (s *suite) pluginKey(t *testing.T, resource, id string) device.Key {
	t.Helper()
	key, err := device.NewPlugin(s.node.Name(), resource, id)
	must(t, err)
	return key
}

// deviceCommand runs `sickbay device`, as an operator would.
func (s *suite) deviceCommand(t *testing.T, key device.Key) listing.Story {
	t.Helper()
	command := exec.CommandContext(t.Context(), s.sickbay.binary, "device", key.String(), "-o", "json")
	command.Env = append(os.Environ(), s.sickbay.env...)
	var out, failed bytes.Buffer
	command.Stdout, command.Stderr = &out, &failed
	if err := command.Run(); err != nil {
		t.Fatalf("sickbay device %s: %v: %s", key, err, failed.String())
	}
	var story listing.Story
	must(t, json.Unmarshal(out.Bytes(), &story))
	return story
}

// advisory wants a case of a fault that nothing is marked for, of so many devices
// on the plugin's list when it was last looked at.
func advisory(listed int64) func(quarantine.Case) error {
	return func(c quarantine.Case) error {
		if c.Phase != quarantine.PhaseQuarantined || c.Mark.State != quarantine.MarkAdvisory || c.Waiting != quarantine.WaitingForHealth ||
			c.Reason.Code != reason.UnhealthyWithoutMessage || c.Evidence().Value != device.Unhealthy || c.Absence != nil || c.Listed != listed {
			return fmt.Errorf("it is %s, waiting for %s, its mark %s, its reason %s, the evidence %s, absent %+v, %d listed",
				c.Phase, c.Waiting, c.Mark.State, c.Reason.Code, c.Evidence().Value, c.Absence, c.Listed)
		}
		return nil
	}
}

// pluginSuspect wants a case of a device that no plugin stands behind.
func pluginSuspect(waiting quarantine.Waiting) func(quarantine.Case) error {
	return func(c quarantine.Case) error {
		if c.Phase != quarantine.PhaseSuspect || c.Waiting != waiting || c.Reason.Code != reason.PluginAbsent || c.Mark.State != quarantine.MarkNone {
			return fmt.Errorf("it is %s, waiting for %q, its mark %q, its reason %s", c.Phase, c.Waiting, c.Mark.State, c.Reason.Code)
		}
		return nil
	}
}

// over wants a case that is over.
func over(end quarantine.End) func(quarantine.Case) error {
	return func(c quarantine.Case) error {
		if c.Phase != quarantine.PhaseClosed || c.End != end {
			return fmt.Errorf("it is %s %s, waiting for %s, healthy since %s, absent %+v", c.Phase, c.End, c.Waiting, c.GoodSince, c.Absence)
		}
		return nil
	}
}

// untouched returns a check that nothing in the cluster has changed for the sake of
// a Pod's devices since: its containers, its node, and the marks of plugins' devices.
func (s *suite) untouched(t *testing.T, pod *corev1.Pod) func() {
	t.Helper()
	nodeSpec := func() corev1.NodeSpec {
		node, err := s.client.CoreV1().Nodes().Get(t.Context(), s.node.Name(), metav1.GetOptions{})
		must(t, err)
		return node.Spec
	}
	before := nodeSpec()
	return func() {
		t.Helper()
		after, err := s.client.CoreV1().Pods(namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		must(t, err)
		restarted := slices.ContainsFunc(after.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.RestartCount > 0 })
		if after.UID != pod.UID || after.DeletionTimestamp != nil || after.Status.Phase != corev1.PodRunning || restarted {
			t.Errorf("the Pod is %s, deleted %v, restarted %t: want it as it was", after.Status.Phase, after.DeletionTimestamp, restarted)
		}
		if now := nodeSpec(); !reflect.DeepEqual(before, now) {
			t.Errorf("the node's spec is %+v, want it as it was: %+v", now, before)
		}
		if marks := s.marked(t, ""); len(marks) != 0 {
			t.Errorf("marks of devices that nothing can be marked for: %v", marks)
		}
	}
}

func pluginFaultIsAdvisory(t *testing.T, s *suite) {
	p, name, pod, fill := s.offered(t, nil)
	key := s.pluginKey(t, name, fill["main"])
	untouched := s.untouched(t, pod)
	s.noCase(t, key)
	must(t, p.Unhealthy(t.Context(), name, fill["main"]))
	open := s.awaitCase(t, key, "is advisory", advisory(2))
	if len(open.Holders) != 1 || open.Holders[0].Pod.UID != string(pod.UID) {
		t.Errorf("holders %+v, want the one Pod that has it", open.Holders)
	}
	untouched()
	s.noCase(t, s.pluginKey(t, name, fill["side"]))

	// What an operator is told: why there is no mark, what to do, and that it was
	// an alert.
	story := s.deviceCommand(t, key)
	for what, want := range map[string][2]string{
		"the summary": {story.Summary, "is faulty, and can't be kept out"},
		"the mark":    {story.MarkText, "no API to keep one device of a device plugin out"},
		"the remedy":  {story.MarkText, "cordon its node"},
		"the next":    {story.Next, "the plugin has called it Healthy for long enough"},
	} {
		if !strings.Contains(want[0], want[1]) {
			t.Errorf("%s is %q, want it to say %q", what, want[0], want[1])
		}
	}
	for _, kind := range []quarantine.NoticeKind{quarantine.NoticeOpened, quarantine.NoticeAdvisory} {
		alerted := func(n quarantine.Notice) bool { return n.Kind == kind && n.Epoch == open.Epoch && n.Alert }
		if !slices.ContainsFunc(story.Timeline, alerted) {
			t.Errorf("%s isn't among the alerts: %+v", kind, story.Timeline)
		}
	}

	must(t, p.Healthy(t.Context(), name, fill["main"]))
	closed := s.awaitCase(t, key, "is over", over(quarantine.EndAdvisory))
	if window := closed.LookedAt.Sub(closed.GoodSince); closed.Epoch != open.Epoch || window < stability {
		t.Errorf("epoch %d, then %d, closed after %s of health; want one case, and %s", open.Epoch, closed.Epoch, window, stability)
	}
	untouched()
}

func killedPluginMakesSuspects(t *testing.T, s *suite) {
	name := s.unique("r") + ".example.com/gpu"
	p := s.pluginOf(t, fakeplugin.Resources{name: 3})
	pod := s.awaitRunning(t, s.pluginPod(t, name, nil).Name)
	fill := map[string]string{"resource": name}
	free := []string{"GPU-0", "GPU-1", "GPU-2"}
	for container, list := range entriesOf(pod) {
		fill[container] = string(list[0].Resources[0].ResourceID)
		free = slices.DeleteFunc(free, func(id string) bool { return id == fill[container] })
	}
	if len(free) != 1 {
		t.Fatalf("devices that nobody has: %v, want one", free)
	}
	bad, well, unheld := s.pluginKey(t, name, fill["main"]), s.pluginKey(t, name, fill["side"]), s.pluginKey(t, name, free[0])
	untouched := s.untouched(t, pod)
	must(t, p.Unhealthy(t.Context(), name, fill["main"]))
	open := s.awaitCase(t, bad, "is advisory", advisory(3))
	s.noCase(t, well)

	must(t, p.Crash(t.Context()))
	s.awaitAllocatable(t, name, 0)
	suspect := s.awaitCase(t, well, "is suspect", pluginSuspect(quarantine.WaitingForNothing))
	s.shows(t, soon, pod.Name, "plugin-unhealthy", fill) // both entries as they were
	s.awaitCase(t, well, "outlasts its window", func(c quarantine.Case) error {
		if c.Phase != quarantine.PhaseRestricted || c.Mark.State != quarantine.MarkAdvisory || c.Waiting != quarantine.WaitingForHealth || c.Reason.Code != reason.PluginAbsent {
			return fmt.Errorf("it is %s, waiting for %q, its mark %q, its reason %s", c.Phase, c.Waiting, c.Mark.State, c.Reason.Code)
		}
		return nil
	})
	if evidence := s.awaitCase(t, well, "is known", func(quarantine.Case) error { return nil }).Evidence(); evidence.Value != device.Unknown ||
		evidence.Stale != device.PluginAbsent || evidence.Reports[0].Health != device.Healthy {
		t.Errorf("the evidence is %+v, want a Healthy that isn't believed for want of a plugin", evidence)
	}
	within(t, soon, "the listing shows what is believed, and why", func(ctx context.Context) error {
		l, err := s.devicesCommand(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(l.Devices, func(d listing.Device) bool { return d.Key == well })
		if i < 0 || l.Devices[i].Health != device.Unknown || l.Devices[i].Stale != device.PluginAbsent || l.Devices[i].Reason != string(reason.PluginAbsent) {
			return fmt.Errorf("%s is at %d of %+v", well, i, l.Devices)
		}
		return nil
	})
	if still := s.awaitCase(t, bad, "is advisory still", advisory(3)); still.Epoch != open.Epoch {
		t.Errorf("epoch %d, then %d: want the fault's one case", open.Epoch, still.Epoch)
	}
	s.noCase(t, unheld)
	untouched()

	must(t, p.Start(t.Context())) // it forgot
	s.awaitAllocatable(t, name, 3)
	if closed := s.awaitCase(t, well, "is over", over(quarantine.EndHealthBack)); closed.Epoch != suspect.Epoch {
		t.Errorf("epoch %d, then %d: want one suspicion", suspect.Epoch, closed.Epoch)
	}
	if closed := s.awaitCase(t, bad, "is over", over(quarantine.EndAdvisory)); closed.Epoch != open.Epoch {
		t.Errorf("epoch %d, then %d: want one case", open.Epoch, closed.Epoch)
	}
	s.noCase(t, unheld)
	untouched()
}

func vanishedPluginDevice(t *testing.T, s *suite) {
	p, name, pod, fill := s.offered(t, nil)
	key, other := s.pluginKey(t, name, fill["main"]), s.pluginKey(t, name, fill["side"])
	untouched := s.untouched(t, pod)
	// That a device without a case leaves the list, nobody can see.
	must(t, p.Remove(t.Context(), name, fill["side"]))
	s.awaitAllocatable(t, name, 1)
	must(t, p.Add(t.Context(), name, fill["side"]))
	s.awaitAllocatable(t, name, 2)

	must(t, p.Unhealthy(t.Context(), name, fill["main"]))
	open := s.awaitCase(t, key, "is advisory", advisory(2))
	must(t, p.Remove(t.Context(), name, fill["main"]))
	s.shows(t, soon, pod.Name, "plugin-healthy", fill)
	s.awaitAllocatable(t, name, 1)
	left := s.awaitCase(t, key, "has left the list", func(c quarantine.Case) error {
		if c.Absence == nil || c.Absence.Reason != device.MissingFromPlugin || c.Evidence().Stale != device.NotListed {
			return fmt.Errorf("it is %s, absent %+v, the evidence %+v", c.Phase, c.Absence, c.Evidence())
		}
		return nil
	})
	gone := s.awaitCase(t, key, "is gone", func(c quarantine.Case) error {
		if c.Phase != quarantine.PhaseGone {
			return fmt.Errorf("it is %s %s, waiting for %s, absent %+v", c.Phase, c.End, c.Waiting, c.Absence)
		}
		return nil
	})
	if open.Epoch != left.Epoch || left.Epoch != gone.Epoch {
		t.Errorf("epochs %d, %d, %d: want one case", open.Epoch, left.Epoch, gone.Epoch)
	}
	untouched()

	must(t, p.Add(t.Context(), name, fill["main"]))
	s.awaitAllocatable(t, name, 2)
	if closed := s.awaitCase(t, key, "is over", over(quarantine.EndAdvisory)); closed.Epoch != open.Epoch {
		t.Errorf("epoch %d, then %d: want one case", open.Epoch, closed.Epoch)
	}
	s.noCase(t, other)
	untouched()
}

func restartEndsNoCase(t *testing.T, s *suite) {
	p, name, pod, fill := s.offered(t, nil)
	bad, well := s.pluginKey(t, name, fill["main"]), s.pluginKey(t, name, fill["side"])
	must(t, p.Unhealthy(t.Context(), name, fill["main"]))
	open := s.awaitCase(t, bad, "is advisory", advisory(2))
	must(t, s.node.KillKubelet())
	must(t, s.node.StartKubelet(t.Context()))
	s.shows(t, soon, pod.Name, "plugin-healthy", fill)
	s.awaitAllocatable(t, name, 0)
	s.awaitCase(t, bad, "doesn't believe the kubelet", func(c quarantine.Case) error {
		if !c.Open() || c.Absence == nil || c.Absence.Reason != device.AllocatableDropped || c.Evidence().Value == device.Healthy {
			return fmt.Errorf("it is %s %s, absent %+v, the evidence %+v", c.Phase, c.End, c.Absence, c.Evidence())
		}
		return nil
	})
	s.awaitCase(t, well, "is suspect", func(c quarantine.Case) error { return pluginSuspect(c.Waiting)(c) })

	must(t, p.Register(t.Context()))
	s.shows(t, soon, pod.Name, "plugin-unhealthy", fill)
	s.awaitAllocatable(t, name, 1)
	if after := s.awaitCase(t, bad, "goes on", advisory(2)); after.Epoch != open.Epoch {
		t.Errorf("epoch %d, then %d: want one case", open.Epoch, after.Epoch)
	}
	s.awaitCase(t, well, "is over", over(quarantine.EndHealthBack))
	must(t, p.Healthy(t.Context(), name, fill["main"]))
	if closed := s.awaitCase(t, bad, "is over", over(quarantine.EndAdvisory)); closed.Epoch != open.Epoch {
		t.Errorf("epoch %d, then %d: want one case", open.Epoch, closed.Epoch)
	}
}
