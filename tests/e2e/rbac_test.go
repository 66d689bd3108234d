package e2e

// This file compares the rights that are shipped with the calls that are made.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// call is what a right allows and what the audit log tells of a request.
type call struct{ group, resource, namespace, verb string }

func (c call) String() string {
	where := "in all namespaces"
	if c.namespace != "" {
		where = "in " + c.namespace
	}
	return fmt.Sprintf("%s %s.%s %s", c.verb, c.resource, c.group, where)
}

// rare tells what needs a right that the scenario below doesn't.
func rare(rights map[call]bool, right call) (why string) {
	switch watched := (call{right.group, right.resource, right.namespace, "watch"}); {
	case right == call{"", "events", "", "patch"}:
		return "a decision that is like an earlier one: its Event is counted"
	case right.verb == "list" && rights[watched]:
		return "an API server that can't begin a watch with a list (WatchList)"
	}
	return ""
}

// applyRoles creates the ServiceAccounts and roles that are shipped, and returns
// what they let each ServiceAccount do.
func (c *cluster) applyRoles() (granted map[string]map[call]bool) {
	c.t.Helper()
	var shipped []io.Reader
	for _, name := range []string{"base/namespace.yaml", "base/rbac.yaml", "components/enforce/rbac.yaml"} {
		file, err := os.Open(filepath.Join("..", "..", "deploy", filepath.FromSlash(name)))
		if err != nil {
			c.t.Fatal(err)
		}
		defer file.Close()
		shipped = append(shipped, file, strings.NewReader("\n---\n"))
	}
	resources := map[string]string{
		"Namespace": "namespaces", "ServiceAccount": "serviceaccounts", "Role": "roles", "RoleBinding": "rolebindings",
		"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings",
	}
	rules := map[string][]rbacv1.PolicyRule{}
	granted = map[string]map[call]bool{}
	documents := yaml.NewYAMLOrJSONDecoder(bufio.NewReader(io.MultiReader(shipped...)), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := documents.Decode(object)
		if errors.Is(err, io.EOF) {
			return granted
		}
		if err != nil {
			c.t.Fatal(err)
		}
		if object.Object == nil {
			continue // what ends a file
		}
		gvr := object.GroupVersionKind().GroupVersion().WithResource(resources[object.GetKind()])
		if gvr.Resource == "" {
			c.t.Fatalf("deploy has a %s among its rights, which this test doesn't know", object.GetKind())
		}
		c.create(gvr, object)
		name := object.GetNamespace() + "/" + object.GetName()
		switch object.GetKind() {
		case "Role", "ClusterRole":
			var role rbacv1.ClusterRole
			c.convert(object, &role)
			rules[name] = role.Rules
		case "RoleBinding", "ClusterRoleBinding":
			var binding rbacv1.RoleBinding
			c.convert(object, &binding)
			for _, subject := range binding.Subjects {
				user := "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
				if granted[user] == nil {
					granted[user] = map[call]bool{}
				}
				for _, rule := range rules[object.GetNamespace()+"/"+binding.RoleRef.Name] {
					for _, resource := range rule.Resources {
						for _, verb := range rule.Verbs {
							granted[user][call{rule.APIGroups[0], resource, object.GetNamespace(), verb}] = true
						}
					}
				}
			}
		}
	}
}

func (c *cluster) create(gvr schema.GroupVersionResource, object *unstructured.Unstructured) {
	c.t.Helper()
	if _, err := c.dynamic.Resource(gvr).Namespace(object.GetNamespace()).Create(c.t.Context(), object, metav1.CreateOptions{}); err != nil {
		c.t.Fatalf("create %s %s: %v", object.GetKind(), object.GetName(), err)
	}
}

func (c *cluster) convert(object *unstructured.Unstructured, to any) {
	c.t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, to); err != nil {
		c.t.Fatal(err)
	}
}

