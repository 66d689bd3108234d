package starter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// The scene is a cluster as the starter's memory sees it, with a recorder in the
// place of Temporal: what is under test is what would be sent.

var (
	errNoCase   = errors.New("no case")
	errAway     = errors.New("temporal is away")
	errRefused  = errors.New("refused")
	startOfTime = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
)

// call is one call that a case received.
type call struct {
	key   device.Key
	event quarantine.Event
	open  bool
}

// recorder stands where the device workflows do. A device has a case from the
// first Open on, until the test ends it.
type recorder struct {
	mu      sync.Mutex
	calls   []call
	asked   int
	running map[device.Key]bool
	fail    error
}

func (r *recorder) Open(_ context.Context, key device.Key, event quarantine.Event, _ string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	r.calls = append(r.calls, call{key, event, true})
	r.running[key] = true
	return nil
}

func (r *recorder) Tell(_ context.Context, key device.Key, event quarantine.Event, _ string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.fail != nil:
		return r.fail
	case !r.running[key]:
		return fmt.Errorf("%s: %w", key, errNoCase)
	}
	r.calls = append(r.calls, call{key, event, false})
	return nil
}

func (r *recorder) Running(_ context.Context, key device.Key) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	return r.running[key], r.fail
}

func (r *recorder) OpenCases(context.Context) (func(device.Key) bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	open := maps.Clone(r.running)
	return func(key device.Key) bool { return open[key] }, nil
}

func (r *recorder) failWith(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

// end closes a case, as the workflow does.
func (r *recorder) end(key device.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, key)
}

// take returns what was received since the last time.
func (r *recorder) take() []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

type scene struct {
	t       *testing.T
	tracker *tracker
	sender  *sender
	cases   *recorder
	clock   *clocktesting.FakeClock
	version int
}

