package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/starter"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

var (
	getOptions    = metav1.GetOptions{}
	listOptions   = metav1.ListOptions{}
	createOptions = metav1.CreateOptions{}
	updateOptions = metav1.UpdateOptions{}
)

// Temporal away at the start and again later loses nothing: the fault that a Pod
// reported and took back meanwhile included.
func TestTemporalAwayLosesNothing(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 4)
	first, second := c.runPod("train-0"), c.runPod("train-1")
	away := func() {
		if err := c.stack.KillPart(stack.Temporal); err != nil {
			t.Fatal(err)
		}
	}
	back := func() {
		if err := c.stack.StartPart(t.Context(), stack.Temporal); err != nil {
			t.Fatal(err)
		}
	}
	away()
	o := c.observe("a")
	c.leads(o)
	c.unhealthy(first)
	c.still(o, 0, time.Second, "Temporal is away")
	back()
	c.awaitSent(o, 1)

	away()
	c.unhealthy(second)
	c.set(second, corev1.ResourceHealthStatusHealthy, "")
	c.still(o, 1, time.Second, "Temporal is away again")
	back()
	c.eventually("the case hears of the fault and of the health that followed it", 20*time.Second, func(context.Context) error {
		var said []string
		for _, one := range o.spy.all()[1:] {
			if one.key != second {
				return fmt.Errorf("signal %+v", one)
			}
			for _, r := range one.event.(quarantine.Observed).Readings {
				said = append(said, string(r.Health))
			}
		}
		if got := strings.Join(said, " "); got != "Unhealthy Healthy" {
			return fmt.Errorf("readings %q", got)
		}
		return nil
	})
}

// Q5: a mark that somebody changes by hand while its case is open is put back. So is
// a case that is lost, from its mark.
func TestAChangedMarkAndALostCaseAreRestored(t *testing.T) {
	for _, version := range stack.Versions() {
		t.Run(version, func(t *testing.T) {
			c := start(t, stack.Options{Kubernetes: version, Temporal: true}, 1, 2)
			c.work(fastPolicy())
			o := c.observe("a")
			c.leads(o)
			key := c.runPod("train-0")
			c.unhealthy(key)
			opened := c.awaitInForce(key)
			c.change(opened.Mark.Name, func(rule *unstructured.Unstructured) {
				if err := unstructured.SetNestedField(rule.Object, "None", "spec", "taint", "effect"); err != nil {
					t.Fatal(err)
				}
			})
			c.awaitCase(key, "mark put back after it was changed", func(s quarantine.Case) error {
				if s.Mark.Restored != 1 || s.Mark.State != quarantine.MarkInForce || s.Mark.Written != s.Mark.Revision || s.Epoch != opened.Epoch {
					return fmt.Errorf("mark %+v, epoch %d", s.Mark, s.Epoch)
				}
				return nil
			})
			rules, err := c.rules(t.Context())
			if err != nil || len(rules) != 1 {
				t.Fatalf("%d rules, %v; want one mark", len(rules), err)
			}
			if effect, _, _ := unstructured.NestedString(rules[0].Object, "spec", "taint", "effect"); effect != "NoSchedule" {
				t.Errorf("effect %s", effect)
			}

			c.deletePod("train-0")
			if err := c.temporal.TerminateWorkflow(t.Context(), devicewf.ID(key), "", "lost"); err != nil {
				t.Fatal(err)
			}
			c.awaitCase(key, "back from its mark", func(s quarantine.Case) error {
				if s.Epoch != opened.Epoch || s.Mark.State != quarantine.MarkInForce || s.Mark.Restored != 0 {
					return fmt.Errorf("%s, epoch %d, mark %+v", s.Phase, s.Epoch, s.Mark)
				}
				return nil
			})
		})
	}
}

func (c *cluster) change(name string, edit func(*unstructured.Unstructured)) {
	c.t.Helper()
	capabilities, err := kube.Discover(c.t.Context(), c.discovery)
	if err != nil {
		c.t.Fatal(err)
	}
	rules := c.dynamic.Resource(capabilities.TaintRules)
	c.eventually("rule "+name+" is changed", 10*time.Second, func(ctx context.Context) error {
		rule, err := rules.Get(ctx, name, getOptions)
		if err != nil {
			return err
		}
		edit(rule)
		_, err = rules.Update(ctx, rule, updateOptions)
		return err
	})
}

// Forbidden calls are named with the verb, the resource and the remedy; the starter
// isn't ready, keeps trying, and works once the right is granted.
func TestMissingRightsAreNamedAndCanBeGrantedLater(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 2)
	key := c.runPod("train-0")
	config, err := c.stack.UserConfig("watcher")
	if err != nil {
		t.Fatal(err)
	}
	c.allow("leases", rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}})
	read := []string{"list", "watch"}
	c.allow("dra", rbacv1.PolicyRule{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims", "resourceslices", "devicetaintrules"}, Verbs: read})
	c.allow("nodes", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: read})
	o := c.observeAs(config, "a")
	c.eventually("the starter says what it may not", 20*time.Second, func(context.Context) error {
		err := o.Ready()
		if !errors.Is(err, starter.ErrForbidden) {
			return fmt.Errorf("ready says %w", errors.Join(err))
		}
		for _, part := range []string{"list pods", "grant", "list and watch on pods"} {
			if !strings.Contains(err.Error(), part) {
				return fmt.Errorf("ready doesn't say %q: %w", part, err)
			}
		}
		if strings.Contains(err.Error(), "nodes") {
			return fmt.Errorf("ready complains of what is allowed: %w", err)
		}
		return nil
	})
	c.unhealthy(key)
	c.still(o, 0, time.Second, "Pods can't be seen")
	c.allow("pods", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: read})
	c.eventually("the starter is ready", 60*time.Second, func(context.Context) error { return o.Ready() })
	c.awaitSent(o, 1)
}

