package kube

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// The views below turn Kubernetes objects into what pkg/device reasons about.
// They read only what the transforms of trim.go keep, so an object from an
// informer and one read live give the same view.

// PodView reads a Pod's health entries and the claims they refer to.
func PodView(pod *corev1.Pod) device.Pod {
	view := device.Pod{
		Ref:             device.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)},
		Node:            pod.Spec.NodeName,
		ResourceVersion: device.Version(pod.ResourceVersion),
		Terminal:        pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
		Pending:         pod.Status.Phase == corev1.PodPending,
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.ContainersReady {
			view.ContainersReady = condition.Status == corev1.ConditionTrue
		}
	}
	for _, claim := range pod.Spec.ResourceClaims {
		view.Claims = append(view.Claims, device.PodClaim{Name: claim.Name, Claim: claimName(pod, claim)})
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		view.ExtendedClaim = extended.ResourceClaimName
	}
	// The kubelet writes regular containers only (1.36, 1.37); the API has the
	// field on all three lists.
	for _, list := range [][]corev1.ContainerStatus{
		pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses,
	} {
		for _, status := range list {
			view.Containers = append(view.Containers, containerView(status))
		}
	}
	return view
}

// claimName finds the claim behind an entry of spec.resourceClaims: named there,
// or generated from a template and named in the status. Empty until then, and
// where no claim was needed.
func claimName(pod *corev1.Pod, claim corev1.PodResourceClaim) string {
	if claim.ResourceClaimName != nil {
		return *claim.ResourceClaimName
	}
	for _, status := range pod.Status.ResourceClaimStatuses {
		if status.Name == claim.Name && status.ResourceClaimName != nil {
			return *status.ResourceClaimName
		}
	}
	return ""
}

// containerView reads one container's entries. A container that waits, between
// two crashes for instance, still has its entries kept by the kubelet at each
// sync; only a terminated one's are left as they were.
func containerView(status corev1.ContainerStatus) device.Container {
	container := device.Container{Name: status.Name, Terminated: status.State.Terminated != nil}
	for _, resource := range status.AllocatedResourcesStatus {
		for _, reading := range resource.Resources {
			entry := device.Entry{Name: string(resource.Name), ResourceID: string(reading.ResourceID)}
			if reading.Message != nil {
				entry.Message = *reading.Message
			}
			health, err := device.ParseHealth(string(reading.Health))
			if err != nil {
				// A value of a later Kubernetes. What it means isn't known here.
				health = device.Unknown
			}
			entry.Health = health
			container.Entries = append(container.Entries, entry)
		}
	}
	return container
}

// ClaimView reads a claim's allocation and who may use it. Results whose names
// the API server of today would refuse are left out.
func ClaimView(claim *resourcev1.ResourceClaim) device.Claim {
	view := device.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID)}
	if claim.Status.Allocation != nil {
		for _, result := range claim.Status.Allocation.Devices.Results {
			key, err := device.NewDRA(result.Driver, result.Pool, result.Device)
			if err != nil {
				continue
			}
			view.Results = append(view.Results, device.Allocated{
				Request:     result.Request,
				Device:      key,
				Class:       requestedClass(claim.Spec.Devices.Requests, result.Request),
				AdminAccess: result.AdminAccess != nil && *result.AdminAccess,
			})
		}
	}
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup == "" && consumer.Resource == "pods" {
			view.ReservedFor = append(view.ReservedFor, device.PodRef{
				Namespace: claim.Namespace, Name: consumer.Name, UID: string(consumer.UID),
			})
		}
	}
	return view
}

// ClassView reads what a DeviceClass demands. A selector that isn't CEL, which
// only a later API has, counts as one that can't be judged.
func ClassView(class *resourcev1.DeviceClass) device.Class {
	var selectors []string
	for _, selector := range class.Spec.Selectors {
		expression := ""
		if selector.CEL != nil {
			expression = selector.CEL.Expression
		}
		selectors = append(selectors, expression)
	}
	return device.ReadClass(class.Name, selectors)
}

// requestedClass is the DeviceClass that a result's request names. A result of a
// prioritised list names "request/subrequest".
func requestedClass(requests []resourcev1.DeviceRequest, result string) string {
	name, sub, _ := strings.Cut(result, "/")
	for _, request := range requests {
		switch {
		case request.Name != name:
		case sub == "" && request.Exactly != nil:
			return request.Exactly.DeviceClassName
		case sub != "":
			for _, first := range request.FirstAvailable {
				if first.Name == sub {
					return first.DeviceClassName
				}
			}
		}
	}
	return ""
}

// SliceView reads a slice's pool and devices.
func SliceView(slice *resourcev1.ResourceSlice) device.Slice {
	view := device.Slice{
		Driver:     slice.Spec.Driver,
		Pool:       slice.Spec.Pool.Name,
		Generation: slice.Spec.Pool.Generation,
		SliceCount: slice.Spec.Pool.ResourceSliceCount,
	}
	if slice.Spec.NodeName != nil {
		view.Node = *slice.Spec.NodeName
	}
	for _, d := range slice.Spec.Devices {
		view.Devices = append(view.Devices, device.Listed{
			Name: d.Name, Attributes: stringAttributes(d), Consumes: counterUses(d), DriverVersion: driverVersion(d),
		})
	}
	return view
}

func stringAttributes(d resourcev1.Device) map[string]string {
	var attributes map[string]string
	for name, value := range d.Attributes {
		if value.StringValue == nil {
			continue
		}
		if attributes == nil {
			attributes = map[string]string{}
		}
		attributes[string(name)] = *value.StringValue
	}
	return attributes
}

// isDriverVersion tells whether an attribute is the version of a driver, as NVIDIA's
// publishes it (dra-driver-nvidia-gpu, deviceinfo.go) and others do after it.
func isDriverVersion(name resourcev1.QualifiedName) bool {
	text := string(name)
	return text == "driverVersion" || strings.HasSuffix(text, "/driverVersion")
}

func driverVersion(d resourcev1.Device) string {
	for name, value := range d.Attributes {
		switch {
		case !isDriverVersion(name):
		case value.VersionValue != nil:
			return *value.VersionValue
		case value.StringValue != nil:
			return *value.StringValue
		}
	}
	return ""
}

// counterUses lists what a device draws from shared counters, sorted. Fractions
// of a counter's unit are rounded up.
func counterUses(d resourcev1.Device) []device.CounterUse {
	var uses []device.CounterUse
	for _, consumption := range d.ConsumesCounters {
		for name, counter := range consumption.Counters {
			uses = append(uses, device.CounterUse{Set: consumption.CounterSet, Counter: name, Amount: counter.Value.Value()})
		}
	}
	slices.SortFunc(uses, func(a, b device.CounterUse) int {
		return cmp.Or(cmp.Compare(a.Set, b.Set), cmp.Compare(a.Counter, b.Counter))
	})
	return uses
}

// OffersOf reads what a node offers of each extended resource. One whose plugin is
// gone stays there with zero.
func OffersOf(node *corev1.Node) map[string]device.Offer {
	offers := map[string]device.Offer{}
	for name, quantity := range node.Status.Capacity {
		if extended(name) {
			offers[string(name)] = device.Offer{Listed: quantity.Value()}
		}
	}
	for name, quantity := range node.Status.Allocatable {
		if extended(name) {
			offer := offers[string(name)]
			offer.Allocatable = quantity.Value()
			offers[string(name)] = offer
		}
	}
	return offers
}

// extended tells whether a resource is one that a device plugin may offer: its name
// has a domain.
func extended(name corev1.ResourceName) bool { return strings.Contains(string(name), "/") }
