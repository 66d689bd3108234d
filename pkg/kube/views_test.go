package kube

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: "fc7e3abe", ResourceVersion: "494",
		Annotations:   map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
	}
}

func status(name string, state corev1.ContainerState, entry string, readings ...corev1.ResourceHealth) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: name, Image: "registry.example.com/app:1", State: state}
	if entry != "" {
		s.AllocatedResourcesStatus = []corev1.ResourceStatus{{Name: corev1.ResourceName(entry), Resources: readings}}
	}
	return s
}

var (
	running    = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waiting    = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	terminated = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
)

// O1: what is read from a Pod's status, on both paths, and that trimming an
// informer's cache loses nothing of it.
func TestPodViewKeepsWhatTheTrimmedCacheHas(t *testing.T) {
	xid := "XID 79: GPU has fallen off the bus"
	ref := device.PodRef{Namespace: "default", Name: "train-0", UID: "fc7e3abe"}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   func(*device.Pod)
	}{
		"a Pod without devices has none": {
			change: func(*corev1.Pod) {},
			want:   func(*device.Pod) {},
		},
		"a claim named in the spec and one generated from a template": {
			change: func(p *corev1.Pod) {
				p.Spec.ResourceClaims = []corev1.PodResourceClaim{
					{Name: "accel", ResourceClaimName: new("shared")},
					{Name: "nic", ResourceClaimTemplateName: new("nics")},
					{Name: "late", ResourceClaimTemplateName: new("nics")},
				}
				p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{
					{Name: "nic", ResourceClaimName: new("train-0-nic-x7k2p")}, {Name: "late"},
				}
			},
			want: func(v *device.Pod) {
				v.Claims = []device.PodClaim{{Name: "accel", Claim: "shared"}, {Name: "nic", Claim: "train-0-nic-x7k2p"}, {Name: "late"}}
			},
		},
		"the claim of DRA-backed extended resources": {
			change: func(p *corev1.Pod) {
				p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
					ResourceClaimName: "train-0-extended-resources-ncgcm",
					RequestMappings:   []corev1.ContainerExtendedResourceRequest{{ContainerName: "main"}},
				}
			},
			want: func(v *device.Pod) { v.ExtendedClaim = "train-0-extended-resources-ncgcm" },
		},
		"entries of regular, init and ephemeral containers": {
			change: func(p *corev1.Pod) {
				healthy := corev1.ResourceHealth{ResourceID: "GPU-1", Health: corev1.ResourceHealthStatusHealthy}
				p.Status.ContainerStatuses = []corev1.ContainerStatus{
					status("main", running, "claim:accel", corev1.ResourceHealth{
						ResourceID: "dra.example.com/vm/gpu-0", Health: corev1.ResourceHealthStatusUnhealthy, Message: &xid,
					}),
				}
				p.Status.InitContainerStatuses = []corev1.ContainerStatus{status("sidecar", running, "example.com/gpu", healthy)}
				p.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{status("debug", running, "example.com/gpu", healthy)}
			},
			want: func(v *device.Pod) {
				healthy := []device.Entry{{Name: "example.com/gpu", ResourceID: "GPU-1", Health: device.Healthy}}
				v.Containers = []device.Container{
					{Name: "main", Entries: []device.Entry{{
						Name: "claim:accel", ResourceID: "dra.example.com/vm/gpu-0", Health: device.Unhealthy, Message: xid,
					}}},
					{Name: "sidecar", Entries: healthy},
					{Name: "debug", Entries: healthy},
				}
			},
		},
		"a terminated container's entries are frozen, a crash-looping one's are not": {
			change: func(p *corev1.Pod) {
				bad := corev1.ResourceHealth{ResourceID: "GPU-1", Health: corev1.ResourceHealthStatusUnhealthy}
				p.Status.ContainerStatuses = []corev1.ContainerStatus{
					status("ended", terminated, "example.com/gpu", bad), status("looping", waiting, "example.com/gpu", bad),
				}
			},
			want: func(v *device.Pod) {
				bad := []device.Entry{{Name: "example.com/gpu", ResourceID: "GPU-1", Health: device.Unhealthy}}
				v.Containers = []device.Container{{Name: "ended", Terminated: true, Entries: bad}, {Name: "looping", Entries: bad}}
			},
		},
		"a health that this version doesn't know is Unknown": {
			change: func(p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{
					status("main", running, "example.com/gpu", corev1.ResourceHealth{ResourceID: "GPU-1", Health: "PermanentlyUnhealthy"}),
				}
			},
			want: func(v *device.Pod) {
				v.Containers = []device.Container{{Name: "main", Entries: []device.Entry{
					{Name: "example.com/gpu", ResourceID: "GPU-1", Health: device.Unknown},
				}}}
			},
		},
		"a Pod that failed": {
			change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
			want:   func(v *device.Pod) { v.Terminal = true },
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: meta("train-0"), Spec: corev1.PodSpec{NodeName: "vm", ServiceAccountName: "default"}}
			tc.change(pod)
			want := device.Pod{Ref: ref, Node: "vm", ResourceVersion: "494"}
			tc.want(&want)
			if got := PodView(pod); !reflect.DeepEqual(got, want) {
				t.Errorf("view of the Pod:\n got %+v\nwant %+v", got, want)
			}
			trimmed := trimTwice(t, TrimPod, pod)
			if got := PodView(trimmed); !reflect.DeepEqual(got, want) {
				t.Errorf("view of the trimmed Pod:\n got %+v\nwant %+v", got, want)
			}
			if trimmed.ManagedFields != nil || trimmed.Annotations != nil || trimmed.Spec.ServiceAccountName != "" {
				t.Errorf("trimmed Pod keeps what nobody reads: %+v", trimmed)
			}
		})
	}
}

