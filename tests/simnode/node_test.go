package simnode_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/tests/simnode"
)

func TestANodeInAnOutageRenewsNothingAndSaysNothingUntilItRecovers(t *testing.T) {
	f := newFixture(t, simnode.Options{HeartbeatEvery: 200 * time.Millisecond})
	dark := f.node(simnode.Node{Name: f.namespace + "-dark", Pools: []simnode.Pool{{Devices: simnode.MakeDevices(1)}}})
	light := f.node(simnode.Node{Name: f.namespace + "-light"})
	f.run(simnode.MakePod(f.namespace, "p").Claim("accel", "one").Obj(),
		simnode.MakeClaim(f.namespace, "one").Request("gpu", f.driver, 1).Obj())
	renewed := func(node string) time.Time {
		lease, err := f.client.CoordinationV1().Leases("kube-node-lease").Get(f.ctx, node, metav1.GetOptions{})
		must(t, err)
		return lease.Spec.RenewTime.Time
	}
	advances := func(node string) func() bool {
		from := renewed(node)
		return func() bool { return renewed(node).After(from) }
	}
	eventually(t, f.ctx, "the Lease advances", advances(dark))

	must(t, f.Outage(dark))
	last := renewed(dark)
	_, err := f.Set(f.ctx, dark, "gpu-0", corev1.ResourceHealthStatusUnhealthy, "seen by nobody")
	must(t, err)
	// Three beats of the other node are three that this one left out.
	for range 3 {
		eventually(t, f.ctx, "the other node's Lease advances", advances(light))
	}
	if now := renewed(dark); !now.Equal(last) {
		t.Errorf("the Lease advanced by %s in an outage", now.Sub(last))
	}
	id := "claim:accel: " + f.driver + "/" + dark + "/gpu-0"
	wantEntries(t, f.pod("p"), "main", id+"=Healthy")

	must(t, f.Recover(f.ctx, dark))
	eventually(t, f.ctx, "the Pod's status catches up", func() bool {
		got := entries(f.pod("p"), "main")
		return len(got) == 1 && got[0] == id+"=Unhealthy(seen by nobody)"
	})
	if now := renewed(dark); !now.After(last) {
		t.Error("the Lease did not advance on recovery")
	}
}

func TestANodeMadeAnewUnderTheSameNameIsAnotherNodeWithSlicesOfItsOwn(t *testing.T) {
	f := newFixture(t, simnode.Options{})
	name := f.node(simnode.Node{Pools: []simnode.Pool{{Devices: simnode.MakeDevices(2)}}})
	before, err := f.client.CoreV1().Nodes().Get(f.ctx, name, metav1.GetOptions{})
	must(t, err)

	must(t, f.Delete(f.ctx, name))
	must(t, f.Add(f.ctx, simnode.MakeNode(name, 3)))

	after, err := f.client.CoreV1().Nodes().Get(f.ctx, name, metav1.GetOptions{})
	must(t, err)
	if before.UID == after.UID {
		t.Error("the node has the UID of the deleted one")
	}
	slices := f.slices(name)
	if len(slices) != 1 || slices[0].OwnerReferences[0].UID != after.UID || len(slices[0].Spec.Devices) != 3 {
		t.Errorf("%d slices, want the new node's one with three devices", len(slices))
	}
}

func TestAPodRunsUntilItsContainersHaveStoppedAndIsThenGone(t *testing.T) {
	f := newFixture(t, simnode.Options{})
	node := f.node(simnode.MakeNode(f.namespace+"-node", 0))
	pod := f.run(simnode.MakePod(f.namespace, "slow").OnNode(node).StopsAfter(1500 * time.Millisecond).Obj())

	begin := time.Now()
	must(t, f.client.CoreV1().Pods(f.namespace).Delete(f.ctx, pod.Name, metav1.DeleteOptions{}))
	_, err := f.AwaitPod(f.ctx, f.namespace, pod.Name, simnode.Gone)
	must(t, err)

	// The deletion timestamp has whole seconds.
	if took := time.Since(begin); took < 500*time.Millisecond {
		t.Errorf("gone after %s, want about 1.5 s", took)
	}
}

func TestAThousandNodesKeepTheirLeasesFresh(t *testing.T) {
	const nodes = 1000
	f := newFixture(t, simnode.Options{})
	specs := simnode.MakeNodes(f.namespace, nodes, 8)
	begin := time.Now()
	must(t, f.Add(f.ctx, specs...))
	t.Logf("%d nodes with 8 devices each registered in %.1fs", nodes, time.Since(begin).Seconds())
	added := time.Now()
	eventually(t, f.ctx, "every Lease was renewed after the last node was added", func() bool {
		leases, err := f.client.CoordinationV1().Leases("kube-node-lease").List(f.ctx, metav1.ListOptions{})
		must(t, err)
		fresh := 0
		for _, lease := range leases.Items {
			if lease.Spec.RenewTime.After(added) {
				fresh++
			}
		}
		return fresh >= nodes
	})
	// One period of 10 s, and as much again for a busy machine.
	if took := time.Since(added); took > 20*time.Second {
		t.Errorf("all Leases renewed only after %s", took)
	}
}
