package directory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// replayed puts the shards of some devices together from snapshots and transitions.
func replayed(ctx context.Context, d *directory.Directory, keys []device.Key) (map[string]directory.Entry, error) {
	all := map[string]directory.Entry{}
	for _, key := range keys {
		entries, err := d.Replay(ctx, directory.ShardOf(key))
		if err != nil {
			return nil, err
		}
		for key, entry := range entries {
			all[key.String()] = entry
		}
	}
	return all, nil
}

// present reads the entries of some devices.
func present(ctx context.Context, d *directory.Directory, keys []device.Key) (map[string]directory.Entry, error) {
	all := map[string]directory.Entry{}
	for _, key := range keys {
		entry, ok, err := d.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		if ok {
			all[key.String()] = entry
		}
	}
	return all, nil
}

// differ names the first difference between two readings of the directory.
func differ(got, want map[string]directory.Entry) error {
	for name, w := range want {
		g, ok := got[name]
		if !ok {
			return fmt.Errorf("%s is missing", name)
		}
		if a, b := text(g), text(w); a != b {
			return fmt.Errorf("%s is\n%s, want\n%s", name, a, b)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			return fmt.Errorf("%s is there, and shouldn't be", name)
		}
	}
	return nil
}

func text(e directory.Entry) string {
	encoded, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return string(encoded)
}

