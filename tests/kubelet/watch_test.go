package kubelet

// This file has watch Pods see devices that nobody holds, on a real kubelet, beside
// tenants that must not notice.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/sickbay-dev/sickbay/cmd/watchpods"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/fakedriver"
)

// watchNamespace is that of deploy/components/watch.
const watchNamespace = "sickbay-watch"

// watchPoke is how often the suite's starter pokes.
const watchPoke = 5 * time.Second

func watchJob() []test {
	return []test{
		{name: "a fault of a device that nobody holds is marked, and no tenant is touched", run: unheldFaultIsMarked},
		{name: "a driver that falls silent is Unknown of devices that nobody holds", run: silentUnheld},
		{name: "a driver that prepares no device twice is named", run: refusingDriver},
	}
}

// watched makes a driver's watch Pods, as an operator does, and takes them away again
// before the driver ends.
func (s *suite) watched(t *testing.T, driver string, args ...string) {
	t.Helper()
	out, failed, code := s.watchCommand(t, append([]string{"manifests", "--driver", driver}, args...)...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, failed)
	}
	path := filepath.Join(t.TempDir(), "watch.yaml")
	must(t, os.WriteFile(path, []byte(out), 0o600))
	kubectl, err := deploy.FindKubectl(t.Context(), s.stack.Kubeconfig())
	must(t, err)
	_, _, err = kubectl.Run(t.Context(), "apply", "--validate=strict", "-f", path)
	must(t, err)
	t.Cleanup(func() { s.unwatch(t, driver) })
}

// unwatch takes a driver's watch Pods away.
func (s *suite) unwatch(t *testing.T, driver string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	selected := metav1.ListOptions{LabelSelector: kube.WatchLabel + "=" + driver}
	must(t, s.client.AppsV1().DaemonSets(watchNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, selected))
	if err := s.client.ResourceV1().ResourceClaimTemplates(watchNamespace).Delete(ctx, watchpods.DefaultName(driver), metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		must(t, err)
	}
	for {
		pods, err := s.client.CoreV1().Pods(watchNamespace).List(ctx, selected)
		must(t, err)
		if len(pods.Items) == 0 {
			return
		}
		for _, pod := range pods.Items {
			w, err := s.client.CoreV1().Pods(watchNamespace).Watch(ctx, metav1.ListOptions{
				FieldSelector: "metadata.name=" + pod.Name, ResourceVersion: pods.ResourceVersion})
			must(t, err)
			for e := range w.ResultChan() {
				if e.Type == "DELETED" {
					break
				}
			}
			w.Stop()
			must(t, ctx.Err())
		}
	}
}

// watchCommand runs `sickbay watch …`.
func (s *suite) watchCommand(t *testing.T, args ...string) (out, failed string, code int) {
	t.Helper()
	command := exec.CommandContext(t.Context(), s.sickbay.binary, append([]string{"watch"}, args...)...)
	command.Env = append(os.Environ(), s.sickbay.env...)
	var said, told bytes.Buffer
	command.Stdout, command.Stderr = &said, &told
	err := command.Run()
	if exit, ended := errors.AsType[*exec.ExitError](err); ended {
		return said.String(), told.String(), exit.ExitCode()
	}
	must(t, err)
	return said.String(), told.String(), 0
}

// awaitCheck waits until `sickbay watch check` ends with a code and says all of it.
func (s *suite) awaitCheck(t *testing.T, driver string, code int, says ...string) {
	t.Helper()
	within(t, soon, fmt.Sprintf("the check ends with %d and says %q", code, says), func(context.Context) error {
		out, failed, got := s.watchCommand(t, "check", "--driver", driver)
		for _, want := range says {
			if got != code || !strings.Contains(out, want) {
				return fmt.Errorf("exit code %d, %s\n%s", got, failed, out)
			}
		}
		return nil
	})
}

// watchPod is the one that runs for a driver.
func (s *suite) watchPod(ctx context.Context, driver string) (*corev1.Pod, error) {
	pods, err := s.client.CoreV1().Pods(watchNamespace).List(ctx, metav1.ListOptions{LabelSelector: kube.WatchLabel + "=" + driver})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		if pods.Items[i].Status.Phase == corev1.PodRunning && pods.Items[i].DeletionTimestamp == nil {
			return &pods.Items[i], nil
		}
	}
	return nil, fmt.Errorf("none of %d runs", len(pods.Items))
}

