package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/starter"
	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// sent is one signal that Temporal accepted.
type sent struct {
	key   device.Key
	event quarantine.Event
	open  bool
}

// spy passes everything on to Temporal and keeps what was accepted.
type spy struct {
	cases *devicewf.Client
	mu    sync.Mutex
	sent  []sent
}

func (s *spy) Open(ctx context.Context, key device.Key, event quarantine.Event, traceparent string) error {
	err := s.cases.Open(ctx, key, event, traceparent)
	s.keep(err, sent{key, event, true})
	return err
}

func (s *spy) Tell(ctx context.Context, key device.Key, event quarantine.Event, traceparent string) error {
	err := s.cases.Tell(ctx, key, event, traceparent)
	s.keep(err, sent{key, event, false})
	return err
}

func (s *spy) Running(ctx context.Context, key device.Key) (bool, error) {
	return s.cases.Running(ctx, key)
}

func (s *spy) keep(err error, one sent) {
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, one)
}

func (s *spy) all() []sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]sent(nil), s.sent...)
}

// lines collects log lines.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// observer is a starter under test.
type observer struct {
	*starter.Starter
	spy      *spy
	log      *lines
	registry *prometheus.Registry
	stop     func()
}

// observe runs a starter until the test ends or it is stopped.
func (c *cluster) observe(identity string, change ...func(*starter.Options)) *observer {
	c.t.Helper()
	return c.observeAs(c.accounts.Starter.Config, identity, change...)
}

func (c *cluster) observeAs(config *rest.Config, identity string, change ...func(*starter.Options)) *observer {
	c.t.Helper()
	o := &observer{spy: &spy{cases: c.cases}, log: &lines{}, registry: prometheus.NewRegistry()}
	options := starter.Options{
		Kubernetes: kubernetes.NewForConfigOrDie(config), Dynamic: dynamic.NewForConfigOrDie(config),
		Cases: o.spy, Answers: starter.Answers{NoCase: devicewf.ErrNoCase, Retryable: devicewf.Retryable},
		Catalogue: reason.Builtin(), Log: slog.New(slog.NewTextHandler(o.log, nil)), Registerer: o.registry,
		Identity: identity, Namespace: deploy.Namespace,
		Timing: starter.Timing{
			Lease: 3 * time.Second, Renew: 2 * time.Second, Retry: 200 * time.Millisecond,
			Quiet: 100 * time.Millisecond, SettleLimit: time.Second, InventoryQuiet: 200 * time.Millisecond,
			RetryMax: 500 * time.Millisecond, Recheck: time.Second, SyncLimit: 5 * time.Second,
		},
	}
	for _, f := range change {
		f(&options)
	}
	var err error
	if o.Starter, err = starter.New(options); err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx) }()
	o.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				c.t.Errorf("starter %s: %v", identity, err)
			}
		case <-time.After(30 * time.Second):
			c.t.Errorf("starter %s doesn't end", identity)
		}
	})
	c.t.Cleanup(func() {
		o.stop()
		if c.t.Failed() {
			c.t.Logf("log of starter %s:\n%s", identity, o.log)
		}
	})
	return o
}

// leads waits until the starter leads.
func (c *cluster) leads(o *observer) {
	c.t.Helper()
	c.eventually("the starter leads and sees everything", 20*time.Second, func(context.Context) error {
		if err := o.Ready(); err != nil {
			return err
		}
		if !o.Leading() {
			return fmt.Errorf("it doesn't lead")
		}
		return nil
	})
}

// awaitSent waits until so many signals were accepted, and returns them all.
func (c *cluster) awaitSent(o *observer, want int) []sent {
	c.t.Helper()
	c.eventually(fmt.Sprintf("%d signals", want), 20*time.Second, func(context.Context) error {
		if got := len(o.spy.all()); got < want {
			return fmt.Errorf("%d signals", got)
		}
		return nil
	})
	all := o.spy.all()
	if len(all) != want {
		c.t.Fatalf("%d signals, want %d: %+v", len(all), want, all)
	}
	return all
}

// still makes sure that for a while no further signal is sent.
func (c *cluster) still(o *observer, want int, during time.Duration, why string) {
	c.t.Helper()
	timer := time.NewTimer(during)
	defer timer.Stop()
	select {
	case <-c.t.Context().Done():
	case <-timer.C:
	}
	if all := o.spy.all(); len(all) != want {
		c.t.Fatalf("%s: %d signals, want %d: %+v", why, len(all), want, all)
	}
}

