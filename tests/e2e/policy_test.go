package e2e

// This file tries what the admission policies let Sickbay's accounts do, and what
// they tell everybody else.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/pages"
	"github.com/sickbay-dev/sickbay/tests/stack"
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

// What Sickbay's own accounts may write is bounded by the API server, whatever
// RBAC grants them: marks of single devices that evict nobody, and no rule of
// anybody else. They may do nothing else that is dangerous, and a tenant can write
// neither marks nor health. Proves a part of Q5 and of Q3.
func TestWhateverRunsAsSickbayCanOnlyMark(t *testing.T) {
	latest := stack.Versions()[len(stack.Versions())-1]
	for _, release := range stack.Versions() {
		t.Run(release, func(t *testing.T) {
			apis := map[string][]string{"1.36": {"v1beta2", "v1alpha3"}, "1.37": {"v1", "v1beta2", "v1alpha3"}}[release]
			p := police(t, release, apis)
			if release == latest {
				pages.Run(t, pages.Page{Path: "docs/security.md", Env: p.oneMark(), Update: *updatePage})
			}
			worker, starter := p.accounts.Worker.Config, p.accounts.Starter.Config

			impersonated := rest.CopyConfig(p.stack.RESTConfig())
			impersonated.Impersonate = rest.ImpersonationConfig{UserName: p.accounts.Worker.User}
			grouped := rest.CopyConfig(p.stack.RESTConfig())
			grouped.Impersonate = rest.ImpersonationConfig{UserName: p.accounts.Worker.User, Groups: []string{"system:masters"}}
			person, err := p.stack.UserConfig("sickbay")
			if err != nil {
				t.Fatal(err)
			}

			// An owner that isn't there would have the rule removed.
			home, err := p.kube.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			owner := with([]any{map[string]any{"apiVersion": "v1", "kind": "Namespace", "name": home.Name, "uid": string(home.UID)}}, "metadata", "ownerReferences")
			const (
				key      = "only the taint key"
				effect   = "NoExecute would delete"
				selector = "names driver, pool and device"
				named    = "named sickbay-… and labelled"
				device   = "has to name the device"
				whose    = "somebody else's"
				hung     = "no finalizers and no owners"
				moved    = "A mark stays with its device"
				status   = "no subresource"
				free     = "" // let through
			)
			for sentence, c := range map[string]struct {
				as     *rest.Config
				there  edit // how the mark looks that an administrator made before; nil: there is none
				try    func(rules, *unstructured.Unstructured) error
				change edit   // what is tried to make of it
				want   string // what the refusal says
			}{
				"a mark is made as the worker writes it":       {as: worker, try: create, want: free},
				"a mark is tried without making it":            {as: worker, try: createDry, want: free},
				"a mark that only tells what it would do":      {as: worker, try: create, change: with("None", "spec", "taint", "effect"), want: free},
				"a mark is made by apply":                      {as: worker, try: apply, want: free},
				"a mark of a pool with a slash in its name":    {as: worker, try: create, change: both(with("rack/node-0", "spec", "deviceSelector", "pool"), asMark), want: free},
				"a rule that evicts":                           {as: worker, try: create, change: evicting, want: effect},
				"a rule that evicts, tried without making it":  {as: worker, try: createDry, change: evicting, want: effect},
				"a rule that evicts, by apply":                 {as: worker, try: apply, change: evicting, want: effect},
				"a rule for every device of the cluster":       {as: worker, try: create, change: selecting(), want: selector},
				"a rule for no device":                         {as: worker, try: create, change: without("spec", "deviceSelector"), want: selector},
				"a rule for every device of a driver":          {as: worker, try: create, change: selecting("driver"), want: selector},
				"a rule for a whole pool":                      {as: worker, try: create, change: selecting("driver", "pool"), want: selector},
				"a rule for one name in every pool":            {as: worker, try: create, change: selecting("driver", "device"), want: selector},
				"a rule for one pool of every driver":          {as: worker, try: create, change: selecting("pool", "device"), want: selector},
				"a rule with another taint key":                {as: worker, try: create, change: otherKey, want: key},
				"a rule with a taint key much like ours":       {as: worker, try: create, change: with("sickbay.dev/quarantined-too", "spec", "taint", "key"), want: key},
				"a rule without the label":                     {as: worker, try: create, change: unlabelled, want: named},
				"a rule without any label":                     {as: worker, try: create, change: without("metadata", "labels"), want: named},
				"a rule with somebody else's label":            {as: worker, try: create, change: with("Helm", "metadata", "labels", kube.ManagedByLabel), want: named},
				"a rule with an empty label":                   {as: worker, try: create, change: with("", "metadata", "labels", kube.ManagedByLabel), want: named},
				"a rule under another name":                    {as: worker, try: create, change: renamed("maintenance"), want: named},
				"a rule under a generated other name":          {as: worker, try: create, change: both(without("metadata", "name"), with("maintenance-", "metadata", "generateName")), want: named},
				"a rule under a generated name, that evicts":   {as: worker, try: create, change: both(without("metadata", "name"), with("sickbay-", "metadata", "generateName"), evicting), want: effect},
				"a mark that tells of another device":          {as: worker, try: create, change: about("gpu.example.com/node-0/gpu-0"), want: device},
				"a mark that tells of no device":               {as: worker, try: create, change: without("metadata", "annotations"), want: device},
				"a mark that nobody could remove":              {as: worker, try: create, change: finalizer, want: hung},
				"a mark that goes with somebody else's object": {as: worker, try: create, change: owner, want: hung},

				"a mark is brought up to date":                         {as: worker, there: asIs, try: update, change: with("fatal", "metadata", "labels", kube.LabelSeverity), want: free},
				"a mark is brought up to date by a patch":              {as: worker, there: asIs, try: merge, change: with("fatal", "metadata", "labels", kube.LabelSeverity), want: free},
				"a mark is brought up to date by apply":                {as: worker, there: asIs, try: apply, change: with("2000", "spec", "taint", "value"), want: free},
				"a mark that somebody widened is put right":            {as: worker, there: selecting("driver"), try: update, change: selectsItsDevice, want: free},
				"a mark that somebody made evict is put right":         {as: worker, there: evicting, try: update, change: with("NoSchedule", "spec", "taint", "effect"), want: free},
				"a mark whose key somebody changed is put right":       {as: worker, there: otherKey, try: update, change: with(kube.TaintKey, "spec", "taint", "key"), want: free},
				"a mark with somebody's finalizer is brought up":       {as: worker, there: finalizer, try: update, change: with("2000", "spec", "taint", "value"), want: free},
				"a mark with somebody's owner is brought up":           {as: worker, there: owner, try: update, change: with("2000", "spec", "taint", "value"), want: free},
				"a mark becomes one that evicts":                       {as: worker, there: asIs, try: update, change: evicting, want: effect},
				"a mark becomes one that evicts, by a patch":           {as: worker, there: asIs, try: merge, change: evicting, want: effect},
				"a mark becomes one that evicts, by apply":             {as: worker, there: asIs, try: apply, change: evicting, want: effect},
				"a mark becomes one for every device":                  {as: worker, there: asIs, try: update, change: selecting(), want: selector},
				"a mark becomes one for its whole pool":                {as: worker, there: asIs, try: update, change: without("spec", "deviceSelector", "device"), want: selector},
				"a mark becomes one with another key":                  {as: worker, there: asIs, try: update, change: otherKey, want: key},
				"a mark loses its label":                               {as: worker, there: asIs, try: update, change: unlabelled, want: named},
				"a mark loses its annotation":                          {as: worker, there: asIs, try: update, change: without("metadata", "annotations"), want: device},
				"a mark is turned to another device":                   {as: worker, there: asIs, try: update, change: both(selecting("driver", "pool", "device"), about("gpu.example.com/node-0/gpu-0")), want: moved},
				"a mark gets a finalizer":                              {as: worker, there: asIs, try: update, change: finalizer, want: hung},
				"a mark gets an owner":                                 {as: worker, there: asIs, try: update, change: owner, want: hung},
				"somebody's finalizer is taken off a mark":             {as: worker, there: finalizer, try: update, change: without("metadata", "finalizers"), want: hung},
				"somebody else's rule is made a mark":                  {as: worker, there: foreign, try: update, change: asMark, want: whose},
				"somebody else's rule is made a mark by a patch":       {as: worker, there: foreign, try: merge, change: asMark, want: whose},
				"somebody else's rule is made a mark by apply":         {as: worker, there: foreign, try: apply, change: asMark, want: whose},
				"somebody else's rule under a mark's name is labelled": {as: worker, there: unlabelled, try: update, change: with(kube.ManagedBy, "metadata", "labels", kube.ManagedByLabel), want: whose},

				"the status of a mark is written":         {as: worker, there: asIs, try: updateStatus, want: status},
				"a mark is removed":                       {as: worker, there: asIs, try: remove, want: free},
				"somebody else's rule is removed":         {as: worker, there: both(foreign, renamed("maintenance-1")), try: remove, want: whose},
				"somebody else's rule is removed by dint": {as: worker, there: both(foreign, renamed("maintenance-2")), try: removeForce, want: whose},
				"somebody else's rule is tried to remove": {as: worker, there: both(foreign, renamed("maintenance-3")), try: removeDry, want: whose},
				"a rule with a mark's name and no label":  {as: worker, there: unlabelled, try: remove, want: whose},
				"a rule with our label and another name":  {as: worker, there: renamed("maintenance-4"), try: remove, want: whose},
				"a rule with our label and no device":     {as: worker, there: without("metadata", "annotations"), try: remove, want: whose},
				"a mark whose key somebody changed":       {as: worker, there: otherKey, try: remove, want: "remove it by hand"},

				"the starter makes a rule that evicts":                        {as: starter, try: create, change: evicting, want: effect},
				"the starter removes somebody else's rule":                    {as: starter, there: both(foreign, renamed("maintenance-5")), try: remove, want: whose},
				"any account of the namespace makes a rule that evicts":       {as: p.serviceAccount("sickbay", "default"), try: create, change: evicting, want: effect},
				"the worker's account in another namespace":                   {as: p.serviceAccount("elsewhere", "sickbay-worker"), try: create, change: evicting, want: effect},
				"an account with another name in another namespace":           {as: p.serviceAccount("elsewhere", "worker"), try: create, change: both(foreign, renamed("maintenance-6"), evicting), want: free},
				"a person of that name":                                       {as: person, try: create, change: both(foreign, renamed("maintenance-7"), evicting), want: free},
				"an administrator as the worker":                              {as: impersonated, try: create, change: evicting, want: effect},
				"an administrator as the worker in the administrators' group": {as: grouped, try: create, change: evicting, want: effect},
				"an administrator":                                            {as: p.stack.RESTConfig(), there: both(foreign, renamed("maintenance-8")), try: remove, want: free},
			} {
				t.Run(sentence, func(t *testing.T) {
					rule := p.mark()
					if c.there != nil {
						rule = p.there(c.there)
					}
					name, before := rule.GetName(), said(rule)
					err := p.try(c.try, p.rulesOf(c.as), rule, c.change)
					if c.want == free {
						if err != nil {
							t.Errorf("refused: %v", err)
						}
						return
					}
					if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "sickbay-marks") || !strings.Contains(err.Error(), c.want) {
						t.Errorf("answered %v; want the policy to refuse it because %q", err, c.want)
					}
					after, err := p.admin.Get(t.Context(), name, metav1.GetOptions{})
					if c.there == nil && !apierrors.IsNotFound(err) || c.there != nil && (err != nil || said(after) != before) {
						t.Errorf("the rule changed all the same: %v", err)
					}
				})
			}
			p.collection(p.accounts.Worker.Config)
			p.nothingElse()
			p.tenant()
			p.lookalikes()
			p.moved()
			for _, api := range apis[1:] {
				p.version = api
				p.admin = p.rulesOf(p.stack.RESTConfig())
				rules := p.rulesOf(p.accounts.Worker.Config)
				for sentence, err := range map[string]error{
					effect:   create(rules, p.mark(evicting)),
					selector: p.try(update, rules, p.there(asIs), selecting()),
					whose:    remove(rules, p.there(foreign)),
				} {
					if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), sentence) {
						t.Errorf("by %s: answered %v; want it refused because %q", api, err, sentence)
					}
				}
				if err := create(rules, p.mark()); err != nil {
					t.Errorf("by %s: a mark: %v", api, err)
				}
			}
		})
	}
}

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
		"sickbay-worker":      {Namespace: "infirmary", Components: []string{deploy.Enforce}},
		"blue-sickbay-worker": {Namespace: "wards", Prefix: "blue-", Components: []string{deploy.Enforce}},
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
