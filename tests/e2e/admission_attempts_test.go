package e2e

// This file has the attempts at rules that the admission policies are tried with: how a
// rule is changed, and what is asked of the API server.

import (
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
)

// rules are the DeviceTaintRules of a cluster as somebody reaches them.
type rules = dynamic.ResourceInterface

type edit func(rule *unstructured.Unstructured)

func with(value any, path ...string) edit {
	return func(rule *unstructured.Unstructured) {
		if err := unstructured.SetNestedField(rule.Object, value, path...); err != nil {
			panic(err)
		}
	}
}

func without(path ...string) edit {
	return func(rule *unstructured.Unstructured) { unstructured.RemoveNestedField(rule.Object, path...) }
}

func both(edits ...edit) edit {
	return func(rule *unstructured.Unstructured) {
		for _, edit := range edits {
			edit(rule)
		}
	}
}

var (
	asIs       = both()
	evicting   = with("NoExecute", "spec", "taint", "effect")
	unlabelled = without("metadata", "labels", kube.ManagedByLabel)
	otherKey   = with("example.com/maintenance", "spec", "taint", "key")
	foreign    = both(unlabelled, otherKey, without("metadata", "annotations"))
	finalizer  = with([]any{"example.com/keep"}, "metadata", "finalizers")
)

// renamed gives a rule another name, by default that of somebody's maintenance.
func renamed(name string) edit { return with(name, "metadata", "name") }

func selecting(fields ...string) edit {
	selector := map[string]any{}
	for _, field := range fields {
		selector[field] = map[string]string{"driver": "gpu.example.com", "pool": "node-0", "device": "gpu-0"}[field]
	}
	return with(selector, "spec", "deviceSelector")
}

func about(device string) edit {
	return with(device, "metadata", "annotations", kube.AnnotationDevice)
}

// asMark makes a rule look like the mark of the device that it selects.
func asMark(rule *unstructured.Unstructured) {
	selector, _, _ := unstructured.NestedStringMap(rule.Object, "spec", "deviceSelector")
	both(about(selector["driver"]+"/"+selector["pool"]+"/"+selector["device"]),
		with(kube.ManagedBy, "metadata", "labels", kube.ManagedByLabel), with(kube.TaintKey, "spec", "taint", "key"))(rule)
}

// selectsItsDevice has a rule select the device that it tells of.
func selectsItsDevice(rule *unstructured.Unstructured) {
	key, err := device.ParseKey(rule.GetAnnotations()[kube.AnnotationDevice])
	if err != nil {
		panic(err)
	}
	with(map[string]any{"driver": key.Driver, "pool": key.Pool, "device": key.Device}, "spec", "deviceSelector")(rule)
}

// try makes an attempt with a rule that was changed. The controller that acts on
// rules writes their status meanwhile: a conflict is no answer.
func (p *policed) try(attempt func(rules, *unstructured.Unstructured) error, as rules, rule *unstructured.Unstructured, change edit) error {
	for {
		changed := rule.DeepCopy()
		if change != nil {
			change(changed)
		}
		err := attempt(as, changed)
		if !apierrors.IsConflict(err) {
			return err
		}
		if rule, err = p.admin.Get(p.t.Context(), rule.GetName(), metav1.GetOptions{}); err != nil {
			return err
		}
	}
}

// said is what people and Sickbay wrote into a rule.
func said(rule *unstructured.Unstructured) string {
	content, err := json.Marshal(map[string]any{
		"labels": rule.GetLabels(), "annotations": rule.GetAnnotations(), "finalizers": rule.GetFinalizers(), "owners": rule.GetOwnerReferences(),
		"spec": rule.Object["spec"], "deleted": rule.GetDeletionTimestamp(),
	})
	if err != nil {
		panic(err)
	}
	return string(content)
}

// The attempts, each against the rule that it names. They return what the API
// server answers.
func create(rules rules, rule *unstructured.Unstructured) error {
	_, err := rules.Create(context.Background(), rule, metav1.CreateOptions{})
	return err
}

func update(rules rules, rule *unstructured.Unstructured) error {
	_, err := rules.Update(context.Background(), rule, metav1.UpdateOptions{})
	return err
}

func merge(rules rules, rule *unstructured.Unstructured) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels": rule.GetLabels(), "annotations": rule.GetAnnotations(),
	}, "spec": rule.Object["spec"]})
	if err != nil {
		return err
	}
	_, err = rules.Patch(context.Background(), rule.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func apply(rules rules, rule *unstructured.Unstructured) error {
	rule = rule.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"} {
		without("metadata", field)(rule)
	}
	_, err := rules.Apply(context.Background(), rule.GetName(), rule, metav1.ApplyOptions{FieldManager: "sickbay", Force: true})
	return err
}

func remove(rules rules, rule *unstructured.Unstructured) error {
	return rules.Delete(context.Background(), rule.GetName(), metav1.DeleteOptions{})
}

func removeForce(rules rules, rule *unstructured.Unstructured) error {
	return rules.Delete(context.Background(), rule.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
}

func removeDry(rules rules, rule *unstructured.Unstructured) error {
	return rules.Delete(context.Background(), rule.GetName(), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
}

func createDry(rules rules, rule *unstructured.Unstructured) error {
	_, err := rules.Create(context.Background(), rule, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func updateStatus(rules rules, rule *unstructured.Unstructured) error {
	with([]any{}, "status", "conditions")(rule)
	_, err := rules.UpdateStatus(context.Background(), rule, metav1.UpdateOptions{})
	return err
}
