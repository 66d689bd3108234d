// The real scheduler and the real API server on each supported version.

package stack_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

func TestTheRealSchedulerKeepsATaintedDeviceFromNewPods(t *testing.T) {
	for _, version := range stack.Versions() {
		t.Run(version, func(t *testing.T) {
			s := stack.Start(t, stack.Options{Kubernetes: version})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			client, err := kubernetes.NewForConfig(s.RESTConfig())
			must(t, err)
			nodes := simnode.Start(t, s.SimulatorConfig(), simnode.Options{})
			must(t, nodes.Add(ctx, simnode.MakeNode("node", 2)))
			must(t, taint(ctx, client, version, "node", "gpu-0"))
			_, err = client.ResourceV1().ResourceClaimTemplates("default").Create(ctx,
				simnode.MakeClaim("default", "one").Request("gpu", simnode.DefaultDriver, 1).Template(), metav1.CreateOptions{})
			must(t, err)

			create(t, ctx, client, simnode.MakePod("default", "first").ClaimTemplate("accel", "one").Obj())
			first, err := nodes.AwaitPod(ctx, "default", "first", simnode.Running)
			must(t, err)
			entry := first.Status.ContainerStatuses[0].AllocatedResourcesStatus[0]
			if got := entry.Resources[0].ResourceID; got != simnode.DefaultDriver+"/node/gpu-1" {
				t.Errorf("the Pod got %s, want the device without a taint", got)
			}
			create(t, ctx, client, simnode.MakePod("default", "second").ClaimTemplate("accel", "one").Obj())
			_, err = nodes.AwaitPod(ctx, "default", "second", unschedulable)
			must(t, err)

			must(t, untaint(ctx, client, version))
			_, err = nodes.AwaitPod(ctx, "default", "second", simnode.Running)
			must(t, err)
		})
	}
}

func TestAClusterWithoutTheTaintAPIServesNone(t *testing.T) {
	for _, version := range stack.Versions() {
		t.Run(version, func(t *testing.T) {
			served := func(s *stack.Stack) bool {
				client, err := kubernetes.NewForConfig(s.RESTConfig())
				must(t, err)
				_, lists, err := client.Discovery().ServerGroupsAndResources()
				must(t, err)
				return slices.ContainsFunc(lists, func(list *metav1.APIResourceList) bool {
					return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "devicetaintrules" })
				})
			}
			if !served(stack.Start(t, stack.Options{Kubernetes: version})) {
				t.Error("devicetaintrules are not served by default")
			}
			if served(stack.Start(t, stack.Options{Kubernetes: version, NoTaintRules: true})) {
				t.Error("devicetaintrules are served with NoTaintRules")
			}
		})
	}
}

func TestAClusterCanServeTheTaintAPIAndIgnoreIt(t *testing.T) {
	s := stack.Start(t, stack.Options{Kubernetes: "1.36", FeatureGates: map[string]bool{"DRADeviceTaintRules": false}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	must(t, err)
	nodes := simnode.Start(t, s.SimulatorConfig(), simnode.Options{})
	must(t, nodes.Add(ctx, simnode.MakeNode("node", 1)))
	must(t, taint(ctx, client, "1.36", "node", "gpu-0"))
	_, err = client.ResourceV1().ResourceClaims("default").Create(ctx,
		simnode.MakeClaim("default", "one").Request("gpu", simnode.DefaultDriver, 1).Obj(), metav1.CreateOptions{})
	must(t, err)

	create(t, ctx, client, simnode.MakePod("default", "first").Claim("accel", "one").Obj())
	_, err = nodes.AwaitPod(ctx, "default", "first", simnode.Running)
	must(t, err)
}

func TestAServiceAccountHasOnlyItsRightsAndItsCallsAreInTheAuditLog(t *testing.T) {
	s := stack.Start(t, stack.Options{Kubernetes: "1.36"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	admin, err := kubernetes.NewForConfig(s.RESTConfig())
	must(t, err)
	_, err = admin.CoreV1().ServiceAccounts("default").Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}, metav1.CreateOptions{})
	must(t, err)
	_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "reader"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
	}, metav1.CreateOptions{})
	must(t, err)
	simnode.Start(t, s.SimulatorConfig(), simnode.Options{})

	config, err := s.ServiceAccountConfig(ctx, "default", "reader")
	must(t, err)
	reader, err := kubernetes.NewForConfig(config)
	must(t, err)
	await(t, ctx, "the binding is in force", func() bool {
		_, err = reader.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		return err == nil
	})
	if err := reader.CoreV1().Pods("default").Delete(ctx, "x", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a reader's delete: %v, want forbidden", err)
	}

	const user = "system:serviceaccount:default:reader"
	if !called(t, s, user, "list", "pods") || !called(t, s, user, "delete", "pods") {
		t.Errorf("the reader's calls are not in the audit log")
	}
	if calls, err := s.Calls(stack.SimulatorUser); err != nil || len(calls) > 0 {
		t.Errorf("%d calls of the simulator are in the audit log, %v; want none", len(calls), err)
	}
}

