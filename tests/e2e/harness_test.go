// Package e2e tests Sickbay's own parts together on a real control plane, with
// simulated nodes and a real Temporal server.
package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
	"github.com/sickbay-dev/sickbay/workers"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

const taskQueue = "sickbay"

// cluster is a stack with simulated nodes and the clients that tests use. What a
// test does itself, it does as an administrator; what Sickbay does, as its accounts.
type cluster struct {
	t         testing.TB
	stack     *stack.Stack
	accounts  *deploy.Accounts
	nodes     *simnode.Cluster
	kube      kubernetes.Interface
	dynamic   dynamic.Interface
	discovery discovery.DiscoveryInterface
	temporal  client.Client
	cases     *devicewf.Client
	marks     *kube.MarkWriter
}

// start brings up a stack and nodes "node-0" … with devices "gpu-0" … each. Sickbay
// may make marks in it.
func start(t testing.TB, opts stack.Options, nodes, devices int) *cluster {
	t.Helper()
	return startWith(t, opts, nodes, devices, deploy.Enforce)
}

// startWith is start where Sickbay has the rights of deploy/base and of these
// components of it.
func startWith(t testing.TB, opts stack.Options, nodes, devices int, components ...string) *cluster {
	t.Helper()
	if opts.Temporal {
		opts.SearchAttributes = product.SearchAttributes()
	}
	c := &cluster{t: t, stack: stack.Start(t, opts)}
	c.kube = kubernetes.NewForConfigOrDie(c.stack.RESTConfig())
	c.dynamic = dynamic.NewForConfigOrDie(c.stack.RESTConfig())
	c.discovery = discovery.NewDiscoveryClientForConfigOrDie(c.stack.RESTConfig())
	var err error
	if c.accounts, err = deploy.Grant(t.Context(), c.stack, components...); err != nil {
		t.Fatal(err)
	}
	worker := c.accounts.Worker.Config
	c.marks = kube.NewMarkWriter(dynamic.NewForConfigOrDie(worker), kube.NewDiscovery(discovery.NewDiscoveryClientForConfigOrDie(worker), time.Second))
	if nodes > 0 {
		c.nodes = simnode.Start(t, c.stack.SimulatorConfig(), simnode.Options{HeartbeatEvery: time.Second})
		if err := c.nodes.Add(t.Context(), simnode.MakeNodes("node", nodes, devices)...); err != nil {
			t.Fatal(err)
		}
	}
	if opts.Temporal {
		c.dialTemporal()
	}
	return c
}

// awaitPolicy waits until the API server holds Sickbay's accounts to marks, which may
// be a second after they got their rights.
func (c *cluster) awaitPolicy() {
	c.t.Helper()
	capabilities, err := kube.Discover(c.t.Context(), c.discovery)
	if err != nil {
		c.t.Fatal(err)
	}
	worker := dynamic.NewForConfigOrDie(c.accounts.Worker.Config).Resource(capabilities.TaintRules)
	evicts := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": capabilities.TaintRules.GroupVersion().String(), "kind": "DeviceTaintRule",
		"metadata": map[string]any{"name": "sickbay-evicts"},
		"spec":     map[string]any{"deviceSelector": map[string]any{"driver": "none.example.com"}, "taint": map[string]any{"key": kube.TaintKey, "effect": "NoExecute"}},
	}}
	c.eventually("a rule that evicts is refused", 20*time.Second, func(ctx context.Context) error {
		_, err := worker.Create(ctx, evicts, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "sickbay-marks") {
			return fmt.Errorf("the API server answers %v", err)
		}
		return nil
	})
}

func (c *cluster) dialTemporal() {
	c.t.Helper()
	options := client.Options{
		HostPort: c.stack.TemporalAddress(), Namespace: c.stack.TemporalNamespace(),
		Logger: sdklog.NewStructuredLogger(quiet()),
	}
	secured, err := c.stack.TemporalTLS()
	if err != nil {
		c.t.Fatal(err)
	}
	if secured != nil {
		options.ConnectionOptions.TLS = secured
		key, err := c.stack.TemporalKey("test", time.Hour, c.stack.TemporalNamespace()+":admin")
		if err != nil {
			c.t.Fatal(err)
		}
		options.Credentials = client.NewAPIKeyStaticCredentials(key)
	}
	temporal, err := client.DialContext(c.t.Context(), options)
	if err != nil {
		c.t.Fatalf("dial Temporal: %v", err)
	}
	c.t.Cleanup(temporal.Close)
	c.temporal = temporal
	if workflows := os.Getenv("RECORD_HISTORIES"); workflows != "" {
		// After the worker stopped and before the server does.
		c.t.Cleanup(func() { c.record(workflows, os.Getenv("RECORD_CORPUS")) })
	}
	c.cases = devicewf.NewClient(temporal, taskQueue)
}

