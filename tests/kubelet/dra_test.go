package kubelet

// This file states what kubelets write for DRA devices, as the design relies on
// it, with the fake driver as the driver.

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/tests/fakedriver"
	"github.com/sickbay-dev/sickbay/tests/realnode"
)

func draFacts() []test {
	return []test{
		{name: "a fault and its message reach the Pod", run: faultReachesPod},
		{name: "the resourceID takes the shape that the driver's CDI IDs give it", run: resourceIDShapes},
		{name: "several devices of one request are told apart", run: severalDevices},
		{name: "a driver that falls silent ends in Unknown", run: silentDriver},
		{name: "a killed driver ends in Unknown and comes back Healthy, whatever was", run: killedDriver},
		{name: "a driver's health service is found by its version", run: healthServices},
		{name: "the health of a Pod that ended is erased", run: endedPod},
		{name: "a kubelet that restarts tells the same fault again", run: restartedKubelet, alone: true},
		{name: "a device that vanishes leaves the slice at a new generation", run: vanishedDevice},
		{name: "a swapped board keeps its name and changes its UUID", run: swappedDevice},
		{name: "a driver's own taints keep new Pods off", run: ownTaints},
		{name: "partitions and their card exclude each other", run: partitions},
		{name: "two instances of a driver overwrite each other's health", run: twoInstances},
		{name: "a naive driver blocks an admin claim on a held device", run: overlap},
	}
}

// healthy starts a driver with one device and a Pod that holds it.
func (s *suite) healthy(t *testing.T, f func(*fakedriver.Config)) (*realnode.Driver, *corev1.Pod, map[string]string) {
	t.Helper()
	d := s.driver(t, func(c *fakedriver.Config) {
		c.Devices, c.CDI = 1, fakedriver.CDIOff
		if f != nil {
			f(c)
		}
	})
	pod := s.awaitRunning(t, s.draPod(t, d.Config.Name, 1, nil).Name)
	fill := map[string]string{"driver": d.Config.Name, "pool": s.node.Name(), "device": "gpu-0"}
	s.shows(t, soon, pod.Name, "dra-healthy", fill)
	return d, pod, fill
}

func faultReachesPod(t *testing.T, s *suite) {
	const pool = "row1/rack2"
	d, pod, fill := s.healthyIn(t, pool)
	must(t, d.Xid(t.Context(), "gpu-0", 13))
	s.shows(t, soon, pod.Name, "dra-healthy-with-message", fill)
	must(t, d.Xid(t.Context(), "gpu-0", 79))
	s.shows(t, soon, pod.Name, "dra-unhealthy", fill)
	must(t, d.Healthy(t.Context(), "gpu-0"))
	s.shows(t, soon, pod.Name, "dra-healthy", fill)
	must(t, d.Unmonitored(t.Context(), "gpu-0"))
	s.shows(t, soon, pod.Name, "dra-unknown-with-message", fill)
}

// healthyIn is healthy in a pool whose name has slashes.
func (s *suite) healthyIn(t *testing.T, pool string) (*realnode.Driver, *corev1.Pod, map[string]string) {
	t.Helper()
	d := s.driver(t, func(c *fakedriver.Config) { c.Devices, c.CDI, c.Pool = 1, fakedriver.CDIOff, pool })
	pod := s.awaitRunning(t, s.draPod(t, d.Config.Name, 1, nil).Name)
	fill := map[string]string{"driver": d.Config.Name, "pool": pool, "device": "gpu-0"}
	s.shows(t, soon, pod.Name, "dra-healthy", fill)
	return d, pod, fill
}

func resourceIDShapes(t *testing.T, s *suite) {
	for mode, want := range map[fakedriver.CDI]string{
		fakedriver.CDIOff: "dra-healthy", fakedriver.CDIDevice: "dra-cdi-device", fakedriver.CDIClaim: "dra-cdi-claim",
	} {
		t.Run(string(mode), func(t *testing.T) {
			d := s.driver(t, func(c *fakedriver.Config) { c.Devices, c.CDI = 1, mode })
			pod := s.awaitRunning(t, s.draPod(t, d.Config.Name, 1, nil).Name)
			claim, devices := s.held(t, pod)
			fill := map[string]string{
				"driver": d.Config.Name, "pool": s.node.Name(), "device": devices[0], "claim uid": string(claim.UID),
			}
			s.shows(t, soon, pod.Name, want, fill)
			if mode == fakedriver.CDIOff {
				return
			}
			// The container runtime acted on the CDI ID: the container was given
			// what the device's spec says.
			state, err := d.State(t.Context())
			must(t, err)
			want := "FAKE_DEVICE_GPU_0=" + state.Devices[0].UUID
			within(t, soon, "the container prints its environment", func(ctx context.Context) error {
				log, err := s.client.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: "main"}).DoRaw(ctx)
				if err == nil && !strings.Contains(string(log), want) {
					err = fmt.Errorf("no %s in %s", want, log)
				}
				return err
			})
		})
	}
}

