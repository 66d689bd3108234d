// The fixtures of the tests of simulated nodes: one control plane for the
// package, and for each test a driver, nodes and a namespace of its own.

package simnode_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// shared is the package's control plane; TestMain sets it before any test.
var shared *stack.Stack

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		shared, err = stack.Run(context.Background(), stack.Options{Kubernetes: "1.36"})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() {
			if err := shared.Stop(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}()
		return m.Run()
	}())
}

// fixture is what one test works with.
type fixture struct {
	*simnode.Cluster
	t         *testing.T
	ctx       context.Context
	client    kubernetes.Interface
	namespace string
	driver    string
}

// newFixture makes a namespace and a driver that no other test has.
func newFixture(t *testing.T, opts simnode.Options) *fixture {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	t.Cleanup(cancel)
	client, err := kubernetes.NewForConfig(shared.RESTConfig())
	must(t, err)
	namespace, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "sim-"},
	}, metav1.CreateOptions{})
	must(t, err)
	opts.Driver = namespace.Name + ".example.com"
	f := &fixture{
		Cluster: simnode.Start(t, shared.SimulatorConfig(), opts),
		t:       t, ctx: ctx, client: client, namespace: namespace.Name, driver: opts.Driver,
	}
	return f
}

// node adds a node whose name is the test's own.
func (f *fixture) node(n simnode.Node) string {
	f.t.Helper()
	if n.Name == "" {
		n.Name = f.namespace + "-node"
	}
	must(f.t, f.Add(f.ctx, n))
	f.t.Cleanup(func() {
		// The Pods first: a node that is gone ends none.
		background := context.Background()
		now := int64(0)
		_ = f.client.CoreV1().Pods(f.namespace).DeleteCollection(background, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
		_ = f.client.CoreV1().Nodes().Delete(background, n.Name, metav1.DeleteOptions{})
	})
	return n.Name
}

// run creates a claim and Pod pair and waits until the Pod runs.
func (f *fixture) run(pod *corev1.Pod, claims ...*resourceapi.ResourceClaim) *corev1.Pod {
	f.t.Helper()
	for _, claim := range claims {
		_, err := f.client.ResourceV1().ResourceClaims(f.namespace).Create(f.ctx, claim, metav1.CreateOptions{})
		must(f.t, err)
	}
	_, err := f.client.CoreV1().Pods(f.namespace).Create(f.ctx, pod, metav1.CreateOptions{})
	must(f.t, err)
	running, err := f.AwaitPod(f.ctx, f.namespace, pod.Name, simnode.Running)
	must(f.t, err)
	return running
}

// pod is the Pod as the API server has it now.
func (f *fixture) pod(name string) *corev1.Pod {
	f.t.Helper()
	pod, err := f.client.CoreV1().Pods(f.namespace).Get(f.ctx, name, metav1.GetOptions{})
	must(f.t, err)
	return pod
}

// slices are the driver's slices on a node.
func (f *fixture) slices(node string) []resourceapi.ResourceSlice {
	f.t.Helper()
	list, err := f.client.ResourceV1().ResourceSlices().List(f.ctx, metav1.ListOptions{
		FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + node,
	})
	must(f.t, err)
	return list.Items
}

// entries renders a container's health entries, sorted: "name: id=health(message)".
func entries(pod *corev1.Pod, container string) []string {
	rendered := orderedEntries(pod, container)
	slices.Sort(rendered)
	return rendered
}

// orderedEntries renders them in the order in which they were written.
func orderedEntries(pod *corev1.Pod, container string) []string {
	var rendered []string
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name != container {
			continue
		}
		for _, entry := range status.AllocatedResourcesStatus {
			for _, device := range entry.Resources {
				text := fmt.Sprintf("%s: %s=%s", entry.Name, device.ResourceID, device.Health)
				if device.Message != nil {
					text += "(" + *device.Message + ")"
				}
				rendered = append(rendered, text)
			}
		}
	}
	return rendered
}

func wantEntries(t *testing.T, pod *corev1.Pod, container string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := entries(pod, container); !slices.Equal(got, want) {
		t.Errorf("health entries of container %s of Pod %s:\n got %s\nwant %s", container, pod.Name,
			strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

// eventually polls until a condition holds.
func eventually(t *testing.T, ctx context.Context, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: still not after %v", what, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
