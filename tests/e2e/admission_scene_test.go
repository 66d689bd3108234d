package e2e

// This file sets a cluster up whose admission policies are tried.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// policed is a cluster whose policies are tried: ServiceAccounts may do everything to
// DeviceTaintRules as far as RBAC goes, so that what is refused the policies refuse.
type policed struct {
	*cluster
	version string
	admin   rules
	count   int
}

func (p *policed) rulesOf(config *rest.Config) rules {
	p.t.Helper()
	config = rest.CopyConfig(config)
	if config.WarningHandlerWithContext == nil {
		config.WarningHandler = rest.NoWarnings{}
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		p.t.Fatal(err)
	}
	return client.Resource(schema.GroupVersionResource{Group: "resource.k8s.io", Version: p.version, Resource: "devicetaintrules"})
}

// serviceAccount makes an account with every right on DeviceTaintRules.
func (p *policed) serviceAccount(namespace, name string) *rest.Config {
	p.t.Helper()
	ctx := p.t.Context()
	_, err := p.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		p.t.Fatal(err)
	}
	_, err = p.kube.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		p.t.Fatal(err)
	}
	config, err := p.stack.ServiceAccountConfig(ctx, namespace, name)
	if err != nil {
		p.t.Fatal(err)
	}
	return config
}

// mark is the mark of a device that has none yet, as a worker writes it, edited.
func (p *policed) mark(edits ...edit) *unstructured.Unstructured {
	p.t.Helper()
	p.count++
	key, err := device.NewDRA("gpu.example.com", "node-0", fmt.Sprintf("gpu-%d", p.count))
	if err != nil {
		p.t.Fatal(err)
	}
	mark, err := kube.NewMark(put(key, 1000, 1))
	if err != nil {
		p.t.Fatal(err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(mark)
	if err != nil {
		p.t.Fatal(err)
	}
	rule := &unstructured.Unstructured{Object: content}
	rule.SetAPIVersion("resource.k8s.io/" + p.version)
	rule.SetKind("DeviceTaintRule")
	without("metadata", "creationTimestamp")(rule)
	without("status")(rule)
	both(edits...)(rule)
	return rule
}

// there is a rule that an administrator made.
func (p *policed) there(edits ...edit) *unstructured.Unstructured {
	p.t.Helper()
	rule, err := p.admin.Create(p.t.Context(), p.mark(edits...), metav1.CreateOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return rule
}

// police starts a cluster with what is shipped, and waits until it is in force.
func police(t *testing.T, version string, apis []string) *policed {
	t.Helper()
	var flags []string
	if version != "1.36" { // which serves all of them in this stack
		for _, api := range apis {
			flags = append(flags, "resource.k8s.io/"+api+"=true")
		}
		flags = []string{"--runtime-config=" + strings.Join(flags, ",")}
	}
	p := &policed{cluster: start(t, stack.Options{Kubernetes: version, APIServerFlags: flags, Provokes: true}, 0, 0), version: apis[0]}
	p.admin = p.rulesOf(p.stack.RESTConfig())
	everybody := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "every-right-on-rules"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"devicetaintrules", "devicetaintrules/status"}, Verbs: []string{"*"}},
	}}
	if _, err := p.kube.RbacV1().ClusterRoles().Create(t.Context(), everybody, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: everybody.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: everybody.Name},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts"},
			{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "sickbay"},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.awaitPolicy()
	dryRun, probe := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}, p.mark()
	heard := &warnings{}
	config := rest.CopyConfig(p.stack.RESTConfig())
	config.WarningHandlerWithContext = heard
	admin := p.rulesOf(config)
	p.eventually("the lookalikes' policy is in force", 20*time.Second, func(ctx context.Context) error {
		if _, err := admin.Create(ctx, probe, dryRun); err != nil {
			return err
		}
		if len(heard.take()) == 0 {
			return errors.New("no warning")
		}
		return nil
	})
	return p
}

// warnings are what the API server says beside its answer.
type warnings struct {
	mu   sync.Mutex
	said []string
}

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.said
	w.said = nil
	return said
}
