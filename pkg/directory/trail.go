package directory

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sickbay-dev/sickbay/pkg/telemetry"
)

const (
	// trailWaits bounds the decisions that wait for Redis; past it the oldest go.
	trailWaits = 10_000
	// trailBatch bounds those that are written at once.
	trailBatch = 200
	// trailLast bounds the last writing when a trail ends.
	trailLast = 2 * time.Second
)

// Trail puts decisions into the transitions. Whoever decided tells it and goes on
// at once. While Redis is away they wait, up to a number; those that are lost then
// are still in the log and in Temporal, and the numbers of a case show the gap.
type Trail struct {
	directory *Directory
	log       *slog.Logger
	written   *prometheus.CounterVec
	retry     time.Duration

	mu      sync.Mutex
	waiting []Decision
	wake    chan struct{}
}

// NewTrail returns a trail that counts in registerer. Nothing runs before Run.
func NewTrail(directory *Directory, log *slog.Logger, registerer prometheus.Registerer) (*Trail, error) {
	t := &Trail{
		directory: directory, log: log.With("directory", string(FieldDecision)), wake: make(chan struct{}, 1), retry: 250 * time.Millisecond,
		written: telemetry.DirectoryDecisions.NewCounter(),
	}
	return t, registerer.Register(t.written)
}

// Add takes decisions in. It never blocks.
func (t *Trail) Add(all ...Decision) {
	t.mu.Lock()
	t.waiting = append(t.waiting, all...)
	extra := max(len(t.waiting)-trailWaits, 0)
	t.waiting = t.waiting[extra:]
	t.mu.Unlock()
	t.written.WithLabelValues("dropped").Add(float64(extra))
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Run writes until ctx ends, and then once more what is left.
func (t *Trail) Run(ctx context.Context) {
	pause, away := t.retry, false
	for {
		err := t.flush(ctx)
		if ctx.Err() != nil {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), trailLast)
			defer cancel()
			if err := t.flush(last); err != nil {
				t.log.Warn("decisions are missing in the directory; log and Temporal have them", "error", err)
			}
			return
		}
		if err != nil && !away {
			t.log.Warn("decisions wait for the directory; log and Temporal have them", "error", err)
		} else if err == nil && away {
			t.log.Info("decisions are in the directory again")
		}
		away = err != nil
		if !away {
			pause = t.retry
			select {
			case <-ctx.Done():
			case <-t.wake:
			}
			continue
		}
		timer := time.NewTimer(pause)
		pause = min(2*pause, 10*time.Second)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// flush writes what waits. What wasn't acknowledged waits on.
func (t *Trail) flush(ctx context.Context) error {
	for {
		t.mu.Lock()
		batch := append([]Decision(nil), t.waiting[:min(len(t.waiting), trailBatch)]...)
		t.mu.Unlock()
		if len(batch) == 0 {
			return nil
		}
		results, err := t.directory.Append(ctx, batch)
		if err != nil {
			return err
		}
		for _, r := range results {
			t.written.WithLabelValues(string(r.Outcome)).Inc()
		}
		t.mu.Lock()
		// Meanwhile the oldest may have been given up: go by what was written.
		for len(batch) > 0 && len(t.waiting) > 0 {
			if t.waiting[0].Device == batch[0].Device && t.waiting[0].ID() == batch[0].ID() {
				t.waiting = t.waiting[1:]
			}
			batch = batch[1:]
		}
		t.mu.Unlock()
	}
}
