package kube

// This file is the attempt's claim: how it is made, what it was given, and why it has
// nothing yet.

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/ptr"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// claimRequest is the name of the claim's one request, and of the claim in its Pods.
const claimRequest = "device"

// ensureClaim makes the claim if there is none.
func (p *attempt) ensureClaim(ctx context.Context) error {
	if p.claim != nil {
		return p.checkClaim()
	}
	if err := p.mayMake(); err != nil {
		return err
	}
	slices, err := p.slices(ctx)
	if err != nil {
		return err
	}
	pinned, err := pin(slices, p.Device, p.Node)
	if err != nil {
		return err
	}
	claim, err := newClaim(p.meta(""), p.Tend, p.settings, pinned.expression)
	if err != nil {
		return err
	}
	p.claim, err = p.client.ResourceV1().ResourceClaims(p.namespace).Create(ctx, claim, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return refuse("ResourceClaim %s/%s is there already, and not as sickbay labels it; delete it, and it is made anew", p.namespace, claim.Name)
	}
	return p.sort(err, "create", "ResourceClaim", claim.Name)
}

// newClaim asks for one device, for that device, and for its mark of this epoch to be
// tolerated. Any other mark and any taint that isn't listed keeps it out.
func newClaim(meta metav1.ObjectMeta, t quarantine.Tend, settings policy.ProbeSettings, expression string) (*resourcev1.ResourceClaim, error) {
	if len(settings.Tolerate) >= resourcev1.DeviceTolerationsMaxLength {
		return nil, refuse("%d keys of taints are to be tolerated, and a claim takes %d beside the mark's; list fewer in the policy", len(settings.Tolerate), resourcev1.DeviceTolerationsMaxLength-1)
	}
	tolerations := []resourcev1.DeviceToleration{{
		Key: TaintKey, Operator: resourcev1.DeviceTolerationOpEqual, Value: strconv.FormatInt(t.Epoch, 10), Effect: resourcev1.DeviceTaintEffectNoSchedule,
	}}
	for _, key := range settings.Tolerate {
		tolerations = append(tolerations, resourcev1.DeviceToleration{Key: key, Operator: resourcev1.DeviceTolerationOpExists})
	}
	return &resourcev1.ResourceClaim{
		ObjectMeta: meta,
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: claimRequest,
			Exactly: &resourcev1.ExactDeviceRequest{
				DeviceClassName: cmp.Or(settings.Class, t.Device.Driver),
				AllocationMode:  resourcev1.DeviceAllocationModeExactCount, Count: 1,
				Selectors:   []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}},
				Tolerations: tolerations,
			},
		}}}},
	}, nil
}

// checkClaim refuses a claim that isn't the one that was made.
func (p *attempt) checkClaim() error {
	c := p.claim
	p.tended.Claim = c.Name
	name := c.Namespace + "/" + c.Name
	if c.DeletionTimestamp != nil {
		return refuse("ResourceClaim %s is being deleted, and not by this attempt; it is made anew once it is gone", name)
	}
	requests := c.Spec.Devices.Requests
	ours := c.Annotations[AnnotationDevice] == p.Device.String() && c.Annotations[AnnotationEpoch] == strconv.FormatInt(p.Epoch, 10) &&
		len(requests) == 1 && requests[0].Exactly != nil && !ptr.Deref(requests[0].Exactly.AdminAccess, false)
	if !ours {
		return refuse("ResourceClaim %s isn't as sickbay makes it; delete it, and it is made anew", name)
	}
	return nil
}

// elsewhere tells what a claim was given instead of exactly this device, or beside it.
func elsewhere(claim *resourcev1.ResourceClaim, key device.Key) string {
	var given []string
	right := 0
	for _, result := range claim.Status.Allocation.Devices.Results {
		admin := ptr.Deref(result.AdminAccess, false)
		text := result.Driver + "/" + result.Pool + "/" + result.Device
		if text == key.String() && !admin {
			right++
		}
		if admin {
			text += " with admin access"
		}
		given = append(given, text)
	}
	if right == 1 && len(given) == 1 {
		return ""
	}
	return fmt.Sprintf("ResourceClaim %s/%s was given %s, and not %s alone", claim.Namespace, claim.Name, cmp.Or(strings.Join(given, ", "), "nothing"), key)
}

// slices lists all that the device's driver publishes.
func (p *attempt) slices(ctx context.Context) ([]resourcev1.ResourceSlice, error) {
	var found []resourcev1.ResourceSlice
	err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return p.client.ResourceV1().ResourceSlices().List(ctx, o)
	}).EachListItem(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, p.Device.Driver).String(),
	}, func(o runtime.Object) error {
		found = append(found, *o.(*resourcev1.ResourceSlice))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the ResourceSlices of driver %s: %w", p.Device.Driver, err)
	}
	return found, nil
}

