package doctor

// This file finds out by behaviour what no API tells: whether the scheduler and the
// controller manager act on DeviceTaintRules. It is the one part that writes.

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sickbay-dev/sickbay/pkg/kube"
)

const (
	// probeDriver is the driver of the device that the probe offers; there is none of
	// that name, so nothing of it can be prepared or run.
	probeDriver = "doctor.sickbay.dev"
	probeTaint  = "doctor.sickbay.dev/probe"
	// probePrefix is what the names of all its objects begin with.
	probePrefix = "sickbay-doctor-"
	// neverMet is a condition that the device waits for before a Pod is bound to a
	// node: the scheduler allocates it, and no kubelet ever hears of the Pod.
	neverMet = "doctor.sickbay.dev/never"
	// settles bounds each wait for scheduler or controller manager.
	settles = 10 * time.Second
	// probeWithin bounds all of them.
	probeWithin = 5 * settles
	// makesWithin bounds each call that makes something, caller or not.
	makesWithin = 5 * time.Second
	// cleansWithin bounds the removal of what a probe made, which goes on when the
	// caller has given up.
	cleansWithin = 10 * time.Second
)

// ProbeCheck names the findings that say what Probe couldn't do.
const ProbeCheck = "kubernetes/probe"

// Probe makes, in a namespace, a device that no driver has, a rule for it, and a Pod
// that asks for it and is never bound to a node; sees what scheduler and controller
// manager do; and removes all of it.
func (c Cluster) Probe(namespace string) Check {
	return Check{Name: ProbeCheck, Limit: probeWithin, Remedy: "Do as the answer says: whoever runs it has to be let make and delete these objects, in a namespace that --probe-namespace names.", Lost: "whether scheduler and controller manager act on DeviceTaintRules",
		Ask: func(ctx context.Context) (findings []Finding, err error) {
			found, err := kube.Discover(ctx, c.Kubernetes.Discovery())
			if err != nil {
				return nil, err
			}
			if !found.CanMark() {
				return nil, nil // kubernetes/taint-rules says so
			}
			p := &probe{cluster: c, namespace: namespace, rules: found, name: probePrefix + strings.ToLower(rand.Text()[:8])}
			defer func() {
				clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleansWithin)
				defer cancel()
				err = errors.Join(err, p.clean(clean))
			}()
			return p.run(ctx)
		}}
}

type probe struct {
	cluster   Cluster
	namespace string
	name      string
	rules     kube.Capabilities
	// binds is set where the API server dropped what keeps the Pod from a node.
	binds bool
	// made is what has to be removed, the last first.
	made []func(context.Context) error
}

func (p *probe) run(ctx context.Context) ([]Finding, error) {
	findings, err := p.leftovers(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.offer(ctx); err != nil {
		return findings, err
	}
	acting, err := p.controllerManager(ctx)
	if err != nil {
		return findings, err
	}
	findings = append(findings, acting)
	scheduling, err := p.scheduler(ctx)
	if err != nil {
		return findings, err
	}
	return append(findings, scheduling), nil
}

// leftovers looks for what probes left behind that were killed. They do no harm but
// to be listed.
func (p *probe) leftovers(ctx context.Context) ([]Finding, error) {
	slices, err := p.cluster.Kubernetes.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: "spec.driver=" + probeDriver})
	if err != nil {
		return nil, fmt.Errorf("look for what earlier probes left behind: %w", err)
	}
	rules, err := p.cluster.Dynamic.Resource(p.rules.TaintRules).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("look for what earlier probes left behind: %w", err)
	}
	var left []string
	note := func(object metav1.Object) {
		if time.Since(object.GetCreationTimestamp().Time) > 2*probeWithin {
			left = append(left, object.GetName())
		}
	}
	for i := range slices.Items {
		note(&slices.Items[i])
	}
	for i := range rules.Items {
		if strings.HasPrefix(rules.Items[i].GetName(), probePrefix) {
			note(&rules.Items[i])
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	return []Finding{{
		Check: "kubernetes/probe/leftovers", State: Degraded, Found: "earlier probes were killed: " + names(left), Needed: "nothing of earlier probes",
		Without: "a device that is none, or a rule for it, is listed for each",
		Remedy:  "Delete the ResourceSlices, DeviceClasses and DeviceTaintRules whose names begin so, and the ResourceClaims and Pods of these names in the namespace where it was tried.",
	}}, nil
}

// make makes something, and notes how to remove it. What makes it isn't cut off when the
// caller gives up: a call that the API server has taken makes its object whether or not
// somebody waits for the answer. What isn't known to be refused is removed, too.
func (p *probe) make(ctx context.Context, what string, create, remove func(context.Context) error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("make %s for the probe: %w", what, ctx.Err())
	}
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), makesWithin)
	defer cancel()
	err := create(whole)
	if err == nil || !refused(err) {
		p.made = append(p.made, func(ctx context.Context) error {
			if err := remove(ctx); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("remove %s of the probe (do it by hand): %w", what, err)
			}
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("make %s for the probe: %w", what, err)
	}
	return nil
}

