package starter

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reading"
	"github.com/sickbay-dev/sickbay/pkg/telemetry"
)

// sender delivers what the tracker says is owed, during one stretch of leadership.
type sender struct {
	tracker  *tracker
	cases    Cases
	answers  Answers
	queue    *queue
	settling *settling
	timing   Timing
	log      *slog.Logger
	metrics  *metrics
	tracer   telemetry.Tracer
	// checks bounds the questions for cases.
	checks flowcontrol.RateLimiter
	// bursts has marks made ahead of their cases; nil has none.
	bursts *bursts
}

// run sends until the queue is shut down and empty, or ctx ends.
func (s *sender) run(ctx context.Context, workers int) {
	var work sync.WaitGroup
	for range workers {
		work.Go(func() {
			for s.next(ctx) {
			}
		})
	}
	work.Wait()
}

// next serves one device. It returns false when there will be no more.
func (s *sender) next(ctx context.Context) bool {
	key, shutdown := s.queue.Get()
	if shutdown {
		return false
	}
	defer s.queue.Done(key)
	if s.settling.wait(ctx) != nil {
		return false
	}
	done, later := s.bursts.before(ctx, key)
	if later {
		s.queue.lanes.set(key, urgencyCase)
		s.queue.AddAfter(key, burstLater)
		return true
	}
	defer done()
	for {
		d, ok := s.tracker.due(key)
		if !ok {
			s.queue.Forget(key)
			return true
		}
		if !s.serve(ctx, d) {
			return ctx.Err() == nil
		}
	}
}

// serve delivers one thing, and tells whether the device's next may follow.
func (s *sender) serve(ctx context.Context, d delivery) bool {
	call, cancel := context.WithTimeout(ctx, s.timing.Send)
	defer cancel()
	err := s.send(call, d)
	kind, via := describe(d)
	switch {
	case err == nil:
		s.queue.Forget(d.key)
		return true
	case ctx.Err() != nil:
		return false
	case errors.Is(err, s.answers.NoCase):
		s.tracker.noCase(d.key)
		return true
	case s.answers.Retryable(err), errors.Is(err, context.DeadlineExceeded):
		s.metrics.retries.WithLabelValues("unavailable").Inc()
		if s.queue.NumRequeues(d.key) == 0 {
			s.log.Warn("signal not accepted; it is tried again until it is", "device", d.key.String(), "kind", kind, "via", via, "error", err)
		}
		s.queue.lanes.set(d.key, d.urgency)
		s.queue.AddRateLimited(d.key)
	default:
		s.metrics.retries.WithLabelValues("refused").Inc()
		s.log.Error("signal refused; it is tried again seldom, see the error for what to change",
			"device", d.key.String(), "kind", kind, "via", via, "error", err, "again", s.timing.RetryRefused.String())
		s.queue.AddAfter(d.key, s.timing.RetryRefused)
	}
	return false
}

func (s *sender) send(ctx context.Context, d delivery) error {
	if d.check {
		return s.check(ctx, d.key)
	}
	kind, via := describe(d)
	ctx, end := s.trace(ctx, d, kind, via)
	var err error
	if d.open {
		err = s.cases.Open(ctx, d.key, d.event, telemetry.TraceParent(ctx))
	} else {
		err = s.cases.Tell(ctx, d.key, d.event, telemetry.TraceParent(ctx))
	}
	end(err)
	if err != nil {
		return err
	}
	s.metrics.signals.WithLabelValues(kind, via).Inc()
	if !d.since.IsZero() {
		s.metrics.delay.Observe(s.tracker.clock.Since(d.since).Seconds())
	}
	s.tracker.delivered(d)
	s.log.InfoContext(ctx, "signalled", logged(d, kind, via)...)
	return nil
}

// check asks whether a device's case runs.
func (s *sender) check(ctx context.Context, key device.Key) error {
	running, err := s.cases.Running(ctx, key)
	if err != nil {
		return err
	}
	if running {
		s.tracker.caseFound(key)
		return nil
	}
	if s.tracker.caseLost(key) {
		s.log.Warn("no case runs for a device that should have one; it is opened again", "device", key.String())
	}
	return nil
}

// recheck asks for every device that should have a case whether it does, at once
// and then every so often: an empty Temporal gets its cases back that way.
func (s *sender) recheck(ctx context.Context, c clock.WithTicker) {
	ticker := c.NewTicker(s.timing.Recheck)
	defer ticker.Stop()
	for {
		s.recheckAll(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

func (s *sender) recheckAll(ctx context.Context) {
	for _, key := range s.tracker.expected() {
		if s.checks.Wait(ctx) != nil || s.settling.wait(ctx) != nil {
			return
		}
		call, cancel := context.WithTimeout(ctx, s.timing.Send)
		err := s.check(call, key)
		cancel()
		if err != nil {
			// Whatever keeps Temporal from answering keeps it from answering for
			// the others too. The next round asks again.
			if ctx.Err() == nil {
				s.log.Warn("can't tell whether a device has its case; asked again later", "device", key.String(), "error", err)
			}
			return
		}
	}
}

func describe(d delivery) (kind, via string) {
	via = "tell"
	if d.open {
		via = "open"
	}
	switch d.event.(type) {
	case quarantine.Observed:
		kind = "observed"
	case quarantine.Inventory:
		kind = "inventory"
	case quarantine.MarkSeen:
		kind = "mark"
	default:
		kind, via = "check", "ask"
	}
	return kind, via
}

// logged gives one signal's log fields.
func logged(d delivery, kind, via string) []any {
	fields := []any{"device", d.key.String(), "kind", kind, "via", via}
	switch e := d.event.(type) {
	case quarantine.Observed:
		fields = append(fields, "node", e.Node, "readings", len(e.Readings), "lost", e.Lost)
		if worst, ok := gravest(e.Readings); ok {
			fields = append(fields, "pod", worst.Pod.String(), "health", worst.Health, "reason", worst.Reason.Code,
				"message", worst.Message, "version", worst.Version)
		}
	case quarantine.Inventory:
		fields = append(fields, "node", e.Node, "present", e.Present, "missing", e.Missing, "hardware", e.Now.String(), "movedTo", e.MovedTo)
	case quarantine.MarkSeen:
		fields = append(fields, "node", e.Node, "present", e.Present, "intact", e.Intact, "mark", e.Mark.Name, "epoch", e.Mark.Epoch)
	}
	return fields
}

// gravest is the reading that a log line should name.
func gravest(readings []quarantine.Reading) (quarantine.Reading, bool) {
	if len(readings) == 0 {
		return quarantine.Reading{}, false
	}
	worst := readings[0]
	for _, r := range readings[1:] {
		if reading.Graver(r, worst) {
			worst = r
		}
	}
	return worst, true
}
