package directory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// Timing holds a writer's waits. The zero value of each means its default.
type Timing struct {
	// Delay is how long a change waits for further ones of the same device.
	Delay time.Duration
	// Check is how often the shards are looked at. Default 5 s.
	Check time.Duration
	// Compare is how often everything is compared although nothing seems wrong.
	// Default 10 min.
	Compare time.Duration
	// Snapshot is how often each shard is copied and its transitions trimmed, Keep
	// how old a transition has to be for that. Defaults 5 min, 1 h.
	Snapshot, Keep time.Duration
	// Retry is the pause after an error of Redis; it doubles up to RetryMax.
	// Defaults 250 ms, 10 s.
	Retry, RetryMax time.Duration
	// Round bounds one batch, with everything that is asked for it. Default 10 s.
	Round time.Duration
}

func (t Timing) withDefaults() Timing {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Check, 5 * time.Second}, {&t.Compare, 10 * time.Minute}, {&t.Snapshot, 5 * time.Minute}, {&t.Keep, time.Hour},
		{&t.Retry, 250 * time.Millisecond}, {&t.RetryMax, 10 * time.Second}, {&t.Round, 10 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return t
}

// WriterOptions is what a writer needs.
type WriterOptions struct {
	Directory *Directory
	Field     Field
	Truth     Truth
	Log       *slog.Logger
	Metrics   *Metrics
	Timing    Timing
	// Blind says what the writer can't see now; empty is nothing. It may be nil.
	Blind func() string
	// Parallel is how many levels are asked for at once. Default 1.
	Parallel int
	// MaxWaiting bounds the devices that wait. Past it they are forgotten, and
	// everything is compared instead. Default 100,000.
	MaxWaiting int
}

// Writer keeps one field of all entries as the truth says. Whoever changes
// something tells it so and goes on at once: what waits is a set of devices, of
// bounded size, each of which is settled by its level when its turn comes. While
// Redis is away it only grows, and it is caught up afterwards.
type Writer struct {
	options    WriterOptions
	timing     Timing
	log        *slog.Logger
	reconciler *Reconciler

	mu sync.Mutex
	// waiting is from when on each device may be settled.
	waiting map[device.Key]time.Time
	// wake is told of news.
	wake chan struct{}
	// compare are the shards to be compared as a whole.
	compare map[int]bool
	// behind is when the oldest of these comparisons was asked for.
	behind time.Time
	// away is set while Redis doesn't answer.
	away error

	// held and snapshots are the loop's own.
	held      []Claim
	snapshots [Shards]time.Time
	compared  time.Time
}

// NewWriter sets a writer up. Nothing runs before Run.
func NewWriter(o WriterOptions) *Writer {
	if o.MaxWaiting == 0 {
		o.MaxWaiting = 100_000
	}
	if o.Blind == nil {
		o.Blind = func() string { return "" }
	}
	w := &Writer{
		options: o, timing: o.Timing.withDefaults(), log: o.Log.With("directory", string(o.Field)),
		waiting: map[device.Key]time.Time{}, compare: map[int]bool{}, wake: make(chan struct{}, 1),
	}
	w.reconciler = &Reconciler{Directory: o.Directory, Field: o.Field, Truth: o.Truth, Parallel: o.Parallel}
	return w
}

// Changed tells that the level of devices may have changed. It never blocks.
func (w *Writer) Changed(keys ...device.Key) { w.changedAt(time.Now().Add(w.timing.Delay), keys...) }

// ChangedAt tells that it will have changed at a time, as by a deadline of a case.
func (w *Writer) ChangedAt(at time.Time, keys ...device.Key) { w.changedAt(at, keys...) }

func (w *Writer) changedAt(at time.Time, keys ...device.Key) {
	w.mu.Lock()
	for _, key := range keys {
		// The earlier of two times counts: it looks at a level, and what comes later
		// tells again.
		if before, there := w.waiting[key]; !there || at.Before(before) {
			w.waiting[key] = at
		}
	}
	if len(w.waiting) > w.options.MaxWaiting {
		clear(w.waiting)
		for shard := range Shards {
			w.compareLater(shard)
		}
		w.options.Metrics.forgotten()
	}
	w.mu.Unlock()
	w.nudge()
}

func (w *Writer) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Waiting is how many devices are due to be settled, and for a whole comparison how
// many shards.
func (w *Writer) Waiting() (devices, shards int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, due := range w.waiting {
		if !due.After(now) {
			devices++
		}
	}
	return devices, len(w.compare)
}