// refused tells that the API server said no to a call, so that it made nothing.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= 400 && status.Status().Code < 500 && !apierrors.IsTooManyRequests(err)
}

func (p *probe) clean(ctx context.Context) error {
	var failures []error
	for i := len(p.made) - 1; i >= 0; i-- {
		failures = append(failures, p.made[i](ctx))
	}
	return errors.Join(failures...)
}

// offer makes the device and its class.
func (p *probe) offer(ctx context.Context) error {
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: p.name},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: probeDriver, AllNodes: ptr(true),
			Pool: resourcev1.ResourcePool{Name: p.name, Generation: 1, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{
				Name: "probe", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"probe": {StringValue: &p.name}},
				BindingConditions: []string{neverMet}, BindingFailureConditions: []string{neverMet + "-failed"},
			}},
		},
	}
	slices := p.cluster.Kubernetes.ResourceV1().ResourceSlices()
	err := p.make(ctx, "ResourceSlice "+p.name, func(ctx context.Context) error {
		made, err := slices.Create(ctx, slice, metav1.CreateOptions{})
		p.binds = err == nil && len(made.Spec.Devices[0].BindingConditions) == 0
		return err
	}, func(ctx context.Context) error { return slices.Delete(ctx, p.name, metav1.DeleteOptions{}) })
	if err != nil {
		return err
	}
	class := &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: p.name},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
			// CEL doesn't see the pool. Another probe's device, or one that was left over,
			// has no taint of this one's.
			Expression: fmt.Sprintf("device.driver == %[1]q && device.attributes[%[1]q].probe == %[2]q", probeDriver, p.name),
		}}}},
	}
	classes := p.cluster.Kubernetes.ResourceV1().DeviceClasses()
	return p.make(ctx, "DeviceClass "+p.name, func(ctx context.Context) error {
		_, err := classes.Create(ctx, class, metav1.CreateOptions{})
		return err
	}, func(ctx context.Context) error { return classes.Delete(ctx, p.name, metav1.DeleteOptions{}) })
}

// rule makes a rule for the device, and returns how to remove it.
func (p *probe) rule(ctx context.Context, suffix string, effect resourcev1.DeviceTaintEffect) (name string, err error) {
	name = p.name + suffix
	rule := &resourcev1.DeviceTaintRule{
		TypeMeta:   metav1.TypeMeta{APIVersion: p.rules.TaintRules.GroupVersion().String(), Kind: "DeviceTaintRule"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: ptr(probeDriver), Pool: ptr(p.name), Device: ptr("probe")},
			Taint:          resourcev1.DeviceTaint{Key: probeTaint, Effect: effect},
		},
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(rule)
	if err != nil {
		return "", fmt.Errorf("encode a DeviceTaintRule: %w", err)
	}
	delete(object, "status")
	rules := p.cluster.Dynamic.Resource(p.rules.TaintRules)
	return name, p.make(ctx, "DeviceTaintRule "+name, func(ctx context.Context) error {
		_, err := rules.Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
		return err
	}, func(ctx context.Context) error { return rules.Delete(ctx, name, metav1.DeleteOptions{}) })
}

// controllerManager looks whether it takes note of a rule: with effect None it says
// in a condition what NoExecute would evict.
func (p *probe) controllerManager(ctx context.Context) (Finding, error) {
	f := Finding{Check: "kubernetes/controller-manager", State: OK, Found: "it takes note of a DeviceTaintRule", Needed: "the gate DRADeviceTaintRules"}
	name, err := p.rule(ctx, "-note", resourcev1.DeviceTaintEffectNone)
	if err != nil {
		return f, err
	}
	rules := p.cluster.Dynamic.Resource(p.rules.TaintRules)
	noted, err := within(ctx, settles, func(ctx context.Context) (bool, error) {
		rule, err := rules.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		conditions, _, err := unstructured.NestedSlice(rule.Object, "status", "conditions")
		return len(conditions) > 0, err
	})
	if err != nil {
		return f, fmt.Errorf("wait for the controller manager: %w", err)
	}
	if !noted {
		f.State, f.Found = Degraded, fmt.Sprintf("it takes no note of a DeviceTaintRule within %s", settles)
		f.Without = "a rule with NoExecute evicts nobody, and none tells whom it would evict; marks keep new Pods away all the same if the scheduler obeys them"
		f.Remedy = howToServeRules
	}
	return f, nil
}

