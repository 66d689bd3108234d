package starter

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// settling holds everything back for a moment after a start and after each
// relist, until what the lists brought has come together: Pods, claims and slices
// arrive in any order, and what is between says nothing.
type settling struct {
	clock        clock.WithTicker
	quiet, limit time.Duration

	mu sync.Mutex
	// last is when something last changed, until is when waiting ends anyway.
	last, until time.Time
}

func newSettling(c clock.WithTicker, t Timing) *settling {
	return &settling{clock: c, quiet: t.Quiet, limit: t.SettleLimit}
}

// begin starts holding back.
func (s *settling) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	s.last, s.until = now, now.Add(s.limit)
}

// disturb tells that something changed. What changes once it is settled is news,
// and not a part of the lists any more.
func (s *settling) disturb() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.clock.Now(); now.Before(s.until) && now.Sub(s.last) < s.quiet {
		s.last = now
	}
}

// left is how long is still to be waited.
func (s *settling) left() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	return min(s.last.Add(s.quiet).Sub(now), s.until.Sub(now))
}

// wait returns once everything has settled, or with the error of ctx.
func (s *settling) wait(ctx context.Context) error {
	for {
		left := s.left()
		if left <= 0 {
			return ctx.Err()
		}
		timer := s.clock.NewTimer(left)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		}
	}
}
