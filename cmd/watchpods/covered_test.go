package watchpods

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sickbay-dev/sickbay/cmd/doctor"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
)

// podWith is a Pod of node n1 with a claim for devices of the driver, and an entry for
// each resource ID that is given.
func podWith(r *Running, namespace, name string, admin bool, devices []string, ids ...string) *corev1.Pod {
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: "n1", ResourceClaims: []corev1.PodResourceClaim{{Name: "devices", ResourceClaimName: ptr.To(name)}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if admin {
		pod.Labels = map[string]string{kube.WatchLabel: gpus}
	}
	claim := device.Claim{Namespace: namespace, Name: name}
	for _, d := range devices {
		claim.Results = append(claim.Results, device.Allocated{Request: "all", Class: gpus, Device: device.Key{Driver: gpus, Pool: "n1", Device: d}, AdminAccess: admin})
	}
	status := corev1.ResourceStatus{Name: "claim:devices"}
	for _, id := range ids {
		status.Resources = append(status.Resources, corev1.ResourceHealth{ResourceID: corev1.ResourceID(id), Health: corev1.ResourceHealthStatusHealthy})
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "watch", AllocatedResourcesStatus: []corev1.ResourceStatus{status}}}
	r.Pods, r.Claims = append(r.Pods, pod), append(r.Claims, claim)
	return &r.Pods[len(r.Pods)-1]
}

