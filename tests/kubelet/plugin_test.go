package kubelet

// This file states what kubelets write for device plugins' devices, as the
// design relies on it, with the fake plugin as the plugin.

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sickbay-dev/sickbay/tests/fakeplugin"
	"github.com/sickbay-dev/sickbay/tests/realnode"
)

func pluginFacts() []test {
	return []test{
		{name: "a fault reaches the Pod without a message, and one device less is offered", run: pluginFault},
		{name: "a device that leaves the list turns Healthy, and one less is listed", run: removedDevice},
		{name: "a plugin that falls silent leaves the last word standing", run: silentPlugin},
		{name: "a killed plugin leaves its entry as it was and offers nothing", run: killedPlugin},
		{name: "a kubelet that restarts without its plugin turns a fault Healthy", run: pluginAwayAtRestart, alone: true},
		{name: "the health of a Pod that ended stays", run: endedPluginPod},
		{name: "one ID in two resources is two devices", run: sameIDTwice},
	}
}

// offered starts a plugin with two devices and a Pod that holds both.
func (s *suite) offered(t *testing.T, f func(*corev1.Pod)) (*realnode.Plugin, string, *corev1.Pod, map[string]string) {
	t.Helper()
	p, name := s.plugin(t)
	pod := s.awaitRunning(t, s.pluginPod(t, name, f).Name)
	fill := map[string]string{"resource": name}
	for container, list := range entriesOf(pod) {
		fill[container] = string(list[0].Resources[0].ResourceID)
	}
	s.shows(t, soon, pod.Name, "plugin-healthy", fill)
	return p, name, pod, fill
}

func pluginFault(t *testing.T, s *suite) {
	p, name, pod, fill := s.offered(t, nil)
	must(t, p.Unhealthy(t.Context(), name, fill["main"]))
	s.shows(t, soon, pod.Name, "plugin-unhealthy", fill)
	s.awaitAllocatable(t, name, 1)
	s.awaitListed(t, name, 2)
	must(t, p.Healthy(t.Context(), name, fill["main"]))
	s.shows(t, soon, pod.Name, "plugin-healthy", fill)
	s.awaitAllocatable(t, name, 2)
}

func removedDevice(t *testing.T, s *suite) {
	p, name, pod, fill := s.offered(t, nil)
	must(t, p.Unhealthy(t.Context(), name, fill["main"]))
	s.shows(t, soon, pod.Name, "plugin-unhealthy", fill)
	must(t, p.Remove(t.Context(), name, fill["main"]))
	s.awaitListed(t, name, 1)
	s.shows(t, soon, pod.Name, "plugin-healthy", fill)
	s.awaitAllocatable(t, name, 1)
}

func silentPlugin(t *testing.T, s *suite) {
	p, name, pod, fill := s.offered(t, nil)
	must(t, p.Silence(t.Context(), name, true))
	must(t, p.Unhealthy(t.Context(), name, fill["main"]))
	s.keepsShowing(t, 3*syncFrequency, pod.Name, "plugin-healthy", fill)
	must(t, p.Silence(t.Context(), name, false))
	s.shows(t, soon, pod.Name, "plugin-unhealthy", fill)
}

func killedPlugin(t *testing.T, s *suite) {
	p, name, pod, fill := s.offered(t, nil)
	must(t, p.Unhealthy(t.Context(), name, fill["main"]))
	s.shows(t, soon, pod.Name, "plugin-unhealthy", fill)
	must(t, p.Crash(t.Context()))
	s.awaitAllocatable(t, name, 0)
	s.awaitListed(t, name, 2) // for 5 minutes
	s.keepsShowing(t, 3*syncFrequency, pod.Name, "plugin-unhealthy", fill)
	must(t, p.Start(t.Context())) // it forgot
	s.shows(t, soon, pod.Name, "plugin-healthy", fill)
	s.awaitAllocatable(t, name, 2)
}

func pluginAwayAtRestart(t *testing.T, s *suite) {
	p, name, pod, fill := s.offered(t, nil)
	must(t, p.Unhealthy(t.Context(), name, fill["main"]))
	s.shows(t, soon, pod.Name, "plugin-unhealthy", fill)
	must(t, s.node.KillKubelet())
	must(t, s.node.StartKubelet(t.Context()))
	s.shows(t, soon, pod.Name, "plugin-healthy", fill)
	s.awaitAllocatable(t, name, 0)
	s.awaitListed(t, name, 0)
	must(t, p.Register(t.Context()))
	s.shows(t, soon, pod.Name, "plugin-unhealthy", fill)
	s.awaitAllocatable(t, name, 1)
}

func endedPluginPod(t *testing.T, s *suite) {
	p, name, pod, fill := s.offered(t, func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		for i := range p.Spec.Containers {
			p.Spec.Containers[i].Args = []string{"-exit=1", "-after=8s"}
		}
	})
	must(t, p.Unhealthy(t.Context(), name, fill["main"]))
	s.shows(t, soon, pod.Name, "plugin-unhealthy", fill)
	s.awaitPhase(t, pod.Name, corev1.PodFailed)
	s.keepsShowing(t, 3*time.Second, pod.Name, "plugin-unhealthy", fill)
}

func sameIDTwice(t *testing.T, s *suite) {
	first := s.unique("r") + ".example.com/gpu"
	second := s.unique("r") + ".example.com/gpu"
	p := s.pluginOf(t, fakeplugin.Resources{first: 1, second: 1})
	pod := s.awaitRunning(t, s.create(t, twoResources(first, second)).Name)
	must(t, p.Unhealthy(t.Context(), second, "GPU-0"))
	within(t, soon, "one of two devices GPU-0 is bad", func(ctx context.Context) error {
		e, err := s.entries(ctx, pod.Name)
		if err != nil {
			return err
		}
		got := map[string]string{}
		for _, entry := range e["main"] {
			got[string(entry.Name)] = string(entry.Resources[0].ResourceID) + " " + string(entry.Resources[0].Health)
		}
		if got[first] != "GPU-0 Healthy" || got[second] != "GPU-0 Unhealthy" {
			return fmt.Errorf("the Pod shows %v", got)
		}
		return nil
	})
}
