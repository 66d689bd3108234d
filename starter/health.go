package starter

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
)

// ErrForbidden is wrapped by what Ready returns while the API server refuses to
// let the starter list or watch something.
var ErrForbidden = errors.New("forbidden")

// eyes is whether each watched resource can be seen. A starter that can't see is
// not ready, and says what is missing; it goes on trying and concludes nothing.
type eyes struct {
	log     *slog.Logger
	metrics *metrics

	clock clock.PassiveClock

	mu     sync.Mutex
	broken map[string]error     // resource → what is wrong with its watch
	heard  map[string]time.Time // resource → when its watch last brought anything
}

func newEyes(log *slog.Logger, m *metrics, c clock.PassiveClock) *eyes {
	return &eyes{log: log, metrics: m, clock: c, broken: map[string]error{}, heard: map[string]time.Time{}}
}

// opened takes in that a resource is listed or watched.
func (e *eyes) opened(resource string) {
	e.metrics.watching.WithLabelValues(resource).Set(1)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard[resource] = e.clock.Now()
	if e.broken[resource] != nil {
		e.log.Info("watching again", "resource", resource)
		delete(e.broken, resource)
	}
}

// failed takes in that a resource can't be listed or watched, and says so once.
func (e *eyes) failed(resource, verb string, err error) {
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w: can't %s %s in all namespaces; grant the starter's service account the verbs list and watch on %s: %w",
			ErrForbidden, verb, resource, resource, err)
	} else {
		err = fmt.Errorf("can't %s %s: %w", verb, resource, err)
	}
	e.missed(resource, err)
}

// missed takes in why something can't be seen, and says so once.
func (e *eyes) missed(resource string, err error) {
	e.metrics.watching.WithLabelValues(resource).Set(0)
	e.mu.Lock()
	defer e.mu.Unlock()
	if before := e.broken[resource]; before == nil || errors.Is(before, ErrForbidden) != errors.Is(err, ErrForbidden) {
		e.log.Error("blind; nothing is concluded from what isn't seen", "resource", resource, "error", err)
	}
	e.broken[resource] = err
}

// closed forgets a resource that isn't watched any more.
func (e *eyes) closed(resource string) {
	e.metrics.watching.DeleteLabelValues(resource)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.broken, resource)
	delete(e.heard, resource)
}

// listen tells when a watch brings anything.
func (e *eyes) listen(resource string, w watch.Interface) watch.Interface {
	h := &heard{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{})}
	go h.pass(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.heard[resource] = e.clock.Now()
	})
	return h
}

// heard is a watch whose events are noticed on their way.
type heard struct {
	watch.Interface
	events  chan watch.Event
	once    sync.Once
	stopped chan struct{}
}

// pass hands events on until the watch ends or is stopped.
func (h *heard) pass(notice func()) {
	defer close(h.events)
	for event := range h.Interface.ResultChan() {
		notice()
		select {
		case h.events <- event:
		case <-h.stopped:
			return
		}
	}
}

// ResultChan implements watch.Interface.
func (h *heard) ResultChan() <-chan watch.Event { return h.events }

// Stop implements watch.Interface.
func (h *heard) Stop() {
	h.once.Do(func() { close(h.stopped) })
	h.Interface.Stop()
}

// ages tells how long ago each watch last brought anything.
func (e *eyes) ages(emit func(float64, ...string)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for resource, at := range e.heard {
		emit(e.clock.Since(at).Seconds(), resource)
	}
}

// blind lists what can't be seen.
func (e *eyes) blind() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.broken))
}

// err is everything that can't be seen, or nil.
func (e *eyes) err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for _, resource := range slices.Sorted(maps.Keys(e.broken)) {
		errs = append(errs, e.broken[resource])
	}
	return errors.Join(errs...)
}