// unhealthy lets a driver report a device Unhealthy, and returns the writes.
func (c *cluster) unhealthy(key device.Key) []simnode.Write {
	c.t.Helper()
	writes, err := c.nodes.Set(c.t.Context(), key.Pool, key.Device, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	if err != nil {
		c.t.Fatal(err)
	}
	return writes
}

// O1, O3, O9: what a kubelet writes into a Pod's status becomes one signal with
// device, Pod, claim, node, message and status version; writing the same again, and
// everything that is well, costs nothing.
func TestAFaultInAPodsStatusIsSignalledOnce(t *testing.T) {
	for _, version := range stack.Versions() {
		t.Run(version, func(t *testing.T) {
			c := start(t, stack.Options{Kubernetes: version, Temporal: true}, 2, 4)
			key, well := c.runPod("train-0"), c.runPod("train-1")
			o := c.observe("a")
			c.leads(o)
			c.still(o, 0, time.Second, "all is well")

			writes := c.unhealthy(key)
			got := c.awaitSent(o, 1)[0]
			e, ok := got.event.(quarantine.Observed)
			if !ok || got.key != key || !got.open || len(e.Readings) != 1 {
				t.Fatalf("signal %+v", got)
			}
			r := e.Readings[0]
			if r.Pod.Name != "train-0" || r.Pod.UID != string(writes[0].UID) || r.Claim != "train-0" || r.Node != key.Pool ||
				r.Message != fallenOff || string(r.Version) != writes[0].ResourceVersion || !r.Fault || r.Reason.Code != "XidFallenOffBus" {
				t.Errorf("reading %+v, want what was written at version %s", r, writes[0].ResourceVersion)
			}
			if e.Incarnation.IsZero() {
				t.Error("the signal doesn't say which hardware it is about")
			}

			for range 20 {
				if _, err := c.nodes.Resync(t.Context(), key.Pool); err != nil {
					t.Fatal(err)
				}
			}
			c.set(well, corev1.ResourceHealthStatusHealthy, "still well")
			c.still(o, 1, time.Second, "the same written again and again")

			c.set(key, corev1.ResourceHealthStatusHealthy, "")
			if all := c.awaitSent(o, 2); all[1].open || all[1].key != key {
				t.Errorf("improvement %+v, want it told to the case", all[1])
			}
		})
	}
}

// O2: a claim of several devices under CDI IDs that disagree is shown as unmapped
// faults and opens no case; one whose devices agree, or that has one device, does.
func TestCDIIDsAreResolvedOrShownAsUnmapped(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 1)
	if err := c.nodes.Add(t.Context(), simnode.Node{Name: "cdi", Pools: []simnode.Pool{{Devices: simnode.MakeDevices(3), CDI: simnode.CDIClaim}}}); err != nil {
		t.Fatal(err)
	}
	for name, devices := range map[string][]string{"one": {"gpu-0"}, "two": {"gpu-1", "gpu-2"}} {
		if _, err := c.nodes.Place(t.Context(), "default", name, "cdi", devices...); err != nil {
			t.Fatal(err)
		}
	}
	o := c.observe("a")
	c.leads(o)
	key := device.Key{Driver: simnode.DefaultDriver, Pool: "cdi", Device: "gpu-0"}
	c.unhealthy(key)
	if all := c.awaitSent(o, 1); all[0].key != key {
		t.Errorf("signal %+v", all[0])
	}
	key.Device = "gpu-1"
	c.unhealthy(key)
	c.eventually("an unmapped fault", 10*time.Second, func(context.Context) error {
		found := o.Unmapped()
		if len(found) != 1 || found[0].Reason != device.SeveralDevices || len(found[0].Candidates) != 2 || found[0].Pod.Name != "two" {
			return fmt.Errorf("unmapped: %+v", found)
		}
		return nil
	})
	c.still(o, 1, time.Second, "one of two devices is bad, and which isn't known")
	key.Device = "gpu-2"
	c.unhealthy(key)
	c.awaitSent(o, 3)
	if found := o.Unmapped(); len(found) != 0 {
		t.Errorf("both are bad, and still unmapped: %+v", found)
	}
}

// O8: a device that its driver takes out of the pool is told to be missing; slices
// that a kubelet wipes at its start are not.
func TestADeviceThatVanishesIsSignalledAndAKubeletRestartIsNot(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 2, 4)
	o := c.observe("a")
	c.leads(o)
	if _, err := c.nodes.RestartKubelet(t.Context(), "node-1"); err != nil {
		t.Fatal(err)
	}
	c.still(o, 0, 2*time.Second, "a kubelet restarted")
	if _, err := c.nodes.RemoveDevice(t.Context(), "node-0", "gpu-3"); err != nil {
		t.Fatal(err)
	}
	all := c.awaitSent(o, 1)
	if e, ok := all[0].event.(quarantine.Inventory); !ok || e.Missing != device.MissingFromPool || !all[0].open || all[0].key.Device != "gpu-3" {
		t.Errorf("signal %+v", all[0])
	}
	if _, err := c.nodes.ReturnDevice(t.Context(), "node-0", "gpu-3"); err != nil {
		t.Fatal(err)
	}
	all = c.awaitSent(o, 2)
	if e, ok := all[1].event.(quarantine.Inventory); !ok || !e.Present || all[1].open {
		t.Errorf("signal %+v", all[1])
	}
}

// A fault survives the Pod that saw it: the Pod is deleted at once, and its device
// still gets its case.
func TestAFaultWhosePodIsDeletedStillGetsItsCase(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, 1, 2)
	key := c.runPod("train-0")
	o := c.observe("a")
	c.leads(o)
	c.unhealthy(key)
	now := int64(0)
	if err := c.kube.CoreV1().Pods("default").Delete(t.Context(), "train-0", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	c.eventually("the case hears that the Pod ended", 20*time.Second, func(context.Context) error {
		ended, fault := false, false
		for _, s := range o.spy.all() {
			for _, r := range s.event.(quarantine.Observed).Readings {
				fault = fault || r.Fault && s.key == key
				ended = ended || r.Ended
			}
		}
		if !fault || !ended {
			return fmt.Errorf("signals %+v", o.spy.all())
		}
		return nil
	})
}
