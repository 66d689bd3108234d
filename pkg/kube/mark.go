package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// What a mark is made of. A mark is one DeviceTaintRule per device, under a name
// that follows from the device, with the case's epoch as the taint's value.
const (
	// TaintKey is the key of Sickbay's taints. Claims that tolerate it with the
	// value of the present epoch are Sickbay's own probes.
	TaintKey = "sickbay.dev/quarantined"
	// ManagedByLabel and ManagedBy tell Sickbay's marks from everybody else's.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedBy      = "sickbay"

	// Labels to select marks by.
	LabelDriver   = "sickbay.dev/driver"
	LabelReason   = "sickbay.dev/reason"
	LabelSeverity = "sickbay.dev/severity"

	// Annotations, for people and for the case that adopts the mark.
	AnnotationDevice   = "sickbay.dev/device"
	AnnotationNode     = "sickbay.dev/node"
	AnnotationWhy      = "sickbay.dev/why"
	AnnotationActor    = "sickbay.dev/actor"
	AnnotationAttempts = "sickbay.dev/attempts"
	AnnotationCloses   = "sickbay.dev/closed-by"
	AnnotationSince    = "sickbay.dev/since"
	AnnotationUntil    = "sickbay.dev/until"
	AnnotationHardware = "sickbay.dev/hardware"
	// AnnotationFirst is when the device was first seen not good. The seal doesn't cover
	// it, so that workers of a version that doesn't know it take no mark for edited.
	AnnotationFirst = "sickbay.dev/first-not-good"
	// AnnotationPhase stands on the marks of retired and of restricted devices only.
	AnnotationPhase = "sickbay.dev/phase"
	// AnnotationSeal is a checksum of all that the mark says. It shows an edit by
	// hand; it is no protection against somebody who computes it anew.
	AnnotationSeal = "sickbay.dev/seal"
)

// MarkFormat counts the forms that marks have had. A form is a new one if a worker of
// the form before it would take a mark for edited and write it anew, or couldn't
// adopt it.
const MarkFormat = 1

// maxEpoch is the last millisecond of the year 9999. What is later was no case's
// start. A case lifts its epoch above any that it finds on its mark; what somebody
// wrote there by hand counts only up to maxEdited, so that there is room above it.
const (
	maxEpoch  = 253402300799999
	maxEdited = maxEpoch - 1_000_000_000
)

// MarkName is the name of a device's mark: readable, and unique by a hash of the
// whole key.
func MarkName(key device.Key) string {
	sum := sha256.Sum256([]byte(key.String()))
	readable := strings.ReplaceAll(key.Pool+"-"+key.Device, "/", "-")
	if len(readable) > 150 {
		readable = readable[:150]
	}
	return "sickbay-" + strings.Trim(readable, "-.") + "-" + hex.EncodeToString(sum[:5])
}

// NewMark builds the mark that a command asks for. It refuses a device that
// isn't named by driver, pool and name: a rule with less in its selector would
// match other devices, and an empty one every device of the cluster.
func NewMark(c quarantine.PutMark) (*resourcev1.DeviceTaintRule, error) {
	key := c.Device
	if err := key.Validate(); err != nil {
		return nil, fmt.Errorf("mark %s: %w", key, err)
	}
	if key.Path() != device.PathDRA {
		return nil, fmt.Errorf("mark %s: a DeviceTaintRule names DRA devices only", key)
	}
	if c.Epoch <= 0 {
		return nil, fmt.Errorf("mark %s: epoch %d isn't one", key, c.Epoch)
	}
	hardware, err := json.Marshal(c.Hardware)
	if err != nil {
		return nil, fmt.Errorf("mark %s: write its hardware: %w", key, err)
	}
	annotations := map[string]string{
		AnnotationDevice:   key.String(),
		AnnotationNode:     c.Node,
		AnnotationWhy:      c.Message,
		AnnotationActor:    c.Actor,
		AnnotationAttempts: strconv.Itoa(c.Attempt),
		AnnotationCloses:   string(c.Reason.Closes),
		AnnotationSince:    c.Since.UTC().Format(time.RFC3339Nano),
		AnnotationUntil:    c.Until.UTC().Format(time.RFC3339),
		AnnotationHardware: string(hardware),
	}
	if !c.FirstNotGood.IsZero() {
		annotations[AnnotationFirst] = c.FirstNotGood.UTC().Format(time.RFC3339Nano)
	}
	switch {
	case c.Retired:
		annotations[AnnotationPhase] = string(quarantine.PhaseRetired)
	case c.Restricted:
		annotations[AnnotationPhase] = string(quarantine.PhaseRestricted)
	}
	mark := &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{
			Name: MarkName(key),
			Labels: map[string]string{
				ManagedByLabel: ManagedBy,
				LabelDriver:    key.Driver,
				LabelReason:    string(c.Reason.Code),
				LabelSeverity:  c.Severity.String(),
			},
			Annotations: annotations,
		},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{
				Driver: &key.Driver, Pool: &key.Pool, Device: &key.Device,
			},
			Taint: resourcev1.DeviceTaint{
				Key: TaintKey, Value: strconv.FormatInt(c.Epoch, 10), Effect: resourcev1.DeviceTaintEffectNoSchedule,
			},
		},
	}
	annotations[AnnotationSeal] = sealOf(mark)
	return mark, nil
}

