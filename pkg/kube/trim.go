package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// The transforms below keep of each object in an informer's cache what the views
// read and nothing else: on a large cluster Pods would otherwise fill the memory.
// Each gives the same result when it is applied again, as informers may do.
var (
	_ cache.TransformFunc = TrimPod
	_ cache.TransformFunc = TrimClaim
	_ cache.TransformFunc = TrimSlice
	_ cache.TransformFunc = TrimNode
)

// identity keeps what names an object and its version, and whether it is going.
func identity(meta metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:         meta.Namespace,
		Name:              meta.Name,
		UID:               meta.UID,
		ResourceVersion:   meta.ResourceVersion,
		DeletionTimestamp: meta.DeletionTimestamp,
	}
}

// TrimPod keeps a Pod's node, phase, claims and health entries.
func TrimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	trimmed := &corev1.Pod{
		ObjectMeta: identity(pod.ObjectMeta),
		Spec:       corev1.PodSpec{NodeName: pod.Spec.NodeName, ResourceClaims: pod.Spec.ResourceClaims},
		Status: corev1.PodStatus{
			Phase:                      pod.Status.Phase,
			Conditions:                 trimPodConditions(pod.Status.Conditions),
			ResourceClaimStatuses:      pod.Status.ResourceClaimStatuses,
			ContainerStatuses:          trimStatuses(pod.Status.ContainerStatuses),
			InitContainerStatuses:      trimStatuses(pod.Status.InitContainerStatuses),
			EphemeralContainerStatuses: trimStatuses(pod.Status.EphemeralContainerStatuses),
		},
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		trimmed.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: extended.ResourceClaimName}
	}
	return trimmed, nil
}

// trimPodConditions keeps whether the containers are ready.
func trimPodConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	for _, c := range conditions {
		if c.Type == corev1.ContainersReady {
			return []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return nil
}

// trimStatuses keeps the containers that have health entries: the others say
// nothing of any device.
func trimStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	for _, status := range statuses {
		if len(status.AllocatedResourcesStatus) == 0 {
			continue
		}
		trimmed := corev1.ContainerStatus{Name: status.Name, AllocatedResourcesStatus: status.AllocatedResourcesStatus}
		if status.State.Terminated != nil {
			trimmed.State.Terminated = &corev1.ContainerStateTerminated{}
		}
		kept = append(kept, trimmed)
	}
	return kept
}

// TrimClaim keeps the classes that a claim asks for, its allocation results and
// its consumers.
func TrimClaim(object any) (any, error) {
	claim, ok := object.(*resourcev1.ResourceClaim)
	if !ok {
		return object, nil
	}
	trimmed := &resourcev1.ResourceClaim{
		ObjectMeta: identity(claim.ObjectMeta),
		Spec:       resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: trimRequests(claim.Spec.Devices.Requests)}},
		Status:     resourcev1.ResourceClaimStatus{ReservedFor: claim.Status.ReservedFor},
	}
	if claim.Status.Allocation != nil {
		results := slices.Clone(claim.Status.Allocation.Devices.Results)
		for i, r := range results {
			results[i] = resourcev1.DeviceRequestAllocationResult{
				Request: r.Request, Driver: r.Driver, Pool: r.Pool, Device: r.Device, AdminAccess: r.AdminAccess,
			}
		}
		trimmed.Status.Allocation = &resourcev1.AllocationResult{
			Devices: resourcev1.DeviceAllocationResult{Results: results},
		}
	}
	return trimmed, nil
}

func trimRequests(requests []resourcev1.DeviceRequest) []resourcev1.DeviceRequest {
	var kept []resourcev1.DeviceRequest
	for _, request := range requests {
		trimmed := resourcev1.DeviceRequest{Name: request.Name}
		if request.Exactly != nil {
			trimmed.Exactly = &resourcev1.ExactDeviceRequest{DeviceClassName: request.Exactly.DeviceClassName}
		}
		for _, sub := range request.FirstAvailable {
			trimmed.FirstAvailable = append(trimmed.FirstAvailable, resourcev1.DeviceSubRequest{Name: sub.Name, DeviceClassName: sub.DeviceClassName})
		}
		kept = append(kept, trimmed)
	}
	return kept
}

// TrimSlice keeps a slice's pool, node, and of its devices the names, string
// attributes, the driver's version and counters.
func TrimSlice(object any) (any, error) {
	slice, ok := object.(*resourcev1.ResourceSlice)
	if !ok {
		return object, nil
	}
	trimmed := &resourcev1.ResourceSlice{
		ObjectMeta: identity(slice.ObjectMeta),
		Spec:       resourcev1.ResourceSliceSpec{Driver: slice.Spec.Driver, Pool: slice.Spec.Pool, NodeName: slice.Spec.NodeName},
	}
	for _, d := range slice.Spec.Devices {
		kept := resourcev1.Device{Name: d.Name, ConsumesCounters: d.ConsumesCounters}
		for name, value := range d.Attributes {
			if value.StringValue == nil && !isDriverVersion(name) {
				continue
			}
			if kept.Attributes == nil {
				kept.Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}
			}
			kept.Attributes[name] = value
		}
		trimmed.Spec.Devices = append(trimmed.Spec.Devices, kept)
	}
	return trimmed, nil
}

// TrimNode keeps a node's identity, what it offers of each resource, whether it is ready,
// which other conditions are True, and what Sickbay wrote on it.
func TrimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	meta := identity(node.ObjectMeta)
	if note, there := node.Annotations[AnnotationIsolated]; there {
		meta.Annotations = map[string]string{AnnotationIsolated: note}
	}
	spec := corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable}
	if t := nodeTaint(node); t != nil {
		spec.Taints = []corev1.Taint{*t}
	}
	return &corev1.Node{
		ObjectMeta: meta,
		Spec:       spec,
		Status: corev1.NodeStatus{
			Capacity: trimResources(node.Status.Capacity), Allocatable: trimResources(node.Status.Allocatable),
			Conditions: trimConditions(node.Status.Conditions),
		},
	}, nil
}

// trimResources keeps the extended resources.
func trimResources(all corev1.ResourceList) corev1.ResourceList {
	var kept corev1.ResourceList
	for name, quantity := range all {
		if !extended(name) {
			continue
		}
		if kept == nil {
			kept = corev1.ResourceList{}
		}
		kept[name] = quantity
	}
	return kept
}

// trimConditions keeps whether the node is ready, and since when, and the types of other
// conditions that are True.
func trimConditions(conditions []corev1.NodeCondition) []corev1.NodeCondition {
	var kept []corev1.NodeCondition
	for _, c := range conditions {
		switch {
		case c.Type == corev1.NodeReady:
			kept = append(kept, corev1.NodeCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime})
		case c.Status == corev1.ConditionTrue:
			kept = append(kept, corev1.NodeCondition{Type: c.Type, Status: c.Status})
		}
	}
	return kept
}