func testOptions(cases Cases, c clock.WithTicker) Options {
	return Options{
		Cases: cases, Answers: Answers{NoCase: errNoCase, Retryable: func(err error) bool { return errors.Is(err, errAway) }},
		Catalogue: reason.Builtin(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Registerer: prometheus.NewRegistry(), Clock: c, Identity: "a", Namespace: "sickbay",
	}.withDefaults()
}

// newScene makes a starter's memory that has listed everything and leads.
func newScene(t *testing.T, change ...func(*Options)) *scene {
	s := newStandby(t, change...)
	s.tracker.listed()
	s.lead()
	return s
}

// newStandby makes one that watches and doesn't lead.
func newStandby(t *testing.T, change ...func(*Options)) *scene {
	t.Helper()
	fake := clocktesting.NewFakeClock(startOfTime)
	cases := &recorder{running: map[device.Key]bool{}}
	options := testOptions(cases, fake)
	for _, c := range change {
		c(&options)
	}
	m := newMetrics()
	settling := newSettling(fake, options.Timing)
	tracker := newTracker(options, settling, m)
	q := newQueue(options.Timing, fake)
	t.Cleanup(q.ShutDown)
	return &scene{
		t: t, tracker: tracker, cases: cases, clock: fake, version: 100,
		sender: &sender{
			tracker: tracker, cases: cases, answers: options.Answers, queue: q, settling: settling,
			timing: options.Timing, log: options.Log, metrics: m, checks: flowcontrol.NewFakeAlwaysRateLimiter(),
		},
	}
}

func (s *scene) lead() { s.tracker.attach(s.sender.queue.add) }

// send serves everything that waits, and returns what was received.
func (s *scene) send() []call {
	s.t.Helper()
	for range 100_000 {
		if s.sender.queue.Len() == 0 {
			return s.cases.take()
		}
		s.sender.next(s.t.Context())
	}
	s.t.Fatal("the queue never runs empty")
	return nil
}

// pass lets time go by, and pools come to rest.
func (s *scene) pass(d time.Duration) {
	s.clock.Step(d)
	s.tracker.settleNodes()
	s.tracker.settleInventory()
	s.tracker.settleOffers()
	s.tracker.settleDrivers()
	s.tracker.settleUnprepared()
	s.tracker.logUnmapped()
	s.tracker.tidy()
}

func (s *scene) next() device.Version {
	s.version++
	return device.Version(strconv.Itoa(s.version))
}

const (
	driver = "gpu.nvidia.com"
	plugin = "nvidia.com/gpu"
	xid79  = "XID 79: GPU has fallen off the bus"
	xid13  = "XID 13: Graphics Engine Exception"
	xid94  = "XID 94: Contained ECC error"
)

func gpu(node, name string) device.Key {
	return device.Key{Driver: driver, Pool: node, Device: name}
}

func replica(node, id string) device.Key {
	return device.Key{Node: node, Resource: plugin, ID: id}
}

func entry(key device.Key, health device.Health, message string) device.Entry {
	if key.Path() == device.PathPlugin {
		return device.Entry{Name: key.Resource, ResourceID: key.ID, Health: health}
	}
	return device.Entry{Name: "claim:accel", ResourceID: key.String(), Health: health, Message: message}
}

// podOn builds a Pod with one running container and the claim "<name>-accel".
func podOn(node, name string, entries ...device.Entry) device.Pod {
	return device.Pod{
		Ref:  device.PodRef{Namespace: "team-kestrel", Name: name, UID: "uid-" + name},
		Node: node, Claims: []device.PodClaim{{Name: "accel", Claim: name + "-accel"}},
		Containers: []device.Container{{Name: "main", Entries: entries}},
	}
}

// see delivers a Pod as the watch would, at the next version.
func (s *scene) see(p device.Pod) device.Pod {
	p.ResourceVersion = s.next()
	s.tracker.podSeen(p)
	return p
}

// report is the shortest way to let a Pod say something of one device.
func (s *scene) report(pod string, key device.Key, health device.Health, message string) device.Pod {
	node := key.Node
	if key.Path() == device.PathDRA {
		node = key.Pool
	}
	return s.see(podOn(node, pod, entry(key, health, message)))
}

// slice delivers a pool of one slice with devices named after their UUIDs.
func (s *scene) slice(node string, generation int64, devices ...device.Listed) {
	s.tracker.sliceSeen(node+"-gpus", device.Slice{
		Driver: driver, Pool: node, Node: node, Generation: generation, SliceCount: 1, Devices: devices,
	})
}

func listed(name, uuid string) device.Listed {
	d := device.Listed{Name: name}
	if uuid != "" {
		d.Attributes = map[string]string{"uuid": uuid}
	}
	return d
}

// allocate delivers the claim of a Pod with its results.
func (s *scene) allocate(pod string, keys ...device.Key) {
	claim := device.Claim{Namespace: "team-kestrel", Name: pod + "-accel", UID: "claim-" + pod}
	for _, key := range keys {
		claim.Results = append(claim.Results, device.Allocated{Request: "gpu", Device: key})
	}
	s.tracker.claimSeen(claim)
}

// observed takes the one call apart that is expected to carry readings.
func observed(t *testing.T, calls []call, key device.Key, open bool) quarantine.Observed {
	t.Helper()
	if len(calls) != 1 {
		t.Fatalf("%d signals, want one: %+v", len(calls), calls)
	}
	return observedIn(t, calls[0], key, open)
}

func observedIn(t *testing.T, c call, key device.Key, open bool) quarantine.Observed {
	t.Helper()
	e, ok := c.event.(quarantine.Observed)
	if !ok || c.key != key || c.open != open {
		t.Fatalf("signal %+v, want readings of %s with open %t", c, key, open)
	}
	return e
}

func none(t *testing.T, calls []call, when string) {
	t.Helper()
	if len(calls) != 0 {
		t.Fatalf("%s: %d signals, want none; the first: %+v", when, len(calls), calls[0])
	}
}

// only takes the one call apart that is expected to carry an event of type E.
func only[E quarantine.Event](t *testing.T, calls []call, key device.Key, open bool) E {
	t.Helper()
	if len(calls) != 1 {
		t.Fatalf("%d signals, want one: %+v", len(calls), calls)
	}
	e, ok := calls[0].event.(E)
	if !ok || calls[0].key != key || calls[0].open != open {
		t.Fatalf("signal %+v, want %T of %s with open %t", calls[0], e, key, open)
	}
	return e
}
