package starter

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// Ahead makes marks ahead of their cases.
type Ahead interface {
	// Mark makes the marks that the cases of these faults would make, and answers which
	// it made. An error says nothing of whether it made some.
	Mark(ctx context.Context, faults []quarantine.Fault) ([]quarantine.MadeAhead, error)
}

const (
	// burstFrom is how many faults within burstWithin make a burst. Those before are marked
	// by their cases, as fast as ever.
	burstFrom, burstWithin = 16, time.Second
	// burstGather is how long faults of a burst are gathered for a batch.
	burstGather = 100 * time.Millisecond
	// burstMost and burstReadings bound one batch: all of it travels in one message.
	burstMost, burstReadings = 250, 1000
	// burstWait bounds the wait for one batch, and burstPause is how long none is tried
	// after one that failed. What isn't made ahead is made by the cases.
	burstWait, burstPause = 10 * time.Second, 3 * time.Second
	// burstLater is how long a case whose mark is made lets others go first, again and
	// again until the burst is over, or has lasted for burstLimit.
	burstLater, burstLimit = 500 * time.Millisecond, 15 * time.Second
)

// bursts has the marks of many faults made ahead of their cases. A case takes the machines
// far longer than a mark: a thousand of them would keep the last marks waiting.
type bursts struct {
	ahead   Ahead
	tracker *tracker
	queue   *queue
	clock   clock.WithTicker
	log     *slog.Logger

	// gate is held for reading by whoever sends, and for writing while marks are made.
	gate sync.RWMutex
	// mu guards what follows.
	mu sync.Mutex
	// held are the devices in the hands of those who wait for the gate.
	held map[device.Key]struct{}
	// came is when the last faults were seen that were taken up, at most burstFrom of them.
	came []time.Time
	// began is when the burst began, last when a batch was last made, and again when one
	// may be made again after one failed.
	began, last, again time.Time
}

func newBursts(ahead Ahead, t *tracker, q *queue, c clock.WithTicker, log *slog.Logger) *bursts {
	return &bursts{ahead: ahead, tracker: t, queue: q, clock: c, log: log, held: map[device.Key]struct{}{}}
}

// before is called before a device is served. In a burst it has the marks made of all that
// wait. later tells that the device's case can wait until the others' marks are made; if
// it can't, done is called once it was served.
func (b *bursts) before(ctx context.Context, key device.Key) (done func(), later bool) {
	if b == nil {
		return func() {}, false
	}
	if d, fresh := b.tracker.freshFault(key); fresh && b.rises(d.since) {
		b.hold(key)
		b.gate.Lock()
		// Another one may have made it while this one waited for the gate.
		if _, fresh := b.tracker.freshFault(key); fresh {
			b.gather(ctx)
			b.make(ctx)
		}
		b.gate.Unlock()
		b.release(key)
	}
	if b.tracker.markedAhead(key) && b.goesOn() && !b.queue.ShuttingDown() {
		return nil, true
	}
	b.gate.RLock()
	return b.gate.RUnlock, false
}

func (b *bursts) hold(key device.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[key] = struct{}{}
}

func (b *bursts) release(key device.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.held, key)
}

// waiting are the devices that wait in the queue or at the gate.
func (b *bursts) waiting() []device.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append(slices.SortedFunc(maps.Keys(b.held), device.Key.Compare), b.queue.lanes.all(urgencyFault)...)
}

// rises takes in when a fault was seen that is taken up now, and tells whether it is one
// of a burst. How fast they can be taken up says nothing of how fast they come.
func (b *bursts) rises(seen time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.came = append(b.came, seen)
	b.came = b.came[max(0, len(b.came)-burstFrom):]
	now := b.clock.Now()
	if now.Before(b.again) || len(b.came) < burstFrom || seen.Sub(b.came[0]) > burstWithin {
		return false
	}
	if now.Sub(b.last) > burstLimit {
		b.began = now
	}
	return true
}

// goesOn tells whether a burst isn't over yet.
func (b *bursts) goesOn() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	return now.Sub(b.last) <= burstWithin && now.Sub(b.began) <= burstLimit
}

// gather lets faults come together, unless there are enough.
func (b *bursts) gather(ctx context.Context) {
	if b.queue.lanes.count(urgencyFault) >= burstMost {
		return
	}
	timer := b.clock.NewTimer(burstGather)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}

// make has the marks of a batch made.
func (b *bursts) make(ctx context.Context) {
	var faults []quarantine.Fault
	readings := 0
	for _, key := range b.waiting() {
		d, fresh := b.tracker.freshFault(key)
		if !fresh {
			continue
		}
		event := d.event.(quarantine.Observed)
		if readings += len(event.Readings); readings > burstReadings || len(faults) == burstMost {
			break
		}
		faults = append(faults, quarantine.Fault{Device: key, Event: event})
	}
	call, cancel := context.WithTimeout(ctx, burstWait)
	defer cancel()
	made, err := b.ahead.Mark(call, faults)
	defer b.made(err == nil)
	if err != nil {
		if ctx.Err() == nil {
			b.log.Warn("many faults at once, and their marks can't be made ahead of their cases; the cases make them, which takes longer",
				"faults", len(faults), "error", err, "again", burstPause.String())
		}
		return
	}
	b.tracker.triedAhead(faults, made)
	b.log.Info("many faults at once: marks made ahead of their cases", "faults", len(faults), "marks", len(made))
}

// made takes in how a batch ended.
func (b *bursts) made(well bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if well {
		b.last = b.clock.Now()
	} else {
		b.again = b.clock.Now().Add(burstPause)
	}
}

// freshFault gives what would open a device's case, if that is a fault that came since this
// starter leads, of a device of which no case is known.
func (t *tracker) freshFault(key device.Key) (delivery, bool) {
	if key.Path() != device.PathDRA {
		return delivery{}, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.devices[key]
	if r == nil || r.opened || r.doubtful || r.adopt || r.ahead || r.mark != nil {
		return delivery{}, false
	}
	if u, owed := t.owes(r); !owed || u != urgencyFault {
		return delivery{}, false
	}
	d := t.next(r)
	_, observed := d.event.(quarantine.Observed)
	return d, observed && d.open && d.since.After(t.ledSince)
}

// triedAhead takes in for which faults a mark was asked for, and which were made. The
// cases are told with the fault.
func (t *tracker) triedAhead(faults []quarantine.Fault, made []quarantine.MadeAhead) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range faults {
		if r := t.devices[f.Device]; r != nil {
			r.ahead = true
		}
	}
	for _, m := range made {
		if r := t.devices[m.Device]; r != nil {
			r.made = m.Made
		}
	}
}

// markedAhead tells whether a device's mark was made ahead of its case, which isn't open yet.
func (t *tracker) markedAhead(key device.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.devices[key]
	return r != nil && r.made.Epoch != 0
}
