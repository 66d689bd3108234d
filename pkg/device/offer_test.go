package device_test

import (
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// O4: what a Pod says and whether it may be believed are two things. A Healthy that
// may not is worth as much as an Unknown, and nothing else is doubted.
func TestAHealthyThatCannotBeBelievedCountsForUnknown(t *testing.T) {
	stale := func(r device.Report, why device.Staleness) device.Report { r.Stale = why; return r }
	healthy := func(uid string) device.Report { return report(uid, "1", device.Healthy, "") }
	for name, test := range map[string]struct {
		reports []device.Report
		value   device.Health
		why     device.Staleness
	}{
		"its plugin is there":  {[]device.Report{healthy("a")}, device.Healthy, device.Fresh},
		"its plugin is away":   {[]device.Report{stale(healthy("a"), device.PluginAbsent)}, device.Unknown, device.PluginAbsent},
		"two Pods, one reason": {[]device.Report{stale(healthy("a"), device.NotListed), stale(healthy("b"), device.NotListed)}, device.Unknown, device.NotListed},
		"one of two is enough": {[]device.Report{healthy("a"), stale(healthy("b"), device.PluginAbsent)}, device.Unknown, device.PluginAbsent},
		"Unknown by itself":    {[]device.Report{report("a", "1", device.Unknown, "silent"), stale(healthy("b"), device.PluginAbsent)}, device.Unknown, device.Fresh},
		"a fault is no doubt":  {[]device.Report{report("a", "1", device.Unhealthy, ""), stale(healthy("b"), device.PluginAbsent)}, device.Unhealthy, device.Fresh},
	} {
		t.Run(name, func(t *testing.T) {
			evidence := device.Fuse(test.reports)
			if evidence.Value != test.value || evidence.Stale != test.why {
				t.Errorf("believed is %s (%q), want %s (%q)", evidence.Value, evidence.Stale, test.value, test.why)
			}
		})
	}
}

// O4, O3: that a Healthy can't be believed any more makes things worse, and is
// believed at once; that it can again takes a live read.
func TestDoubtIsBelievedAtOnceAndItsEndOnlyFromALiveRead(t *testing.T) {
	fresh := report("a", "7", device.Healthy, "")
	doubted := fresh
	doubted.Stale = device.PluginAbsent
	known, belief := device.Believe([]device.Report{fresh}, doubted, false)
	if belief != device.Believed {
		t.Fatalf("the doubt is %v, want it believed", belief)
	}
	if _, belief := device.Believe(known, doubted, false); belief != device.Repeated {
		t.Errorf("the same doubt again is %v, want it repeated", belief)
	}
	if _, belief := device.Believe(known, fresh, false); belief != device.Doubted {
		t.Errorf("its end on the watch is %v, want it doubted", belief)
	}
	if known, belief := device.Believe(known, fresh, true); belief != device.Believed || device.Fuse(known).Value != device.Healthy {
		t.Errorf("its end on a live read is %v, and then %+v", belief, known)
	}
}

// O4: a plugin stands behind a Healthy as long as something of its resource may be
// given out. What is Unhealthy needs nobody behind it.
func TestOnlyAHealthyIsDoubted(t *testing.T) {
	for offer, vouched := range map[device.Offer]bool{
		{Listed: 8, Allocatable: 8}: true,
		{Listed: 8, Allocatable: 1}: true,
		{Listed: 8}:                 false,
		{}:                          false,
	} {
		if offer.Vouched() != vouched {
			t.Errorf("%+v vouches for a Healthy: %t, want %t", offer, offer.Vouched(), vouched)
		}
	}
	key := plugin(t, "anvil-07", "example.com/gpu", "GPU-1")
	reports := []device.DeviceReport{
		{Device: key, Report: report("a", "1", device.Healthy, "")},
		{Device: key, Report: report("b", "1", device.Unknown, "")},
		{Device: key, Report: report("c", "1", device.Unhealthy, "")},
	}
	device.Doubt(reports, func(device.Key) device.Staleness { return device.PluginAbsent })
	for i, want := range []device.Staleness{device.PluginAbsent, device.Fresh, device.Fresh} {
		if got := reports[i].Report.Stale; got != want {
			t.Errorf("a report of %s is doubted by %q, want %q", reports[i].Report.Health, got, want)
		}
	}
	device.Doubt(reports, func(device.Key) device.Staleness { return device.Fresh })
	if reports[0].Report.Stale != device.Fresh {
		t.Error("a Healthy is still doubted although nothing speaks against it any more")
	}
}
