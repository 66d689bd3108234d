package directory

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// decided is a decision of a case of gpu-0.
func decided(key device.Key, seq int64, at time.Time) directory.Decision {
	return directory.Decision{Device: key, Notice: quarantine.Notice{
		Seq: seq, At: at, Kind: quarantine.NoticeMessage, Epoch: 100, Phase: quarantine.PhaseQuarantined,
		Reason: "XidFallenOffBus", Actor: "oncall@example.com", Seen: "a message", Text: fmt.Sprintf("extend, for the %d. time", seq),
	}}
}

func decisions(t testing.TB, d *directory.Directory, since time.Time, shards ...int) []directory.Decision {
	t.Helper()
	var all []directory.Decision
	for decision, err := range d.Decisions(t.Context(), since, shards...) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, decision)
	}
	return directory.InOrder(all)
}

// A decision stands in the transitions once, with the node of its device, whatever
// is announced again; it is followed and read back as it was, and changes no
// entry, also when the entries are put together from the transitions. Shows K3.
func TestADecisionIsFollowedAndReadBackOnceAsItWas(t *testing.T) {
	s := start(t)
	held := claimAll(t, s.Directory)
	key := gpu(0, 0)
	write(t, s.Directory, seeing(held, seen(key, device.Unhealthy), 0), directory.Applied)
	from, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	all := []directory.Decision{decided(key, 1, now.Add(-time.Second)), decided(key, 2, now)}
	for round, want := range []directory.Outcome{directory.Applied, directory.Duplicate} {
		results, err := s.Append(t.Context(), all)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Outcome != want {
				t.Errorf("round %d: %s, want %s", round, r.Outcome, want)
			}
		}
	}
	for i := range all {
		all[i].Node = "node-0"
	}
	got, _, err := follow(t, s.Directory, from, 2)
	if err != nil || len(got) != 2 || got[0].Decision == nil || *got[0].Decision != all[0] || *got[1].Decision != all[1] {
		t.Fatalf("followed %+v, error %v; want %+v", got, err, all)
	}
	if got := decisions(t, s.Directory, now.Add(-time.Minute)); !slices.Equal(got, all) {
		t.Errorf("read %+v, want %+v", got, all)
	}
	if got := decisions(t, s.Directory, now, directory.ShardOf(key)); !slices.Equal(got, all[1:]) {
		t.Errorf("since the second: %+v", got)
	}
	replayed, err := s.Replay(t.Context(), directory.ShardOf(key))
	if err != nil || len(replayed) != 1 || replayed[key].Case != nil || replayed[key].Seen == nil {
		t.Errorf("replayed %+v, error %v; want the entry without a case", replayed, err)
	}
}

// Whoever reads decisions is told since when they are all there: a shard that was
// emptied or trimmed doesn't look as if nothing had been decided.
func TestHowFarDecisionsReachIsSaid(t *testing.T) {
	s := start(t)
	reach := func() time.Time {
		t.Helper()
		reach, err := s.Reach(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return reach
	}
	if got := reach(); !got.IsZero() {
		t.Errorf("nobody wrote the shards, and they reach back to %s", got)
	}
	before := time.Now().Add(-time.Second)
	held := claimAll(t, s.Directory)
	began := reach()
	if began.Before(before) || began.After(time.Now().Add(time.Second)) {
		t.Errorf("reach %s, want now", began)
	}
	key := gpu(0, 0)
	shard := directory.ShardOf(key)
	if _, err := s.Append(t.Context(), []directory.Decision{decided(key, 1, time.Now()), decided(key, 2, time.Now())}); err != nil {
		t.Fatal(err)
	}
	if _, n, err := s.Snapshot(t.Context(), shard, time.Now().Add(time.Minute), 0); err != nil || n != 1 {
		t.Fatalf("%d trimmed, error %v; want the first, that the last one's place be known", n, err)
	}
	if trimmed := reach(); !trimmed.After(began) {
		t.Errorf("trimmed, it reaches back to %s, as before", trimmed)
	}
	if _, err := s.Claim(t.Context(), shard, held[shard], true); err != nil {
		t.Fatal(err)
	}
	if renewed := reach(); !renewed.After(began) {
		t.Errorf("one shard was restored, and all reach back to %s as before", renewed)
	}
}

// Decisions that were made while Redis was away are put in when it is back, once
// each and in their order, and whoever decided waited for nothing.
func TestDecisionsWaitForARedisThatIsAway(t *testing.T) {
	s := start(t)
	claimAll(t, s.Directory)
	trail, err := directory.NewTrail(s.Directory, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { trail.Run(ctx) })
	defer running.Wait()
	defer cancel()
	if err := s.stack.KillPart(stack.Redis); err != nil {
		t.Fatal(err)
	}
	var all []directory.Decision
	began := time.Now().UTC()
	for i := range 50 {
		decision := decided(gpu(0, i%3), int64(i/3+1), began.Add(time.Duration(i)*time.Millisecond))
		all = append(all, decision)
		trail.Add(decision)
	}
	if err := s.stack.StartPart(t.Context(), stack.Redis); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		all[i].Node = ""
	}
	eventually(t, "all decisions are there", 30*time.Second, func(context.Context) error {
		if got := decisions(t, s.Directory, began); !slices.Equal(got, all) {
			return fmt.Errorf("%d of %d", len(got), len(all))
		}
		return nil
	})
	if missing := directory.Gaps(all); missing != 0 {
		t.Errorf("%d are said to be missing", missing)
	}
	if missing := directory.Gaps(slices.Concat(all[:9], all[12:])); missing != 3 {
		t.Errorf("without three, %d are said to be missing", missing)
	}
}
