package simnode

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Rendered is what a node and the Pod that holds all its DRA devices are in an API
// server. What an API server adds by itself is missing: defaults, and of the
// metadata everything but names, labels, owners, the UIDs that others refer to, and
// of a slice's name the random end.
type Rendered struct {
	Node   *corev1.Node
	Slices []*resourceapi.ResourceSlice
	Claim  *resourceapi.ResourceClaim
	Pod    *corev1.Pod
}

// Render gives what Add and one Place for all devices would write, without an API
// server: for benches of more nodes than one can be filled with. All devices are
// Healthy. version is the kubelet's, "v1.37.2"; nth tells the nodes of one fleet
// apart.
func Render(spec Node, nth int, version, namespace, holderName string) Rendered {
	n := newNode(spec, DefaultDriver)
	n.uid, n.address = renderedUID(1, nth), fmt.Sprintf("10.200.%d.%d", nth/250%250, nth%250+1)
	object := n.object()
	object.UID, object.Status = n.uid, n.status(version)
	all := Rendered{Node: object}

	var results []resourceapi.DeviceRequestAllocationResult
	var held []allocation
	claimUID := renderedUID(2, nth)
	for _, p := range n.pools {
		all.Slices = append(all.Slices, p.slices(n)...)
		for _, d := range p.devices {
			results = append(results, resourceapi.DeviceRequestAllocationResult{
				Request: "gpu", Driver: p.spec.Driver, Pool: p.spec.Name, Device: d.spec.Name,
			})
			held = append(held, allocation{
				claimUID: claimUID, request: "gpu", driver: p.spec.Driver, pool: p.spec.Name, device: d.spec.Name,
			})
		}
	}
	all.Claim, all.Pod = holder(namespace, holderName, spec.Name, DefaultDriver, len(results))
	all.Claim.UID, all.Pod.UID = claimUID, renderedUID(3, nth)
	allocate(all.Claim, all.Pod, results)

	running := &pod{
		key: types.NamespacedName{Namespace: namespace, Name: holderName}, uid: all.Pod.UID, node: n, object: all.Pod,
		started: metav1.Now(), readySince: metav1.Now(), address: fmt.Sprintf("10.128.%d.%d", nth/250%250, nth%250+1),
		admitted: true, phase: corev1.PodRunning,
		claims: map[string][]allocation{all.Pod.Spec.ResourceClaims[0].Name: held}, containers: map[string]*container{},
	}
	for i, spec := range all.Pod.Spec.Containers {
		running.containers[spec.Name] = &container{
			id:    fmt.Sprintf("simnode://%s-%d", all.Pod.UID, i),
			state: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}
	}
	status := running.status()
	order := rand.New(rand.NewPCG(uint64(nth), 1))
	shuffle(order, status)
	all.Pod.Status = *status
	return all
}

// Rewrite puts a Pod's health entries into another order, which is all that differs
// in a status write that says nothing new.
func Rewrite(status *corev1.PodStatus, order *rand.Rand) { shuffle(order, status) }

func renderedUID(kind, nth int) types.UID {
	return types.UID(fmt.Sprintf("%08x-0000-4%03x-8000-%012x", nth, kind, nth))
}
