package e2e

// This file tries what is beside the admission policies' table: other rights of
// Sickbay's accounts, what a tenant may write, what everybody else is told, and another
// namespace.

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/pages"
)

// collection tries to remove all rules at once: the marks go, and nothing else does.
func (p *policed) collection(as *rest.Config) {
	p.t.Helper()
	other := p.there(foreign)
	err := p.rulesOf(as).DeleteCollection(p.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		p.t.Errorf("all rules at once: answered %v; want it refused", err)
	}
	if _, err := p.admin.Get(p.t.Context(), other.GetName(), metav1.GetOptions{}); err != nil {
		p.t.Errorf("somebody else's rule went with all: %v", err)
	}
}

// lookalikes makes rules that look like marks, as a person: each is made, with a
// word on what it comes to.
func (p *policed) lookalikes() {
	p.t.Helper()
	const label, taint = "knows its marks by the label", "use a key of your own"
	for sentence, c := range map[string]struct {
		there  edit // nil: it is made, else changed
		change edit
		want   string
	}{
		"a rule with our label and key":           {change: asIs, want: label},
		"a rule with our label":                   {change: otherKey, want: label},
		"a rule with our key":                     {change: unlabelled, want: taint},
		"a rule with neither":                     {change: foreign},
		"a rule gets our label":                   {there: foreign, change: with(kube.ManagedBy, "metadata", "labels", kube.ManagedByLabel), want: label},
		"a rule gets our key":                     {there: foreign, change: with(kube.TaintKey, "spec", "taint", "key"), want: taint},
		"a rule that has both is changed further": {there: asIs, change: evicting},
	} {
		heard := &warnings{}
		config := rest.CopyConfig(p.stack.RESTConfig())
		config.WarningHandlerWithContext = heard
		rule, answer := p.mark(), create
		if c.there != nil {
			rule, answer = p.there(c.there), update
		}
		once := func(rules rules, rule *unstructured.Unstructured) error {
			heard.take()
			return answer(rules, rule)
		}
		if err := p.try(once, p.rulesOf(config), rule, c.change); err != nil {
			p.t.Errorf("%s: refused: %v", sentence, err)
		}
		told := heard.take()
		if c.want == "" && len(told) > 0 || c.want != "" && (len(told) != 1 || !strings.Contains(told[0], c.want)) {
			p.t.Errorf("%s: warned %q; want %q", sentence, told, c.want)
		}
	}
}

// moved deploys into another namespace and under other names: the policy goes along.
func (p *policed) moved() {
	p.t.Helper()
	for account, overlay := range map[string]deploy.Overlay{
		"sickbay-worker":      {Namespace: "infirmary", Components: []string{deploy.Marks}},
		"blue-sickbay-worker": {Namespace: "wards", Prefix: "blue-", Components: []string{deploy.Marks}},
	} {
		objects, err := deploy.Rights(p.t.Context(), overlay)
		if err != nil {
			p.t.Fatal(err)
		}
		if err := deploy.ApplyRights(p.t.Context(), p.stack.RESTConfig(), objects); err != nil {
			p.t.Fatal(err)
		}
		config, err := p.stack.ServiceAccountConfig(p.t.Context(), overlay.Namespace, account)
		if err != nil {
			p.t.Fatal(err)
		}
		rules := p.rulesOf(config)
		p.eventually("the policy is in force in namespace "+overlay.Namespace, 20*time.Second, func(context.Context) error {
			if err := createDry(rules, p.mark(evicting)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "NoExecute would delete") {
				return fmt.Errorf("a rule that evicts: answered %v", err)
			}
			return createDry(rules, p.mark())
		})
	}
}

