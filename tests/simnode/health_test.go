package simnode_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/tests/simnode"
)

func TestHealthEntriesNameAClaimAndItsDevicesAsAKubeletDoes(t *testing.T) {
	// %[1]s is the driver, %[2]s the node, %[3]s the UID of the claim.
	cases := map[string]struct {
		pool string
		cdi  simnode.CDI
		uses []string // what the container has of the claim; "" is all of it
		want []string
	}{
		"the whole claim": {
			uses: []string{""},
			want: []string{"claim:accel: %[1]s/%[2]s/gpu-0=Healthy", "claim:accel: %[1]s/%[2]s/gpu-1=Healthy"},
		},
		"one request of two": {
			uses: []string{"second"},
			want: []string{"claim:accel/second: %[1]s/%[2]s/gpu-1=Healthy"},
		},
		"each request on its own": {
			uses: []string{"first", "second"},
			want: []string{"claim:accel/first: %[1]s/%[2]s/gpu-0=Healthy", "claim:accel/second: %[1]s/%[2]s/gpu-1=Healthy"},
		},
		"a pool with slashes in its name": {
			pool: "rack-1/tray-2", uses: []string{"first"},
			want: []string{"claim:accel/first: %[1]s/rack-1/tray-2/gpu-0=Healthy"},
		},
		"CDI IDs that name the device": {
			cdi: simnode.CDIDevice, uses: []string{""},
			want: []string{"claim:accel: %[1]s/gpu=gpu-0=Healthy", "claim:accel: %[1]s/gpu=gpu-1=Healthy"},
		},
		"CDI IDs that name the claim": {
			cdi: simnode.CDIClaim, uses: []string{""},
			want: []string{"claim:accel: k8s.%[1]s/claim=%[3]s-gpu-0=Healthy", "claim:accel: k8s.%[1]s/claim=%[3]s-gpu-1=Healthy"},
		},
		"one CDI ID for the whole claim": {
			cdi: simnode.CDIShared, uses: []string{""},
			want: []string{"claim:accel: k8s.%[1]s/claim=%[3]s=Healthy"},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, simnode.Options{})
			node := f.node(simnode.Node{Pools: []simnode.Pool{{Name: test.pool, CDI: test.cdi, Devices: simnode.MakeDevices(2)}}})
			claim := simnode.MakeClaim(f.namespace, "two")
			for i, request := range []string{"first", "second"} {
				// Which device answers which request must not be the scheduler's choice.
				claim.Request(request, f.driver, 1).Where(fmt.Sprintf(
					`device.attributes["resource.kubernetes.io"].pciBusID == "0000:%02x:00.0"`, i+1))
			}
			pod := simnode.MakePod(f.namespace, "p").Claim("accel", "two")
			for _, request := range test.uses {
				pod.Uses("accel", request)
			}
			pod.Container("plain")

			running := f.run(pod.Obj(), claim.Obj())

			bound, err := f.client.ResourceV1().ResourceClaims(f.namespace).Get(f.ctx, "two", metav1.GetOptions{})
			must(t, err)
			var want []string
			for _, entry := range test.want {
				// Indexes, because not every entry has every part.
				want = append(want, strings.NewReplacer("%[1]s", f.driver, "%[2]s", node, "%[3]s", string(bound.UID)).Replace(entry))
			}
			wantEntries(t, running, "main", want...)
			wantEntries(t, running, "plain")
		})
	}
}

