package apiserver

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// admit gives an object the metadata that an API server gives it.
func admit(o object) {
	if o.GetUID() == "" {
		hash := fnv.New64a()
		fmt.Fprintf(hash, "%T/%s/%s", o, o.GetNamespace(), o.GetName())
		sum := hash.Sum64()
		o.SetUID(types.UID(fmt.Sprintf("%08x-%04x-4000-8000-%012x", sum>>32, sum>>16&0xffff, sum&0xffffffffffff)))
	}
	o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
}

// admitNode fills in what the controller manager does.
func admitNode(node *corev1.Node) {
	admit(node)
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, "node.alpha.kubernetes.io/ttl", "0")
	metav1.SetMetaDataLabel(&node.ObjectMeta, "beta.kubernetes.io/os", node.Labels[corev1.LabelOSStable])
	metav1.SetMetaDataLabel(&node.ObjectMeta, "beta.kubernetes.io/arch", node.Labels[corev1.LabelArchStable])
	manage(node, "kubelet", "")
}

// admitPod fills in the defaults of Pods.
func admitPod(pod *corev1.Pod) {
	admit(pod)
	pod.Generation = 1
	priority, links, preempt := int32(0), true, corev1.PreemptLowerPriority
	spec := &pod.Spec
	spec.RestartPolicy, spec.DNSPolicy, spec.SchedulerName = corev1.RestartPolicyAlways, corev1.DNSClusterFirst, corev1.DefaultSchedulerName
	spec.SecurityContext, spec.Priority, spec.EnableServiceLinks, spec.PreemptionPolicy = &corev1.PodSecurityContext{}, &priority, &links, &preempt
	spec.ServiceAccountName, spec.DeprecatedServiceAccount = "default", "default"
	seconds := int64(300)
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
		})
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		c.TerminationMessagePath, c.TerminationMessagePolicy = corev1.TerminationMessagePathDefault, corev1.TerminationMessageReadFile
		c.ImagePullPolicy = corev1.PullIfNotPresent
	}
	pod.Status.QOSClass, pod.Status.ObservedGeneration = corev1.PodQOSBestEffort, 1
	for i := range pod.Status.Conditions {
		pod.Status.Conditions[i].ObservedGeneration = 1
	}
	manage(pod, "kubelet", "status")
}

// manage says of all fields who wrote them, as an API server keeps it for
// server-side apply: in a fleet's Pods that is a third of the bytes.
func manage(o object, manager, subresource string) {
	content, err := json.Marshal(o)
	var tree map[string]any
	if err == nil {
		err = json.Unmarshal(content, &tree)
	}
	if err != nil {
		panic(fmt.Sprintf("write %T: %v", o, err)) // these are structs of the API: they can be written
	}
	owned, _ := json.Marshal(fieldsOf(tree)) // maps of maps can be, too
	at := metav1.NewTime(time.Now().Truncate(time.Second))
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(owned)), Subresource: subresource,
	}})
}

// fieldsOf names the fields of a value as managedFields does. Lists whose elements
// have a name or type are taken for keyed by it, others for written as a whole, as
// the devices of a slice are.
func fieldsOf(tree map[string]any) map[string]any {
	owned := map[string]any{}
	for name, value := range tree {
		owned["f:"+name] = map[string]any{}
		switch value := value.(type) {
		case map[string]any:
			owned["f:"+name] = fieldsOf(value)
		case []any:
			if keyed := keyedBy(value); keyed != nil && name != "devices" {
				owned["f:"+name] = keyed
			}
		}
	}
	return owned
}

func keyedBy(list []any) map[string]any {
	keyed := map[string]any{}
	for _, element := range list {
		fields, ok := element.(map[string]any)
		if !ok {
			return nil
		}
		key := ""
		for _, by := range []string{"name", "type", "ip"} {
			if value, ok := fields[by].(string); ok {
				key = fmt.Sprintf("k:{%q:%q}", by, value)
				break
			}
		}
		if key == "" {
			return nil
		}
		owned := fieldsOf(fields)
		owned["."] = map[string]any{}
		keyed[key] = owned
	}
	return keyed
}
