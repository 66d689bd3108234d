package directory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// world is what two writers observe and decide: a truth outside of Redis.
type world struct {
	mu    sync.Mutex
	seen  map[device.Key]*directory.Seen
	cases map[device.Key]*directory.Case
}

// newWorld has so many healthy devices, and a case of the first.
func newWorld(devices int) *world {
	w := &world{seen: map[device.Key]*directory.Seen{}, cases: map[device.Key]*directory.Case{}}
	for n := range devices {
		w.seen[gpu(n/8, n%8)] = seen(gpu(n/8, n%8), device.Healthy)
	}
	w.cases[gpu(0, 0)] = openCase(gpu(0, 0), 100, quarantine.PhaseQuarantined)
	return w
}

// of is the world as one writer's truth.
type of struct {
	*world
	field directory.Field
}

func (w of) Devices(_ context.Context, shard int) iter.Seq2[device.Key, error] {
	w.mu.Lock()
	defer w.mu.Unlock()
	var keys []device.Key
	if w.field == directory.FieldSeen {
		for key := range w.seen {
			keys = append(keys, key)
		}
	} else {
		for key := range w.cases {
			keys = append(keys, key)
		}
	}
	return func(yield func(device.Key, error) bool) {
		for _, key := range keys {
			if directory.ShardOf(key) == shard && !yield(key, nil) {
				return
			}
		}
	}
}

func (w of) Level(_ context.Context, key device.Key) (directory.Level, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.field == directory.FieldSeen {
		return directory.Level{Seen: w.world.seen[key]}, nil
	}
	return directory.Level{Case: w.cases[key]}, nil
}

func (w *world) see(s *directory.Seen) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[s.Device] = s
}

func (w *world) lose(key device.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.seen, key)
}

func (w *world) decide(c *directory.Case) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cases[c.Device] = c
}

// agrees tells in what the directory doesn't say what the world is.
func (w *world) agrees(ctx context.Context, d *directory.Directory) error {
	w.mu.Lock()
	want := map[string]directory.Entry{}
	for key, s := range w.seen {
		want[key.String()] = directory.Entry{Device: key, Seen: s}
	}
	for key, c := range w.cases {
		entry := want[key.String()]
		entry.Device, entry.Case = key, c
		want[key.String()] = entry
	}
	w.mu.Unlock()
	got := map[string]directory.Entry{}
	for entry, err := range d.List(ctx, directory.Query{}) {
		if err != nil {
			return err
		}
		entry.SeenRevision, entry.CaseRevision = 0, 0
		got[entry.Device.String()] = entry
	}
	return differ(got, want)
}

