package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// readRules are what looking needs; nothing in them writes.
func readRules() []rbacv1.PolicyRule {
	read := []string{"get", "list", "watch"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods", "nodes"}, Verbs: read},
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims", "resourceslices", "devicetaintrules"}, Verbs: read},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get"}},
	}
}

// grantRules gives a user a ClusterRole of its own with these rules, or replaces them.
func (c *cluster) grantRules(user string, rules []rbacv1.PolicyRule) {
	c.t.Helper()
	ctx := c.t.Context()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}
	roles := c.kube.RbacV1().ClusterRoles()
	_, err := roles.Create(ctx, role, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = roles.Update(ctx, role, metav1.UpdateOptions{})
	}
	if err != nil {
		c.t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}
	if _, err := c.kube.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		c.t.Fatal(err)
	}
}

// A worker without the right to mark says so where the operator looks, with the
// remedy, and once it is granted the mark is made by itself.
func TestAMissingRightToMarkIsNamedAndWaitedFor(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 2)
	kubeconfig := func(user string) string {
		t.Helper()
		path, err := c.stack.UserKubeconfig(user)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	c.grantRules("bare-worker", readRules())
	c.grantRules("bare-starter", readRules())
	c.process("worker", "worker", kubeconfig("bare-worker"), fastEnvironment()...)
	c.process("starter", "starter", kubeconfig("bare-starter"), append(starterEnvironment(), "SICKBAY_LEADER_ELECTION_ENABLED=false")...)
	key := c.runPod("train-0")
	c.set(key, corev1.ResourceHealthStatusUnhealthy, fallenOff)

	state := c.awaitCase(key, "refused", func(s quarantine.Case) error {
		if s.Mark.State != quarantine.MarkRefused {
			return fmt.Errorf("%s, mark %s", s.Phase, s.Mark.State)
		}
		return nil
	})
	for _, want := range []string{"forbids", "create", "devicetaintrules.resource.k8s.io"} {
		if !strings.Contains(state.Mark.Detail, want) {
			t.Errorf("refusal %q doesn't say %q", state.Mark.Detail, want)
		}
	}
	c.grantRules("bare-worker", append(readRules(), rbacv1.PolicyRule{
		APIGroups: []string{"resource.k8s.io"}, Resources: []string{"devicetaintrules"}, Verbs: []string{"create", "update", "delete"},
	}))
	c.awaitInForce(key)
}