// allow gives the user "watcher" a right.
func (c *cluster) allow(name string, rule rbacv1.PolicyRule) {
	c.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "watcher-" + name}, Rules: []rbacv1.PolicyRule{rule}}
	if _, err := c.kube.RbacV1().ClusterRoles().Create(c.t.Context(), role, createOptions); err != nil {
		c.t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "watcher"}},
	}
	if _, err := c.kube.RbacV1().ClusterRoleBindings().Create(c.t.Context(), binding, createOptions); err != nil {
		c.t.Fatal(err)
	}
}

// A rule of somebody else that selects every device is said and counted (case 33). One
// that selects none, and Sickbay's own, are not.
func TestAForeignRuleThatSelectsEveryDeviceIsReported(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 1)
	o := c.observe("a")
	c.leads(o)
	capabilities, err := kube.Discover(t.Context(), c.discovery)
	if err != nil {
		t.Fatal(err)
	}
	for name, selector := range map[string]any{
		"do-not-apply-empty-selector": map[string]any{},
		"too-wide-device-only":        map[string]any{"device": "gpu-3"},
		"no-selector-matches-none":    nil,
	} {
		spec := map[string]any{"taint": map[string]any{"key": "governor.example.com/quarantine", "value": "q-17", "effect": "None"}}
		if selector != nil {
			spec["deviceSelector"] = selector
		}
		rule := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": capabilities.TaintRules.GroupVersion().String(), "kind": "DeviceTaintRule",
			"metadata": map[string]any{"name": name}, "spec": spec,
		}}
		if _, err := c.dynamic.Resource(capabilities.TaintRules).Create(t.Context(), rule, createOptions); err != nil {
			t.Fatal(err)
		}
	}
	c.eventually("the wide rules are counted", 10*time.Second, func(context.Context) error {
		if n := gauge(t, o, "sickbay_foreign_wide_taint_rules"); n != 2 {
			return fmt.Errorf("%v", n)
		}
		return nil
	})
	for _, name := range []string{"do-not-apply-empty-selector", "every device of the cluster", "too-wide-device-only"} {
		if !strings.Contains(o.log.String(), name) {
			t.Errorf("the log doesn't name %q", name)
		}
	}
	if strings.Contains(o.log.String(), "no-selector-matches-none") {
		t.Error("a rule that matches nothing is reported")
	}
	c.deleteRule("do-not-apply-empty-selector")
	c.deleteRule("too-wide-device-only")
	c.eventually("the count goes down", 10*time.Second, func(context.Context) error {
		if n := gauge(t, o, "sickbay_foreign_wide_taint_rules"); n != 0 {
			return fmt.Errorf("%v", n)
		}
		return nil
	})
}

// gauge reads a metric without labels.
func gauge(t *testing.T, o *observer, name string) float64 {
	t.Helper()
	families, err := o.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// Without the taint API the starter works all the same and says what is missing.
func TestAClusterWithoutTaintRulesIsWatchedAllTheSame(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.36", NoTaintRules: true, Temporal: true}, 1, 1)
	key := c.runPod("train-0")
	o := c.observe("a")
	c.leads(o)
	c.unhealthy(key)
	c.awaitSent(o, 1)
	if !strings.Contains(o.log.String(), "device taint rules are not served") {
		t.Error("the log doesn't say that nothing can be marked")
	}
}

// A taint API that is switched on while the starter runs is found, and the marks in it.
func TestATaintAPIThatAppearsLaterIsWatched(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 2)
	key := device.Key{Driver: simnode.DefaultDriver, Pool: "node-0", Device: "gpu-1"}
	if _, err := c.marks.Put(t.Context(), put(key, 1000, 1)); err != nil {
		t.Fatal(err)
	}
	hidden := &atomic.Bool{}
	hidden.Store(true)
	o := c.observeAs(c.hideTaintRules(hidden), "a", func(o *starter.Options) { o.Timing.Rediscover = 200 * time.Millisecond })
	c.leads(o)
	c.still(o, 0, time.Second, "no marks can be seen")
	if !strings.Contains(o.log.String(), "device taint rules are not served") {
		t.Error("the log doesn't say that nothing can be marked")
	}
	hidden.Store(false)
	all := c.awaitSent(o, 1)
	if m, ok := all[0].event.(quarantine.MarkSeen); !ok || all[0].key != key || !all[0].open || m.Mark.Epoch != 1000 {
		t.Errorf("signal %+v, want the mark", all[0])
	}
}

// hideTaintRules gives access to the API server through a proxy that can hide what
// discovery says of the API group with the taint rules.
func (c *cluster) hideTaintRules(hidden *atomic.Bool) *rest.Config {
	c.t.Helper()
	config := c.accounts.Starter.Config
	transport, err := rest.TransportFor(config)
	if err != nil {
		c.t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		c.t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hidden.Load() && (r.URL.Path == "/apis/resource.k8s.io/v1" || r.URL.Path == "/apis/resource.k8s.io/v1beta2") {
			http.NotFound(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	c.t.Cleanup(server.CloseClientConnections)
	c.t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, QPS: config.QPS, Burst: config.Burst}
}
