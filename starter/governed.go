package starter

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/reading"
)

// This file has open cases take in a policy that changed. A case asks for what holds at
// each decision, and one that is idle may have none for hours. So the leading starter
// tells the cases of those devices of which the policy says something else than before
// what they know already: that is no news, and a decision all the same. It goes one by one,
// so that ten thousand cases don't wake at once.

// Governed is what the policy says of devices.
type Governed interface {
	// Saying is what it says now, by driver (or resource) and classes, as a text that is
	// another where it says something else. version compares as another once it changed.
	Saying() (version any, says func(driver string, classes []string) string)
}

const (
	// governedEvery is how often it is compared, and governedWait how long after a change
	// the first case is told: workers watch the policy themselves, and should have it by
	// then.
	governedEvery, governedWait = time.Second, 2 * time.Second
	// governedRate is how many cases are told in a second.
	governedRate = 50
)

// governing tells cases of a changed policy, during one stretch of leadership.
type governing struct {
	tracker  *tracker
	governed Governed
	settling *settling
	clock    clock.WithTicker
	pace     flowcontrol.RateLimiter

	// version and said are what the cases were told of, changed is since when another
	// version holds.
	version, next any
	said          func(string, []string) string
	changed       time.Time
}

// run goes on until ctx ends.
func (g *governing) run(ctx context.Context) {
	g.version, g.said = g.governed.Saying()
	ticker := g.clock.NewTicker(governedEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if g.settling.wait(ctx) != nil {
			return
		}
		g.round(ctx)
	}
}

// round tells the cases of a change that has had its time to spread.
func (g *governing) round(ctx context.Context) {
	version, says := g.governed.Saying()
	switch now := g.clock.Now(); {
	case version == g.version:
		g.next = version
		return
	case version != g.next:
		g.next, g.changed = version, now
		return
	case now.Sub(g.changed) < governedWait:
		return
	}
	before := g.said
	g.version, g.said = version, says
	keys := g.tracker.differently(before, says)
	for _, key := range keys {
		if g.pace.Wait(ctx) != nil {
			return
		}
		g.tracker.policyNews(key)
	}
	if len(keys) > 0 {
		g.tracker.log.Info("told open cases that the policy changed", "devices", len(keys))
	}
}

// differently lists the devices that may have a case, and of which one policy says
// something else than the other.
func (t *tracker) differently(before, after func(string, []string) string) []device.Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	var keys []device.Key
	differs := map[string]bool{} // many devices have the same driver and classes
	for key, r := range t.devices {
		if !r.maybe && !r.opened && r.mark == nil {
			continue
		}
		driver, classes := reading.DriverOf(key), t.classesOf(key)
		of := driver + " " + strings.Join(classes, " ")
		is, known := differs[of]
		if !known {
			is = before(driver, classes) != after(driver, classes)
			differs[of] = is
		}
		if is {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, device.Key.Compare)
	return keys
}

// policyNews has a device's case told what it knows.
func (t *tracker) policyNews(key device.Key) {
	t.do(func() {
		if r := t.devices[key]; r != nil {
			r.governed = true
			t.touch(key)
		}
	})
}

// classesOf are the DeviceClasses by which the device is claimed, or its plugin's
// resource. The caller holds the lock.
func (t *tracker) classesOf(key device.Key) []string {
	if key.Path() == device.PathPlugin {
		return []string{key.Resource}
	}
	var classes []string
	for name := range t.claimsByPool[poolKey(key)] {
		for _, result := range t.claims[name].Results {
			if result.Device == key && result.Holds() && result.Class != "" && !slices.Contains(classes, result.Class) {
				classes = append(classes, result.Class)
			}
		}
	}
	slices.Sort(classes)
	return classes
}
