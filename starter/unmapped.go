package starter

import (
	"cmp"
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/reading"
)

// unmapped is an entry that isn't Healthy and doesn't lead to one device.
type unmapped struct {
	device.Unmapped
	since  time.Time
	logged bool
}

// UnmappedFault is a fault of some device that can't be told from the API.
type UnmappedFault struct {
	device.Unmapped
	// Since is when the starter first saw it.
	Since time.Time
}

// keepUnmapped replaces what couldn't be mapped in a Pod's status. What is still
// there keeps the time at which it was first seen.
func (t *tracker) keepUnmapped(p *pod, found []device.Unmapped, now time.Time) {
	before := p.unmapped
	p.unmapped = nil
	for _, u := range found {
		if !u.Health.WorseThan(device.Healthy) {
			continue
		}
		u.Message = reading.Shorten(u.Message)
		next := unmapped{Unmapped: u, since: now}
		i := slices.IndexFunc(before, func(b unmapped) bool {
			return b.Container == u.Container && b.Entry == u.Entry && b.ID == u.ID && b.Health == u.Health
		})
		if i >= 0 {
			next.since, next.logged = before[i].since, before[i].logged
		}
		p.unmapped = append(p.unmapped, next)
	}
}

// logUnmapped says of each unmapped fault once that it is there. It waits a
// moment first: a claim may only be late.
func (t *tracker) logUnmapped() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.complete || !t.leading() {
		return
	}
	deadline := t.clock.Now().Add(-t.timing.InventoryQuiet)
	for _, p := range t.pods {
		for i := range p.unmapped {
			u := &p.unmapped[i]
			if u.logged || u.since.After(deadline) {
				continue
			}
			u.logged = true
			t.log.Warn("a health entry leads to no single device; nothing is done about it",
				"pod", u.Pod.String(), "node", u.Node, "container", u.Container, "entry", u.Entry, "id", u.ID,
				"health", u.Health, "message", u.Message, "reason", u.Reason, "candidates", len(u.Candidates))
		}
	}
}

// unmappedFaults lists all entries that aren't Healthy and lead to no single
// device, sorted by Pod, container and entry.
func (t *tracker) unmappedFaults() []UnmappedFault {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []UnmappedFault
	for _, p := range t.pods {
		for _, u := range p.unmapped {
			all = append(all, UnmappedFault{Unmapped: u.Unmapped, Since: u.since})
		}
	}
	slices.SortFunc(all, func(a, b UnmappedFault) int {
		return cmp.Or(
			cmp.Compare(a.Pod.String(), b.Pod.String()), cmp.Compare(a.Container, b.Container),
			cmp.Compare(a.Entry, b.Entry), cmp.Compare(a.ID, b.ID),
		)
	})
	return all
}
