package doctor

// This file is a process's own part of the doctor: it asks at the start and again
// while it runs, and answers from what it found last.

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// selfLimit bounds one check of a process.
	selfLimit = 10 * time.Second
	// While something is missing it looks again after againFirst, and then at growing
	// pauses up to againSoon. What is only degraded, or can't be found out, may stay so
	// for ever: that begins with twice againSoon and grows up to againLater, at which
	// it looks while all is as needed.
	againFirst = time.Second
	againSoon  = 15 * time.Second
	againLater = 5 * time.Minute
)

// Self is what a process knows of its own prerequisites.
type Self struct {
	systems []System
	log     *slog.Logger

	mu   sync.Mutex
	last *Report
}

// NewSelf returns one that hasn't asked yet.
func NewSelf(log *slog.Logger, systems ...System) *Self { return &Self{systems: systems, log: log} }

// Last is what was found last, or nil before the first time.
func (s *Self) Last() *Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// Run asks until ctx ends. What changed is logged once.
func (s *Self) Run(ctx context.Context) {
	said := map[string]string{}
	soon, seldom := againFirst, 2*againSoon
	for {
		report := Run(ctx, selfLimit, s.systems...)
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		s.last = &report
		s.mu.Unlock()
		if s.tell(said, report) {
			soon, seldom = againFirst, 2*againSoon
		}
		pause := againLater
		switch report.Worst() {
		case Missing:
			pause, soon = soon, min(2*soon, againSoon)
		case Degraded, Unknown:
			pause, seldom = seldom, min(2*seldom, againLater)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// tell logs each finding that is news, and tells whether there was any.
func (s *Self) tell(said map[string]string, report Report) (news bool) {
	found := map[string]bool{}
	for _, f := range report.Findings {
		found[f.Check] = true
		before, known := said[f.Check]
		said[f.Check] = f.Line()
		if said[f.Check] == before || !known && f.State == OK {
			continue
		}
		news = true
		level := slog.LevelWarn
		if f.State == OK {
			level = slog.LevelInfo
		}
		s.log.Log(context.Background(), level, "prerequisite", "check", f.Check, "state", string(f.State),
			"found", f.Found, "needed", f.Needed, "without", f.Without, "remedy", f.Remedy)
	}
	for check := range said {
		if !found[check] {
			delete(said, check)
		}
	}
	return news
}