func severalDevices(t *testing.T, s *suite) {
	d := s.driver(t, nil)
	pod := s.awaitRunning(t, s.draPod(t, d.Config.Name, 2, nil).Name)
	claim, _ := s.held(t, pod)
	must(t, d.Lost(t.Context(), "gpu-1"))
	s.shows(t, soon, pod.Name, "dra-two-devices", map[string]string{"driver": d.Config.Name, "claim uid": string(claim.UID)})
}

func silentDriver(t *testing.T, s *suite) {
	d, pod, fill := s.healthy(t, func(c *fakedriver.Config) { c.Timeout = 3 * time.Second })
	must(t, d.Silence(t.Context(), true))
	s.shows(t, soon, pod.Name, "dra-unknown", fill)
	must(t, d.Silence(t.Context(), false))
	s.shows(t, soon, pod.Name, "dra-healthy", fill)
	must(t, d.Omit(t.Context(), "gpu-0", true))
	s.shows(t, soon, pod.Name, "dra-unknown", fill)
}

func killedDriver(t *testing.T, s *suite) {
	d, pod, fill := s.healthy(t, nil)
	must(t, d.Xid(t.Context(), "gpu-0", 79))
	s.shows(t, soon, pod.Name, "dra-unhealthy", fill)
	must(t, d.Crash(t.Context()))
	s.shows(t, soon, pod.Name, "dra-unknown", fill)
	within(t, gone, "the kubelet deletes the driver's slices", func(ctx context.Context) error {
		devices, _, err := s.devices(ctx, d.Config.Name)
		if err == nil && len(devices) > 0 {
			err = fmt.Errorf("there are %d devices", len(devices))
		}
		return err
	})
	must(t, d.Start(t.Context()))
	s.shows(t, soon, pod.Name, "dra-healthy", fill)
}

func healthServices(t *testing.T, s *suite) {
	// Kubelet 1.36 speaks v1alpha1 only; 1.37 prefers v1.
	preferred, v1 := "v1", "v1"
	if s.version == "1.36" {
		preferred, v1 = "v1alpha1", ""
	}
	for api, want := range map[fakedriver.HealthAPI]string{
		fakedriver.HealthBoth:     preferred,
		fakedriver.HealthV1alpha1: "v1alpha1",
		fakedriver.HealthV1:       v1,
		fakedriver.HealthNone:     "",
		fakedriver.HealthDeclined: "",
	} {
		t.Run(string(api), func(t *testing.T) {
			d := s.driver(t, func(c *fakedriver.Config) {
				c.Devices, c.CDI, c.HealthAPI = 1, fakedriver.CDIOff, api
			})
			pod := s.awaitRunning(t, s.draPod(t, d.Config.Name, 1, nil).Name)
			fill := map[string]string{"driver": d.Config.Name, "pool": s.node.Name(), "device": "gpu-0"}
			if want == "" {
				s.shows(t, soon, pod.Name, "dra-unknown", fill)
				s.keepsShowing(t, 3*syncFrequency, pod.Name, "dra-unknown", fill)
				return
			}
			s.shows(t, soon, pod.Name, "dra-healthy", fill)
			state, err := d.State(t.Context())
			must(t, err)
			for _, stream := range state.Streams {
				if stream.API != want {
					t.Errorf("the kubelet opened a stream of %s, want %s", stream.API, want)
				}
			}
		})
	}
}

func endedPod(t *testing.T, s *suite) {
	d := s.driver(t, func(c *fakedriver.Config) { c.Devices, c.CDI = 1, fakedriver.CDIOff })
	pod := s.draPod(t, d.Config.Name, 1, func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		for i := range p.Spec.Containers {
			p.Spec.Containers[i].Args = []string{"-exit=1", "-after=8s"}
		}
	})
	s.awaitRunning(t, pod.Name)
	fill := map[string]string{"driver": d.Config.Name, "pool": s.node.Name(), "device": "gpu-0"}
	must(t, d.Xid(t.Context(), "gpu-0", 79))
	s.shows(t, soon, pod.Name, "dra-unhealthy", fill)
	s.shows(t, soon, pod.Name, "dra-ended", nil)
}

