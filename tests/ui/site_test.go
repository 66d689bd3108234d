// Package ui tests what an operator reads of cases in Temporal's own UI, in a real
// browser: Sickbay as it is deployed, on a control plane with simulated nodes, and a
// device in every phase that there is.
package ui

import (
	"context"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/browser"
	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

func TestMain(m *testing.M) { product.Main(m) }

// site is Sickbay on a control plane with simulated nodes, and a browser.
type site struct {
	t        *testing.T
	stack    *stack.Stack
	nodes    *simnode.Cluster
	kube     kubernetes.Interface
	dynamic  dynamic.Interface
	temporal client.Client
	cases    *devicewf.Client
	browser  *browser.Browser
	binary   string
}

// newSite has the given nodes, and a starter; no worker runs yet.
func newSite(t *testing.T, nodes ...simnode.Node) *site {
	t.Helper()
	st := stack.Start(t, stack.Options{Kubernetes: "1.37", Temporal: true, SearchAttributes: product.SearchAttributes()})
	s := &site{
		t: t, stack: st, browser: browser.Start(t, st),
		kube: kubernetes.NewForConfigOrDie(st.RESTConfig()), dynamic: dynamic.NewForConfigOrDie(st.RESTConfig()),
	}
	var err error
	s.binary, err = product.Shared()
	s.must(err)
	s.nodes = simnode.Start(t, st.SimulatorConfig(), simnode.Options{HeartbeatEvery: time.Second})
	s.must(s.nodes.Add(t.Context(), nodes...))
	s.temporal, err = client.DialContext(t.Context(), client.Options{
		HostPort: st.TemporalAddress(), Namespace: st.TemporalNamespace(), Logger: sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	s.must(err)
	t.Cleanup(s.temporal.Close)
	s.cases = devicewf.NewClient(s.temporal, "sickbay")
	s.run("starter", "starter", "SICKBAY_MARK_CHECK=1s", "SICKBAY_STORM_GATHER=1s", "SICKBAY_STORM_PERCENT=100", "SICKBAY_STORM_NODE_DEVICES=16")
	return s
}

func (s *site) run(command, name string, env ...string) {
	s.t.Helper()
	_, err := product.Start(s.t.Context(), s.stack, product.Service{Binary: s.binary, Command: command, Name: name, Env: env})
	s.must(err)
}

// work runs a worker that enforces, with such a grace window.
func (s *site) work(name string, grace time.Duration) {
	s.t.Helper()
	s.run("worker", name, "SICKBAY_MODE=enforce", "SICKBAY_GRACE="+grace.String(), "SICKBAY_HYSTERESIS=1s", "SICKBAY_COOL_DOWN=1s",
		"SICKBAY_RECHECK_FIRST=1s", "SICKBAY_RECHECK_MAX=1m", "SICKBAY_SETTLE_POOL=1s", "SICKBAY_STOP_TIMEOUT=5s")
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// hold makes a Pod that has a device.
func (s *site) hold(pod, node, name string) device.Key {
	s.t.Helper()
	_, err := s.nodes.Place(s.t.Context(), "default", pod, node, name)
	s.must(err)
	return s.key(node, name)
}

func (s *site) key(node, name string) device.Key {
	s.t.Helper()
	key, err := device.NewDRA(simnode.DefaultDriver, node, name)
	s.must(err)
	return key
}

// set lets the driver report a device's health.
func (s *site) set(key device.Key, health corev1.ResourceHealthStatus, message string) {
	s.t.Helper()
	_, err := s.nodes.Set(s.t.Context(), key.Pool, key.Device, health, message)
	s.must(err)
}

func (s *site) end(pod string) {
	s.t.Helper()
	s.must(s.kube.CoreV1().Pods("default").Delete(s.t.Context(), pod, metav1.DeleteOptions{}))
}

// await waits until the case of a device is as wanted.
func (s *site) await(key device.Key, wanted func(quarantine.Case) bool) {
	s.t.Helper()
	var last quarantine.Case
	err := wait.PollUntilContextTimeout(s.t.Context(), 50*time.Millisecond, 40*time.Second, true, func(ctx context.Context) (bool, error) {
		state, err := s.cases.State(ctx, key)
		if err != nil {
			return false, nil // it may not be there yet, or its worker only just
		}
		last = state.Case
		return wanted(last), nil
	})
	if err != nil {
		s.t.Fatalf("case of %s: %v; it is %s, waiting %q, mark %q", key, err, last.Phase, last.Waiting, last.Mark.State)
	}
}

// page is where the UI has a tab of a device's workflow: of its latest run.
func (s *site) page(key device.Key, tab string) string {
	s.t.Helper()
	id := devicewf.ID(key)
	described, err := s.temporal.DescribeWorkflow(s.t.Context(), id, "")
	s.must(err)
	return s.namespace() + "/workflows/" + url.PathEscape(id) + "/" + described.WorkflowExecution.RunID + "/" + tab
}

// list is where the UI lists the workflows that a query finds.
func (s *site) list(query string) string {
	return s.namespace() + "/workflows?query=" + url.QueryEscape(query)
}

func (s *site) namespace() string {
	return s.stack.TemporalUI() + "/namespaces/" + s.stack.TemporalNamespace()
}
