package directory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// pageSize is how many devices are read in one round trip.
const pageSize = 500

// ErrNoEntry is wrapped by errors about devices that the directory lists and has no
// entry of: something else removed the key, as a Redis does that evicts keys for
// want of memory.
var ErrNoEntry = errors.New("listed without an entry; Redis may have evicted it, its maxmemory-policy has to be noeviction")

// ErrFormat is wrapped by errors about entries that another version wrote.
var ErrFormat = errors.New("written by another version")

// raw is an entry as it stands in Redis.
type raw struct {
	seen, cased string
	seenAt      int64
	casedAt     int64
	// epoch and attempt are those of the last case; they stay when it is over.
	epoch, attempt int64
}

func (r raw) value(f Field) (string, int64) {
	if f == FieldSeen {
		return r.seen, r.seenAt
	}
	return r.cased, r.casedAt
}

func (r raw) empty() bool { return r.seen == "" && r.cased == "" }

// entry reads what the fields say.
func (r raw) entry(key device.Key) (Entry, error) {
	e := Entry{Device: key, SeenRevision: r.seenAt, CaseRevision: r.casedAt}
	if r.seen != "" {
		e.Seen = &Seen{}
		if err := json.Unmarshal([]byte(r.seen), e.Seen); err != nil {
			return e, fmt.Errorf("entry of %s, field seen: %w: %w", key, ErrFormat, err)
		}
	}
	if r.cased != "" {
		e.Case = &Case{}
		if err := json.Unmarshal([]byte(r.cased), e.Case); err != nil {
			return e, fmt.Errorf("entry of %s, field case: %w: %w", key, ErrFormat, err)
		}
	}
	return e, nil
}

// readRaw reads entries in one round trip per server. One that isn't there is empty.
func (d *Directory) readRaw(ctx context.Context, keys []device.Key) ([]raw, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	commands := make([]*redis.SliceCmd, len(keys))
	_, err := d.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			commands[i] = p.HMGet(ctx, d.names.device(key), "seen", "case", "seen:revision", "case:revision", "case:epoch", "case:attempt")
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %d entries of the directory: %w", len(keys), err)
	}
	all := make([]raw, len(keys))
	for i, command := range commands {
		fields := make([]string, 6)
		for j, value := range command.Val() {
			fields[j], _ = value.(string)
		}
		all[i] = raw{
			seen: fields[0], cased: fields[1], seenAt: number(fields[2]), casedAt: number(fields[3]),
			epoch: number(fields[4]), attempt: number(fields[5]),
		}
	}
	return all, nil
}

// number reads a number that a script wrote; a field that isn't there is zero.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Get reads one device's entry. ok is false for one that isn't in the directory.
func (d *Directory) Get(ctx context.Context, key device.Key) (entry Entry, ok bool, err error) {
	found, err := d.readRaw(ctx, []device.Key{key})
	if err != nil || found[0].empty() {
		return Entry{}, false, err
	}
	entry, err = found[0].entry(key)
	return entry, err == nil, err
}

// Query narrows a listing. Empty fields let everything through.
type Query struct {
	Node, Driver, Class, Phase, Reason string
}

func (q Query) sets(n names, shard int) []string {
	var keys []string
	for _, pair := range [][2]string{
		{IndexNode, q.Node}, {IndexDriver, q.Driver}, {IndexClass, q.Class}, {IndexPhase, q.Phase}, {IndexReason, q.Reason},
	} {
		if pair[1] != "" {
			keys = append(keys, n.index(shard, pair[0], pair[1]))
		}
	}
	return keys
}

// List gives all entries that are in every index set that the query names, shard
// by shard, and of one shard in pages. An empty query gives the whole directory.
// An entry that changes meanwhile is given as it was when its page was read. An
// error ends the listing, but for one that wraps ErrFormat or ErrNoEntry: that is one
// entry's.
func (d *Directory) List(ctx context.Context, q Query) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for keys, err := range d.find(ctx, q) {
			if err == nil {
				err = d.give(ctx, keys, yield)
			}
			if errors.Is(err, errEnough) {
				return
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
		}
	}
}

// find gives the devices that a query lets through, in pages.
func (d *Directory) find(ctx context.Context, q Query) iter.Seq2[[]device.Key, error] {
	if q == (Query{}) {
		return func(yield func([]device.Key, error) bool) {
			for shard := range Shards {
				for keys, err := range d.pages(ctx, shard) {
					if !yield(keys, err) || err != nil {
						return
					}
				}
			}
		}
	}
	return d.inSets(ctx, func(shard int) []string { return q.sets(d.names, shard) })
}

