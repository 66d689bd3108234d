package starter

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/utils/clock"

	"github.com/sickbay-dev/sickbay/pkg/device"
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

// Overview tells which devices have an open case, all at once.
type Overview interface {
	// OpenCases returns what tells of a device whether it had an open case just now.
	OpenCases(ctx context.Context) (func(device.Key) bool, error)
}

// judgeEvery is how often levels are compared.
const judgeEvery = time.Second

// listTries is how often the open incidents are asked for before the starter goes on
// without: whoever may signal may not be allowed to list.
const listTries = 5

// listOnceMore is when the open incidents are listed once more: Temporal's visibility is
// behind, and one that began just before this starter led may have been missing.
const listOnceMore = time.Minute

// reporter compares levels and tells the incidents, during one stretch of leadership.
type reporter struct {
	tracker   *tracker
	incidents Incidents
	// overview is asked once, at the beginning; nil is nobody.
	overview Overview
	settling *settling
	// memory is urged to keep who reported health when an incident begins; it may be nil.
	memory *memory
	// announced asks which drivers are being upgraded; nil is nobody.
	announced *announced
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
	var again time.Time
	for tries := 0; ; {
		// What a relist brings together says nothing before it is whole.
		if r.settling.wait(ctx) != nil {
			return
		}
		known := r.announced.ask(ctx)
		if tries < listTries {
			// What is expected is known first.
			if !known && tries < listTries-1 {
				tries++
			} else if r.list(ctx, tries == listTries-1) {
				tries, again = listTries, r.clock.Now().Add(listOnceMore)
			} else {
				tries++
			}
		}
		if !again.IsZero() && !r.clock.Now().Before(again) {
			r.listAgain(ctx)
			again = time.Time{}
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
	var had func(device.Key) bool
	if err == nil && r.overview != nil {
		had, err = r.overview.OpenCases(call)
	}
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil && !last:
		return false
	case err != nil:
		r.log.Warn("the open incidents or cases can't be listed; an incident that goes on without its devices ends late, and what cases know may be taken for one", "error", err)
	}
	r.tracker.found(scopes, had)
	return true
}

// listAgain finds incidents that were missing in the first list.
func (r *reporter) listAgain(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	if scopes, err := r.incidents.Open(call); err == nil {
		r.tracker.found(scopes, nil)
	}
}

// round compares levels once and tells what is due.
func (r *reporter) round(ctx context.Context) {
	for _, due := range r.tracker.judge() {
		due.levels.By = r.identity
		if due.levels.Begins {
			r.memory.urge()
		}
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
