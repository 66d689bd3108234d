package quarantine

import (
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// A device that goes Unknown, comes back and goes Unknown again never outlasts its
// window, and is of no use all the same. So it is remembered for a while that it did,
// and when it has done so often enough it is a case of its own kind: its health has to
// stay good for as long as after a fault, and its window is short.

// flaps tells whether a device that goes Unknown now has done so too often, and gives
// the reason to open its case with.
func (d *decision) flaps(why reason.Match) (reason.Match, bool) {
	if d.p.Rules < rulesOfUnknown || !saysNothing(why.Code) || len(d.recentFlaps())+1 < d.p.FlapLimit {
		return why, false
	}
	return flappingReason, true
}

// recentFlaps are the ends of the episodes of Unknown that still count.
func (d *decision) recentFlaps() []time.Time {
	var recent []time.Time
	for _, at := range d.c.Flaps {
		if at.Add(d.p.FlapWindow).After(d.now) {
			recent = append(recent, at)
		}
	}
	return recent
}

// rememberFlap notes that an episode of Unknown is over.
func (d *decision) rememberFlap(end End) {
	c := &d.c
	c.Flaps, c.RememberUntil = d.recentFlaps(), time.Time{}
	if d.p.Rules < rulesOfUnknown {
		return
	}
	if end == EndHealthBack && saysNothing(c.Reason.Code) {
		c.Flaps = append(c.Flaps, d.now)
		// More than these change nothing.
		if extra := len(c.Flaps) - d.p.FlapLimit; extra > 0 {
			c.Flaps = slices.Clone(c.Flaps[extra:])
		}
	}
	if last := len(c.Flaps) - 1; last >= 0 {
		c.RememberUntil = c.Flaps[last].Add(d.p.FlapWindow)
	}
	if released := c.Relapse.ReleasedAt; !released.IsZero() {
		c.RememberUntil = later(c.RememberUntil, released.Add(d.p.RelapseWatch))
	}
}

// forgetFlaps forgets what is too old to count. With it goes the workflow.
func (d *decision) forgetFlaps() {
	if !d.c.RememberUntil.IsZero() && !d.c.RememberUntil.After(d.now) {
		d.c.Flaps, d.c.RememberUntil = nil, time.Time{}
		d.c.Relapse = Relapse{}
		if d.c.Phase == PhaseReleased {
			d.c.Phase = PhaseClosed
		}
	}
}