// Lag is for how long the directory has lacked something that was told; zero if it
// lacks nothing.
func (w *Writer) Lag() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	oldest := now
	if len(w.compare) > 0 {
		oldest = w.behind
	}
	for _, due := range w.waiting {
		if due.Before(oldest) {
			oldest = due
		}
	}
	return now.Sub(oldest)
}

// Err tells why nothing can be written now; nil if all is well. It is nothing to
// be unready for.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.away
}

// Run writes until ctx ends. For FieldSeen there is one at a time that means
// anything: it claims the shards, and who ran before is fenced off.
func (w *Writer) Run(ctx context.Context) {
	w.held, w.reconciler.Held = nil, nil
	w.compareAll()
	check := time.NewTicker(w.timing.Check)
	defer check.Stop()
	pause := w.timing.Retry
	checked := false
	for {
		err := w.round(ctx, !checked)
		checked = true
		if ctx.Err() != nil {
			return
		}
		w.note(err)
		wait := w.next()
		if err != nil {
			// Some of the pause is by chance, so that writers don't come all at once.
			wait = pause/2 + rand.N(pause/2+1)
			pause = min(2*pause, w.timing.RetryMax)
			checked = false
		} else {
			pause = w.timing.Retry
		}
		timer := time.NewTimer(wait)
		wake := w.wake
		if err != nil {
			wake = nil
		}
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-wake:
		case <-check.C:
			checked = false
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// next is how long until the next device may be settled.
func (w *Writer) next() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	wait := w.timing.Check
	if len(w.compare) > 0 {
		return min(wait, w.timing.Retry)
	}
	now := time.Now()
	for _, at := range w.waiting {
		wait = min(wait, at.Sub(now))
	}
	return max(wait, time.Millisecond)
}

// note keeps what is wrong, and says so once.
func (w *Writer) note(err error) {
	if errors.Is(err, errUnsettled) {
		err = nil
	}
	w.mu.Lock()
	before := w.away
	w.away = err
	w.mu.Unlock()
	switch {
	case err != nil && before == nil:
		w.options.Metrics.failed()
		w.log.Warn("the directory isn't written; it is caught up once that works again", "error", err)
	case err != nil:
		w.options.Metrics.failed()
	case before != nil:
		w.log.Info("the directory is written again")
	}
}

// round does what is due: looks at the shards, compares those that are to be,
// settles devices, and takes snapshots.
func (w *Writer) round(ctx context.Context, check bool) error {
	if check || w.options.Field == FieldSeen && w.held == nil {
		if err := w.check(ctx); err != nil {
			return err
		}
	}
	if err := w.settleDue(ctx); err != nil {
		return err
	}
	if err := w.compareDue(ctx); err != nil {
		return err
	}
	if check && w.options.Field == FieldSeen {
		return w.snapshotDue(ctx)
	}
	return nil
}

// check looks at what the shards are now.
func (w *Writer) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.timing.Round)
	defer cancel()
	if time.Since(w.compared) >= w.timing.Compare && !w.compared.IsZero() {
		w.compareAll()
	}
	if w.options.Field == FieldSeen {
		return w.claimAll(ctx)
	}
	states, err := w.options.Directory.Status(ctx)
	if err != nil {
		return err
	}
	if w.held == nil {
		w.held = make([]Claim, Shards)
		w.reconciler.Held = w.held
	}
	for shard, s := range states {
		before := w.held[shard]
		lost := s.Identity == before.Identity && s.Position < before.Position
		if lost {
			w.options.Metrics.lostShards(1)
		}
		if lost || s.Identity != "" && !s.WholeCase {
			w.compareShard(shard)
		}
		w.held[shard] = s.Claim
	}
	if w.Err() != nil {
		return nil // what can't be written is nothing to vouch for
	}
	return w.options.Directory.BeatCases(ctx, states, time.Now())
}

// claimAll claims the shards that aren't held, at first all, and has them compared.
func (w *Writer) claimAll(ctx context.Context) error {
	if w.held == nil {
		held := make([]Claim, Shards)
		for shard := range held {
			claim, err := w.options.Directory.Claim(ctx, shard, Claim{}, false)
			if err != nil {
				return err
			}
			held[shard] = claim
			w.compareShard(shard)
		}
		w.held, w.reconciler.Held = held, held
		w.log.Info("the directory is claimed", "generation", held[0].Generation)
	}
	outcomes, err := w.options.Directory.Beat(ctx, w.held, time.Now(), w.options.Blind())
	if err != nil {
		return err
	}
	var lost, fenced int
	for shard, outcome := range outcomes {
		switch outcome {
		case Lost:
			lost++
		case Fenced:
			fenced++
		default:
			continue
		}
		// What is as it was claimed and yet knows less is older data: who follows it
		// has to begin anew.
		claim, err := w.options.Directory.Claim(ctx, shard, w.held[shard], outcome == Lost)
		if err != nil {
			return err
		}
		w.held[shard] = claim
		w.compareShard(shard)
	}
	if lost > 0 {
		w.options.Metrics.lostShards(lost)
		w.log.Warn("the directory lost data: Redis is empty, new, or was restored; it is rebuilt", "shards", lost)
	}
	if fenced > 0 {
		w.log.Warn("another writer had claimed the directory; it is claimed again and compared", "shards", fenced)
	}
	return nil
}