// run keeps a field of the directory as the world is, until the test ends or stop
// is called.
func (w *world) run(t testing.TB, d *directory.Directory, field directory.Field) (writer *directory.Writer, stop func()) {
	t.Helper()
	writer = directory.NewWriter(directory.WriterOptions{
		Directory: d, Field: field, Truth: of{w, field}, Log: quiet(),
		Timing: directory.Timing{Check: 50 * time.Millisecond, Retry: 20 * time.Millisecond, RetryMax: 200 * time.Millisecond, Round: 2 * time.Second},
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { writer.Run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return writer, stop
}

// both runs both writers and waits until the directory is whole.
func (w *world) both(t testing.TB, d *directory.Directory) (seen, cases *directory.Writer) {
	t.Helper()
	seen, _ = w.run(t, d, directory.FieldSeen)
	cases, _ = w.run(t, d, directory.FieldCase)
	whole(t, d, w)
	return seen, cases
}

func whole(t testing.TB, d *directory.Directory, w *world) {
	t.Helper()
	eventually(t, "the directory is whole and says what is true", 30*time.Second, func(ctx context.Context) error {
		states, err := d.Status(ctx)
		if err != nil {
			return err
		}
		for shard, s := range states {
			if !s.WholeSeen || !s.WholeCase {
				return fmt.Errorf("shard %d isn't whole: %+v", shard, s)
			}
		}
		return w.agrees(ctx, d)
	})
}

func identities(t testing.TB, d *directory.Directory) map[string]bool {
	t.Helper()
	states, err := d.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, s := range states {
		all[s.Identity] = true
	}
	return all
}

func TestTheDirectoryFollowsWhatChanges(t *testing.T) {
	s := start(t)
	w := newWorld(40)
	observer, worker := w.both(t, s.Directory)

	w.see(seen(gpu(1, 1), device.Unhealthy))
	observer.Changed(gpu(1, 1))
	w.decide(openCase(gpu(1, 1), 200, quarantine.PhaseSuspect))
	worker.Changed(gpu(1, 1))
	w.lose(gpu(2, 2))
	observer.Changed(gpu(2, 2))
	eventually(t, "the change shows", 10*time.Second, func(ctx context.Context) error { return w.agrees(ctx, s.Directory) })
}

// Proves a part of K4.
func TestAnEmptiedRedisIsFilledAgainByItself(t *testing.T) {
	s := start(t)
	w := newWorld(40)
	observer, _ := w.both(t, s.Directory)
	before := identities(t, s.Directory)
	for range 3 {
		if err := s.client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		w.see(seen(gpu(0, 3), device.Unknown))
		observer.Changed(gpu(0, 3))
		whole(t, s.Directory, w)
	}
	for identity := range identities(t, s.Directory) {
		if before[identity] {
			t.Error("a shard has the identity that it had before it was emptied")
		}
	}
}

// Proves a part of K4: of an entry that a Redis short of memory evicted, its reader is
// told, and the next comparison puts it back.
func TestAnEntryThatRedisEvictedIsMissed(t *testing.T) {
	s := start(t)
	w := newWorld(40)
	w.both(t, s.Directory)
	key := gpu(0, 3)
	if n, err := s.client.Del(t.Context(), fmt.Sprintf("{sickbay-%d}:device:%s", directory.ShardOf(key), key)).Result(); err != nil || n != 1 {
		t.Fatalf("removed %d keys: %v", n, err)
	}
	var missed []device.Key
	for entry, err := range s.List(t.Context(), directory.Query{}) {
		switch {
		case errors.Is(err, directory.ErrNoEntry):
			missed = append(missed, entry.Device)
		case err != nil:
			t.Fatal(err)
		}
	}
	if len(missed) != 1 || missed[0] != key {
		t.Errorf("told of %v, want %s", missed, key)
	}
}

// Proves a part of K4: a kill -9 of Redis, and writes while it is away.
func TestWhatChangedWhileRedisWasAwayIsCaughtUp(t *testing.T) {
	s := start(t)
	w := newWorld(40)
	observer, worker := w.both(t, s.Directory)
	if err := s.stack.KillPart(stack.Redis); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	for n := range 40 {
		key := gpu(n/8, n%8)
		w.see(seen(key, device.Unhealthy))
		w.decide(openCase(key, 300, quarantine.PhaseQuarantined))
		for range 100 {
			observer.Changed(key)
			worker.Changed(key)
		}
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("telling of 8,000 changes took %s while Redis was away; nobody may wait for it", took)
	}
	if waiting, _ := observer.Waiting(); waiting > 40 {
		t.Errorf("%d devices wait, want at most the 40 that there are", waiting)
	}
	eventually(t, "the writer says that Redis is away", 10*time.Second, func(context.Context) error {
		if observer.Err() == nil || worker.Err() == nil {
			return errors.New("it doesn't yet")
		}
		return nil
	})
	if err := s.stack.StartPart(t.Context(), stack.Redis); err != nil {
		t.Fatal(err)
	}
	whole(t, s.Directory, w)
	eventually(t, "the writers say that all is well", 10*time.Second, func(context.Context) error {
		return errors.Join(observer.Err(), worker.Err())
	})
}

// Proves a part of K4: one that is there and doesn't answer.
func TestARedisThatHangsHoldsNobodyUp(t *testing.T) {
	s := start(t)
	w := newWorld(16)
	observer, _ := w.both(t, s.Directory)
	if err := s.stack.SignalPart(stack.Redis, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.stack.SignalPart(stack.Redis, syscall.SIGCONT) })
	client := connect(t, directory.Connection{
		Kind: directory.KindSingle, Addresses: []string{s.stack.RedisAddress()}, Timeout: 300 * time.Millisecond,
	})
	begin := time.Now()
	if _, _, err := directory.New(client, "sickbay").Get(t.Context(), gpu(0, 0)); err == nil {
		t.Error("a server that was stopped answered")
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %s to give up", took)
	}
	w.see(seen(gpu(0, 1), device.Unhealthy))
	observer.Changed(gpu(0, 1))
	if err := s.stack.SignalPart(stack.Redis, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	whole(t, s.Directory, w)
}

// Proves a part of K4: Redis comes back with the data of an hour ago.
func TestOlderDataIsNoticedAndRepaired(t *testing.T) {
	for name, file := range map[string]string{"an older append-only file": "appendonlydir", "an older RDB file": "dump.rdb"} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			w := newWorld(40)
			observer, worker := w.both(t, s.Directory)
			before := identities(t, s.Directory)
			backup := filepath.Join(t.TempDir(), "backup")
			if file == "dump.rdb" {
				// What is loaded is the append-only file, if there is one: its base is
				// made an RDB of what is there.
				if err := s.client.ConfigSet(t.Context(), "aof-use-rdb-preamble", "yes").Err(); err != nil {
					t.Fatal(err)
				}
				if err := s.client.BgRewriteAOF(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the file is rewritten", 10*time.Second, func(ctx context.Context) error {
					info, err := s.client.InfoMap(ctx, "persistence").Result()
					if err != nil || info["Persistence"]["aof_rewrite_in_progress"] != "0" || info["Persistence"]["aof_rewrite_scheduled"] != "0" {
						return fmt.Errorf("not yet: %v", err)
					}
					return nil
				})
			}
			appendOnly := filepath.Join(s.stack.Dir(), "appendonlydir")
			if err := os.CopyFS(backup, os.DirFS(appendOnly)); err != nil {
				t.Fatal(err)
			}

			// An hour goes on.
			w.see(seen(gpu(0, 3), device.Unhealthy))
			w.lose(gpu(0, 4))
			w.see(seen(gpu(7, 7), device.Healthy))
			observer.Changed(gpu(0, 3), gpu(0, 4), gpu(7, 7))
			w.decide(openCase(gpu(0, 3), 400, quarantine.PhaseQuarantined))
			worker.Changed(gpu(0, 3))
			whole(t, s.Directory, w)
			position, err := s.Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			if err := s.stack.KillPart(stack.Redis); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.RemoveAll(appendOnly), os.CopyFS(appendOnly, os.DirFS(backup))); err != nil {
				t.Fatal(err)
			}
			if err := s.stack.StartPart(t.Context(), stack.Redis); err != nil {
				t.Fatal(err)
			}
			eventually(t, "each shard in which something changed is another one", 30*time.Second, func(ctx context.Context) error {
				states, err := s.Status(ctx)
				if err != nil {
					return err
				}
				for _, key := range []device.Key{gpu(0, 3), gpu(0, 4), gpu(7, 7)} {
					if shard := directory.ShardOf(key); before[states[shard].Identity] {
						return fmt.Errorf("shard %d is what it was", shard)
					}
				}
				return nil
			})
			whole(t, s.Directory, w)
			if _, _, err := follow(t, s.Directory, position, 1000); !errors.Is(err, directory.ErrGap) {
				t.Errorf("who follows gets %v, want to be told that transitions are missing", err)
			}
		})
	}
}

