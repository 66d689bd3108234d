package activities

// This file publishes decisions as Kubernetes Events on the device's node and on
// the Pods that hold it.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/telemetry"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

const (
	// eventsPerSecond and eventsAtOnce bound the calls for Events of one worker,
	// whatever happens to the fleet.
	eventsPerSecond, eventsAtOnce = 5, 100
	// eventsWaiting bounds the decisions that wait to be published.
	eventsWaiting = 2_000
	// eventBatch bounds those of one device that are handed over at once, the
	// latest: the recorder drops what comes faster than it writes, and one device's
	// flood must not take another's Events away.
	eventBatch = 50
	// eventTries is how often a case is asked where its device is.
	eventTries = 3
	// refusedFor is the default of Events.RefusedFor.
	refusedFor = 10 * time.Minute
)

// StateReader tells what a device's case knows.
type StateReader interface {
	State(ctx context.Context, key device.Key) (devicewf.State, error)
}

// Events publishes decisions as Kubernetes Events. It is a courtesy: nobody waits
// for it, what it can't do fails nothing else, and what is too much is left out.
// client-go's recorder counts an Event that says the same again instead of making
// another, joins those that are alike, and lets 25 at once and then one in five
// minutes through for each object; all calls together have a bound of their own.
type Events struct {
	// RefusedFor is how long nothing is published in a namespace where the right is
	// missing, until it is tried again. Default 10 min. Set it before Run.
	RefusedFor time.Duration

	client typedv1.EventsGetter
	cases  StateReader
	log    *slog.Logger
	made   *prometheus.CounterVec
	limit  flowcontrol.PassiveRateLimiter

	mu      sync.Mutex
	waiting []announced
	wake    chan struct{}
	// refused is until when no Events are written in a namespace.
	refused map[string]time.Time
}

// announced is a decision that waits to be published: about a device, about an incident
// on a node, or about a whole node.
type announced struct {
	device device.Key
	notice quarantine.Notice
	tries  int

	node     string
	incident incident.Notice
	// whole is set where it is about the whole node, and no incident.
	whole *isolation.Notice
}

// NewEvents returns what publishes; it counts in registerer. Nothing runs before Run.
func NewEvents(client typedv1.EventsGetter, cases StateReader, log *slog.Logger, registerer prometheus.Registerer) (*Events, error) {
	e := &Events{
		client: client, cases: cases, log: log, RefusedFor: refusedFor, wake: make(chan struct{}, 1), refused: map[string]time.Time{},
		limit: flowcontrol.NewTokenBucketPassiveRateLimiter(eventsPerSecond, eventsAtOnce),
		made:  telemetry.KubernetesEvents.NewCounter(),
	}
	return e, registerer.Register(e.made)
}

// Announce takes decisions in. It never blocks.
func (e *Events) Announce(key device.Key, notices []quarantine.Notice) {
	var all []announced
	for _, n := range notices {
		all = append(all, announced{device: key, notice: n})
	}
	e.announce(all)
}

// AnnounceIncident takes an incident's decisions in. Only those of a node are
// Events: a driver and a cluster are no objects that anybody describes.
func (e *Events) AnnounceIncident(scope incident.Scope, notices []incident.Notice) {
	if scope.Node == "" {
		return
	}
	var all []announced
	for _, n := range notices {
		all = append(all, announced{node: scope.Node, incident: n})
	}
	e.announce(all)
}