// inSets gives the devices that are in all of some sets of their shard. What is
// found is little, so all shards are asked at once.
func (d *Directory) inSets(ctx context.Context, sets func(shard int) []string) iter.Seq2[[]device.Key, error] {
	return func(yield func([]device.Key, error) bool) {
		commands := make([]*redis.StringSliceCmd, Shards)
		_, err := d.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for shard := range Shards {
				commands[shard] = p.SInter(ctx, sets(shard)...)
			}
			return nil
		})
		if err != nil {
			yield(nil, fmt.Errorf("search the directory: %w", err))
			return
		}
		var found []string
		for _, c := range commands {
			found = append(found, c.Val()...)
		}
		for page := range slices.Chunk(found, pageSize) {
			if !yield(parsed(page), nil) {
				return
			}
		}
	}
}

var errEnough = errors.New("the reader has enough")

func (d *Directory) give(ctx context.Context, keys []device.Key, yield func(Entry, error) bool) error {
	found, err := d.readRaw(ctx, keys)
	if err != nil {
		return err
	}
	var gone []device.Key
	for i, r := range found {
		if r.empty() {
			gone = append(gone, keys[i])
			continue
		}
		if !yield(r.entry(keys[i])) {
			return errEnough
		}
	}
	// Most were removed since their names were read.
	listed, err := d.listed(ctx, gone)
	if err != nil {
		return err
	}
	for _, key := range listed {
		if !yield(Entry{Device: key}, fmt.Errorf("entry of %s: %w", key, ErrNoEntry)) {
			return errEnough
		}
	}
	return nil
}

// listed are those of some devices that the directory lists.
func (d *Directory) listed(ctx context.Context, keys []device.Key) ([]device.Key, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	commands := make([]*redis.FloatCmd, len(keys))
	if _, err := d.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			commands[i] = p.ZScore(ctx, d.names.devices(ShardOf(key)), key.String())
		}
		return nil
	}); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("look for %d devices in the directory: %w", len(keys), err)
	}
	var listed []device.Key
	for i, command := range commands {
		if command.Err() == nil {
			listed = append(listed, keys[i])
		}
	}
	return listed, nil
}

// Page reads a part of a shard: entries in the order of their names, those after
// one name, at most limit. The next page begins after the last one's name; there
// is none once next is empty.
func (d *Directory) Page(ctx context.Context, shard int, after string, limit int) (entries []Entry, next string, err error) {
	keys, next, err := d.page(ctx, shard, after, limit)
	if err != nil {
		return nil, "", err
	}
	err = d.give(ctx, keys, func(e Entry, failed error) bool {
		if failed == nil {
			entries = append(entries, e)
		}
		err = errors.Join(err, failed)
		return true
	})
	return entries, next, err
}

func (d *Directory) page(ctx context.Context, shard int, after string, limit int) (keys []device.Key, next string, err error) {
	from := "-"
	if after != "" {
		from = "(" + after
	}
	found, err := d.client.ZRangeByLex(ctx, d.names.devices(shard), &redis.ZRangeBy{Min: from, Max: "+", Count: int64(limit)}).Result()
	if err != nil {
		return nil, "", fmt.Errorf("list the devices of shard %d: %w", shard, err)
	}
	if len(found) == limit {
		next = found[limit-1]
	}
	return parsed(found), next, nil
}

// having gives the devices of a shard that have a field, and maybe others.
func (d *Directory) having(ctx context.Context, shard int, field Field) iter.Seq2[[]device.Key, error] {
	if field == FieldSeen {
		return d.pages(ctx, shard)
	}
	return func(yield func([]device.Key, error) bool) {
		found, err := d.client.SMembers(ctx, d.names.cases(shard)).Result()
		if err != nil {
			yield(nil, fmt.Errorf("list the cases of shard %d: %w", shard, err))
			return
		}
		yield(parsed(found), nil)
	}
}

// pages gives all devices of a shard.
func (d *Directory) pages(ctx context.Context, shard int) iter.Seq2[[]device.Key, error] {
	return func(yield func([]device.Key, error) bool) {
		after := ""
		for {
			keys, next, err := d.page(ctx, shard, after, pageSize)
			if !yield(keys, err) || err != nil || next == "" {
				return
			}
			after = next
		}
	}
}

// parsed reads devices' names. What isn't one was put there by somebody else.
func parsed(texts []string) []device.Key {
	keys := make([]device.Key, 0, len(texts))
	for _, text := range texts {
		if key, err := device.ParseKey(text); err == nil {
			keys = append(keys, key)
		}
	}
	return keys
}
