package starter

import (
	"sync"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// urgency orders what waits to be sent. A burst of Unknowns must not delay a fault.
type urgency int

const (
	// urgencyFault: a fault that its case doesn't know.
	urgencyFault urgency = iota
	// urgencyCase: something else that calls for a case.
	urgencyCase
	// urgencyNews: what an open case should hear: improvements, inventory, marks.
	urgencyNews
	urgencies
)

// queue holds the devices about which something is owed, each at most once: what
// is sent is worked out when its turn comes, so that a device that changes ten
// times while it waits costs one signal. One device is in one worker's hands at a
// time. Its length is bounded by the number of devices.
type queue struct {
	workqueue.TypedRateLimitingInterface[device.Key]
	lanes *lanes
}

func newQueue(t Timing, c clock.WithTicker) *queue {
	l := &lanes{level: map[device.Key]urgency{}, waiting: map[device.Key]urgency{}}
	inner := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[device.Key]{Clock: c, Queue: l})
	return &queue{
		lanes: l,
		TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[device.Key](t.RetryFirst, t.RetryMax),
			workqueue.TypedRateLimitingQueueConfig[device.Key]{
				Clock: c,
				DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[device.Key]{
					Clock: c, Queue: inner,
				}),
			}),
	}
}

// add puts a device into the queue, or moves it forward.
func (q *queue) add(key device.Key, u urgency) {
	q.lanes.set(key, u)
	q.Add(key)
}

// lanes is the queue's storage: first in, first out within an urgency. The
// workqueue calls it under its own lock; the lanes' lock is always taken last.
type lanes struct {
	mu    sync.Mutex
	level map[device.Key]urgency
	// waiting is the lane in which a device waits. What stands in another lane is
	// what is left of it there after it moved forward.
	waiting map[device.Key]urgency
	queued  [urgencies][]device.Key
}

func (l *lanes) set(key device.Key, u urgency) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.level[key] = u
}

func (l *lanes) urgency(key device.Key) urgency {
	if u, ok := l.level[key]; ok {
		return u
	}
	return urgencyNews
}

// Touch is called when a waiting device is added again: it moves forward if it
// became more urgent.
func (l *lanes) Touch(key device.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.urgency(key)
	if lane, ok := l.waiting[key]; ok && u < lane {
		l.waiting[key] = u
		l.queued[u] = append(l.queued[u], key)
	}
}

// Push adds a device that doesn't wait yet.
func (l *lanes) Push(key device.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.urgency(key)
	l.waiting[key] = u
	l.queued[u] = append(l.queued[u], key)
}

// Len is the number of waiting devices.
func (l *lanes) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

// count is how many devices wait in a lane, and perhaps some that have moved forward.
func (l *lanes) count(u urgency) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queued[u])
}

// all are the devices that wait in a lane, the one that waited longest first.
func (l *lanes) all(u urgency) []device.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	var keys []device.Key
	for _, key := range l.queued[u] {
		if in, ok := l.waiting[key]; ok && in == u {
			keys = append(keys, key)
		}
	}
	return keys
}

// Pop takes the most urgent device, the one that waited longest first.
func (l *lanes) Pop() device.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	for lane := range l.queued {
		for len(l.queued[lane]) > 0 {
			key := l.queued[lane][0]
			l.queued[lane] = l.queued[lane][1:]
			if in, ok := l.waiting[key]; ok && in == urgency(lane) {
				delete(l.waiting, key)
				delete(l.level, key)
				return key
			}
		}
	}
	return device.Key{}
}