// Proves a part of K4.
func TestDifferencesAreFoundRepairedAndCounted(t *testing.T) {
	s := start(t)
	w := newWorld(40)
	_, stopSeen := w.run(t, s.Directory, directory.FieldSeen)
	_, stopCase := w.run(t, s.Directory, directory.FieldCase)
	whole(t, s.Directory, w)
	stopSeen()
	stopCase()
	w.lose(gpu(0, 1))
	w.lose(gpu(0, 2))
	w.see(seen(gpu(1, 1), device.Unhealthy))
	w.see(seen(gpu(9, 0), device.Healthy))
	w.see(seen(gpu(9, 1), device.Healthy))
	w.see(seen(gpu(9, 2), device.Healthy))

	var entries []directory.Entry
	for _, one := range w.seen {
		entries = append(entries, directory.Entry{Device: one.Device, Seen: one})
	}
	truth := func(yield func(directory.Entry) bool) {
		for _, e := range entries {
			if !yield(e) {
				return
			}
		}
	}
	compare := func() directory.Report {
		r := directory.Reconciler{Directory: s.Directory, Field: directory.FieldSeen, Truth: directory.Entries(directory.FieldSeen, truth), Held: claimAll(t, s.Directory)}
		report, err := r.All(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	if r := compare(); r.Added != 3 || r.Changed != 1 || r.Removed != 2 || !r.Settled() {
		t.Errorf("found %+v; want 3 missing, 1 different, 2 that nobody has", r)
	}
	if err := w.agrees(t.Context(), s.Directory); err != nil {
		t.Error(err)
	}
	if r := compare(); r.Differences() != 0 || r.Compared != len(w.seen) {
		t.Errorf("found %+v the second time; want %d compared and no difference", r, len(w.seen))
	}
	if entry := get(t, s.Directory, gpu(0, 0)); entry.Case == nil {
		t.Error("the case is gone: comparing one field takes another away")
	}
}

func TestALeaderThatTookOverIsNotWrittenOver(t *testing.T) {
	s := start(t)
	first, second := newWorld(16), newWorld(16)
	first.cases, second.cases = nil, nil
	_, stop := first.run(t, s.Directory, directory.FieldSeen)
	eventually(t, "the first one's is written", 10*time.Second, func(ctx context.Context) error { return first.agrees(ctx, s.Directory) })
	second.see(seen(gpu(0, 0), device.Unhealthy))
	stop()
	second.run(t, s.Directory, directory.FieldSeen)
	eventually(t, "the second one's is written", 10*time.Second, func(ctx context.Context) error { return second.agrees(ctx, s.Directory) })
}

// A follower that begins with a listing has, at rest, what the entries say, in
// spite of the server being killed and emptied on the way.
func TestAFollowerEndsWithWhatTheEntriesSay(t *testing.T) {
	s := start(t)
	w := newWorld(24)
	observer, worker := w.both(t, s.Directory)
	state, stopFollowing := keepFollowing(t, s)
	for round := range 6 {
		for i := range 8 {
			key := gpu(round%3, i)
			w.see(seen(key, []device.Health{device.Healthy, device.Unknown, device.Unhealthy}[(round+i)%3]))
			observer.Changed(key)
			if i%2 == 0 {
				w.decide(openCase(key, int64(1000+round), quarantine.PhaseQuarantined))
				worker.Changed(key)
			}
		}
		switch round {
		case 2:
			if err := s.stack.KillPart(stack.Redis); err != nil {
				t.Fatal(err)
			}
			if err := s.stack.StartPart(t.Context(), stack.Redis); err != nil {
				t.Fatal(err)
			}
		case 4:
			if err := s.client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		whole(t, s.Directory, w)
	}
	want := listed(t, s.Directory, directory.Query{})
	eventually(t, "the follower has caught up", 20*time.Second, func(context.Context) error { return differ(state(), want) })
	stopFollowing()
}

// keepFollowing follows as a reader should: it lists, follows, and lists again when
// it is told that transitions are missing or the server was away.
func keepFollowing(t testing.TB, s *server) (state func() map[string]directory.Entry, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	now := map[string]directory.Entry{}
	begin := func() error {
		from, err := s.Now(ctx)
		if err != nil {
			return err
		}
		fresh := map[string]directory.Entry{}
		for entry, err := range s.List(ctx, directory.Query{}) {
			if err != nil {
				return err
			}
			fresh[entry.Device.String()] = entry
		}
		mu.Lock()
		now = fresh
		mu.Unlock()
		_, err = s.Follow(ctx, from, 5*time.Millisecond, func(tr directory.Transition) error {
			mu.Lock()
			defer mu.Unlock()
			apply(now, []directory.Transition{tr})
			return nil
		})
		return err
	}
	var following sync.WaitGroup
	following.Go(func() {
		for ctx.Err() == nil {
			if err := begin(); err != nil && !errors.Is(err, directory.ErrGap) && ctx.Err() == nil {
				var closed interface{ Timeout() bool }
				if !errors.As(err, &closed) && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ECONNRESET) {
					t.Logf("following again after: %v", err)
				}
			}
		}
	})
	stop = func() {
		cancel()
		following.Wait()
	}
	t.Cleanup(stop)
	return func() map[string]directory.Entry {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(now)
	}, stop
}