// sealOf is the checksum of what a mark says in its own words: other people's
// labels and annotations don't count.
func sealOf(rule *resourcev1.DeviceTaintRule) string {
	sum := sha256.New()
	for _, label := range []string{ManagedByLabel, LabelDriver, LabelReason, LabelSeverity} {
		fmt.Fprintf(sum, "%q;", rule.Labels[label])
	}
	for _, annotation := range []string{
		AnnotationDevice, AnnotationNode, AnnotationWhy, AnnotationActor, AnnotationAttempts,
		AnnotationCloses, AnnotationSince, AnnotationUntil, AnnotationHardware,
	} {
		fmt.Fprintf(sum, "%q;", rule.Annotations[annotation])
	}
	if phase, ok := rule.Annotations[AnnotationPhase]; ok {
		fmt.Fprintf(sum, "%q;", phase) // marks without it keep the seal that they have
	}
	fmt.Fprintf(sum, "%q;%q;%q", rule.Spec.Taint.Key, rule.Spec.Taint.Value, rule.Spec.Taint.Effect)
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// Mark is a DeviceTaintRule read as a mark.
type Mark struct {
	Device device.Key
	Node   string
	Found  quarantine.MarkFound
	// Intact tells that it still keeps the device out and says what Sickbay wrote.
	Intact bool
}

// ReadMark reads a rule as a mark. It is false for a rule that Sickbay didn't make:
// one without our label, without a device, or under a name that doesn't follow from
// its device.
func ReadMark(object *unstructured.Unstructured) (Mark, bool) {
	if object.GetLabels()[ManagedByLabel] != ManagedBy {
		return Mark{}, false
	}
	annotations := object.GetAnnotations()
	key, err := device.ParseKey(annotations[AnnotationDevice])
	if err != nil || object.GetName() != MarkName(key) {
		return Mark{}, false
	}
	rule, err := ruleOf(object)
	if err != nil {
		return Mark{Device: key}, true
	}
	epoch, epochErr := strconv.ParseInt(rule.Spec.Taint.Value, 10, 64)
	sealed := annotations[AnnotationSeal] == sealOf(rule)
	if epochErr != nil || epoch < 0 || epoch > maxEpoch || epoch > maxEdited && !sealed {
		epoch = 0
	}
	found := quarantine.MarkFound{
		Name:    object.GetName(),
		Epoch:   epoch,
		Reason:  reason.Code(object.GetLabels()[LabelReason]),
		Closes:  reason.Closes(annotations[AnnotationCloses]),
		Message: annotations[AnnotationWhy],
		Actor:   annotations[AnnotationActor],
		Version: device.Version(object.GetResourceVersion()),
	}
	// What can't be read was changed by somebody; the rest still stands.
	_ = found.Severity.UnmarshalText([]byte(object.GetLabels()[LabelSeverity]))
	found.Attempt, _ = strconv.Atoi(annotations[AnnotationAttempts])
	if since, err := time.Parse(time.RFC3339Nano, annotations[AnnotationSince]); err == nil {
		found.Since = since.UnixMilli()
	}
	if first, err := time.Parse(time.RFC3339Nano, annotations[AnnotationFirst]); err == nil && first.UnixMilli() > 0 && first.UnixMilli() <= found.Since {
		found.FirstNotGood = first.UnixMilli()
	}
	if until, err := time.Parse(time.RFC3339, annotations[AnnotationUntil]); err == nil {
		found.Until = until.UnixMilli()
	}
	found.Retired = annotations[AnnotationPhase] == string(quarantine.PhaseRetired)
	found.Restricted = annotations[AnnotationPhase] == string(quarantine.PhaseRestricted)
	_ = json.Unmarshal([]byte(annotations[AnnotationHardware]), &found.Hardware)
	return Mark{
		Device: key,
		Node:   annotations[AnnotationNode],
		Found:  found,
		Intact: epoch > 0 && keepsOut(rule, key) && sealed,
	}, true
}

// keepsOut tells whether a rule's selector names exactly the device and its
// taint is ours.
func keepsOut(rule *resourcev1.DeviceTaintRule, key device.Key) bool {
	s := rule.Spec.DeviceSelector
	return s != nil && same(s.Driver, key.Driver) && same(s.Pool, key.Pool) && same(s.Device, key.Device) &&
		rule.Spec.Taint.Key == TaintKey && rule.Spec.Taint.Effect == resourcev1.DeviceTaintEffectNoSchedule
}

// Selects says which devices a rule's selector matches: "every device" and
// "device gpu-3 of every pool" are what foreign rules are warned of.
func Selects(object *unstructured.Unstructured) (width string, wide bool) {
	rule, err := ruleOf(object)
	if err != nil || rule.Spec.DeviceSelector == nil {
		return "no device", false
	}
	s := rule.Spec.DeviceSelector
	switch {
	case s.Driver == nil && s.Pool == nil && s.Device == nil:
		return "every device of the cluster", true
	case s.Pool == nil && s.Device != nil:
		return "device " + *s.Device + " of every pool", true
	case s.Pool == nil:
		return "every device of driver " + *s.Driver, true
	}
	return "one pool or device", false
}

func same(field *string, want string) bool { return field != nil && *field == want }

func ruleOf(object *unstructured.Unstructured) (*resourcev1.DeviceTaintRule, error) {
	var rule resourcev1.DeviceTaintRule
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &rule); err != nil {
		return nil, fmt.Errorf("read DeviceTaintRule %s: %w", object.GetName(), err)
	}
	return &rule, nil
}

// unstructuredMark writes a mark for the API version that the cluster serves;
// the versions differ in nothing that a mark uses.
func unstructuredMark(mark *resourcev1.DeviceTaintRule, gvr schema.GroupVersionResource) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(mark)
	if err != nil {
		return nil, fmt.Errorf("write DeviceTaintRule %s: %w", mark.Name, err)
	}
	delete(content, "status")
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(gvr.GroupVersion().WithKind("DeviceTaintRule"))
	unstructured.RemoveNestedField(object.Object, "metadata", "creationTimestamp")
	return object, nil
}