// Proves a part of K4: whatever is written, refused, repeated, snapshotted and
// trimmed in whatever order, snapshot and transitions give the present entries.
func TestSnapshotAndTransitionsGiveThePresentEntries(t *testing.T) {
	s := start(t)
	all := []device.Key{gpu(0, 0), gpu(0, 1), gpu(0, 2), gpu(0, 3), gpu(0, 4), gpu(0, 5)}
	rapid.Check(t, func(t *rapid.T) {
		if err := s.client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		held := make([]directory.Claim, directory.Shards)
		for _, key := range all {
			shard := directory.ShardOf(key)
			claim, err := s.Claim(t.Context(), shard, directory.Claim{}, false)
			if err != nil {
				t.Fatal(err)
			}
			held[shard] = claim
		}
		devices := rapid.IntRange(0, 5)
		healths := rapid.SampledFrom([]device.Health{"", device.Healthy, device.Unknown, device.Unhealthy})
		phases := rapid.SampledFrom([]quarantine.Phase{quarantine.PhaseSuspect, quarantine.PhaseQuarantined, quarantine.PhaseGone})
		var last directory.Operation
		do := func(o directory.Operation) {
			if _, err := s.Write(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			last = o
		}
		// revision is the present one, or now and then one that isn't.
		revision := func(t *rapid.T, key device.Key, field directory.Field) int64 {
			entry, _, err := s.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			off := rapid.SampledFrom([]int64{0, 0, 0, 1}).Draw(t, "off")
			if field == directory.FieldSeen {
				return entry.SeenRevision + off
			}
			return entry.CaseRevision + off
		}
		t.Repeat(map[string]func(*rapid.T){
			"see": func(t *rapid.T) {
				key := gpu(0, devices.Draw(t, "device"))
				do(seeing(held, seen(key, healths.Draw(t, "health")), revision(t, key, directory.FieldSeen)))
			},
			"see no more": func(t *rapid.T) {
				key := gpu(0, devices.Draw(t, "device"))
				o := seeing(held, seen(key, ""), revision(t, key, directory.FieldSeen))
				if o.Expected > 0 {
					o.Seen = nil
					do(o)
				}
			},
			"decide": func(t *rapid.T) {
				key := gpu(0, devices.Draw(t, "device"))
				epoch := rapid.Int64Range(1, 3).Draw(t, "epoch")
				do(deciding(openCase(key, epoch, phases.Draw(t, "phase")), revision(t, key, directory.FieldCase)))
			},
			"close": func(t *rapid.T) {
				key := gpu(0, devices.Draw(t, "device"))
				o := deciding(openCase(key, 3, quarantine.PhaseClosed), revision(t, key, directory.FieldCase))
				if o.Expected > 0 {
					o.Case = nil
					do(o)
				}
			},
			"run again": func(t *rapid.T) {
				if last.ID != "" {
					do(last)
				}
			},
			"snapshot": func(t *rapid.T) {
				keep := rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "keep")
				// From a minute ahead, so that "older than" doesn't depend on the pace.
				_, _, err := s.Snapshot(t.Context(), directory.ShardOf(gpu(0, devices.Draw(t, "device"))), time.Now().Add(time.Minute), keep)
				if err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				want, err := present(t.Context(), s.Directory, all)
				if err != nil {
					t.Fatal(err)
				}
				got, err := replayed(t.Context(), s.Directory, all)
				if err != nil {
					t.Fatal(err)
				}
				if err := differ(got, want); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

func TestTransitionsAreTrimmedOnlyBehindASnapshot(t *testing.T) {
	s := start(t)
	held := claimAll(t, s.Directory)
	key := gpu(0, 0)
	shard := directory.ShardOf(key)
	var revision int64
	for range 50 {
		revision = write(t, s.Directory, seeing(held, seen(key, device.Healthy), revision), directory.Applied).Revision
	}
	if _, trimmed, err := s.Snapshot(t.Context(), shard, time.Now(), time.Hour); err != nil || trimmed != 0 {
		t.Fatalf("%d trimmed, error %v; want none: they are younger than an hour", trimmed, err)
	}
	if _, trimmed, err := s.Snapshot(t.Context(), shard, time.Now().Add(time.Minute), 0); err != nil || trimmed != 49 {
		t.Fatalf("%d trimmed, error %v; want all but the one that the snapshot was made at", trimmed, err)
	}
	write(t, s.Directory, seeing(held, seen(key, device.Unhealthy), revision), directory.Applied)
	got, err := replayed(t.Context(), s.Directory, []device.Key{key})
	if err != nil {
		t.Fatal(err)
	}
	if err := differ(got, listed(t, s.Directory, directory.Query{})); err != nil {
		t.Error(err)
	}
}

// follow follows from a position until it has seen so many transitions.
func follow(t testing.TB, d *directory.Directory, from directory.Position, n int) ([]directory.Transition, directory.Position, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var got []directory.Transition
	reached, err := d.Follow(ctx, from, 5*time.Millisecond, func(tr directory.Transition) error {
		if got = append(got, tr); len(got) == n {
			cancel()
		}
		return nil
	})
	return got, reached, err
}

func TestWhoFollowsMissesNothingBetweenListingAndFollowing(t *testing.T) {
	s := start(t)
	held := claimAll(t, s.Directory)
	first := write(t, s.Directory, seeing(held, seen(gpu(0, 0), device.Healthy), 0), directory.Applied)
	write(t, s.Directory, seeing(held, seen(gpu(0, 1), device.Healthy), 0), directory.Applied)
	from, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	state := listed(t, s.Directory, directory.Query{})
	write(t, s.Directory, seeing(held, seen(gpu(0, 0), device.Unhealthy), first.Revision), directory.Applied)
	opened := openCase(gpu(0, 0), 100, quarantine.PhaseQuarantined)
	at := write(t, s.Directory, deciding(opened, 0), directory.Applied)
	over := deciding(opened, at.Revision)
	over.Case, over.Last = nil, openCase(gpu(0, 0), 100, quarantine.PhaseClosed)
	over.Last.End = quarantine.EndHealthBack
	write(t, s.Directory, over, directory.Applied)

	got, reached, err := follow(t, s.Directory, from, 3)
	if err != nil || len(got) != 3 {
		t.Fatalf("%d transitions, error %v", len(got), err)
	}
	if got[0].Seen.Health != device.Unhealthy || got[1].Case.Phase != quarantine.PhaseQuarantined || got[2].Case != nil ||
		got[2].Last.End != quarantine.EndHealthBack {
		t.Errorf("followed %+v", got)
	}
	if since := time.Since(got[2].At()); since < 0 || since > time.Minute {
		t.Errorf("the last transition is from %s ago", since)
	}
	apply(state, got)
	if err := differ(state, listed(t, s.Directory, directory.Query{})); err != nil {
		t.Error(err)
	}

	// And goes on where it stopped, also from a position that was written down.
	write(t, s.Directory, seeing(held, seen(gpu(0, 2), device.Healthy), 0), directory.Applied)
	written, err := json.Marshal(reached)
	if err != nil {
		t.Fatal(err)
	}
	var kept directory.Position
	if err := json.Unmarshal(written, &kept); err != nil || !maps.Equal(kept, reached) {
		t.Fatalf("position %v came back as %v, error %v", reached, kept, err)
	}
	if got, _, err = follow(t, s.Directory, kept, 1); err != nil || len(got) != 1 || got[0].Device != gpu(0, 2) {
		t.Errorf("went on with %+v, error %v", got, err)
	}
}

// apply brings a listing up to date.
func apply(state map[string]directory.Entry, all []directory.Transition) {
	for _, tr := range all {
		if tr.Decision != nil {
			continue // says what was decided, and changes no field
		}
		entry := state[tr.Device.String()]
		entry.Device = tr.Device
		if tr.Field == directory.FieldSeen {
			entry.Seen, entry.SeenRevision = tr.Seen, tr.Revision
		} else {
			entry.Case, entry.CaseRevision = tr.Case, tr.Revision
		}
		state[tr.Device.String()] = entry
		if entry.Seen == nil && entry.Case == nil {
			delete(state, tr.Device.String())
		}
	}
}

func TestWhoFollowsIsToldWhenTransitionsAreMissing(t *testing.T) {
	key := gpu(0, 0)
	for name, lose := range map[string]func(*testing.T, *server, []directory.Claim, int64){
		"trimmed": func(t *testing.T, s *server, held []directory.Claim, revision int64) {
			write(t, s.Directory, seeing(held, seen(key, device.Unknown), revision), directory.Applied)
			if _, n, err := s.Snapshot(t.Context(), directory.ShardOf(key), time.Now().Add(time.Minute), 0); err != nil || n == 0 {
				t.Fatalf("%d trimmed, error %v", n, err)
			}
		},
		"emptied": func(t *testing.T, s *server, _ []directory.Claim, _ int64) {
			if err := s.client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		},
		"another one": func(t *testing.T, s *server, held []directory.Claim, _ int64) {
			if _, err := s.Claim(t.Context(), directory.ShardOf(key), held[directory.ShardOf(key)], true); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			held := claimAll(t, s.Directory)
			first := write(t, s.Directory, seeing(held, seen(key, device.Healthy), 0), directory.Applied)
			from, err := s.Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			second := write(t, s.Directory, seeing(held, seen(key, device.Unhealthy), first.Revision), directory.Applied)
			lose(t, s, held, second.Revision)
			if got, _, err := follow(t, s.Directory, from, 10); !errors.Is(err, directory.ErrGap) {
				t.Errorf("followed %d transitions, error %v; want to be told of the gap", len(got), err)
			}
		})
	}
}
