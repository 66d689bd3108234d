package directory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// Level is what a field of one entry should say now. Seen and Case both nil: it
// should not be there.
type Level struct {
	Seen *Seen
	Case *Case
	// Last is the case that is over, where its workflow could still be asked.
	Last *Case
}

// Truth is what the directory is compared with.
type Truth interface {
	// Devices gives the devices of a shard that should have the field. It ends with
	// an error when it can't tell all of them; then nothing of the shard is removed.
	Devices(ctx context.Context, shard int) iter.Seq2[device.Key, error]
	// Level gives what the field should say, as it is at the time of the call. An
	// error says that it isn't known; the field is left as it is.
	Level(ctx context.Context, key device.Key) (Level, error)
}

// Report counts what a comparison found.
type Report struct {
	// Compared is how many fields were looked at. Added were missing, Changed said
	// something else, Removed belong to nobody any more; all were repaired.
	Compared, Added, Changed, Removed int
	// Conflicts changed while they were being compared, and are left to who
	// changed them. Fenced belong to a later writer. Unknown have no truth now.
	Conflicts, Fenced, Unknown int
	// Lost are the shards that turned out not to be what was claimed.
	Lost map[int]bool
}

// Differences is how many fields weren't as they should be.
func (r Report) Differences() int { return r.Added + r.Changed + r.Removed }

// Settled tells that everything that was compared says now what it should.
func (r Report) Settled() bool {
	return r.Conflicts+r.Fenced+r.Unknown == 0 && len(r.Lost) == 0
}

func (r *Report) add(o Report) {
	r.Compared += o.Compared
	r.Added += o.Added
	r.Changed += o.Changed
	r.Removed += o.Removed
	r.Conflicts += o.Conflicts
	r.Fenced += o.Fenced
	r.Unknown += o.Unknown
	for shard := range o.Lost {
		r.lose(shard)
	}
}

func (r *Report) lose(shard int) {
	if r.Lost == nil {
		r.Lost = map[int]bool{}
	}
	r.Lost[shard] = true
}

// Reconciler compares the field of one writer with the truth, and repairs what
// differs. It writes nothing where nothing differs.
type Reconciler struct {
	Directory *Directory
	Field     Field
	Truth     Truth
	// Held is what is held of all shards. FieldSeen is written with the claims in
	// it. The positions are brought up to date: they tell later what was lost.
	Held []Claim
	// Parallel is how many levels are asked for at once. Default 1.
	Parallel int
}

// Shard compares a whole shard.
func (r *Reconciler) Shard(ctx context.Context, shard int) (Report, error) {
	var report Report
	wanted := map[device.Key]bool{}
	for key, err := range r.Truth.Devices(ctx, shard) {
		if err != nil {
			return report, fmt.Errorf("list what should be in shard %d: %w", shard, err)
		}
		wanted[key] = true
	}
	page := make([]device.Key, 0, pageSize)
	settle := func(least int) error {
		if len(page) < least {
			return nil
		}
		_, found, err := r.settle(ctx, page)
		report.add(found)
		page = page[:0]
		return err
	}
	for keys, err := range r.Directory.having(ctx, shard, r.Field) {
		if err != nil {
			return report, err
		}
		for _, key := range keys {
			delete(wanted, key)
		}
		page = append(page, keys...)
		if err := settle(pageSize); err != nil {
			return report, err
		}
	}
	for key := range wanted {
		page = append(page, key)
		if len(page) == pageSize {
			if err := settle(1); err != nil {
				return report, err
			}
		}
	}
	return report, settle(1)
}

// All compares every shard.
func (r *Reconciler) All(ctx context.Context) (Report, error) {
	var report Report
	for shard := range Shards {
		found, err := r.Shard(ctx, shard)
		report.add(found)
		if err != nil {
			return report, err
		}
	}
	return report, nil
}

// Settle makes the field of some devices say what it should: it reads what is
// there, then the level, and writes where they differ, on condition that nobody
// wrote in between. So of two that settle the same device, the one that read the
// older level fails. again are the devices that have to be settled once more.
func (r *Reconciler) Settle(ctx context.Context, keys []device.Key) (again []device.Key, report Report, err error) {
	for start := 0; start < len(keys); start += pageSize {
		left, found, err := r.settle(ctx, keys[start:min(start+pageSize, len(keys))])
		report.add(found)
		again = append(again, left...)
		if err != nil {
			return append(again, keys[start:]...), report, err
		}
	}
	return again, report, nil
}

