package starter

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/utils/clock"

	"github.com/sickbay-dev/sickbay/pkg/incident"
)

// Incidents is where the starter tells how many devices it counts: the incident
// workflows.
type Incidents interface {
	// Report tells a scope's incident, which begins with it, and returns its answer.
	Report(ctx context.Context, scope incident.Scope, levels incident.Levels) (incident.Answer, error)
	// Open lists the scopes that have an incident.
	Open(ctx context.Context) ([]incident.Scope, error)
}

// judgeEvery is how often levels are compared.
const judgeEvery = time.Second

// listTries is how often the open incidents are asked for before the starter goes on
// without: whoever may signal may not be allowed to list.
const listTries = 5

// reporter compares levels and tells the incidents, during one stretch of leadership.
type reporter struct {
	tracker   *tracker
	incidents Incidents
	settling  *settling
	identity  string
	clock     clock.WithTicker
	log       *slog.Logger
	// limit bounds a call.
	limit time.Duration
}

// run goes on until ctx ends.
func (r *reporter) run(ctx context.Context) {
	ticker := r.clock.NewTicker(judgeEvery)
	defer ticker.Stop()
	for tries := 0; ; {
		// What a relist brings together says nothing before it is whole.
		if r.settling.wait(ctx) != nil {
			return
		}
		if tries < listTries {
			if r.list(ctx, tries == listTries-1) {
				tries = listTries
			} else {
				tries++
			}
		}
		r.round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// list finds the open incidents, and tells whether it did. The last try goes on
// without them.
func (r *reporter) list(ctx context.Context, last bool) bool {
	call, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	scopes, err := r.incidents.Open(call)
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil && !last:
		return false
	case err != nil:
		r.log.Warn("the open incidents can't be listed; one that goes on without its devices ends late", "error", err)
	}
	r.tracker.found(scopes)
	return true
}

// round compares levels once and tells what is due.
func (r *reporter) round(ctx context.Context) {
	for _, due := range r.tracker.judge() {
		due.levels.By = r.identity
		call, cancel := context.WithTimeout(ctx, r.limit)
		answer, err := r.incidents.Report(call, due.scope, due.levels)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.tracker.unanswered(due.scope, err)
		default:
			r.tracker.answered(due.scope, answer)
		}
	}
}