// explainPending tells why the claim has no device yet: the driver's own taints, somebody
// else's rule, another claim, or else what the scheduler says.
func (p *attempt) explainPending(ctx context.Context, holder *corev1.Pod) error {
	published, err := p.slices(ctx)
	if err != nil {
		return err
	}
	pinned, err := pin(published, p.Device, p.Node)
	if err != nil {
		return err
	}
	tolerated := p.claim.Spec.Devices.Requests[0].Exactly.Tolerations
	for _, taint := range pinned.taints {
		if keepsAway(taint, tolerated) && !slices.Contains(p.tended.Blocked, taint.Key) {
			p.tended.Blocked = append(p.tended.Blocked, taint.Key)
		}
	}
	slices.Sort(p.tended.Blocked)
	if len(p.tended.Blocked) > 0 || holder == nil || !unschedulable(holder) {
		return nil
	}
	rule, err := p.foreignRule(ctx, tolerated)
	if err != nil {
		return err
	}
	if rule != "" {
		return refuse("%s", rule)
	}
	rival, err := p.rival(ctx)
	if err != nil {
		return err
	}
	if rival != "" {
		return refuse("ResourceClaim %s has the device, and ours waits for it: have its Pod end, or delete the claim if nobody uses it", rival)
	}
	return nil
}

// keepsAway tells whether a taint keeps a claim with these tolerations out.
func keepsAway(taint resourcev1.DeviceTaint, tolerations []resourcev1.DeviceToleration) bool {
	if taint.Effect != resourcev1.DeviceTaintEffectNoSchedule && taint.Effect != resourcev1.DeviceTaintEffectNoExecute {
		return false
	}
	return !slices.ContainsFunc(tolerations, func(t resourcev1.DeviceToleration) bool {
		return (t.Key == "" || t.Key == taint.Key) && (t.Effect == "" || t.Effect == taint.Effect) &&
			(t.Operator == resourcev1.DeviceTolerationOpExists || t.Value == taint.Value)
	})
}

// foreignRule names a DeviceTaintRule that keeps the claim out: somebody else's, or a mark
// of another epoch.
func (p *attempt) foreignRule(ctx context.Context, tolerated []resourcev1.DeviceToleration) (string, error) {
	capabilities, err := p.marks.discovery.Capabilities(ctx)
	if err != nil || !capabilities.CanMark() {
		return "", err
	}
	list, err := p.marks.client.Resource(capabilities.TaintRules).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list DeviceTaintRules: %w", err)
	}
	covers := func(field *string, is string) bool { return field == nil || *field == is }
	for i := range list.Items {
		rule, err := ruleOf(&list.Items[i])
		if err != nil || rule.Spec.DeviceSelector == nil {
			continue
		}
		s, taint := rule.Spec.DeviceSelector, rule.Spec.Taint
		if covers(s.Driver, p.Device.Driver) && covers(s.Pool, p.Device.Pool) && covers(s.Device, p.Device.Device) && keepsAway(taint, tolerated) {
			return fmt.Sprintf("DeviceTaintRule %s keeps every claim off the device with taint %s, also ours: have whoever made it take it away, or list its key as one that a probe may tolerate", rule.Name, taint.Key), nil
		}
	}
	return "", nil
}

// rival names another claim that has the device.
func (p *attempt) rival(ctx context.Context) (string, error) {
	rival := ""
	err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return p.client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, o)
	}).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		claim := ClaimView(o.(*resourcev1.ResourceClaim))
		if claim.UID != string(p.claim.UID) && slices.ContainsFunc(claim.Results, func(a device.Allocated) bool { return a.Device == p.Device && !a.AdminAccess }) {
			rival = claim.Namespace + "/" + claim.Name
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("list ResourceClaims: %w", err)
	}
	return rival, nil
}

// lookAtNode tells whether the node's word counts now.
func (p *attempt) lookAtNode(ctx context.Context) error {
	if p.Node == "" {
		return nil
	}
	node, err := p.client.CoreV1().Nodes().Get(ctx, p.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		p.tended.NodeOut = fmt.Sprintf("node %s is deleted", p.Node)
		return nil
	}
	if err != nil {
		return fmt.Errorf("get node %s: %w", p.Node, err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
		if condition.Type == corev1.NodeReady {
			p.tended.NodeOut = fmt.Sprintf("node %s isn't ready: %s", p.Node, cmp.Or(condition.Message, condition.Reason, string(condition.Status)))
			return nil
		}
	}
	p.tended.NodeOut = fmt.Sprintf("node %s isn't ready: its kubelet hasn't said that it is", p.Node)
	return nil
}