// A whole case, from the fault to the end of its mark, with just the rights in
// deploy: nothing is refused, nothing is granted that isn't used, and
// the status of a Pod is neither written nor may it be. Proves Q3.
func TestTheShippedRightsAreThoseThatAreUsed(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 3)
	granted := c.applyRoles()
	kubeconfig := func(account string) string {
		t.Helper()
		path, err := c.stack.ServiceAccountKubeconfig(t.Context(), "sickbay", account)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	c.process("worker", "worker", kubeconfig("worker"), append(fastEnvironment(), "SICKBAY_FORGET=3s")...)
	c.process("starter", "starter", kubeconfig("starter"), "SICKBAY_MARK_CHECK=1s", "SICKBAY_LEADER_ELECTION_NAMESPACE=sickbay")

	key := c.runPod("train-0")
	c.set(key, corev1.ResourceHealthStatusUnhealthy, "XID 48: double bit ECC error")
	state := c.awaitInForce(key)
	c.deleteRule(state.Mark.Name)
	c.awaitCase(key, "restored", func(s quarantine.Case) error {
		if s.Mark.Restored != 1 || s.Mark.State != quarantine.MarkInForce {
			return fmt.Errorf("mark %+v", s.Mark)
		}
		return nil
	})
	// A graver reason is written into the same mark, and its holder is looked for.
	c.set(key, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	c.awaitCase(key, "graver", func(s quarantine.Case) error {
		if s.Reason.Rule != "nvidia/xid-79" || s.Mark.State != quarantine.MarkInForce || s.Mark.Written != s.Mark.Revision || len(s.Holders) != 1 {
			return fmt.Errorf("%s, mark %+v, holders %v", s.Reason.Rule, s.Mark, s.Holders)
		}
		return nil
	})
	// Its holder leaves while no starter runs to tell of it: a look has to find out.
	if err := c.stack.StopPart(t.Context(), "starter"); err != nil {
		t.Fatal(err)
	}
	c.deletePod("train-0")
	// What is told of another epoch's mark changes nothing but that the case looks.
	if err := c.cases.Tell(t.Context(), key, quarantine.MarkSeen{Node: "node-0", Mark: quarantine.MarkFound{Name: state.Mark.Name, Epoch: 1}}, ""); err != nil {
		t.Fatal(err)
	}
	c.awaitCase(key, "free", func(s quarantine.Case) error {
		if s.Held() {
			return fmt.Errorf("held by %v, reports %+v", s.Holders, s.Reports)
		}
		return nil
	})
	if err := c.stack.StartPart(t.Context(), "starter"); err != nil {
		t.Fatal(err)
	}
	// The card is taken out for good, and its mark goes.
	if _, err := c.nodes.RemoveDevice(t.Context(), key.Pool, key.Device); err != nil {
		t.Fatal(err)
	}
	c.eventually("the mark is lifted", 40*time.Second, func(ctx context.Context) error {
		rules, err := c.rules(ctx)
		if err == nil && len(rules) != 0 {
			state, stateErr := c.cases.State(ctx, key)
			err = fmt.Errorf("%d marks; %s %s, mark %s (%w)", len(rules), state.Case.Phase, state.Case.Waiting, state.Case.Mark.State, stateErr)
		}
		return err
	})
	if err := errors.Join(c.stack.StopPart(t.Context(), "starter"), c.stack.StopPart(t.Context(), "worker")); err != nil {
		t.Fatal(err)
	}

	for user, rights := range granted {
		made, err := c.stack.Calls(user)
		if err != nil {
			t.Fatal(err)
		}
		if len(made) == 0 {
			t.Errorf("the audit log has no call of %s: nothing is compared", user)
		}
		used := map[call]bool{}
		for _, made := range made {
			if made.Writes() && made.Subresource != "" {
				t.Errorf("%s writes a subresource: %s", user, made)
			}
			if made.Code == http.StatusForbidden {
				t.Errorf("%s lacks the right to %s: %s", user, made, made.Message)
			}
			for _, namespace := range []string{"", made.Namespace} {
				used[call{made.APIGroup, made.Resource, namespace, made.Verb}] = true
			}
		}
		for _, right := range slices.SortedFunc(maps.Keys(rights), func(a, b call) int { return strings.Compare(a.String(), b.String()) }) {
			if strings.Contains(right.resource, "/") || right.verb == "*" || right.resource == "*" {
				t.Errorf("%s may %s: nothing needs a subresource or everything", user, right)
			}
			if !used[right] && rare(rights, right) == "" {
				t.Errorf("%s may %s and never does", user, right)
			}
		}
	}
}
