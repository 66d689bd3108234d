package listing

import (
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
)

// K4: whoever is answered from the directory is told what it may lack.
func TestADirectoryThatIsntCurrentIsNotPassedOffAsThePresent(t *testing.T) {
	now := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	current := func() []directory.Status {
		shard := directory.Status{WholeSeen: true, WholeCase: true, Beat: now.Add(-5 * time.Second), CaseBeat: now.Add(-5 * time.Second)}
		return []directory.Status{shard, shard}
	}
	for name, tc := range map[string]struct {
		change func(*directory.Status)
		want   string
	}{
		"all is current":                    {func(*directory.Status) {}, ""},
		"a shard isn't compared yet":        {func(s *directory.Status) { s.WholeCase = false }, "1 of the directory's 2 shards aren't filled yet"},
		"no starter ever wrote":             {func(s *directory.Status) { s.Beat = time.Time{} }, "no starter has written the directory yet"},
		"the starters are gone":             {func(s *directory.Status) { s.Beat = now.Add(-time.Minute) }, "no starter has written the directory for 1m0s"},
		"no worker ever wrote":              {func(s *directory.Status) { s.CaseBeat = time.Time{} }, "no worker has written the directory yet"},
		"the workers are gone, or hang":     {func(s *directory.Status) { s.CaseBeat = now.Add(-time.Minute) }, "no worker has written the directory for 1m0s"},
		"the starter is blind, and says so": {func(s *directory.Status) { s.Blind = "can't watch pods" }, "can't see everything: can't watch pods"},
	} {
		t.Run(name, func(t *testing.T) {
			shards := current()
			tc.change(&shards[1])
			problems := lacks(shards, now)
			if got := strings.Join(problems, "; "); !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
				t.Errorf("said %q, want %q", got, tc.want)
			}
		})
	}
}

// O4: how old it is that isn't believed is known to be no less than what the starter saw,
// and an Unknown of a driver that never said anything is told from a loss.
func TestTheDirectoryTellsSinceWhenAndWhetherHealthWasLost(t *testing.T) {
	now := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	since, beat := now.Add(-10*time.Minute), now.Add(-5*time.Second)
	for name, tc := range map[string]struct {
		seen              directory.Seen
		confirmed, ceased *time.Time
		why               string
	}{
		"it holds":                         {directory.Seen{Health: device.Healthy}, moment(beat.Add(-watched)), nil, ""},
		"it was seen to end":               {directory.Seen{Health: device.Healthy, Stale: device.DriverAbsent, StaleSince: since}, nil, moment(since), "DriverAbsent"},
		"it was seen to end, on its node":  {directory.Seen{Health: device.Unhealthy, Stale: device.NodeSilent, StaleSince: since}, nil, moment(since), "NodeSilent"},
		"nobody saw when it ended":         {directory.Seen{Health: device.Healthy, Stale: device.DriverAbsent}, nil, nil, "DriverAbsent"},
		"a health that was lost":           {directory.Seen{Health: device.Unknown}, moment(beat.Add(-watched)), nil, ""},
		"a driver that never said a thing": {directory.Seen{Health: device.Unknown, Unmonitored: true}, moment(beat.Add(-watched)), nil, Unmonitored},
	} {
		t.Run(name, func(t *testing.T) {
			tc.seen.Node, tc.seen.Listed = "node-0", true
			l := Listing{Devices: []Device{ofEntry(directory.Entry{Device: device.Key{Driver: "gpu.example.com", Pool: "node-0", Device: "gpu-0"}, Seen: &tc.seen})}}
			l.spreadOutages()
			d := &l.Devices[0]
			d.aged(nil, beat)
			same := func(a, b *time.Time) bool { return (a == nil) == (b == nil) && (a == nil || a.Equal(*b)) }
			if !same(d.Age.Confirmed, tc.confirmed) || !same(d.Age.Ceased, tc.ceased) || d.Why() != tc.why {
				t.Errorf("confirmed %v, ceased %v, because of %q; want %v, %v, %q", d.Age.Confirmed, d.Age.Ceased, d.Why(), tc.confirmed, tc.ceased, tc.why)
			}
		})
	}
}

// O4: a Healthy that the starter doesn't believe is none. O6: a node that is out is so
// for each of its devices, whatever they say.
func TestAHealthyThatTheDirectoryDoubtsIsUnknown(t *testing.T) {
	entry := func(node, name string, health device.Health, why device.Staleness) Device {
		return ofEntry(directory.Entry{
			Device: device.Key{Driver: "gpu.example.com", Pool: node, Device: name},
			Seen:   &directory.Seen{Node: node, Listed: true, Health: health, Stale: why},
		})
	}
	for why, out := range map[device.Staleness]device.Staleness{
		device.NodeNotReady: device.NodeNotReady, device.NodeSilent: device.NodeSilent, device.PluginAbsent: "", device.DriverAbsent: "",
	} {
		l := Listing{Devices: []Device{
			entry("node-0", "gpu-0", device.Healthy, why), entry("node-0", "gpu-1", device.Unhealthy, why),
			entry("node-0", "gpu-2", "", ""), entry("node-1", "gpu-0", device.Healthy, ""),
		}}
		l.spreadOutages()
		if d := l.Devices[0]; d.Health != device.Unknown || d.Stale != why {
			t.Errorf("%s: shown as %s (%s)", why, d.Health, d.Stale)
		}
		if d := l.Devices[1]; d.Health != device.Unhealthy || d.Stale != "" {
			t.Errorf("%s: a fault is shown as %s (%s)", why, d.Health, d.Stale)
		}
		for i, want := range []device.Staleness{out, out, out, ""} {
			if d := l.Devices[i]; d.NodeOut != want {
				t.Errorf("%s: the node of %s is out by %q, want %q", why, d.Name, d.NodeOut, want)
			}
		}
	}
}