func (r *Reconciler) settle(ctx context.Context, keys []device.Key) (again []device.Key, report Report, err error) {
	there, err := r.Directory.readRaw(ctx, keys)
	if err != nil {
		return nil, report, err
	}
	levels, unknown := r.levels(ctx, keys)
	if err := ctx.Err(); err != nil {
		return nil, report, err
	}
	var operations []Operation
	var counts []*int
	for i, key := range keys {
		if unknown[i] != nil {
			report.Unknown++
			again = append(again, key)
			continue
		}
		report.Compared++
		operation, count := r.difference(key, there[i], levels[i], &report)
		if count != nil {
			operations, counts = append(operations, operation), append(counts, count)
		}
	}
	if len(operations) == 0 {
		return again, report, nil
	}
	results, err := r.Directory.WriteAll(ctx, operations)
	if err != nil {
		return nil, report, err
	}
	for i, result := range results {
		key := operations[i].Device
		if shard := ShardOf(key); r.Held != nil && result.Shard.Identity == r.Held[shard].Identity {
			r.Held[shard].Position = max(r.Held[shard].Position, result.Shard.Position)
		}
		switch result.Outcome {
		case Applied, Duplicate:
			*counts[i]++
		case Conflict:
			report.Conflicts++
			again = append(again, key)
		case Fenced:
			report.Fenced++
			if r.Field == FieldSeen {
				report.lose(ShardOf(key))
			}
		case Lost:
			report.lose(ShardOf(key))
		default:
			return nil, report, fmt.Errorf("write %s: the script answered %q", key, result.Outcome)
		}
	}
	return again, report, nil
}

// difference is the operation that makes a field say what it should, and where to
// count it; nil if it does.
func (r *Reconciler) difference(key device.Key, there raw, level Level, report *Report) (Operation, *int) {
	text, revision := there.value(r.Field)
	o := Operation{
		Device: key, Field: r.Field, ID: NewID(), Expected: revision,
		Seen: level.Seen, Case: level.Case, Last: level.Last, Epoch: there.epoch, Attempt: there.attempt,
	}
	should := ""
	switch {
	case r.Field == FieldSeen && level.Seen != nil:
		should = encode(level.Seen)
	case r.Field == FieldCase && level.Case != nil:
		should = encode(level.Case)
		o.Epoch, o.Attempt = level.Case.Epoch, int64(level.Case.Attempt)
	case r.Field == FieldCase && level.Last != nil:
		o.Epoch, o.Attempt = level.Last.Epoch, int64(level.Last.Attempt)
	}
	if r.Held != nil {
		claim := r.Held[ShardOf(key)]
		o.Identity, o.Generation = claim.Identity, claim.Generation
	}
	switch {
	case same(r.Field, text, should):
		return o, nil
	case text == "":
		return o, &report.Added
	case should == "":
		return o, &report.Removed
	}
	return o, &report.Changed
}

func (r *Reconciler) levels(ctx context.Context, keys []device.Key) ([]Level, []error) {
	levels, errs := make([]Level, len(keys)), make([]error, len(keys))
	slots := make(chan struct{}, max(1, r.Parallel))
	var asked sync.WaitGroup
	for i, key := range keys {
		if r.Parallel <= 1 {
			levels[i], errs[i] = r.Truth.Level(ctx, key)
			continue
		}
		slots <- struct{}{}
		asked.Go(func() {
			defer func() { <-slots }()
			levels[i], errs[i] = r.Truth.Level(ctx, key)
		})
	}
	asked.Wait()
	return levels, errs
}

// Entries is the truth that a list of entries tells, whole as it is.
func Entries(field Field, all iter.Seq[Entry]) Truth {
	t := &listed{field: field, levels: map[device.Key]Level{}}
	for e := range all {
		level := Level{Seen: e.Seen}
		if field == FieldCase {
			level = Level{Case: e.Case}
		}
		if level != (Level{}) {
			t.levels[e.Device] = level
			t.shards[ShardOf(e.Device)] = append(t.shards[ShardOf(e.Device)], e.Device)
		}
	}
	return t
}

type listed struct {
	field  Field
	levels map[device.Key]Level
	shards [Shards][]device.Key
}

func (t *listed) Devices(_ context.Context, shard int) iter.Seq2[device.Key, error] {
	return func(yield func(device.Key, error) bool) {
		for _, key := range t.shards[shard] {
			if !yield(key, nil) {
				return
			}
		}
	}
}

func (t *listed) Level(_ context.Context, key device.Key) (Level, error) { return t.levels[key], nil }

// ErrUnknown is returned by a Truth that can't tell a level now.
var ErrUnknown = errors.New("not known now")
