package starter

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// Budgets is where the starter tells which marks exist: the permits workflow.
type Budgets interface {
	// Count tells it. tell asks for all marks of whoever only said that they are the same.
	Count(ctx context.Context, counted budget.Counted) (tell bool, err error)
}

const (
	// countEvery is how often what exists is compared with what was told, and countPause
	// the least time between two that were told.
	countEvery, countPause = time.Second, 3 * time.Second
	// recount is how often it is told again although nothing changed: a permit whose mark
	// never came is taken back by that.
	recount = time.Minute
	// sizesPause is how long a change of sizes alone waits: pools come and go while
	// drivers restart.
	sizesPause = time.Minute
)

// counting tells the budgets which marks exist, during one stretch of leadership. While
// there have been none it tells nothing: nobody counts on it.
type counting struct {
	tracker *tracker
	budgets Budgets
	// blind tells why marks or devices can't be seen now; what isn't seen isn't counted.
	blind    func() string
	identity string
	clock    clock.WithTicker
	log      *slog.Logger
	// limit bounds a call.
	limit time.Duration

	told   budget.Counted
	toldAt time.Time
	// whole is set when all marks are to be told next, whatever was told before.
	whole  bool
	failed bool
}

// run goes on until ctx ends.
func (c *counting) run(ctx context.Context) {
	ticker := c.clock.NewTicker(countEvery)
	defer ticker.Stop()
	for {
		c.round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// round tells what is due.
func (c *counting) round(ctx context.Context) {
	if c.blind() != "" {
		return
	}
	now := budget.Counted{Marks: c.tracker.standing(), Sizes: c.tracker.sizes(), By: c.identity}
	if len(now.Marks) == 0 && c.toldAt.IsZero() {
		return
	}
	since := c.clock.Since(c.toldAt)
	marks := !slices.EqualFunc(now.Marks, c.told.Marks, func(a, b budget.Standing) bool { return a.Device == b.Device && a.Epoch == b.Epoch })
	sizes := !slices.Equal(now.Sizes, c.told.Sizes)
	send := now
	switch {
	case c.toldAt.IsZero():
	case since < countPause:
		return
	case c.whole, marks, sizes && since >= sizesPause:
	case since >= recount:
		send = budget.Counted{Same: true, By: c.identity}
	default:
		return
	}
	call, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	tell, err := c.budgets.Count(call, send)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		if !c.failed {
			c.log.Warn("the budgets can't be told which marks exist; permits of marks that are gone come back late", "error", err)
		}
		c.failed = true
		// It may have arrived all the same. All of it is told again after a pause.
		c.toldAt, c.whole = c.clock.Now(), true
	default:
		c.failed, c.whole = false, tell
		if !send.Same {
			c.told = now
		}
		c.toldAt = c.clock.Now()
	}
}

// standing lists the marks that the watches show, in the order of their devices; a whole
// node is one.
func (t *tracker) standing() []budget.Standing {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []budget.Standing
	for _, key := range t.marks {
		if r := t.devices[key]; r != nil && r.mark != nil {
			all = append(all, budget.Standing{
				Device: key.String(), Epoch: r.mark.found.Epoch, Scopes: budget.ScopesOf(key, r.mark.node, nil, t.tenants(r)),
			})
		}
	}
	for _, shown := range t.wholes {
		if shown.mark != nil {
			all = append(all, shown.mark.Standing())
		}
	}
	slices.SortFunc(all, func(a, b budget.Standing) int { return strings.Compare(a.Device, b.Device) })
	return all
}

// tenants are the namespaces of the live Pods that report on a device.
func (t *tracker) tenants(r *record) []string {
	var names []string
	for _, s := range r.readings {
		if name := s.now.Pod.Namespace; !s.now.Ended && !s.now.Monitor && name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// eligible is how many devices may be kept out, of each class and in all, as it was
// counted at a moment.
type eligible struct {
	at  time.Time
	all int
	of  map[string]int
}

// eligibleFor is how long a count of devices is good enough for what happens to one.
const eligibleFor = 5 * time.Second

// eligible counts the devices that complete pools list and that nodes offer. A chip and
// its partitions count each, as their marks do. The caller holds the lock.
func (t *tracker) eligible() eligible {
	now := t.clock.Now()
	if t.counted.of != nil && now.Sub(t.counted.at) < eligibleFor {
		return t.counted
	}
	t.counted = eligible{at: now, of: map[string]int{}}
	for key, p := range t.pools {
		if p.now.Complete {
			t.counted.of[key.Driver] += len(p.now.Devices)
			t.counted.all += len(p.now.Devices)
		}
	}
	for _, n := range t.nodes {
		for resource, offer := range n.offers {
			t.counted.of[resource] += int(offer.Listed)
			t.counted.all += int(offer.Listed)
		}
	}
	return t.counted
}

// sizes are the eligible devices as budgets take them.
func (t *tracker) sizes() []budget.Size {
	t.mu.Lock()
	defer t.mu.Unlock()
	counted := t.eligible()
	sizes := []budget.Size{{Scope: budget.Everything, Eligible: counted.all}}
	for class, n := range counted.of {
		sizes = append(sizes, budget.Size{Scope: budget.Scope{Kind: budget.Class, Name: class}, Eligible: n})
	}
	slices.SortFunc(sizes, func(a, b budget.Size) int { return budget.Compare(a.Scope, b.Scope) })
	return sizes
}

// bounds is what a device's mark counts in, as it is now. The caller holds the lock.
func (t *tracker) bounds(key device.Key, node string) quarantine.Around {
	counted := t.eligible()
	around := quarantine.Around{Classes: t.classesOf(key), InClass: counted.of[budget.ClassOf(key)], InCluster: counted.all}
	if p := t.poolOf(key); p != nil && p.now.Complete {
		around.OnNode = len(p.now.Devices)
	} else if key.Path() == device.PathPlugin {
		around.OnNode = int(t.nodes[node].offers[key.Resource].Listed)
	}
	return around
}