func TestAReportReachesEveryPodThatHoldsTheDeviceBeforeSetReturns(t *testing.T) {
	f := newFixture(t, simnode.Options{})
	node := f.node(simnode.Node{Pools: []simnode.Pool{{Devices: simnode.MakeDevices(2)}}})
	f.run(simnode.MakePod(f.namespace, "sharer-1").Claim("accel", "shared").Obj(),
		simnode.MakeClaim(f.namespace, "shared").Request("gpu", f.driver, 1).Obj())
	f.run(simnode.MakePod(f.namespace, "sharer-2").Claim("accel", "shared").Obj())
	bystander := f.run(simnode.MakePod(f.namespace, "bystander").Claim("accel", "other").Obj(),
		simnode.MakeClaim(f.namespace, "other").Request("gpu", f.driver, 1).Obj())
	claim, err := f.client.ResourceV1().ResourceClaims(f.namespace).Get(f.ctx, "shared", metav1.GetOptions{})
	must(t, err)
	device := claim.Status.Allocation.Devices.Results[0].Device

	long := strings.Repeat("x", 2000)
	writes, err := f.Set(f.ctx, node, device, corev1.ResourceHealthStatusUnhealthy, long)

	must(t, err)
	if len(writes) != 2 {
		t.Fatalf("%d status writes, want one for each of the two Pods that share the device", len(writes))
	}
	for _, write := range writes {
		pod := f.pod(write.Pod.Name)
		if pod.ResourceVersion != write.ResourceVersion {
			t.Errorf("Pod %s is at %s, the write said %s", pod.Name, pod.ResourceVersion, write.ResourceVersion)
		}
		if write.Accepted.Before(write.Sent) {
			t.Errorf("Pod %s: accepted %s before it was sent", pod.Name, write.Sent.Sub(write.Accepted))
		}
		wantEntries(t, pod, "main", fmt.Sprintf("claim:accel: %s/%s/%s=Unhealthy(%s)", f.driver, node, device, long[:1024]))
	}
	if now := f.pod("bystander"); now.ResourceVersion != bystander.ResourceVersion {
		t.Errorf("the Pod that holds another device was written too")
	}
}

func TestASyncMovesTheResourceVersionAndTheOrderButSaysNothingNew(t *testing.T) {
	f := newFixture(t, simnode.Options{})
	node := f.node(simnode.Node{Pools: []simnode.Pool{{Devices: simnode.MakeDevices(8)}}})
	first := f.run(simnode.MakePod(f.namespace, "p").Claim("accel", "all").Obj(),
		simnode.MakeClaim(f.namespace, "all").Request("gpu", f.driver, 8).Obj())
	versions, orders := map[string]bool{}, map[string]bool{}

	for range 5 {
		_, err := f.Resync(f.ctx, node)
		must(t, err)
		pod := f.pod("p")
		versions[pod.ResourceVersion] = true
		orders[strings.Join(orderedEntries(pod, "main"), ",")] = true
		if !slices.Equal(entries(pod, "main"), entries(first, "main")) {
			t.Fatalf("entries changed: %v", entries(pod, "main"))
		}
	}

	if len(versions) != 5 || len(orders) < 2 {
		t.Errorf("5 syncs gave %d resource versions and %d orders, want 5 and several", len(versions), len(orders))
	}
}

func TestADriverThatIsSilentOrGoneLeavesUnknownWithoutAMessage(t *testing.T) {
	f := newFixture(t, simnode.Options{})
	node := f.node(simnode.Node{Pools: []simnode.Pool{{Devices: simnode.MakeDevices(1)}}})
	f.run(simnode.MakePod(f.namespace, "p").Claim("accel", "one").Obj(),
		simnode.MakeClaim(f.namespace, "one").Request("gpu", f.driver, 1).Obj())
	id := f.driver + "/" + node + "/gpu-0"
	_, err := f.Set(f.ctx, node, "gpu-0", corev1.ResourceHealthStatusUnhealthy, "ecc")
	must(t, err)

	_, err = f.Silence(f.ctx, node)
	must(t, err)
	wantEntries(t, f.pod("p"), "main", "claim:accel: "+id+"=Unknown")
	if got := len(f.slices(node)); got != 1 {
		t.Errorf("a silent driver left %d slices, want its 1", got)
	}

	_, err = f.Speak(f.ctx, node)
	must(t, err)
	wantEntries(t, f.pod("p"), "main", "claim:accel: "+id+"=Unhealthy(ecc)")

	_, err = f.DriverGone(f.ctx, node)
	must(t, err)
	wantEntries(t, f.pod("p"), "main", "claim:accel: "+id+"=Unknown")
	if got := len(f.slices(node)); got != 0 {
		t.Errorf("a lost driver left %d slices, want none", got)
	}

	_, err = f.DriverBack(f.ctx, node)
	must(t, err)
	wantEntries(t, f.pod("p"), "main", "claim:accel: "+id+"=Healthy")
}