// fastPolicy has windows of seconds where the product's have minutes.
func fastPolicy() quarantine.Policy {
	p := quarantine.DefaultPolicy()
	p.Mode = quarantine.ModeEnforce
	p.Grace, p.RecheckFirst, p.RecheckMax = 20*time.Second, time.Second, 2*time.Second
	p.Hysteresis, p.Stability, p.CoolDown = 2*time.Second, 3*time.Second, time.Second
	p.SettlePool, p.SettlePoolGone, p.SettleNode = 2*time.Second, 2*time.Second, 2*time.Second
	p.MarkRetry = 2 * time.Second
	return p
}

// work runs a worker until the test ends or the returned function is called.
func (c *cluster) work(by quarantine.Policy) (stop func()) {
	c.t.Helper()
	return c.workLogging(by, quiet())
}

// workLogging is work with the worker's log, which is the audit trail too.
func (c *cluster) workLogging(by quarantine.Policy, logger *slog.Logger) (stop func()) {
	c.t.Helper()
	base := policy.DefaultBase()
	base.Quarantine = by
	// A cluster of a few devices is soon full; what is about budgets sets its own.
	none := budget.Limit{None: true}
	base.Limits = budget.Limits{Cluster: none, Class: none, Tenant: none, Node: none}
	inForce := policy.New(base, nil)
	account := c.accounts.Worker.Config
	worker, err := workers.New(workers.Options{
		Temporal: c.temporal, Namespace: c.stack.TemporalNamespace(), TaskQueue: taskQueue,
		Kubernetes: kubernetes.NewForConfigOrDie(account), Dynamic: dynamic.NewForConfigOrDie(account),
		Discovery: discovery.NewDiscoveryClientForConfigOrDie(account),
		Policy:    func() *policy.InForce { return inForce }, Catalogue: reason.Builtin(), Logger: logger, Registerer: prometheus.NewRegistry(),
		StopTimeout: 5 * time.Second,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			c.t.Errorf("worker: %v", err)
		}
	}
	c.t.Cleanup(stop)
	return stop
}

// eventually polls until check returns nil, and fails with its last error.
func (c *cluster) eventually(what string, within time.Duration, check func(context.Context) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), within)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	// The last answer, and not that time ran out while one was asked for.
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			c.t.Fatalf("%s: not within %s: %v", what, within, last)
		case <-ticker.C:
		}
	}
}

// rules lists all DeviceTaintRules of the cluster.
func (c *cluster) rules(ctx context.Context) ([]unstructured.Unstructured, error) {
	capabilities, err := kube.Discover(ctx, c.discovery)
	if err != nil {
		return nil, err
	}
	list, err := c.dynamic.Resource(capabilities.TaintRules).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func (c *cluster) deleteRule(name string) {
	c.t.Helper()
	capabilities, err := kube.Discover(c.t.Context(), c.discovery)
	if err != nil {
		c.t.Fatal(err)
	}
	err = c.dynamic.Resource(capabilities.TaintRules).Delete(c.t.Context(), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		c.t.Fatal(err)
	}
}

// runPod makes a Pod with one device through a claim of its own and waits until
// it runs. It returns the device that the scheduler chose.
func (c *cluster) runPod(name string) device.Key { return c.runPodOf(name, simnode.DefaultDriver) }

// runPodOf is runPod by a DeviceClass.
func (c *cluster) runPodOf(name, class string) device.Key {
	c.t.Helper()
	ctx := c.t.Context()
	c.askForDevice(name, class)
	waiting, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if _, err := c.nodes.AwaitPod(waiting, "default", name, simnode.Running); err != nil {
		c.t.Fatalf("Pod %s: %v", name, err)
	}
	return c.allocated(name)
}

// allocated is the device that a claim has.
func (c *cluster) allocated(claim string) device.Key {
	c.t.Helper()
	object, err := c.kube.ResourceV1().ResourceClaims("default").Get(c.t.Context(), claim, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	view := kube.ClaimView(object)
	if len(view.Results) != 1 {
		c.t.Fatalf("claim %s has %d devices allocated, want 1", claim, len(view.Results))
	}
	return view.Results[0].Device
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
