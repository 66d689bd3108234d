package starter

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrForbidden is wrapped by what Ready returns while the API server refuses to
// let the starter list or watch something.
var ErrForbidden = errors.New("forbidden")

// eyes is whether each watched resource can be seen. A starter that can't see is
// not ready, and says what is missing; it goes on trying and concludes nothing.
type eyes struct {
	log     *slog.Logger
	metrics *metrics

	mu     sync.Mutex
	broken map[string]error // resource → what is wrong with its watch
}

func newEyes(log *slog.Logger, m *metrics) *eyes {
	return &eyes{log: log, metrics: m, broken: map[string]error{}}
}

// opened takes in that a resource is listed or watched.
func (e *eyes) opened(resource string) {
	e.metrics.watching.WithLabelValues(resource).Set(1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broken[resource] != nil {
		e.log.Info("watching again", "resource", resource)
		delete(e.broken, resource)
	}
}

// failed takes in that a resource can't be listed or watched, and says so once.
func (e *eyes) failed(resource, verb string, err error) {
	e.metrics.watching.WithLabelValues(resource).Set(0)
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w: can't %s %s in all namespaces; grant the starter's service account the verbs list and watch on %s: %w",
			ErrForbidden, verb, resource, resource, err)
	} else {
		err = fmt.Errorf("can't %s %s: %w", verb, resource, err)
	}
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
