package starter

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reading"
)

// Counter counts open cases where their owners are. It is for metrics alone: the
// count lags, and nothing is decided by it.
type Counter interface {
	// Count counts the open cases in a phase; driver narrows it unless it is empty.
	Count(ctx context.Context, phase quarantine.Phase, driver string) (int64, error)
}

// elsewhere is the driver label of open cases whose driver isn't seen any more.
const elsewhere = "-"

// census counts the open cases by phase and driver every so often, while this
// starter leads. A phase without cases costs one question.
type census struct {
	counter Counter
	tracker *tracker
	clock   clock.WithTicker
	log     *slog.Logger
	pause   time.Duration

	mu     sync.Mutex
	counts map[quarantine.Phase]map[string]int64
}

// run counts until ctx ends, and then forgets: the next leader counts.
func (c *census) run(ctx context.Context) {
	if c.counter == nil {
		return
	}
	defer c.set(nil)
	ticker := c.clock.NewTicker(c.pause)
	defer ticker.Stop()
	failed := false
	for {
		counts, err := c.count(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			c.set(nil)
			if !failed {
				c.log.Warn("open cases can't be counted; the metric is left out until they can", "error", err)
			}
		default:
			c.set(counts)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

func (c *census) set(counts map[quarantine.Phase]map[string]int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts = counts
}

func (c *census) count(ctx context.Context) (map[quarantine.Phase]map[string]int64, error) {
	drivers := c.tracker.drivenBy()
	counts := map[quarantine.Phase]map[string]int64{}
	for _, phase := range quarantine.OpenPhases() {
		all, err := c.counter.Count(ctx, phase, "")
		if err != nil {
			return nil, fmt.Errorf("count the cases in phase %s: %w", phase, err)
		}
		of := map[string]int64{}
		for _, driver := range drivers {
			of[driver] = 0
			if all == 0 {
				continue
			}
			if of[driver], err = c.counter.Count(ctx, phase, driver); err != nil {
				return nil, fmt.Errorf("count the cases of driver %s in phase %s: %w", driver, phase, err)
			}
			all -= of[driver]
		}
		if all > 0 {
			of[elsewhere] = all
		}
		counts[phase] = of
	}
	return counts, nil
}

// read gives the last count.
func (c *census) read(emit func(float64, ...string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for phase, of := range c.counts {
		for driver, n := range of {
			emit(float64(n), string(phase), driver)
		}
	}
}

// owing counts the devices about which something waits to be sent, those too that
// wait for another try.
func (t *tracker) owing() int {
	n := 0
	t.eachRecord(func(_ device.Key, r *record) {
		if _, owed := t.owes(r); owed {
			n++
		}
	})
	return n
}

// drivenBy lists the drivers and plugin resources of all devices that are seen.
func (t *tracker) drivenBy() []string {
	drivers := map[string]struct{}{}
	t.eachRecord(func(key device.Key, _ *record) { drivers[reading.DriverOf(key)] = struct{}{} })
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.pools {
		drivers[key.Driver] = struct{}{}
	}
	return slices.Sorted(maps.Keys(drivers))
}

// listedDevices counts, by driver, the devices in complete pools.
func (t *tracker) listedDevices() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	listed := map[string]int{}
	for key, p := range t.pools {
		if p.now.Complete {
			listed[key.Driver] += len(p.now.Devices)
		}
	}
	return listed
}

// reportedDevices counts, by driver and health, the devices that live Pods report
// on. A Healthy that isn't believed counts as Unknown.
func (t *tracker) reportedDevices(emit func(float64, ...string)) {
	type label struct {
		driver string
		health device.Health
	}
	counts := map[label]int{}
	t.eachRecord(func(key device.Key, r *record) {
		worst, reported := device.Healthy, false
		for _, s := range r.readings {
			if s.now.Ended {
				continue
			}
			if reported = true; s.now.Counts().WorseThan(worst) {
				worst = s.now.Counts()
			}
		}
		if reported {
			counts[label{reading.DriverOf(key), worst}]++
		}
	})
	for l, n := range counts {
		emit(float64(n), l.driver, string(l.health))
	}
}

// unseenDevices counts, by driver, the devices in complete pools that no live Pod
// reports on. A driver of which all are seen has zero.
func (t *tracker) unseenDevices() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := map[string]int{}
	for _, p := range t.pools {
		if !p.now.Complete {
			continue
		}
		for _, listed := range p.now.Devices {
			counts[p.key.Driver] += 0
			r := t.devices[listed.Key]
			if r == nil || !r.liveSays(anything) {
				counts[p.key.Driver]++
			}
		}
	}
	return counts
}