// O11 in part: of each device that a watch Pod doesn't cover, the check says so, and why,
// and what to do.
func TestTheCheckSaysWhatIsNotCoveredAndWhy(t *testing.T) {
	const first, second = gpus + "/n1/gpu-0", gpus + "/n1/gpu-1"
	both := []string{"gpu-0", "gpu-1"}
	type said struct {
		state doctor.State
		found string
		// advice is part of what it tells to do.
		advice string
	}
	for sentence, c := range map[string]struct {
		running func(*testing.T, *Running)
		want    map[string]said
	}{
		"all is covered, and a tenant has one of them": {
			func(_ *testing.T, r *Running) {
				podWith(r, "sickbay-watch", "watch-x", true, both, first, second)
				podWith(r, "default", "train-0", false, both[:1], first)
			},
			map[string]said{
				"watch/driver":  {doctor.OK, "devices: 2, nodes: 1", ""},
				"watch/n1":      {doctor.OK, "watch-x: reports on 2 of 2 devices", ""},
				"watch/tenants": {doctor.OK, "devices that are held and watched at once: 1", ""},
			},
		},
		"there is none": {
			func(_ *testing.T, r *Running) { podWith(r, "default", "train-0", false, both[:1], first) },
			map[string]said{
				"watch/n1":      {doctor.Degraded, "no watch Pod, and 2 devices", "whether the DaemonSet picks the node"},
				"watch/tenants": {doctor.Unknown, "no device is held and watched at once", "on a node that nobody uses"},
			},
		},
		"slices changed since the claim was allocated": {
			func(_ *testing.T, r *Running) {
				podWith(r, "sickbay-watch", "watch-x", true, []string{"gpu-0", "gpu-9"}, first, gpus+"/n1/gpu-9")
			},
			map[string]said{"watch/n1": {doctor.Degraded,
				"watch-x: reports on 1 of 2 devices; not in the claim, since they were published after it was allocated: gpu-1; in the claim, and not published any more: gpu-9",
				"Roll the watch Pods, which takes a new claim: kubectl --namespace sickbay-watch rollout restart daemonset --selector sickbay.dev/watch=gpu.example.com."}},
		},
		"a new watch Pod reports beside the old one": {
			func(_ *testing.T, r *Running) {
				podWith(r, "sickbay-watch", "watch-x", true, both[:1], first)
				podWith(r, "sickbay-watch", "watch-y", true, both, first, second)
			},
			map[string]said{"watch/n1": {doctor.OK, "watch-x, watch-y: reports on 2 of 2 devices", ""}},
		},
		"IDs name the claim": {
			func(_ *testing.T, r *Running) {
				pod := podWith(r, "sickbay-watch", "watch-x", true, both, "k8s.gpu/claim=1-gpu-0", "k8s.gpu/claim=1-gpu-1")
				pod.Status.ContainerStatuses[0].AllocatedResourcesStatus[0].Resources[1].Health = corev1.ResourceHealthStatusUnhealthy
			},
			map[string]said{"watch/n1": {doctor.Degraded, "without an entry of their own: gpu-0, gpu-1", "--request-per-device 2"}},
		},
		"the kubelet has written nothing": {
			func(_ *testing.T, r *Running) { podWith(r, "sickbay-watch", "watch-x", true, both) },
			map[string]said{"watch/n1": {doctor.Degraded, "watch-x: reports on 0 of 2 devices", "ResourceHealthStatus"}},
		},
		"the driver refuses the watch Pod": {
			func(_ *testing.T, r *Running) {
				podWith(r, "sickbay-watch", "watch-x", true, both).Status.Phase = corev1.PodPending
				r.Refused["uid-watch-x"] = "already allocated"
			},
			map[string]said{"watch/n1": {doctor.Missing, "the driver refuses watch Pod watch-x: already allocated", "delete their DaemonSet"}},
		},
		"the driver refuses the tenant": {
			func(_ *testing.T, r *Running) {
				podWith(r, "sickbay-watch", "watch-x", true, both, first, second)
				podWith(r, "default", "train-0", false, both[:1]).Status.Phase = corev1.PodPending
				r.Refused["uid-train-0"] = "already allocated"
			},
			map[string]said{"watch/tenants": {doctor.Missing, "Pod default/train-0 waits for gpu.example.com/n1/gpu-0, which a watch Pod has too: already allocated", "delete their DaemonSet"}},
		},
		"one waits for a node": {
			func(_ *testing.T, r *Running) {
				pod := podWith(r, "sickbay-watch", "watch-x", true, nil)
				pod.Spec.NodeName, pod.Status.Phase = "", corev1.PodPending
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "cannot allocate all claims"}}
			},
			map[string]said{"watch/waiting": {doctor.Degraded, "watch-x: cannot allocate all claims", "--node-selector"}},
		},
		"a device that is watched takes memory of its node by now": {
			func(t *testing.T, r *Running) {
				podWith(r, "sickbay-watch", "watch-x", true, both, first, second)
				r.Offered = offeredBy(t, slice("n1", named("gpu-0", map[string]any{"nodeAllocatableResources": map[string]any{"memory": map[string]any{}}}), named("gpu-1")))
			},
			map[string]said{"watch/driver": {doctor.Missing, "device gpu.example.com/n1/gpu-0 (ResourceSlice n1-slice) takes memory of its node", "Take the watch Pods away"}},
		},
		"not everything could be read": {
			func(_ *testing.T, r *Running) {
				podWith(r, "sickbay-watch", "watch-x", true, both, first, second)
				r.Problems = []string{"list the Events: forbidden"}
			},
			map[string]said{"watch/read": {doctor.Unknown, "list the Events: forbidden", "Ask again"}},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := Running{
				Driver: gpus, Namespace: "sickbay-watch", Offered: offeredBy(t, slice("n1", plain(2)...)),
				Classes: map[string]device.Class{gpus: device.ReadClass(gpus, []string{`device.driver == "gpu.example.com"`})}, Refused: map[string]string{},
			}
			c.running(t, &r)
			found := map[string]doctor.Finding{}
			for _, f := range r.Findings() {
				found[f.Check] = f
				if (f.State == doctor.OK) != (f.Remedy == "") {
					t.Errorf("%s is %s, with remedy %q", f.Check, f.State, f.Remedy)
				}
			}
			for check, want := range c.want {
				if f := found[check]; f.State != want.state || !strings.Contains(f.Found, want.found) || !strings.Contains(f.Remedy, want.advice) {
					t.Errorf("%s: %s, %q, %q; want %+v", check, f.State, f.Found, f.Remedy, want)
				}
			}
		})
	}
}