// nothingElse asks the API server for what none of Sickbay's accounts may do.
func (p *policed) nothingElse() {
	p.t.Helper()
	all := func(group, resource string, verbs ...string) (rights []deploy.Right) {
		resource, subresource, _ := strings.Cut(resource, "/")
		for _, verb := range verbs {
			for _, namespace := range []string{"", "default", "kube-system", deploy.Namespace} {
				rights = append(rights, deploy.Right{Group: group, Resource: resource, Subresource: subresource, Namespace: namespace, Verb: verb})
			}
		}
		return rights
	}
	dangerous := slices.Concat(
		all("", "secrets", "get", "list", "watch", "create", "update", "patch", "delete"),
		all("", "configmaps", "get", "list", "create", "update", "delete"),
		all("", "pods", "create", "update", "patch", "delete", "deletecollection"),
		all("", "pods/status", "update", "patch"), all("", "pods/exec", "create", "get"), all("", "pods/eviction", "create"),
		all("", "pods/ephemeralcontainers", "update", "patch"), all("", "pods/log", "get"), all("", "pods/attach", "create", "get"),
		all("", "nodes", "update", "patch", "delete"), all("", "nodes/status", "update", "patch"), all("", "nodes/proxy", "get", "create"),
		all("", "serviceaccounts/token", "create"), all("", "users", "impersonate"), all("", "groups", "impersonate"), all("", "serviceaccounts", "impersonate"),
		all("", "namespaces", "create", "update", "patch", "delete"), all("", "events", "delete", "deletecollection"),
		all("rbac.authorization.k8s.io", "clusterroles", "create", "update", "bind", "escalate"), all("rbac.authorization.k8s.io", "clusterrolebindings", "create", "update"),
		all("rbac.authorization.k8s.io", "roles", "create", "update", "bind", "escalate"), all("rbac.authorization.k8s.io", "rolebindings", "create", "update"),
		all("admissionregistration.k8s.io", "validatingadmissionpolicies", "create", "update", "patch", "delete"),
		all("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "create", "update", "patch", "delete"),
		all("resource.k8s.io", "resourceclaims", "create", "update", "patch", "delete"), all("resource.k8s.io", "resourceclaims/status", "update", "patch"),
		all("resource.k8s.io", "resourceclaims/binding", "update", "patch"), all("resource.k8s.io", "resourceclaims/driver", "associated-node:update", "arbitrary-node:update"),
		all("resource.k8s.io", "resourceslices", "create", "update", "patch", "delete"), all("resource.k8s.io", "deviceclasses", "create", "update", "delete"),
		all("coordination.k8s.io", "leases", "delete", "patch"), all("certificates.k8s.io", "certificatesigningrequests", "create"),
	)
	// What starters write down of drivers; a right to create can't be narrowed to a name.
	granted := deploy.Right{Resource: "configmaps", Namespace: deploy.Namespace, Verb: "create"}
	for _, account := range []deploy.Account{p.accounts.Starter, p.accounts.Worker} {
		for _, right := range dangerous {
			if account.User == p.accounts.Starter.User && right == granted {
				continue
			}
			allowed, err := deploy.Allows(p.t.Context(), p.kube, account.User, right)
			if err != nil {
				p.t.Fatal(err)
			}
			if allowed {
				p.t.Errorf("%s may %s", account.User, right)
			}
		}
	}
	for account, right := range map[string]deploy.Right{
		p.accounts.Starter.User: {Group: "resource.k8s.io", Resource: "devicetaintrules", Verb: "create"},
		p.accounts.Worker.User:  {Group: "coordination.k8s.io", Resource: "leases", Namespace: deploy.Namespace, Verb: "create"},
	} {
		// This cluster gives ServiceAccounts all rights on rules, so it asks what is shipped.
		if p.accounts.Granted[account][right] {
			p.t.Errorf("%s may %s", account, right)
		}
	}
}

// tenant tries, with the right to edit in a namespace, to write what Sickbay believes.
func (p *policed) tenant() {
	p.t.Helper()
	ctx := p.t.Context()
	if _, err := p.kube.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "tenant"}},
	}, metav1.CreateOptions{}); err != nil {
		p.t.Fatal(err)
	}
	may := func(right deploy.Right) bool {
		allowed, err := deploy.Allows(ctx, p.kube, "tenant", right)
		if err != nil {
			p.t.Fatal(err)
		}
		return allowed
	}
	p.eventually("the tenant may edit", 10*time.Second, func(context.Context) error {
		if !may(deploy.Right{Resource: "pods", Namespace: "default", Verb: "create"}) {
			return errors.New("not yet")
		}
		return nil
	})
	for _, right := range []deploy.Right{
		{Resource: "pods", Subresource: "status", Namespace: "default", Verb: "update"},
		{Resource: "pods", Subresource: "status", Namespace: "default", Verb: "patch"},
		{Group: "resource.k8s.io", Resource: "resourceclaims", Subresource: "status", Namespace: "default", Verb: "update"},
		{Group: "resource.k8s.io", Resource: "resourceslices", Verb: "create"},
		{Group: "resource.k8s.io", Resource: "devicetaintrules", Verb: "create"},
		{Group: "resource.k8s.io", Resource: "devicetaintrules", Verb: "delete"},
		{Group: "resource.k8s.io", Resource: "devicetaintrules", Verb: "list"},
	} {
		if may(right) {
			p.t.Errorf("a tenant may %s", right)
		}
	}
}

// oneMark marks one device, and returns a terminal for an administrator to look at it.
func (p *policed) oneMark() []string {
	p.t.Helper()
	key, err := device.NewDRA("gpu.example.com", "node-0", "gpu-0")
	if err != nil {
		p.t.Fatal(err)
	}
	report, err := p.marks.Put(p.t.Context(), put(key, 1796011403539, 1))
	if err != nil || report.Outcome != quarantine.OutcomeInForce {
		p.t.Fatalf("the mark: %+v, %v", report, err)
	}
	kubectl, err := deploy.FindKubectl(p.t.Context(), "")
	if err != nil {
		p.t.Fatal(err)
	}
	return append(pages.Terminal(p.t, filepath.Join(kubectl.Folder(), "kubectl")), "KUBECONFIG="+p.stack.Kubeconfig())
}
