package simnode

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Place makes a claim "<name>" for given devices of a node, allocates it,
// creates a Pod "<name>" with it on that node and waits until the Pod runs.
//
// It does the scheduler's part itself, because a bench that needs a thousand
// holders of known devices would otherwise measure the scheduler first. It asks
// nobody whether a device is free, tainted or there at all.
func (c *Cluster) Place(ctx context.Context, namespace, name, nodeName string, devices ...string) (*corev1.Pod, error) {
	var results []resourceapi.DeviceRequestAllocationResult
	for _, device := range devices {
		_, p, d, err := c.device(nodeName, device)
		if err != nil {
			return nil, err
		}
		results = append(results, resourceapi.DeviceRequestAllocationResult{
			Request: "gpu", Driver: p.spec.Driver, Pool: p.spec.Name, Device: d.spec.Name,
		})
	}
	pod, err := c.place(ctx, namespace, name, nodeName, results)
	if err != nil {
		return nil, fmt.Errorf("place Pod %s/%s on node %s: %w", namespace, name, nodeName, err)
	}
	return pod, nil
}

func (c *Cluster) place(ctx context.Context, namespace, name, nodeName string, results []resourceapi.DeviceRequestAllocationResult) (*corev1.Pod, error) {
	claims, pods := c.client.ResourceV1().ResourceClaims(namespace), c.client.CoreV1().Pods(namespace)
	claim, pod := holder(namespace, name, nodeName, c.opts.Driver, len(results))
	claim, err := claims.Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	created, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	allocate(claim, created, results)
	if _, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return nil, err
	}
	return c.AwaitPod(ctx, namespace, name, Running)
}

// holder is a claim for so many devices of a class and the Pod on a node that has it.
func holder(namespace, name, nodeName, class string, devices int) (*resourceapi.ResourceClaim, *corev1.Pod) {
	pod := MakePod(namespace, name).Claim("accel", name).Obj()
	pod.Spec.NodeName = nodeName
	return MakeClaim(namespace, name).Request("gpu", class, int64(devices)).Obj(), pod
}

// allocate writes into a claim what the scheduler writes.
func allocate(claim *resourceapi.ResourceClaim, pod *corev1.Pod, results []resourceapi.DeviceRequestAllocationResult) {
	claim.Status.Allocation = &resourceapi.AllocationResult{
		Devices: resourceapi.DeviceAllocationResult{Results: results},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{pod.Spec.NodeName},
			}},
		}}},
	}
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
}
