package kubelet

// This file makes what the tests put on the node: drivers, plugins, Pods and
// claims, each taken away when its test ends.

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/tests/fakedriver"
	"github.com/sickbay-dev/sickbay/tests/fakeplugin"
	"github.com/sickbay-dev/sickbay/tests/realnode"
)

const namespace = "default"

// driver runs a nasty driver of its own name, changed by f, and a DeviceClass of
// that name.
func (s *suite) driver(t *testing.T, f func(*fakedriver.Config)) *realnode.Driver {
	t.Helper()
	c := fakedriver.Defaults(fakedriver.Nasty)
	c.Name = s.unique("gpu") + ".example.com"
	if f != nil {
		f(&c)
	}
	d, err := s.node.StartDriver(t.Context(), c)
	must(t, err)
	t.Cleanup(func() { must(t, d.Stop(context.Background())) })
	if c.Instance != "" {
		return d
	}
	s.class(t, c.Name)
	s.awaitDevices(t, c.Name, c.Devices*(1+c.Partitions))
	return d
}

func (s *suite) class(t *testing.T, driver string) {
	t.Helper()
	class := &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: driver},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{
			{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", driver)}},
		}},
	}
	_, err := s.client.ResourceV1().DeviceClasses().Create(t.Context(), class, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, s.client.ResourceV1().DeviceClasses().Delete(context.Background(), driver, metav1.DeleteOptions{}))
	})
}

// awaitDevices waits until so many devices of a driver are published.
func (s *suite) awaitDevices(t *testing.T, driver string, n int) {
	t.Helper()
	within(t, soon, fmt.Sprintf("%d devices of %s are published", n, driver), func(ctx context.Context) error {
		devices, _, err := s.devices(ctx, driver)
		if err == nil && len(devices) != n {
			err = fmt.Errorf("there are %d", len(devices))
		}
		return err
	})
}

// devices returns what a driver has published, by name, and the pool's generation.
func (s *suite) devices(ctx context.Context, driver string) (map[string]resourceapi.Device, int64, error) {
	list, err := s.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: "spec.driver=" + driver})
	if err != nil {
		return nil, 0, err
	}
	out, generation := map[string]resourceapi.Device{}, int64(0)
	for _, slice := range list.Items {
		generation = max(generation, slice.Spec.Pool.Generation)
		for _, d := range slice.Spec.Devices {
			out[d.Name] = d
		}
	}
	return out, generation, nil
}

// plugin runs a nasty plugin with two devices of a resource of its own name.
func (s *suite) plugin(t *testing.T) (*realnode.Plugin, string) {
	t.Helper()
	name := s.unique("r") + ".example.com/gpu"
	return s.pluginOf(t, fakeplugin.Resources{name: 2}), name
}

// pluginOf runs a nasty plugin with resources and returns when the Node offers
// them.
func (s *suite) pluginOf(t *testing.T, resources fakeplugin.Resources) *realnode.Plugin {
	t.Helper()
	c := fakeplugin.Defaults(fakeplugin.Nasty)
	c.Instance, c.Resources = s.unique("p"), resources
	p, err := s.node.StartPlugin(t.Context(), c)
	must(t, err)
	t.Cleanup(func() { must(t, p.Stop(context.Background())) })
	for name, n := range resources {
		s.awaitAllocatable(t, name, int64(n))
	}
	return p
}

// awaitAllocatable waits until the Node offers so many devices of a resource.
func (s *suite) awaitAllocatable(t *testing.T, name string, n int64) {
	t.Helper()
	s.awaitCount(t, name, "allocatable", n, func(n corev1.NodeStatus) corev1.ResourceList { return n.Allocatable })
}

// awaitListed waits until so many devices are on the list of a resource's plugin, as
// the Node's capacity says.
func (s *suite) awaitListed(t *testing.T, name string, n int64) {
	t.Helper()
	s.awaitCount(t, name, "listed", n, func(n corev1.NodeStatus) corev1.ResourceList { return n.Capacity })
}