func (w *Writer) compareAll() {
	w.compared = time.Now()
	for shard := range Shards {
		w.compareShard(shard)
	}
}

func (w *Writer) compareShard(shard int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.compareLater(shard)
}

// compareLater has a shard compared. The lock is held.
func (w *Writer) compareLater(shard int) {
	if len(w.compare) == 0 {
		w.behind = time.Now()
	}
	w.compare[shard] = true
}

// settleDue settles the devices whose time has come.
func (w *Writer) settleDue(ctx context.Context) error {
	for {
		keys := w.takeDue()
		if len(keys) == 0 {
			return nil
		}
		round, cancel := context.WithTimeout(ctx, w.timing.Round)
		again, report, err := w.reconciler.Settle(round, keys)
		cancel()
		w.options.Metrics.settled("change", report)
		if err != nil {
			w.changedAt(time.Now(), keys...)
			return err
		}
		w.changedAt(time.Now().Add(max(w.timing.Delay, w.timing.Retry)), again...)
		if len(report.Lost) > 0 {
			w.changedAt(time.Now(), keys...)
			return w.check(ctx)
		}
	}
}

// takeDue takes at most a page of the devices whose time has come.
func (w *Writer) takeDue() []device.Key {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	var keys []device.Key
	for key, at := range w.waiting {
		if !at.After(now) {
			keys = append(keys, key)
			delete(w.waiting, key)
			if len(keys) == pageSize {
				break
			}
		}
	}
	slices.SortFunc(keys, device.Key.Compare)
	return keys
}

// compareDue compares the shards that are to be, as a whole. Between two of them
// what changed meanwhile is settled, so that a long comparison delays no news.
func (w *Writer) compareDue(ctx context.Context) error {
	var unsettled []int
	var found Report
	defer func() {
		for _, shard := range unsettled {
			w.compareShard(shard)
		}
		if found.Differences() > 0 {
			w.log.Info("differences repaired", "added", found.Added, "changed", found.Changed, "removed", found.Removed, "compared", found.Compared)
		}
	}()
	for {
		shard, ok := w.takeShard()
		if !ok {
			break
		}
		round, cancel := context.WithTimeout(ctx, w.timing.Round)
		report, err := w.reconciler.Shard(round, shard)
		if identity := w.held[shard].Identity; err == nil && report.Settled() && identity != "" {
			err = w.options.Directory.Complete(round, shard, w.options.Field, identity)
		}
		cancel()
		w.options.Metrics.settled("compare", report)
		found.add(report)
		if err != nil || !report.Settled() {
			unsettled = append(unsettled, shard)
		}
		if err != nil {
			return err
		}
		if len(report.Lost) > 0 {
			return w.check(ctx)
		}
		if err := w.settleDue(ctx); err != nil {
			return err
		}
	}
	if len(unsettled) > 0 {
		return fmt.Errorf("%d shards: %w", len(unsettled), errUnsettled)
	}
	return nil
}

// errUnsettled asks for another round after a pause.
var errUnsettled = errors.New("something changed meanwhile, or isn't known now")

func (w *Writer) takeShard() (int, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for shard := range Shards {
		if w.compare[shard] {
			delete(w.compare, shard)
			return shard, true
		}
	}
	return 0, false
}

// snapshotDue takes the snapshots that are due, a few in each round.
func (w *Writer) snapshotDue(ctx context.Context) error {
	now := time.Now()
	for shard := range Shards {
		if w.snapshots[shard].IsZero() {
			// Spread over the interval from the start on.
			w.snapshots[shard] = now.Add(-rand.N(w.timing.Snapshot))
		}
		if now.Sub(w.snapshots[shard]) < w.timing.Snapshot {
			continue
		}
		round, cancel := context.WithTimeout(ctx, w.timing.Round)
		_, _, err := w.options.Directory.Snapshot(round, shard, now, w.timing.Keep)
		cancel()
		if err != nil {
			return err
		}
		w.snapshots[shard] = now
	}
	return nil
}
