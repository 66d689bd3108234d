package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/starter"
	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// The simulated nodes renew their Leases every second, so a starter of these tests may
// conclude in seconds what takes one in a cluster a minute.
func hasty(o *starter.Options) {
	o.Timing.Heartbeats, o.Timing.HeartbeatLimit, o.Timing.NodeReturn = time.Second, 6*time.Second, 3*time.Second
	o.Timing.MemoryFirst, o.Timing.MemoryEvery = 200*time.Millisecond, 500*time.Millisecond
}

// nodesOut is how many nodes a starter says are out.
func (o *observer) nodesOut() (float64, error) {
	families, err := o.registry.Gather()
	if err != nil {
		return 0, err
	}
	out := 0.0
	for _, family := range families {
		if family.GetName() != "sickbay_nodes_out" {
			continue
		}
		for _, m := range family.GetMetric() {
			out += m.GetGauge().GetValue()
		}
	}
	return out, nil
}

// awaitNodesOut waits until a starter says that so many nodes are out.
func (c *cluster) awaitNodesOut(o *observer, want float64) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("%v nodes are out", want), 40*time.Second, func(context.Context) error {
		if out, err := o.nodesOut(); err != nil || out != want {
			return fmt.Errorf("%v are, %w", out, err)
		}
		return nil
	})
}

// awaitMemory waits until the starters' ConfigMap names these nodes.
func (c *cluster) awaitMemory(nodes ...string) {
	c.t.Helper()
	want := ""
	for _, node := range nodes {
		want += node + "\n"
	}
	c.eventually("the ConfigMap names "+strings.Join(nodes, " and "), 20*time.Second, func(ctx context.Context) error {
		object, err := c.kube.CoreV1().ConfigMaps(deploy.Namespace).Get(ctx, kube.MemoryName("sickbay-starter"), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if object.Data[simnode.DefaultDriver] != want {
			return fmt.Errorf("it has %q", object.Data)
		}
		return nil
	})
}

// O6, K4: a node whose kubelet died costs none of its devices anything, whatever their
// entries say; when it is back they are as they were. And who ever reported health is
// known to the next starter, though none was there in between: an Unknown is told from
// one that was never anything else.
func TestADeadNodeIsNoNewsAndALostHealthOutlivesTheStarters(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 2, 2)
	for pod, node := range map[string]string{"train-0": "node-0", "train-1": "node-1"} {
		if _, err := c.nodes.Place(t.Context(), "default", pod, node, "gpu-0"); err != nil {
			t.Fatal(err)
		}
	}
	key := device.Key{Driver: simnode.DefaultDriver, Pool: "node-0", Device: "gpu-0"}
	o := c.observe("a", hasty)
	c.leads(o)
	c.awaitMemory("node-0", "node-1")

	if err := c.nodes.Outage("node-0"); err != nil {
		t.Fatal(err)
	}
	c.awaitNodesOut(o, 1)
	c.eventually("its last word is Unknown", 10*time.Second, func(ctx context.Context) error {
		pod, err := c.kube.CoreV1().Pods("default").Get(ctx, "train-0", getOptions)
		if err != nil {
			return err
		}
		pod.Status.ContainerStatuses[0].AllocatedResourcesStatus[0].Resources[0].Health = corev1.ResourceHealthStatusUnknown
		_, err = c.kube.CoreV1().Pods("default").UpdateStatus(ctx, pod, updateOptions)
		return err
	})
	c.still(o, 0, 2*time.Second, "a device of a dead node is Unknown")
	if err := c.nodes.Recover(t.Context(), "node-0"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.nodes.Resync(t.Context(), "node-0"); err != nil {
		t.Fatal(err)
	}
	c.awaitNodesOut(o, 0)
	c.still(o, 0, time.Second, "the node is back, and its driver with it")

	if err := c.nodes.Delete(t.Context(), "node-1"); err != nil {
		t.Fatal(err)
	}
	c.awaitMemory("node-0")
	o.stop()
	c.set(key, corev1.ResourceHealthStatusUnknown, "")
	next := c.observe("b", hasty)
	c.leads(next)
	got := c.awaitSent(next, 1)[0]
	if e, ok := got.event.(quarantine.Observed); !ok || got.key != key || !got.open || !e.Lost {
		t.Errorf("signal %+v, want the loss of a health that was known before this starter began", got)
	}
}