func restartedKubelet(t *testing.T, s *suite) {
	d, pod, fill := s.healthy(t, nil)
	must(t, d.Xid(t.Context(), "gpu-0", 79))
	s.shows(t, soon, pod.Name, "dra-unhealthy", fill)
	stop := s.history(t, pod.Name)
	must(t, s.node.KillKubelet())
	must(t, s.node.StartKubelet(t.Context()))
	must(t, d.WaitRegistered(t.Context()))
	within(t, soon, "the kubelet opens a new health stream", func(ctx context.Context) error {
		state, err := d.State(ctx)
		if err == nil && (len(state.Streams) < 2 || state.Streams[len(state.Streams)-1].Sent < 3) {
			err = fmt.Errorf("streams: %+v", state.Streams)
		}
		return err
	})
	s.shows(t, soon, pod.Name, "dra-unhealthy", fill)
	if seen := stop(); slices.Contains(seen, corev1.ResourceHealthStatusHealthy) {
		t.Errorf("while the kubelet came back, the Pod showed %v: a DRA fault must not turn Healthy", seen)
	}
}

func vanishedDevice(t *testing.T, s *suite) {
	d, pod, fill := s.healthy(t, func(c *fakedriver.Config) { c.Timeout = 3 * time.Second })
	_, before, err := s.devices(t.Context(), d.Config.Name)
	must(t, err)
	must(t, d.Add(t.Context(), fakedriver.Device{Name: "gpu-1", PCIBusID: "0000:20:00.0"}))
	s.awaitDevices(t, d.Config.Name, 2)
	must(t, d.Vanish(t.Context(), "gpu-0"))
	s.awaitDevices(t, d.Config.Name, 1)
	devices, after, err := s.devices(t.Context(), d.Config.Name)
	must(t, err)
	if _, ok := devices["gpu-1"]; !ok || after != before+2 {
		t.Errorf("generation went from %d to %d with %v left: want two more, and gpu-1", before, after, devices)
	}
	// The Pod that holds it runs on; its entry ages.
	s.shows(t, soon, pod.Name, "dra-unknown", fill)
	s.awaitRunning(t, pod.Name)
}

func swappedDevice(t *testing.T, s *suite) {
	d, pod, fill := s.healthy(t, nil)
	must(t, d.Lost(t.Context(), "gpu-0"))
	before, generation, err := s.devices(t.Context(), d.Config.Name)
	must(t, err)
	swapped, err := d.Swap(t.Context(), "gpu-0")
	must(t, err)
	within(t, soon, "the new board is published", func(ctx context.Context) error {
		now, g, err := s.devices(ctx, d.Config.Name)
		if err != nil {
			return err
		}
		uuid, bus := now["gpu-0"].Attributes["uuid"], resourceapi.QualifiedName("resource.kubernetes.io/pciBusID")
		if g <= generation || *uuid.StringValue != swapped.UUID || len(now["gpu-0"].Taints) > 0 {
			return fmt.Errorf("generation %d: %+v", g, now["gpu-0"])
		}
		if old := before["gpu-0"]; *old.Attributes["uuid"].StringValue == swapped.UUID || *old.Attributes[bus].StringValue != *now["gpu-0"].Attributes[bus].StringValue {
			return fmt.Errorf("of %+v came %+v", old, now["gpu-0"])
		}
		return nil
	})
	s.shows(t, soon, pod.Name, "dra-healthy", fill)
}

func ownTaints(t *testing.T, s *suite) {
	d := s.driver(t, nil)
	tainted := func(device, want string) {
		t.Helper()
		within(t, soon, device+" has the taint "+want, func(ctx context.Context) error {
			devices, _, err := s.devices(ctx, d.Config.Name)
			if err != nil {
				return err
			}
			for _, taint := range devices[device].Taints {
				if fmt.Sprintf("%s=%s:%s", taint.Key, taint.Value, taint.Effect) == want {
					return nil
				}
			}
			return fmt.Errorf("it has %+v", devices[device].Taints)
		})
	}
	must(t, d.Xid(t.Context(), "gpu-0", 79))
	must(t, d.Xid(t.Context(), "gpu-1", 13))
	tainted("gpu-0", d.Config.Name+"/xid=79:NoSchedule")
	tainted("gpu-1", d.Config.Name+"/xid=13:None")
	first := s.awaitRunning(t, s.draPod(t, d.Config.Name, 1, nil).Name)
	if _, devices := s.held(t, first); devices[0] != "gpu-1" {
		t.Errorf("the Pod got %v, want gpu-1: gpu-0 is tainted", devices)
	}
}