func TestAPodDeletedWhileItsDriverIsAwayHangsUntilTheDriverIsBack(t *testing.T) {
	f := newFixture(t, simnode.Options{})
	node := f.node(simnode.Node{Pools: []simnode.Pool{{Devices: simnode.MakeDevices(1)}}})
	f.run(simnode.MakePod(f.namespace, "p").Claim("accel", "one").Obj(),
		simnode.MakeClaim(f.namespace, "one").Request("gpu", f.driver, 1).Obj())
	_, err := f.DriverGone(f.ctx, node)
	must(t, err)

	must(t, f.client.CoreV1().Pods(f.namespace).Delete(f.ctx, "p", metav1.DeleteOptions{}))

	hanging, err := f.AwaitPod(f.ctx, f.namespace, "p", func(pod *corev1.Pod) bool {
		return pod != nil && pod.Status.ContainerStatuses[0].State.Terminated != nil
	})
	must(t, err)
	wantEntries(t, hanging, "main", "claim:accel: "+f.driver+"/"+node+"/gpu-0=Unknown")
	_, err = f.DriverBack(f.ctx, node)
	must(t, err)
	_, err = f.AwaitPod(f.ctx, f.namespace, "p", simnode.Gone)
	must(t, err)
}

func TestAPodThatEndsLosesItsDRAEntriesAndKeepsItsPluginEntriesFrozen(t *testing.T) {
	const plugin = "plugin.example.com/gpu"
	f := newFixture(t, simnode.Options{})
	node := f.node(simnode.Node{
		Pools:   []simnode.Pool{{Devices: simnode.MakeDevices(1)}},
		Plugins: []simnode.Plugin{{Resource: plugin, IDs: []string{"GPU-0"}}},
	})
	f.run(simnode.MakePod(f.namespace, "p").Restart(corev1.RestartPolicyNever).Claim("accel", "one").Resource(plugin, 1).OnNode(node).Obj(),
		simnode.MakeClaim(f.namespace, "one").Request("gpu", f.driver, 1).Obj())
	_, err := f.SetPlugin(f.ctx, node, plugin, "GPU-0", corev1.ResourceHealthStatusUnhealthy)
	must(t, err)
	wantEntries(t, f.pod("p"), "main", plugin+": GPU-0=Unhealthy", "claim:accel: "+f.driver+"/"+node+"/gpu-0=Healthy")

	_, err = f.Exit(f.ctx, f.namespace, "p", 139)
	must(t, err)
	_, err = f.SetPlugin(f.ctx, node, plugin, "GPU-0", corev1.ResourceHealthStatusHealthy)
	must(t, err)

	pod := f.pod("p")
	wantEntries(t, pod, "main", plugin+": GPU-0=Unhealthy")
	if pod.Status.Phase != corev1.PodFailed {
		t.Errorf("the Pod is %s, want Failed", pod.Status.Phase)
	}
}

func TestACrashLoopKeepsItsEntries(t *testing.T) {
	f := newFixture(t, simnode.Options{})
	node := f.node(simnode.Node{Pools: []simnode.Pool{{Devices: simnode.MakeDevices(1)}}})
	f.run(simnode.MakePod(f.namespace, "p").Claim("accel", "one").Obj(),
		simnode.MakeClaim(f.namespace, "one").Request("gpu", f.driver, 1).Obj())
	_, err := f.Set(f.ctx, node, "gpu-0", corev1.ResourceHealthStatusUnhealthy, "xid 48")
	must(t, err)

	_, err = f.Exit(f.ctx, f.namespace, "p", 139)
	must(t, err)

	pod := f.pod("p")
	wantEntries(t, pod, "main", "claim:accel: "+f.driver+"/"+node+"/gpu-0=Unhealthy(xid 48)")
	status := pod.Status.ContainerStatuses[0]
	if status.RestartCount != 1 || status.LastTerminationState.Terminated == nil || status.State.Running == nil {
		t.Errorf("restarts %d, last state %v: want a restarted container", status.RestartCount, status.LastTerminationState)
	}
}
