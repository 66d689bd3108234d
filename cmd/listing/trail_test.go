package listing

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

func trailDecision(t *testing.T, name, node string, seq int64, kind quarantine.NoticeKind, actor string) directory.Decision {
	t.Helper()
	key, err := device.ParseKey(name)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 30, 0, 0, int(seq), 0, time.UTC)
	return directory.Decision{Device: key, Node: node, Notice: quarantine.Notice{Seq: seq, At: at, Kind: kind, Epoch: 7, Actor: actor}}
}

func TestATrailIsNarrowedByEveryFilterAndInOrder(t *testing.T) {
	const dra, plugin = "gpu.example.com/node-0/gpu-0", "node-1|example.com/gpu|GPU-1"
	of := func(scope incident.Scope, seq int64) directory.Decision {
		at := time.Date(2026, 11, 30, 0, 0, int(seq), 0, time.UTC)
		return directory.IncidentDecision(scope, at, incident.Notice{Seq: seq, At: at, Kind: incident.NoticeBegan, Actor: "sickbay"})
	}
	paused := func(scope string, seq int64) directory.Decision {
		at := time.Date(2026, 11, 30, 0, 0, int(seq), 0, time.UTC)
		return directory.BudgetDecision(budget.Notice{Seq: seq, At: at, Kind: budget.NoticePaused, Actor: "mechanic", Scope: scope})
	}
	all := []directory.Decision{
		paused("node/node-7", 8), paused("pool/gpu.example.com/node-0", 7), paused("cluster", 6),
		of(incident.OfNode("node-7"), 5), of(incident.OfDriver("gpu.example.com"), 4),
		trailDecision(t, plugin, "node-1", 3, quarantine.NoticeClosed, "sickbay"),
		trailDecision(t, dra, "node-0", 2, quarantine.NoticeMessage, "oncall@example.com"),
		trailDecision(t, dra, "node-0", 1, quarantine.NoticeOpened, "sickbay"),
	}
	key := all[6].Device
	for name, c := range map[string]struct {
		filter TrailFilter
		want   []int64
	}{
		"nothing":              {TrailFilter{}, []int64{1, 2, 3, 4, 5, 6, 7, 8}},
		"a device":             {TrailFilter{Devices: []device.Key{key}}, []int64{1, 2}},
		"nodes":                {TrailFilter{Nodes: []string{"node-[1-9]"}}, []int64{3, 5, 8}},
		"a plugin's resource":  {TrailFilter{Drivers: []string{"example.com/gpu"}}, []int64{3}},
		"a DRA driver":         {TrailFilter{Drivers: []string{"gpu.*"}}, []int64{1, 2, 4, 7}},
		"kinds":                {TrailFilter{Kinds: []string{"CaseOpened", "CaseClosed"}}, []int64{1, 3}},
		"what is many":         {TrailFilter{Kinds: []string{"Incident*"}}, []int64{4, 5}},
		"what is paused":       {TrailFilter{Kinds: []string{"Paused"}, Actors: []string{"mechanic"}}, []int64{6, 7, 8}},
		"an actor":             {TrailFilter{Actors: []string{"*@example.com"}}, []int64{2}},
		"what doesn't go both": {TrailFilter{Devices: []device.Key{key}, Kinds: []string{"CaseClosed"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int64
			for _, d := range c.filter.Narrow(all) {
				got = append(got, d.Seq)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
	if err := (TrailFilter{Nodes: []string{"[node"}}).Check(); err == nil || !strings.Contains(err.Error(), "--node") {
		t.Errorf("a pattern that is none: %v", err)
	}
}

func TestWhatTwoSourcesTellIsInTheTrailOnceWithItsNode(t *testing.T) {
	const name = "gpu.example.com/pool/gpu-0"
	known := trailDecision(t, name, "", 1, quarantine.NoticeOpened, "sickbay")
	placed := known
	placed.Node = "node-4"
	later := trailDecision(t, name, "node-4", 2, quarantine.NoticeClosed, "sickbay")
	got := merge([]directory.Decision{known}, []directory.Decision{placed, later})
	if want := []directory.Decision{placed, later}; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestSinceIsATimeOrHowLongAgo(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"90m":                       now.Add(-90 * time.Minute),
		"7d":                        now.Add(-7 * 24 * time.Hour),
		"1.5d":                      now.Add(-36 * time.Hour),
		"2026-11-29":                time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC),
		"2026-11-29T01:00:00+01:00": time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC),
		"2026-11-29 10:00:00":       time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC),
	} {
		if got, err := ParseSince(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "yesterday", "-1h", "d", "-2d"} {
		if got, err := ParseSince(text, now); err == nil || !strings.Contains(err.Error(), "--since") {
			t.Errorf("%q: %s, %v; want a refusal", text, got, err)
		}
	}
}