// trimTwice applies a transform twice, as an informer may, and wants the same.
func trimTwice[T any](t *testing.T, trim func(any) (any, error), object T) T {
	t.Helper()
	once, err := trim(object)
	if err != nil {
		t.Fatal(err)
	}
	twice, err := trim(once)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(once, twice) {
		t.Errorf("trimming twice gives something else:\nonce  %+v\ntwice %+v", once, twice)
	}
	return twice.(T)
}

func TestClaimViewTellsWhoHoldsWhat(t *testing.T) {
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: meta("accel"),
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Name: "gpu", FirstAvailable: []resourcev1.DeviceSubRequest{{Name: "small", DeviceClassName: "small-gpu"}, {Name: "large", DeviceClassName: "large-gpu"}}},
			{Name: "watch", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "monitor", Selectors: []resourcev1.DeviceSelector{{}}}},
		}}},
		Status: resourcev1.ResourceClaimStatus{
			Allocation: &resourcev1.AllocationResult{
				NodeSelector: &corev1.NodeSelector{},
				Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
					{Request: "gpu/large", Driver: "gpu.example.com", Pool: "rack4/anvil-07", Device: "gpu-3"},
					{Request: "watch", Driver: "gpu.example.com", Pool: "rack4/anvil-07", Device: "gpu-4", AdminAccess: new(true)},
					{Request: "odd", Driver: "gpu.example.com", Pool: "rack4/anvil-07", Device: "GPU 5"},
				}},
			},
			ReservedFor: []resourcev1.ResourceClaimConsumerReference{
				{Resource: "pods", Name: "train-0", UID: "u-1"},
				{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "gang", UID: "u-2"},
			},
		},
	}
	want := device.Claim{
		Namespace: "default", Name: "accel", UID: "fc7e3abe",
		Results: []device.Allocated{
			{Request: "gpu/large", Device: device.Key{Driver: "gpu.example.com", Pool: "rack4/anvil-07", Device: "gpu-3"}, Class: "large-gpu"},
			{Request: "watch", Device: device.Key{Driver: "gpu.example.com", Pool: "rack4/anvil-07", Device: "gpu-4"}, Class: "monitor", AdminAccess: true},
		},
		ReservedFor: []device.PodRef{{Namespace: "default", Name: "train-0", UID: "u-1"}},
	}
	if got := ClaimView(claim); !reflect.DeepEqual(got, want) {
		t.Errorf("view of the claim:\n got %+v\nwant %+v", got, want)
	}
	if got := ClaimView(trimTwice(t, TrimClaim, claim)); !reflect.DeepEqual(got, want) {
		t.Errorf("view of the trimmed claim:\n got %+v\nwant %+v", got, want)
	}
	if got := ClaimView(&resourcev1.ResourceClaim{ObjectMeta: meta("accel")}); got.Results != nil || got.ReservedFor != nil {
		t.Errorf("a claim without allocation has %+v", got)
	}
}

