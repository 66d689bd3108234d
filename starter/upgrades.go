package starter

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
)

// This file keeps an Unknown that an operator announced from becoming a case or a part of
// an incident: while a scope's driver is upgraded its devices are expected to be Unknown.
// What they say is taken in and shown as ever. When the time is over, what is still
// Unknown counts as Unknown from that moment on. Faults never wait here.

// Upgrades is where the starter learns which drivers are being upgraded: the permits
// workflow.
type Upgrades interface {
	// Upgrades lists the pauses that announce an upgrade.
	Upgrades(ctx context.Context) ([]budget.Pause, error)
}

// askUpgrades is how often they are asked for. It is shorter than an Unknown is gathered
// by default, so that one that follows its announcement at once is known to be expected.
const askUpgrades = 5 * time.Second

// announced asks for upgrades, during one stretch of leadership.
type announced struct {
	tracker  *tracker
	upgrades Upgrades
	clock    clock.PassiveClock
	log      *slog.Logger
	// limit bounds a call.
	limit time.Duration

	askedAt time.Time
	failed  bool
}

// ask asks if it is time to, and tells whether it is known which upgrades there are. What
// was known goes on where it can't be asked: each upgrade ends by itself.
func (a *announced) ask(ctx context.Context) bool {
	switch {
	case a == nil:
		return true
	case !a.askedAt.IsZero() && a.clock.Since(a.askedAt) < askUpgrades:
		return !a.failed
	}
	call, cancel := context.WithTimeout(ctx, a.limit)
	defer cancel()
	found, err := a.upgrades.Upgrades(call)
	if ctx.Err() != nil {
		return false
	}
	a.askedAt = a.clock.Now()
	if err != nil {
		if !a.failed {
			a.log.Warn("it can't be asked which drivers are being upgraded; those that are known hold until their end", "error", err)
		}
		a.failed = true
		return false
	}
	a.failed = false
	a.tracker.upgradesAre(found)
	return true
}

// upgradesAre takes in which upgrades are announced.
func (t *tracker) upgradesAre(all []budget.Pause) {
	t.do(func() {
		now := t.clock.Now()
		before := t.upgrades
		t.upgrades = slices.DeleteFunc(slices.Clone(all), func(p budget.Pause) bool { return !p.Upgrade || !p.Until.After(now) })
		for _, p := range t.upgrades {
			if !slices.ContainsFunc(before, func(b budget.Pause) bool { return same(b, p) }) && t.leading() {
				t.log.Info("a driver is upgraded; Unknown is expected there and opens no case", "scope", p.Scope.String(),
					"until", p.Until, "actor", p.Actor, "reason", p.Reason)
			}
		}
		t.upgradesOver(before, now)
	})
}

// endUpgrades ends those whose time is over.
func (t *tracker) endUpgrades(now time.Time) {
	before := t.upgrades
	if !slices.ContainsFunc(before, func(p budget.Pause) bool { return !p.Until.After(now) }) {
		return
	}
	t.upgrades = slices.DeleteFunc(slices.Clone(before), func(p budget.Pause) bool { return !p.Until.After(now) })
	t.upgradesOver(before, now)
}

func same(a, b budget.Pause) bool {
	return a.Scope == b.Scope && a.Actor == b.Actor && a.Until.Equal(b.Until)
}

// upgradesOver has what is still Unknown, and isn't expected to be any more, count from
// now on: that it was Unknown before is nothing that anybody has to wait for.
func (t *tracker) upgradesOver(before []budget.Pause, now time.Time) {
	if len(before) == 0 || t.guard == nil {
		return
	}
	left := 0
	for key := range t.guard.unknown {
		r := t.devices[key]
		switch {
		case r == nil || !covered(before, r) || covered(t.upgrades, r):
			continue
		case !r.unknown.until.IsZero():
			// That it was Unknown meanwhile is no part of what comes now.
			r.unknown = episode{}
			delete(t.guard.unknown, key)
			continue
		case r.opened:
			r.unknown.counted = true
			continue
		}
		left++
		r.unknown = episode{since: now}
		for _, s := range r.readings {
			if !s.now.Ended && s.now.Counts() == device.Unknown && s.untold() {
				s.now.Observed, s.since = now, now
			}
		}
		t.touch(key)
	}
	for _, p := range before {
		if !slices.ContainsFunc(t.upgrades, func(a budget.Pause) bool { return a.Scope == p.Scope }) && t.leading() {
			t.log.Info("a driver's upgrade is over; what is still Unknown counts from now on", "scope", p.Scope.String(), "unknown", left)
		}
	}
}

// upgrading tells whether an Unknown of the device is expected now.
func (t *tracker) upgrading(r *record) bool { return covered(t.upgrades, r) }

// covered tells whether one of these is about the device.
func covered(upgrades []budget.Pause, r *record) bool {
	if len(upgrades) == 0 {
		return false
	}
	scopes := budget.ScopesOf(r.key, r.node, nil, nil)
	return slices.ContainsFunc(upgrades, func(p budget.Pause) bool { return slices.Contains(scopes, p.Scope) })
}