func partitions(t *testing.T, s *suite) {
	d := s.driver(t, func(c *fakedriver.Config) { c.Devices, c.Partitions = 1, 2 })
	// The card and its two partitions are three devices; two partitions fit.
	first := s.awaitRunning(t, s.draPod(t, d.Config.Name, 2, nil).Name)
	claim, devices := s.held(t, first)
	if !slices.Equal(devices, []string{"gpu-0-mig-1g-0", "gpu-0-mig-1g-1"}) {
		t.Fatalf("a claim for two got %v: the card and a part of it can't both be given out", devices)
	}
	must(t, d.Xid(t.Context(), "gpu-0-mig-1g-1", 79))
	within(t, soon, "one partition alone is bad", func(ctx context.Context) error {
		p, err := s.client.CoreV1().Pods(namespace).Get(ctx, first.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, r := range entriesOf(p)["main"][0].Resources {
			got = append(got, strings.TrimPrefix(string(r.ResourceID), fmt.Sprintf("k8s.%s/claim=%s-", d.Config.Name, claim.UID))+" "+string(r.Health))
		}
		if want := []string{"gpu-0-mig-1g-0 Healthy", "gpu-0-mig-1g-1 Unhealthy"}; !slices.Equal(got, want) {
			return fmt.Errorf("it shows %q, want %q", got, want)
		}
		return nil
	})
}

func twoInstances(t *testing.T, s *suite) {
	name := s.unique("gpu") + ".example.com"
	// Paces that differ drift against each other, so that each word stands long
	// enough to be seen, sooner or later.
	instance := func(id string, resend time.Duration) *realnode.Driver {
		return s.driver(t, func(c *fakedriver.Config) {
			c.Name, c.Instance, c.Devices, c.CDI = name, id, 1, fakedriver.CDIOff
			c.Loss, c.UnknownFirst, c.Resend = 0, 0, resend
		})
	}
	s.class(t, name)
	old := instance("v1", 3*time.Second)
	s.awaitDevices(t, name, 1)
	upgraded := instance("v2", 4*time.Second)
	pod := s.awaitRunning(t, s.draPod(t, name, 1, nil).Name)
	fill := map[string]string{"driver": name, "pool": s.node.Name(), "device": "gpu-0"}
	s.shows(t, soon, pod.Name, "dra-healthy", fill)

	stop := s.history(t, pod.Name)
	must(t, upgraded.Xid(t.Context(), "gpu-0", 79))
	s.shows(t, soon, pod.Name, "dra-unhealthy", fill)
	// The old instance knows nothing of it and says so at its next report.
	s.shows(t, soon, pod.Name, "dra-healthy", fill)
	must(t, old.Stop(t.Context()))
	s.shows(t, soon, pod.Name, "dra-unhealthy", fill)
	s.keepsShowing(t, 2*syncFrequency, pod.Name, "dra-unhealthy", fill)
	t.Logf("one fault, seen as %v", stop())
}

func overlap(t *testing.T, s *suite) {
	d, _, _ := s.healthy(t, nil)
	must(t, d.SetOverlap(t.Context(), fakedriver.OverlapRefuse))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: s.unique("admin"), Labels: map[string]string{"resource.kubernetes.io/admin-access": "true"},
	}}
	_, err := s.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	must(t, err)
	yes := true
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "watch", Namespace: ns.Name}, Spec: claimSpec(d.Config.Name, 1)}
	claim.Spec.Devices.Requests[0].Exactly.AdminAccess = &yes
	_, err = s.client.ResourceV1().ResourceClaims(ns.Name).Create(t.Context(), claim, metav1.CreateOptions{})
	must(t, err)
	watcher := container("main")
	watcher.Resources.Claims = []corev1.ResourceClaim{{Name: "all"}}
	no, grace := false, int64(1)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "watch"},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: &no, TerminationGracePeriodSeconds: &grace,
			ResourceClaims: []corev1.PodResourceClaim{{Name: "all", ResourceClaimName: &claim.Name}},
			Containers:     []corev1.Container{watcher},
		},
	}
	within(t, soon, "the watch Pod is created", func(ctx context.Context) error { // its ServiceAccount is made meanwhile
		_, err := s.client.CoreV1().Pods(ns.Name).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	within(t, soon, "the driver refuses the admin claim", func(ctx context.Context) error {
		events, err := s.client.CoreV1().Events(ns.Name).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedPrepareDynamicResources"})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if strings.Contains(e.Message, "already allocated to different claim") {
				return nil
			}
		}
		return fmt.Errorf("no such event among %d", len(events.Items))
	})
	must(t, d.SetOverlap(t.Context(), fakedriver.OverlapAdmin))
	within(t, soon, "NVIDIA's rule lets it in", func(ctx context.Context) error {
		p, err := s.client.CoreV1().Pods(ns.Name).Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", p.Status.Phase)
		}
		return err
	})
	must(t, s.client.CoreV1().Pods(ns.Name).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	within(t, soon, "the admin claim is given back", func(ctx context.Context) error {
		state, err := d.State(ctx)
		if err == nil && len(state.Prepared) != 1 {
			err = fmt.Errorf("%d claims are prepared", len(state.Prepared))
		}
		return err
	})
}