func (s *suite) awaitCount(t *testing.T, name, what string, n int64, of func(corev1.NodeStatus) corev1.ResourceList) {
	t.Helper()
	within(t, gone, fmt.Sprintf("the Node has %d %s %s", n, what, name), func(ctx context.Context) error {
		node, err := s.client.CoreV1().Nodes().Get(ctx, s.node.Name(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		q, ok := of(node.Status)[corev1.ResourceName(name)]
		if !ok || q.Value() != n {
			return fmt.Errorf("it has %s", q.String())
		}
		return nil
	})
}

// container is one that runs until it is told to stop.
func container(name string, args ...string) corev1.Container {
	return corev1.Container{Name: name, Image: realnode.Image, ImagePullPolicy: corev1.PullNever, Args: args}
}

// draPod makes a Pod with a claim for n devices of a driver. It has three
// containers: one that names the claim, one that names claim and request, one
// without.
func (s *suite) draPod(t *testing.T, driver string, n int64, f func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	template := &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: s.unique("gpus")},
		Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: claimSpec(driver, n)},
	}
	_, err := s.client.ResourceV1().ResourceClaimTemplates(namespace).Create(t.Context(), template, metav1.CreateOptions{})
	must(t, err)
	main, byRequest := container("main"), container("byrequest")
	main.Resources.Claims = []corev1.ResourceClaim{{Name: "accel"}}
	byRequest.Resources.Claims = []corev1.ResourceClaim{{Name: "accel", Request: "gpu"}}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		ResourceClaims: []corev1.PodResourceClaim{{Name: "accel", ResourceClaimTemplateName: &template.Name}},
		Containers:     []corev1.Container{main, byRequest, container("noclaim")},
	}}
	if f != nil {
		f(pod)
	}
	return s.create(t, pod)
}

func claimSpec(class string, n int64) resourceapi.ResourceClaimSpec {
	return resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
		Name: "gpu",
		Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: n,
		},
	}}}}
}

// pluginPod makes a Pod whose containers have one device of a resource each.
func (s *suite) pluginPod(t *testing.T, resourceName string, f func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	limit := corev1.ResourceList{corev1.ResourceName(resourceName): resource.MustParse("1")}
	main, side := container("main"), container("side")
	main.Resources.Limits, side.Resources.Limits = limit, limit
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{main, side}}}
	if f != nil {
		f(pod)
	}
	return s.create(t, pod)
}

// twoResources is a Pod with a container that has one device of each.
func twoResources(first, second string) *corev1.Pod {
	one := resource.MustParse("1")
	main := container("main")
	main.Resources.Limits = corev1.ResourceList{corev1.ResourceName(first): one, corev1.ResourceName(second): one}
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{main}}}
}

// create makes the Pod under a name of its own and takes it away when the test
// ends, before the driver that it was made after.
func (s *suite) create(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	grace := int64(1)
	pod.Name = s.unique("pod")
	pod.Spec.TerminationGracePeriodSeconds = &grace
	created, err := s.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		must(t, s.remove(ctx, created.Name))
	})
	return created
}

// remove deletes a Pod and waits until it is gone.
func (s *suite) remove(ctx context.Context, pod string) error {
	pods := s.client.CoreV1().Pods(namespace)
	w, err := pods.Watch(ctx, metav1.SingleObject(metav1.ObjectMeta{Name: pod}))
	if err != nil {
		return fmt.Errorf("remove Pod %s: %w", pod, err)
	}
	defer w.Stop()
	if err := pods.Delete(ctx, pod, metav1.DeleteOptions{}); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("remove Pod %s: %w", pod, err)
	}
	for e := range w.ResultChan() {
		if e.Type == "DELETED" {
			return nil
		}
	}
	return fmt.Errorf("remove Pod %s: it is still there: %w", pod, ctx.Err())
}

// awaitRunning waits until all containers of a Pod run.
func (s *suite) awaitRunning(t *testing.T, pod string) *corev1.Pod {
	t.Helper()
	var p *corev1.Pod
	within(t, soon, "Pod "+pod+" runs", func(ctx context.Context) (err error) {
		if p, err = s.client.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{}); err != nil {
			return err
		}
		running := func(c corev1.ContainerStatus) bool { return c.State.Running != nil }
		if len(p.Status.ContainerStatuses) != len(p.Spec.Containers) || slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return !running(c) }) {
			return fmt.Errorf("it is %s: %+v", p.Status.Phase, p.Status.Conditions)
		}
		return nil
	})
	return p
}

// held returns a Pod's claim and the devices that it holds, sorted.
func (s *suite) held(t *testing.T, pod *corev1.Pod) (*resourceapi.ResourceClaim, []string) {
	t.Helper()
	if len(pod.Status.ResourceClaimStatuses) != 1 {
		t.Fatalf("Pod %s has claims %+v, want one", pod.Name, pod.Status.ResourceClaimStatuses)
	}
	name := *pod.Status.ResourceClaimStatuses[0].ResourceClaimName
	claim, err := s.client.ResourceV1().ResourceClaims(namespace).Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	var names []string
	for _, r := range claim.Status.Allocation.Devices.Results {
		names = append(names, r.Device)
	}
	slices.Sort(names)
	return claim, names
}

// awaitPhase waits until a Pod is in a phase.
func (s *suite) awaitPhase(t *testing.T, pod string, phase corev1.PodPhase) {
	t.Helper()
	within(t, soon, fmt.Sprintf("Pod %s is %s", pod, phase), func(ctx context.Context) error {
		p, err := s.client.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
		if err == nil && p.Status.Phase != phase {
			err = fmt.Errorf("it is %s", p.Status.Phase)
		}
		return err
	})
}
