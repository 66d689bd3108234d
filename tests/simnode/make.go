package simnode

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodBuilder builds a Pod for a test.
type PodBuilder struct{ pod corev1.Pod }

// MakePod begins a Pod with one container "main", a grace period of one second
// and no tolerations but the API server's.
func MakePod(namespace, name string) *PodBuilder {
	grace, mount := int64(1), false
	return &PodBuilder{pod: corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			AutomountServiceAccountToken:  &mount,
			Containers:                    []corev1.Container{{Name: "main", Image: "example.com/work:1"}},
		},
	}}
}

// Container adds a container; what follows is for it.
func (b *PodBuilder) Container(name string) *PodBuilder {
	b.pod.Spec.Containers = append(b.pod.Spec.Containers, corev1.Container{Name: name, Image: "example.com/work:1"})
	return b
}

// Claim lets the Pod, as name, and the current container use an existing
// ResourceClaim.
func (b *PodBuilder) Claim(name, claim string) *PodBuilder {
	return b.claim(corev1.PodResourceClaim{Name: name, ResourceClaimName: &claim})
}

// ClaimTemplate lets the Pod, as name, and the current container use a claim of
// their own, made from a ResourceClaimTemplate.
func (b *PodBuilder) ClaimTemplate(name, template string) *PodBuilder {
	return b.claim(corev1.PodResourceClaim{Name: name, ResourceClaimTemplateName: &template})
}

func (b *PodBuilder) claim(claim corev1.PodResourceClaim) *PodBuilder {
	b.pod.Spec.ResourceClaims = append(b.pod.Spec.ResourceClaims, claim)
	return b.Uses(claim.Name, "")
}

// Uses lets the current container use a claim that the Pod already has, or only
// one request of it. A container that Claim gave the whole claim to and that is
// to have one request is narrowed to it.
func (b *PodBuilder) Uses(claim, request string) *PodBuilder {
	container := b.current()
	for i, used := range container.Resources.Claims {
		if used.Name == claim && used.Request == "" {
			container.Resources.Claims[i].Request = request
			return b
		}
	}
	container.Resources.Claims = append(container.Resources.Claims, corev1.ResourceClaim{Name: claim, Request: request})
	return b
}

// Resource lets the current container ask for a device plugin's devices or any
// other resource.
func (b *PodBuilder) Resource(name corev1.ResourceName, count int64) *PodBuilder {
	container := b.current()
	if container.Resources.Limits == nil {
		container.Resources.Limits = corev1.ResourceList{}
	}
	container.Resources.Limits[name] = *resource.NewQuantity(count, resource.DecimalSI)
	return b
}

// OnNode lets only that node run the Pod; the scheduler still places it.
func (b *PodBuilder) OnNode(name string) *PodBuilder {
	b.pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: name}
	return b
}

// Label, Annotation and OwnedBy set metadata.
func (b *PodBuilder) Label(key, value string) *PodBuilder {
	metav1.SetMetaDataLabel(&b.pod.ObjectMeta, key, value)
	return b
}

// Annotation sets an annotation.
func (b *PodBuilder) Annotation(key, value string) *PodBuilder {
	metav1.SetMetaDataAnnotation(&b.pod.ObjectMeta, key, value)
	return b
}

// OwnedBy adds an owner reference.
func (b *PodBuilder) OwnedBy(owner metav1.OwnerReference) *PodBuilder {
	b.pod.OwnerReferences = append(b.pod.OwnerReferences, owner)
	return b
}

// Restart sets the restart policy. Default Always.
func (b *PodBuilder) Restart(policy corev1.RestartPolicy) *PodBuilder {
	b.pod.Spec.RestartPolicy = policy
	return b
}

// StopsAfter makes the containers take that long to end, in whole seconds of
// grace and at once if killed.
func (b *PodBuilder) StopsAfter(d time.Duration) *PodBuilder {
	grace := int64((d + time.Second - 1) / time.Second)
	b.pod.Spec.TerminationGracePeriodSeconds = &grace
	return b.Annotation(StopAfterAnnotation, d.String())
}

// Tolerate adds a toleration.
func (b *PodBuilder) Tolerate(toleration corev1.Toleration) *PodBuilder {
	b.pod.Spec.Tolerations = append(b.pod.Spec.Tolerations, toleration)
	return b
}

// Obj is the Pod.
func (b *PodBuilder) Obj() *corev1.Pod { return b.pod.DeepCopy() }

func (b *PodBuilder) current() *corev1.Container {
	return &b.pod.Spec.Containers[len(b.pod.Spec.Containers)-1]
}

// ClaimBuilder builds a ResourceClaim or ResourceClaimTemplate for a test.
type ClaimBuilder struct {
	meta metav1.ObjectMeta
	spec resourceapi.ResourceClaimSpec
}

// MakeClaim begins a claim without requests.
func MakeClaim(namespace, name string) *ClaimBuilder {
	return &ClaimBuilder{meta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// Request asks for a number of devices of a class; what follows is for it.
func (b *ClaimBuilder) Request(name, class string, count int64) *ClaimBuilder {
	b.spec.Devices.Requests = append(b.spec.Devices.Requests, resourceapi.DeviceRequest{
		Name: name,
		Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
		},
	})
	return b
}

// All turns the request into one for every matching device of a node.
func (b *ClaimBuilder) All() *ClaimBuilder {
	request := b.current()
	request.AllocationMode, request.Count = resourceapi.DeviceAllocationModeAll, 0
	return b
}

// WithUUID narrows the request to the device of a driver with that UUID.
func (b *ClaimBuilder) WithUUID(driver, uuid string) *ClaimBuilder {
	return b.Where(fmt.Sprintf("device.attributes[%q].uuid == %q", driver, uuid))
}

// Where narrows the request by a CEL expression.
func (b *ClaimBuilder) Where(expression string) *ClaimBuilder {
	b.current().Selectors = append(b.current().Selectors, resourceapi.DeviceSelector{
		CEL: &resourceapi.CELDeviceSelector{Expression: expression},
	})
	return b
}

// AdminAccess asks to share devices that are in use; the namespace needs the
// label resource.kubernetes.io/admin-access: "true".
func (b *ClaimBuilder) AdminAccess() *ClaimBuilder {
	admin := true
	b.current().AdminAccess = &admin
	return b
}

// Tolerate lets the request have devices with a taint.
func (b *ClaimBuilder) Tolerate(toleration resourceapi.DeviceToleration) *ClaimBuilder {
	b.current().Tolerations = append(b.current().Tolerations, toleration)
	return b
}

// Obj is the ResourceClaim.
func (b *ClaimBuilder) Obj() *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{ObjectMeta: *b.meta.DeepCopy(), Spec: *b.spec.DeepCopy()}
}

// Template is a ResourceClaimTemplate of that name for such claims.
func (b *ClaimBuilder) Template() *resourceapi.ResourceClaimTemplate {
	return &resourceapi.ResourceClaimTemplate{
		ObjectMeta: *b.meta.DeepCopy(), Spec: resourceapi.ResourceClaimTemplateSpec{Spec: *b.spec.DeepCopy()},
	}
}

func (b *ClaimBuilder) current() *resourceapi.ExactDeviceRequest {
	return b.spec.Devices.Requests[len(b.spec.Devices.Requests)-1].Exactly
}