func TestSliceViewTellsWhatDevicesAreAndDrawOn(t *testing.T) {
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: meta("anvil-07-gpus"),
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: new("anvil-07"),
			Pool: resourcev1.ResourcePool{Name: "anvil-07", Generation: 12, ResourceSliceCount: 2},
			Devices: []resourcev1.Device{{
				Name: "gpu-0-part-1",
				Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
					"gpu.example.com/parentUUID": {StringValue: new("GPU-5f1c")},
					"index":                      {IntValue: new(int64(1))},
				},
				Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}},
				ConsumesCounters: []resourcev1.DeviceCounterConsumption{{
					CounterSet: "gpu-0", Counters: map[string]resourcev1.Counter{
						"memory": {Value: resource.MustParse("10Gi")}, "engines": {Value: resource.MustParse("1")},
					},
				}},
			}},
		},
	}
	want := device.Slice{
		Driver: "gpu.example.com", Pool: "anvil-07", Node: "anvil-07", Generation: 12, SliceCount: 2,
		Devices: []device.Listed{{
			Name:       "gpu-0-part-1",
			Attributes: map[string]string{"gpu.example.com/parentUUID": "GPU-5f1c"},
			Consumes: []device.CounterUse{
				{Set: "gpu-0", Counter: "engines", Amount: 1}, {Set: "gpu-0", Counter: "memory", Amount: 10 << 30},
			},
		}},
	}
	if got := SliceView(slice); !reflect.DeepEqual(got, want) {
		t.Errorf("view of the slice:\n got %+v\nwant %+v", got, want)
	}
	trimmed := trimTwice(t, TrimSlice, slice)
	if got := SliceView(trimmed); !reflect.DeepEqual(got, want) {
		t.Errorf("view of the trimmed slice:\n got %+v\nwant %+v", got, want)
	}
	if len(trimmed.Spec.Devices[0].Capacity) != 0 || len(trimmed.Spec.Devices[0].Attributes) != 1 {
		t.Errorf("trimmed slice keeps what nobody reads: %+v", trimmed.Spec.Devices[0])
	}
}

// O4, O8: what a node offers of plugins' devices is read in full, trimmed or not: how
// many are listed, and how many of those may be given out.
func TestTrimNodeKeepsIdentityAndWhatItOffers(t *testing.T) {
	node := &corev1.Node{ObjectMeta: meta("vm"), Status: corev1.NodeStatus{
		Capacity: corev1.ResourceList{
			"cpu": resource.MustParse("8"), "hugepages-2Mi": resource.MustParse("0"),
			"example.com/gpu": resource.MustParse("2"), "example.com/nic": resource.MustParse("1"), "example.com/old": resource.MustParse("0"),
		},
		Allocatable: corev1.ResourceList{
			"cpu": resource.MustParse("7"), "example.com/gpu": resource.MustParse("1"), "example.com/nic": resource.MustParse("0"),
			"example.com/old": resource.MustParse("0"), "example.com/odd": resource.MustParse("3"),
		},
		Images: []corev1.ContainerImage{{Names: []string{"registry.example.com/app:1"}}},
	}}
	trimmed := trimTwice(t, TrimNode, node)
	want := map[string]device.Offer{
		"example.com/gpu": {Listed: 2, Allocatable: 1}, "example.com/nic": {Listed: 1}, "example.com/old": {}, "example.com/odd": {Allocatable: 3},
	}
	for what, read := range map[string]*corev1.Node{"whole": node, "trimmed": trimmed} {
		if got := OffersOf(read); !reflect.DeepEqual(got, want) {
			t.Errorf("the %s node offers %+v, want %+v", what, got, want)
		}
	}
	if trimmed.UID != node.UID {
		t.Errorf("the trimmed node lost its identity: %+v", trimmed)
	}
	if trimmed.Status.Images != nil || trimmed.ManagedFields != nil || len(trimmed.Status.Capacity) != 3 || len(trimmed.Status.Allocatable) != 4 {
		t.Errorf("the trimmed node keeps what nobody reads: %+v", trimmed)
	}
}
