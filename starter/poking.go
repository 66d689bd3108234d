package starter

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/sickbay-dev/sickbay/pkg/kube"
)

// leastPause keeps pokes apart: the API server is asked for 20 a second at most, so
// that above 1,200 watch Pods a round takes longer than a minute.
const leastPause = 50 * time.Millisecond

// poking has the kubelets of all watch Pods read health anew, one after the other and
// spread over the period, while this starter leads. What they then find comes by the
// watch, as everything does.
type poking struct {
	poker  *kube.Poker
	every  time.Duration
	clock  clock.WithTicker
	log    *slog.Logger
	pokes  *prometheus.CounterVec
	failed bool
}

func (s *Starter) poking() *poking {
	return &poking{poker: s.options.Poker, every: s.options.Timing.Poke, clock: s.options.Clock, log: s.log, pokes: s.metrics.pokes}
}

// run pokes until ctx ends.
func (p *poking) run(ctx context.Context) {
	for {
		began := p.clock.Now()
		p.round(ctx)
		if !p.pause(ctx, max(p.every-p.clock.Since(began), leastPause)) {
			return
		}
	}
}

// round pokes each watch Pod that reports once.
func (p *poking) round(ctx context.Context) {
	pods, err := p.poker.Reporting(ctx)
	if err != nil {
		p.came(ctx, err)
		return
	}
	rand.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	for i := range pods {
		if i > 0 && !p.pause(ctx, max(p.every/time.Duration(len(pods)), leastPause)) {
			return
		}
		_, err := p.poker.Poke(ctx, &pods[i])
		p.came(ctx, err)
	}
}

// came counts what came of a call, and says once that they fail.
func (p *poking) came(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
		return
	case err == nil:
		p.pokes.WithLabelValues("asked").Inc()
		p.failed = false
	case errors.Is(err, kube.ErrNotPoked), errors.Is(err, kube.ErrPokedMeanwhile):
		p.pokes.WithLabelValues("skipped").Inc()
		p.log.Debug("a watch Pod isn't poked", "error", err)
	default:
		p.pokes.WithLabelValues("failed").Inc()
		if !p.failed {
			p.log.Warn("watch Pods can't be poked; what their kubelets don't report by themselves shows later", "error", err)
		}
		p.failed = true
	}
}

// pause waits, and tells whether there is anything to go on for.
func (p *poking) pause(ctx context.Context, d time.Duration) bool {
	timer := p.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}