// scheduler looks whether it keeps a tainted device from a claim. That it would have
// given the device without the taint is tried as well: a scheduler that doesn't
// answer at all looks the same otherwise.
func (p *probe) scheduler(ctx context.Context) (Finding, error) {
	f := Finding{Check: "kubernetes/scheduler", State: OK, Found: "it keeps a tainted device from a claim, and gives it without the taint", Needed: "the gates DRADeviceTaints and DRADeviceTaintRules"}
	if p.binds {
		f.State, f.Found = Unknown, "not tried: without the gate DRADeviceBindingConditions the probe's Pod would be bound to a node"
		f.Without, f.Remedy = "whether marks keep anything out isn't known", "Switch that gate on, which it is by default."
		return f, nil
	}
	rule, err := p.rule(ctx, "-keep-off", resourcev1.DeviceTaintEffectNoSchedule)
	if err != nil {
		return f, err
	}
	if err := p.ask(ctx); err != nil {
		return f, err
	}
	given, err := within(ctx, settles, func(ctx context.Context) (bool, error) {
		given, refused, err := p.decided(ctx)
		if refused {
			err = errRefused
		}
		return given, err
	})
	if given {
		f.State, f.Found = Missing, "it gives a device to a claim in spite of a DeviceTaintRule on it"
		f.Without = "marks keep nothing out: quarantined devices are given to new Pods, and cases believe that their mark is in force"
		f.Remedy = howToServeRules
		return f, nil
	}
	if err != nil && !errors.Is(err, errRefused) {
		return f, fmt.Errorf("wait for the scheduler: %w", err)
	}
	if err == nil {
		f.State, f.Found = Unknown, fmt.Sprintf("it didn't look at the probe's Pod within %s", settles)
		f.Without, f.Remedy = "whether marks keep anything out isn't known", "See that the scheduler runs, and run it again."
		return f, nil
	}
	if err := p.cluster.Dynamic.Resource(p.rules.TaintRules).Delete(ctx, rule, metav1.DeleteOptions{}); err != nil {
		return f, fmt.Errorf("remove DeviceTaintRule %s of the probe: %w", rule, err)
	}
	given, err = within(ctx, settles, func(ctx context.Context) (bool, error) {
		given, _, err := p.decided(ctx)
		return given, err
	})
	if err != nil {
		return f, fmt.Errorf("wait for the scheduler: %w", err)
	}
	if !given {
		f.State, f.Found = Unknown, fmt.Sprintf("it gives the probe's device to nobody, with the taint or %s after it was removed", settles)
		f.Without = "whether marks keep anything out isn't known"
		f.Remedy = "See in the events of the cluster's Pods whether the scheduler allocates claims at all; a cluster without a schedulable node gives the same answer."
	}
	return f, nil
}

var errRefused = errors.New("the scheduler has no device for the probe")

// ask makes a claim for the device and a Pod that wants it.
func (p *probe) ask(ctx context.Context) error {
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: p.name, Namespace: p.namespace},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "probe", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: p.name},
		}}}},
	}
	claims := p.cluster.Kubernetes.ResourceV1().ResourceClaims(p.namespace)
	err := p.make(ctx, "ResourceClaim "+p.namespace+"/"+p.name, func(ctx context.Context) error {
		_, err := claims.Create(ctx, claim, metav1.CreateOptions{})
		return err
	}, func(ctx context.Context) error { return claims.Delete(ctx, p.name, metav1.DeleteOptions{}) })
	if err != nil {
		return err
	}
	pods := p.cluster.Kubernetes.CoreV1().Pods(p.namespace)
	return p.make(ctx, "Pod "+p.namespace+"/"+p.name, func(ctx context.Context) error {
		_, err := pods.Create(ctx, p.pod(), metav1.CreateOptions{})
		return err
	}, func(ctx context.Context) error {
		return pods.Delete(ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0))})
	})
}

// pod asks for the device and for nothing else that could keep it from a node. It
// would be let in under the Pod Security Standard "restricted".
func (p *probe) pod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.name, Namespace: p.namespace},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: ptr(false),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr(true), RunAsUser: ptr(int64(65532)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "probe", ResourceClaimName: ptr(p.name)}},
			Containers: []corev1.Container{{
				Name: "never-started", Image: "registry.k8s.io/pause:3.10",
				Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "probe"}}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}

// decided tells what the scheduler did: whether the device was given to the claim,
// or the Pod was turned away for want of one.
func (p *probe) decided(ctx context.Context) (given, refused bool, err error) {
	claim, err := p.cluster.Kubernetes.ResourceV1().ResourceClaims(p.namespace).Get(ctx, p.name, metav1.GetOptions{})
	if err != nil {
		return false, false, err
	}
	if claim.Status.Allocation != nil {
		return true, false, nil
	}
	pod, err := p.cluster.Kubernetes.CoreV1().Pods(p.namespace).Get(ctx, p.name, metav1.GetOptions{})
	if err != nil {
		return false, false, err
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable {
			return false, true, nil
		}
	}
	return false, false, nil
}

// within polls until it is so, an error says otherwise, or the time is over, which
// is no error.
func within(ctx context.Context, limit time.Duration, so func(context.Context) (bool, error)) (bool, error) {
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, limit, true, func(context.Context) (bool, error) {
		return so(ctx) // a call under way isn't cut off at the limit, to be taken for a failure
	})
	switch {
	case err == nil:
		return true, nil
	case wait.Interrupted(err) && ctx.Err() == nil:
		return false, nil
	}
	return false, err
}

func ptr[T any](v T) *T { return &v }