// watchPodSays is what a watch Pod's status says of a device.
func (s *suite) watchPodSays(ctx context.Context, pod *corev1.Pod, key device.Key) (device.Health, error) {
	now, err := s.client.CoreV1().Pods(watchNamespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	seen, _ := device.Observe(kube.PodView(now), func(namespace, name string) (device.Claim, bool) {
		claim, err := s.client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return device.Claim{}, false
		}
		return kube.ClaimView(claim), true
	})
	for _, o := range seen {
		if o.Device == key {
			return o.Health, nil
		}
	}
	return "", fmt.Errorf("it says nothing of %s: %+v", key, now.Status.ContainerStatuses)
}

// runsOn wants a tenant's Pod as it was.
func (s *suite) runsOn(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	now, err := s.client.CoreV1().Pods(namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	must(t, err)
	if now.UID != pod.UID || now.DeletionTimestamp != nil || now.Status.Phase != corev1.PodRunning || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the tenant's Pod is %s, deleted %v, restarted %d times: want it as it was", now.Status.Phase, now.DeletionTimestamp, now.Status.ContainerStatuses[0].RestartCount)
	}
}

// The driver's CDI IDs name the claim, as NVIDIA's do.
func unheldFaultIsMarked(t *testing.T, s *suite) {
	d := s.driver(t, func(c *fakedriver.Config) { c.OwnTaints = false })
	first := s.awaitRunning(t, s.draPod(t, d.Config.Name, 1, nil).Name)
	_, held := s.held(t, first)
	free := map[string]string{"gpu-0": "gpu-1", "gpu-1": "gpu-0"}[held[0]]
	bad := s.key(t, d.Config.Name, free)
	s.watched(t, d.Config.Name, "--request-per-device", "2")
	s.awaitCheck(t, d.Config.Name, 0, "reports on 2 of 2 devices", "devices that are held and watched at once: 1")
	// A tenant gets a device that is watched, and gives it back.
	second := s.awaitRunning(t, s.draPod(t, d.Config.Name, 1, nil).Name)
	must(t, s.remove(t.Context(), second.Name))

	began := time.Now()
	must(t, d.Xid(t.Context(), free, 79))
	c := s.awaitCase(t, bad, "is in force", inForce)
	t.Logf("from the driver's word to the mark of a free device: %s", time.Since(began).Round(10*time.Millisecond))
	if len(c.Holders) != 0 || c.Reason.Rule != "nvidia/xid-79" {
		t.Errorf("holders %+v, reason %s: want none, and Xid 79; a watch Pod holds nothing", c.Holders, c.Reason.Rule)
	}
	if marks := s.marked(t, d.Config.Name); len(marks) != 1 || !marks[bad] {
		t.Errorf("marks %v, want one of %s", marks, bad)
	}
	// The mark keeps tenants off, and the watch Pod neither goes nor fails to come back.
	last := s.draPod(t, d.Config.Name, 1, nil)
	pod, err := s.watchPod(t.Context(), d.Config.Name)
	must(t, err)
	must(t, s.client.CoreV1().Pods(watchNamespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	within(t, soon, "a new watch Pod reports the fault", func(ctx context.Context) error {
		anew, err := s.watchPod(ctx, d.Config.Name)
		if err != nil {
			return err
		}
		if health, err := s.watchPodSays(ctx, anew, bad); err != nil || anew.UID == pod.UID || health != device.Unhealthy {
			return fmt.Errorf("Pod %s says %s: %w", anew.Name, health, err)
		}
		return nil
	})
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
	s.runsOn(t, first)
}

func silentUnheld(t *testing.T, s *suite) {
	const timeout = 3 * time.Second
	d := s.driver(t, func(c *fakedriver.Config) { c.Devices, c.CDI, c.Timeout = 1, fakedriver.CDIOff, timeout })
	key := s.key(t, d.Config.Name, "gpu-0")
	s.watched(t, d.Config.Name)
	var pod *corev1.Pod
	within(t, soon, "the watch Pod says Healthy, and was poked", func(ctx context.Context) (err error) {
		if pod, err = s.watchPod(ctx, d.Config.Name); err != nil {
			return err
		}
		if health, err := s.watchPodSays(ctx, pod, key); err != nil || health != device.Healthy {
			return fmt.Errorf("it says %s: %w", health, err)
		}
		if pod.Spec.ActiveDeadlineSeconds == nil {
			return errors.New("the starter hasn't poked it")
		}
		return nil
	})
	s.noCase(t, key)

	began := time.Now()
	must(t, d.Silence(t.Context(), true))
	s.awaitCase(t, key, "is suspect", func(c quarantine.Case) error {
		if c.Phase != quarantine.PhaseSuspect {
			return fmt.Errorf("it is %s", c.Phase)
		}
		return nil
	})
	// Beside both, it takes what was under way when the driver fell silent, and a signal.
	if took, most := time.Since(began), timeout+watchPoke+3*time.Second; took > most {
		t.Errorf("a silent driver was a suspect after %s, want %s at most", took, most)
	}
	// What is acknowledged was worked out after it was asked for.
	poker := kube.NewPoker(s.client, watchNamespace)
	poked := poker.Device(t.Context(), key, s.node.Name())
	if health, err := s.watchPodSays(t.Context(), pod, key); len(poked.Acknowledged) != 1 || poked.Acknowledged[0] != string(pod.UID) || health != device.Unknown {
		t.Errorf("%s; the Pod says %s, %v: want an acknowledged Unknown", poked.Says, health, err)
	}
	t.Log("a poke: " + poked.Says)
	// A look of the case reads it so, and what comes back too.
	config := s.stack.RESTConfig()
	marks := kube.NewMarkWriter(dynamic.NewForConfigOrDie(config), kube.NewDiscovery(discovery.NewDiscoveryClientForConfigOrDie(config), time.Minute))
	reader := kube.NewLiveReader(s.client, marks, reason.Builtin()).Poking(poker)
	reads := func(want device.Health) {
		t.Helper()
		within(t, soon, fmt.Sprintf("a look reads an acknowledged %s", want), func(ctx context.Context) error {
			looked, err := reader.Look(ctx, quarantine.Look{Device: key, Node: s.node.Name()})
			if err != nil || len(looked.Readings) != 1 || !looked.Readings[0].Acknowledged || looked.Readings[0].Health != want {
				return fmt.Errorf("it reads %+v, %s: %w", looked.Readings, looked.Poke, err)
			}
			return nil
		})
	}
	reads(device.Unknown)
	must(t, d.Silence(t.Context(), false))
	reads(device.Healthy)
	after, err := s.client.CoreV1().Pods(watchNamespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	must(t, err)
	if after.UID != pod.UID || after.Status.ContainerStatuses[0].RestartCount != 0 || *after.Spec.ActiveDeadlineSeconds >= *pod.Spec.ActiveDeadlineSeconds {
		t.Errorf("the watch Pod restarted %d times, its deadline went from %d to %d: want it poked and nothing else",
			after.Status.ContainerStatuses[0].RestartCount, *pod.Spec.ActiveDeadlineSeconds, *after.Spec.ActiveDeadlineSeconds)
	}
}

// A naive driver refuses whoever comes second: the watch Pod, or the tenant.
func refusingDriver(t *testing.T, s *suite) {
	d := s.driver(t, func(c *fakedriver.Config) {
		c.Devices, c.CDI, c.Overlap = 1, fakedriver.CDIOff, fakedriver.OverlapRefuse
	})
	tenant := s.awaitRunning(t, s.draPod(t, d.Config.Name, 1, nil).Name)
	s.watched(t, d.Config.Name)
	s.awaitCheck(t, d.Config.Name, 1, "the driver refuses watch Pod", "already allocated to different claim", "This driver can't be watched")
	s.runsOn(t, tenant)
	must(t, s.remove(t.Context(), tenant.Name))
	// Nobody is there now, and the watch Pod gets in; the next tenant doesn't.
	within(t, 2*soon, "the watch Pod runs", func(ctx context.Context) error {
		_, err := s.watchPod(ctx, d.Config.Name)
		return err
	})
	next := s.draPod(t, d.Config.Name, 1, nil)
	s.awaitCheck(t, d.Config.Name, 1, "Pod default/"+next.Name+" waits for", "which a watch Pod has too", "tenants don't get their devices")
	s.unwatch(t, d.Config.Name)
	within(t, 2*soon, "without watch Pods the tenant runs", func(ctx context.Context) error {
		p, err := s.client.CoreV1().Pods(namespace).Get(ctx, next.Name, metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", p.Status.Phase)
		}
		return err
	})
}

// watchPodName is what a DaemonSet calls its Pods.
var watchPodName = regexp.MustCompile(`watch-gpu-example-com-[a-z0-9]{5}\b`)

// watchPage runs the driver that docs/watch.md is about, with a tenant.
func (s *suite) watchPage(t *testing.T) deploy.Kubectl {
	t.Helper()
	d := s.driver(t, func(c *fakedriver.Config) { c.Name, c.CDI = "gpu.example.com", fakedriver.CDIOff })
	s.awaitRunning(t, s.draPod(t, d.Config.Name, 1, nil).Name)
	kubectl, err := deploy.FindKubectl(t.Context(), s.stack.Kubeconfig())
	must(t, err)
	return kubectl
}