func (e *Events) announce(all []announced) {
	e.mu.Lock()
	e.waiting = append(e.waiting, all...)
	extra := max(len(e.waiting)-eventsWaiting, 0)
	e.waiting = e.waiting[extra:]
	e.mu.Unlock()
	e.made.WithLabelValues("dropped").Add(float64(extra))
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Run publishes until ctx ends.
func (e *Events) Run(ctx context.Context) {
	// What the recorder logs of each Event, this says once.
	broadcaster := record.NewBroadcaster(record.WithContext(klog.NewContext(ctx, klog.Logger{})))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&eventSink{ctx: ctx, Events: e})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "sickbay"}).WithLogger(klog.Logger{})
	for ctx.Err() == nil {
		batch := e.take()
		if len(batch) == 0 {
			select {
			case <-ctx.Done():
			case <-e.wake:
			}
			continue
		}
		if err := e.publish(ctx, recorder, batch); err != nil {
			e.again(batch, err)
			timer := time.NewTimer(time.Second)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// take takes what waits of the device whose turn it is.
func (e *Events) take() []announced {
	e.mu.Lock()
	defer e.mu.Unlock()
	var batch, rest []announced
	for _, a := range e.waiting {
		if a.device == e.waiting[0].device && a.node == e.waiting[0].node {
			batch = append(batch, a)
		} else {
			rest = append(rest, a)
		}
	}
	e.waiting = rest
	extra := max(len(batch)-eventBatch, 0)
	e.made.WithLabelValues("dropped").Add(float64(extra))
	return batch[extra:]
}

// again lets decisions wait for another try, unless they had enough.
func (e *Events) again(batch []announced, err error) {
	for i := range batch {
		batch[i].tries++
	}
	if batch[0].tries >= eventTries {
		e.made.WithLabelValues("failed").Add(float64(len(batch)))
		e.log.Debug("decisions aren't published as Events: their case doesn't answer", "device", batch[0].device.String(), "error", err)
		return
	}
	e.mu.Lock()
	e.waiting = append(e.waiting, batch...)
	e.mu.Unlock()
}

// publish hands the decisions about one device, or one node, to the recorder.
func (e *Events) publish(ctx context.Context, recorder record.EventRecorder, batch []announced) error {
	if node := batch[0].node; node != "" {
		for _, a := range batch {
			kind, reason, message := eventOfIncident(node, a.incident)
			if a.whole != nil {
				kind, reason, message = eventOfNode(node, *a.whole)
			}
			recorder.Event(nodeReference(node), kind, reason, message)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	state, err := e.cases.State(ctx, batch[0].device)
	if err != nil && !errors.Is(err, devicewf.ErrNoCase) {
		return err
	}
	objects := concerned(batch[0].device, state.Case)
	for _, a := range batch {
		kind, reason, message := eventOf(a.device, a.notice)
		for _, object := range objects {
			recorder.Event(object, kind, reason, message)
		}
	}
	return nil
}

// concerned are the objects that a device's Events are about: its node, and the
// Pods that hold it.
func concerned(key device.Key, c quarantine.Case) []*corev1.ObjectReference {
	var objects []*corev1.ObjectReference
	node := c.Node
	if node == "" {
		node = key.Node
	}
	if node != "" {
		objects = append(objects, nodeReference(node))
	}
	var pods []device.PodRef
	for _, h := range c.Holders {
		pods = append(pods, h.Pod)
	}
	for _, r := range c.Reports {
		if !r.Ended && !r.Monitor {
			pods = append(pods, r.Pod)
		}
	}
	slices.SortFunc(pods, func(a, b device.PodRef) int {
		switch {
		case a.UID < b.UID:
			return -1
		case a.UID > b.UID:
			return 1
		}
		return 0
	})
	for _, pod := range slices.CompactFunc(pods, func(a, b device.PodRef) bool { return a.UID == b.UID }) {
		objects = append(objects, &corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID),
		})
	}
	return objects
}

// nodeReference is a node as the kubelet's own Events name it: kubectl describe finds
// them by its name in place of its UID, which nothing here knows.
func nodeReference(name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
}

// eventSink writes Events for the recorder, within bounds and where that is
// allowed. The recorder tries nothing again that is answered by a status.
type eventSink struct {
	*Events
	ctx context.Context
}

// Create implements record.EventSink.
func (s *eventSink) Create(event *corev1.Event) (*corev1.Event, error) {
	return s.write("create", event, func() (*corev1.Event, error) {
		return s.client.Events(event.Namespace).CreateWithEventNamespaceWithContext(s.ctx, event)
	})
}

// Update implements record.EventSink. The recorder patches instead.
func (s *eventSink) Update(event *corev1.Event) (*corev1.Event, error) {
	return nil, apierrors.NewMethodNotSupported(corev1.Resource("events"), "update")
}

// Patch implements record.EventSink.
func (s *eventSink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.write("patch", event, func() (*corev1.Event, error) {
		return s.client.Events(event.Namespace).Patch(s.ctx, event.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{})
	})
}

func (s *eventSink) write(verb string, event *corev1.Event, call func() (*corev1.Event, error)) (*corev1.Event, error) {
	s.mu.Lock()
	until, was := s.refused[event.Namespace]
	s.mu.Unlock()
	if was && time.Now().Before(until) {
		s.made.WithLabelValues("refused").Inc()
		return nil, apierrors.NewForbidden(corev1.Resource("events"), event.Name, errors.New("it was just now"))
	}
	if !s.limit.TryAccept() {
		s.made.WithLabelValues("dropped").Inc()
		return nil, apierrors.NewTooManyRequestsError("a worker's Events are bounded")
	}
	written, err := call()
	switch {
	case err == nil:
		s.made.WithLabelValues("published").Inc()
		s.allowed(event.Namespace, was)
	case apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		s.made.WithLabelValues("refused").Inc()
		s.forbidden(verb, event.Namespace, err)
	case verb == "patch" && apierrors.IsNotFound(err):
		// It is older than the API server keeps Events; the recorder makes another.
	default:
		s.made.WithLabelValues("failed").Inc()
	}
	return written, err
}

// forbidden stops Events in a namespace for a while. The first refusal is said
// with its remedy; those after it, until something was allowed, are the same.
func (e *Events) forbidden(verb, namespace string, err error) {
	e.mu.Lock()
	first := len(e.refused) == 0
	e.refused[namespace] = time.Now().Add(e.RefusedFor)
	e.mu.Unlock()
	if first {
		e.log.Warn(fmt.Sprintf("decisions aren't published as Kubernetes Events where the right is missing; log, directory and Temporal have them all. "+
			"Grant create and patch on events in all namespaces, as ClusterRole sickbay-worker of deploy/base/rbac.yaml does; it is tried again every %s", e.RefusedFor),
			"verb", verb, "namespace", namespace, "error", err)
	}
}

func (e *Events) allowed(namespace string, was bool) {
	if !was {
		return
	}
	e.mu.Lock()
	delete(e.refused, namespace)
	e.mu.Unlock()
	e.log.Info("decisions are published as Kubernetes Events again", "namespace", namespace)
}