func TestANodesUserMayOnlyWriteItsOwnNode(t *testing.T) {
	s := stack.Start(t, stack.Options{Kubernetes: "1.36"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	nodes := simnode.Start(t, s.SimulatorConfig(), simnode.Options{})
	must(t, nodes.Add(ctx, simnode.MakeNodes("node", 2, 0)...))
	config, err := s.UserConfig("system:node:node-0", "system:nodes")
	must(t, err)
	kubelet, err := kubernetes.NewForConfig(config)
	must(t, err)

	patch := []byte(`{"status":{"phase":"Running"}}`)
	_, err = kubelet.CoreV1().Nodes().PatchStatus(ctx, "node-0", patch)
	must(t, err)
	if _, err := kubelet.CoreV1().Nodes().PatchStatus(ctx, "node-1", patch); !apierrors.IsForbidden(err) {
		t.Errorf("patching another node: %v, want forbidden", err)
	}
}

// called tells whether the audit log has a call of a user.
func called(t *testing.T, s *stack.Stack, user, verb, resource string) bool {
	t.Helper()
	calls, err := s.Calls(user)
	must(t, err)
	return slices.ContainsFunc(calls, func(c stack.Call) bool { return c.Verb == verb && c.Resource == resource })
}

func create(t *testing.T, ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) {
	t.Helper()
	_, err := client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	must(t, err)
}

const taintName = "keep-out"

// taint creates a DeviceTaintRule in the version that the cluster serves.
func taint(ctx context.Context, client kubernetes.Interface, version, pool, device string) error {
	driver, meta := simnode.DefaultDriver, metav1.ObjectMeta{Name: taintName}
	if version == "1.36" {
		_, err := client.ResourceV1beta2().DeviceTaintRules().Create(ctx, &resourcev1beta2.DeviceTaintRule{
			ObjectMeta: meta,
			Spec: resourcev1beta2.DeviceTaintRuleSpec{
				DeviceSelector: &resourcev1beta2.DeviceTaintSelector{Driver: &driver, Pool: &pool, Device: &device},
				Taint:          resourcev1beta2.DeviceTaint{Key: "example.com/bad", Effect: resourcev1beta2.DeviceTaintEffectNoSchedule},
			},
		}, metav1.CreateOptions{})
		return err
	}
	_, err := client.ResourceV1().DeviceTaintRules().Create(ctx, &resourcev1.DeviceTaintRule{
		ObjectMeta: meta,
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: &driver, Pool: &pool, Device: &device},
			Taint:          resourcev1.DeviceTaint{Key: "example.com/bad", Effect: resourcev1.DeviceTaintEffectNoSchedule},
		},
	}, metav1.CreateOptions{})
	return err
}

func untaint(ctx context.Context, client kubernetes.Interface, version string) error {
	if version == "1.36" {
		return client.ResourceV1beta2().DeviceTaintRules().Delete(ctx, taintName, metav1.DeleteOptions{})
	}
	return client.ResourceV1().DeviceTaintRules().Delete(ctx, taintName, metav1.DeleteOptions{})
}

func unschedulable(pod *corev1.Pod) bool {
	return pod != nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
	})
}
