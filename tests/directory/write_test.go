package directory

import (
	"maps"
	"slices"
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// transitions counts what the streams of all shards hold.
func transitions(t testing.TB, s *server) int64 {
	t.Helper()
	keys, err := s.client.Keys(t.Context(), "*:transitions").Result()
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, key := range keys {
		n, err := s.client.XLen(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	return total
}

func TestAnEntryIsReadAsItWasWrittenByTwoWriters(t *testing.T) {
	s := start(t)
	held := claimAll(t, s.Directory)
	key := gpu(0, 0)
	write(t, s.Directory, seeing(held, seen(key, device.Unhealthy), 0), directory.Applied)
	write(t, s.Directory, deciding(openCase(key, 100, quarantine.PhaseQuarantined), 0), directory.Applied)

	entry := get(t, s.Directory, key)
	if entry.Seen.Health != device.Unhealthy || entry.Case.Phase != quarantine.PhaseQuarantined {
		t.Errorf("read seen %+v and case %+v", entry.Seen, entry.Case)
	}
	if entry.Seen.Objective != directory.ObjectiveNotConfigured {
		t.Errorf("the business objective is %q, want that nobody configured one", entry.Seen.Objective)
	}
}

// Proves a part of K4: go-redis sends a script again when its answer was lost.
func TestAScriptThatRunsTwiceWritesOnce(t *testing.T) {
	s := start(t)
	held := claimAll(t, s.Directory)
	key := gpu(0, 0)
	o := seeing(held, seen(key, device.Healthy), 0)
	first := write(t, s.Directory, o, directory.Applied)
	second := write(t, s.Directory, o, directory.Duplicate)
	if first.Revision != second.Revision {
		t.Errorf("revision %d, and %d when it ran again", first.Revision, second.Revision)
	}
	if n := transitions(t, s); n != 1 {
		t.Errorf("%d transitions, want 1", n)
	}

	// And when it takes the whole entry away.
	gone := seeing(held, seen(key, device.Healthy), first.Revision)
	gone.Seen = nil
	write(t, s.Directory, gone, directory.Applied)
	write(t, s.Directory, gone, directory.Conflict)
	if n := transitions(t, s); n != 2 {
		t.Errorf("%d transitions, want 2", n)
	}
}

func TestOfTwoWhoReadTheSameRevisionOneFails(t *testing.T) {
	s := start(t)
	held := claimAll(t, s.Directory)
	key := gpu(0, 0)
	a, b := seeing(held, seen(key, device.Healthy), 0), seeing(held, seen(key, device.Unknown), 0)
	first := write(t, s.Directory, a, directory.Applied)
	refused := write(t, s.Directory, b, directory.Conflict)
	if refused.Revision != first.Revision {
		t.Errorf("the conflict names revision %d, want %d", refused.Revision, first.Revision)
	}
	if got := get(t, s.Directory, key).Seen.Health; got != device.Healthy {
		t.Errorf("health %s, want what the first wrote", got)
	}
	if n := transitions(t, s); n != 1 {
		t.Errorf("%d transitions, want 1: what is refused leaves none", n)
	}
}

func TestAStarterThatLostItsPlaceIsFencedOff(t *testing.T) {
	s := start(t)
	old := claimAll(t, s.Directory)
	key := gpu(0, 0)
	first := write(t, s.Directory, seeing(old, seen(key, device.Healthy), 0), directory.Applied)
	present := claimAll(t, s.Directory)
	write(t, s.Directory, seeing(old, seen(key, device.Unhealthy), first.Revision), directory.Fenced)
	write(t, s.Directory, seeing(present, seen(key, device.Unknown), first.Revision), directory.Applied)
	if got := get(t, s.Directory, key).Seen.Health; got != device.Unknown {
		t.Errorf("health %s, want what the present writer wrote", got)
	}
}

func TestAnOlderCaseNeverReplacesALaterOne(t *testing.T) {
	s := start(t)
	key := gpu(0, 0)
	first := write(t, s.Directory, deciding(openCase(key, 200, quarantine.PhaseQuarantined), 0), directory.Applied)
	write(t, s.Directory, deciding(openCase(key, 199, quarantine.PhaseSuspect), first.Revision), directory.Fenced)
	later := openCase(key, 200, quarantine.PhaseRecovering)
	later.Attempt = 2
	second := write(t, s.Directory, deciding(later, first.Revision), directory.Applied)
	write(t, s.Directory, deciding(openCase(key, 200, quarantine.PhaseQuarantined), second.Revision), directory.Fenced)

	// Also once it is over, as long as the device is known otherwise.
	held := claimAll(t, s.Directory)
	write(t, s.Directory, seeing(held, seen(key, device.Healthy), 0), directory.Applied)
	over := deciding(later, second.Revision)
	over.Case, over.Last = nil, later
	third := write(t, s.Directory, over, directory.Applied)
	write(t, s.Directory, deciding(openCase(key, 199, quarantine.PhaseSuspect), third.Revision), directory.Fenced)
	if entry := get(t, s.Directory, key); entry.Case != nil {
		t.Errorf("case %+v, want none: it is over", entry.Case)
	}
}

func TestADeviceIsFoundByWhatItsEntrySaysNow(t *testing.T) {
	s := start(t)
	held := claimAll(t, s.Directory)
	revisions := map[device.Key]int64{}
	for n := range 3 {
		for i := range 4 {
			key := gpu(n, i)
			revisions[key] = write(t, s.Directory, seeing(held, seen(key, device.Healthy), 0), directory.Applied).Revision
		}
	}
	plugin, err := device.NewPlugin("node-0", "example.com/gpu", "GPU|with {strange}: signs\nand a line break")
	if err != nil {
		t.Fatal(err)
	}
	odd := seen(plugin, device.Healthy)
	odd.Node, odd.Classes = "node-0", []string{"example.com/gpu"}
	write(t, s.Directory, seeing(held, odd, 0), directory.Applied)
	c := openCase(gpu(1, 2), 100, quarantine.PhaseSuspect)
	at := write(t, s.Directory, deciding(c, 0), directory.Applied).Revision

	for name, tc := range map[string]struct {
		query directory.Query
		want  int
	}{
		"all":                       {directory.Query{}, 13},
		"a node's":                  {directory.Query{Node: "node-1"}, 4},
		"a node's of both paths":    {directory.Query{Node: "node-0"}, 5},
		"a driver's":                {directory.Query{Driver: "gpu.example.com"}, 12},
		"a resource's, its class":   {directory.Query{Class: "example.com/gpu"}, 1},
		"a driver's on a node":      {directory.Query{Node: "node-0", Driver: "gpu.example.com"}, 4},
		"in a phase":                {directory.Query{Phase: "Suspect"}, 1},
		"in a phase, on that node":  {directory.Query{Phase: "Suspect", Node: "node-1"}, 1},
		"in a phase, on another":    {directory.Query{Phase: "Suspect", Node: "node-2"}, 0},
		"with a reason":             {directory.Query{Reason: "XidFallenOffBus"}, 1},
		"in a phase that isn't one": {directory.Query{Phase: "Quarantined"}, 0},
	} {
		if got := listed(t, s.Directory, tc.query); len(got) != tc.want {
			t.Errorf("%s: %d devices %v, want %d", name, len(got), slices.Sorted(maps.Keys(got)), tc.want)
		}
	}
	if got := get(t, s.Directory, plugin); got.Seen.Node != "node-0" {
		t.Errorf("the device of the odd name reads as %+v", got.Seen)
	}

	// What changes leaves the sets that it was in.
	c.Phase = quarantine.PhaseQuarantined
	write(t, s.Directory, deciding(c, at), directory.Applied)
	moved := seen(gpu(0, 1), device.Healthy)
	moved.Node = "node-2"
	write(t, s.Directory, seeing(held, moved, revisions[gpu(0, 1)]), directory.Applied)
	gone := seeing(held, seen(gpu(0, 0), ""), revisions[gpu(0, 0)])
	gone.Seen = nil
	write(t, s.Directory, gone, directory.Applied)
	for name, tc := range map[string]struct {
		query directory.Query
		want  int
	}{
		"all":                {directory.Query{}, 12},
		"the old node's":     {directory.Query{Node: "node-0"}, 3},
		"the new node's":     {directory.Query{Node: "node-2"}, 5},
		"in the old phase":   {directory.Query{Phase: "Suspect"}, 0},
		"in the new phase":   {directory.Query{Phase: "Quarantined"}, 1},
		"of the whole class": {directory.Query{Driver: "gpu.example.com"}, 11},
	} {
		if got := listed(t, s.Directory, tc.query); len(got) != tc.want {
			t.Errorf("after the change, %s: %d devices %v, want %d", name, len(got), slices.Sorted(maps.Keys(got)), tc.want)
		}
	}
}

func TestAShardIsReadInPages(t *testing.T) {
	s := start(t)
	held := claimAll(t, s.Directory)
	want := map[string]bool{}
	shard := directory.ShardOf(gpu(0, 0))
	for n := range 400 {
		if key := gpu(n, 0); directory.ShardOf(key) == shard {
			write(t, s.Directory, seeing(held, seen(key, device.Healthy), 0), directory.Applied)
			want[key.String()] = true
		}
	}
	got, after := map[string]bool{}, ""
	for {
		page, next, err := s.Page(t.Context(), shard, after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) > 2 {
			t.Fatalf("a page of %d entries, want at most 2", len(page))
		}
		for _, entry := range page {
			got[entry.Device.String()] = true
		}
		if after = next; next == "" {
			break
		}
	}
	if len(want) < 3 || !maps.Equal(got, want) {
		t.Errorf("pages gave %d of %d devices", len(got), len(want))
	}
}
