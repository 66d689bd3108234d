package directory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// Transition is one write of one field, or a decision, as the stream keeps it.
type Transition struct {
	Shard int
	// ID is the stream's: Unix milliseconds and a number.
	ID       string
	Device   device.Key
	Field    Field
	Revision int64
	// Seen or Case is what the field says from then on; both are nil where it was
	// removed. Last is then how the case ended, if its workflow said.
	Seen *Seen
	Case *Case
	Last *Case
	// Decision is set instead where the field is FieldDecision: nothing was written then.
	Decision *Decision
	// value is the field's text.
	value string
}

// At is when it was written, by the server's clock.
func (t Transition) At() time.Time {
	var ms int64
	if _, err := fmt.Sscanf(t.ID, "%d-", &ms); err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// Position is how far somebody has followed each shard. It can be kept as JSON
// and gone on with later.
type Position map[int]Reached

// Reached is a place in one shard's stream, and the shard's identity there.
type Reached struct {
	Identity string `json:"identity"`
	ID       string `json:"id"`
}

// ErrGap is returned to who follows when transitions are missing: the shard is
// another one, or was trimmed past the position. List everything, and go on from
// the position taken before that.
var ErrGap = errors.New("transitions are missing")

// Now is the position after the last transition there is. Take it before a
// listing, and follow from it after: what changes meanwhile comes twice, and
// nothing is missed.
func (d *Directory) Now(ctx context.Context) (Position, error) {
	meta := make([]*redis.StringCmd, Shards)
	last := make([]*redis.XMessageSliceCmd, Shards)
	_, err := d.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for shard := range Shards {
			meta[shard] = p.HGet(ctx, d.names.meta(shard), "identity")
			last[shard] = p.XRevRangeN(ctx, d.names.transitions(shard), "+", "-", 1)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("read the end of the transitions: %w", err)
	}
	position := Position{}
	for shard := range Shards {
		if err := meta[shard].Err(); err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("read the end of the transitions: %w", err)
		}
		if err := last[shard].Err(); err != nil {
			return nil, fmt.Errorf("read the end of the transitions: %w", err)
		}
		reached := Reached{Identity: meta[shard].Val(), ID: "0-0"}
		if entries := last[shard].Val(); len(entries) > 0 {
			reached.ID = entries[0].ID
		}
		position[shard] = reached
	}
	return position, nil
}

// followPage bounds what is read of one shard in one round.
const followPage = 200

// Follow hands on every transition after a position, in the order of each shard,
// until ctx ends or handle fails, and returns the position reached. It asks all
// shards every so often rather than waiting at one: they may be on different
// servers. An error of Redis ends it; the position is where to go on.
func (d *Directory) Follow(ctx context.Context, from Position, every time.Duration, handle func(Transition) error) (Position, error) {
	position := maps.Clone(from)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		more, err := d.followOnce(ctx, position, handle)
		if ctx.Err() != nil {
			return position, nil
		}
		if err != nil {
			return position, err
		}
		if more {
			continue
		}
		select {
		case <-ctx.Done():
			return position, nil
		case <-ticker.C:
		}
	}
}

func (d *Directory) followOnce(ctx context.Context, position Position, handle func(Transition) error) (more bool, err error) {
	shards := slices.Sorted(maps.Keys(position))
	meta := make([]*redis.SliceCmd, len(shards))
	next := make([]*redis.XMessageSliceCmd, len(shards))
	_, err = d.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, shard := range shards {
			// The transitions first: a shard that is lost between the two is then
			// noticed by its identity.
			next[i] = p.XRangeN(ctx, d.names.transitions(shard), "("+position[shard].ID, "+", followPage)
			meta[i] = p.HMGet(ctx, d.names.meta(shard), "identity", "trimmed", "last")
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("follow the directory: %w", err)
	}
	for i, shard := range shards {
		identity, _ := meta[i].Val()[0].(string)
		trimmed, _ := meta[i].Val()[1].(string)
		last, _ := meta[i].Val()[2].(string)
		reached := position[shard]
		switch {
		case identity != reached.Identity:
			return false, fmt.Errorf("shard %d is another one than before: %w", shard, ErrGap)
		case trimmed != "" && before(reached.ID, trimmed):
			return false, fmt.Errorf("shard %d was trimmed up to %s, past %s: %w", shard, trimmed, reached.ID, ErrGap)
		case last != "" && before(last, reached.ID):
			return false, fmt.Errorf("shard %d ends at %s, before %s: %w", shard, last, reached.ID, ErrGap)
		}
		for _, message := range next[i].Val() {
			transition, err := readTransition(shard, message)
			if err != nil {
				return false, err
			}
			if err := handle(transition); err != nil {
				return false, err
			}
			reached.ID = message.ID
			position[shard] = reached
		}
		more = more || len(next[i].Val()) == followPage
	}
	return more, nil
}

// before tells whether one ID of a stream is older than another.
func before(one, other string) bool {
	a, b := streamID(one), streamID(other)
	return slices.Compare(a[:], b[:]) < 0
}

func streamID(text string) [2]uint64 {
	var id [2]uint64
	if _, err := fmt.Sscanf(text, "%d-%d", &id[0], &id[1]); err != nil {
		return [2]uint64{}
	}
	return id
}

func readTransition(shard int, message redis.XMessage) (Transition, error) {
	text := func(name string) string {
		value, _ := message.Values[name].(string)
		return value
	}
	t := Transition{Shard: shard, ID: message.ID, Field: Field(text("field")), Revision: number(text("revision")), value: text("value")}
	var err error
	if t.Device, err = device.ParseKey(text("device")); err != nil {
		return t, fmt.Errorf("transition %s of shard %d: %w: %w", message.ID, shard, ErrFormat, err)
	}
	if t.Field == FieldDecision {
		if t.Decision, err = readDecision(t.value, text("node")); err != nil {
			return t, fmt.Errorf("transition %s of shard %d: %w: %w", message.ID, shard, ErrFormat, err)
		}
		return t, nil
	}
	for _, part := range []struct {
		text string
		into any
	}{{t.value, t.target()}, {text("last"), &t.Last}} {
		if part.text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(part.text), part.into); err != nil {
			return t, fmt.Errorf("transition %s of shard %d: %w: %w", message.ID, shard, ErrFormat, err)
		}
	}
	return t, nil
}

// target is where the field's value goes.
func (t *Transition) target() any {
	if t.Field == FieldCase {
		return &t.Case
	}
	return &t.Seen
}

// Replay puts a shard's entries together from its snapshot and the transitions
// after it, without reading one entry: what it gives is what the entries say.
func (d *Directory) Replay(ctx context.Context, shard int) (map[device.Key]Entry, error) {
	keys := []string{d.names.meta(shard), d.names.snapshot(shard), d.names.transitions(shard)}
	answer, err := d.replay.Run(ctx, d.client, keys).Slice()
	if err != nil {
		return nil, fmt.Errorf("replay shard %d: %w", shard, err)
	}
	if len(answer) != 3 {
		return nil, fmt.Errorf("replay shard %d: the script answered %d parts", shard, len(answer))
	}
	state, err := readSnapshot(answer[1])
	if err != nil {
		return nil, fmt.Errorf("replay shard %d: %w", shard, err)
	}
	transitions, _ := answer[2].([]any)
	for _, t := range transitions {
		if err := state.apply(shard, t); err != nil {
			return nil, fmt.Errorf("replay shard %d: %w", shard, err)
		}
	}
	entries := map[device.Key]Entry{}
	for key, r := range state {
		if entries[key], err = r.entry(key); err != nil {
			return nil, fmt.Errorf("replay shard %d: %w", shard, err)
		}
	}
	return entries, nil
}

// replayed is a shard as it is put together.
type replayed map[device.Key]raw

func readSnapshot(part any) (replayed, error) {
	state := replayed{}
	for name, value := range pairsOf(part) {
		key, err := device.ParseKey(name)
		if err != nil {
			return nil, err
		}
		var copied struct{ Seen, SeenRevision, Case, CaseRevision string }
		if err := json.Unmarshal([]byte(value), &copied); err != nil {
			return nil, fmt.Errorf("snapshot of %s: %w: %w", key, ErrFormat, err)
		}
		state[key] = raw{
			seen: copied.Seen, cased: copied.Case, seenAt: number(copied.SeenRevision), casedAt: number(copied.CaseRevision),
		}
	}
	return state, nil
}

// pairsOf reads a hash as a script gives it: a list of names and values, or a map
// where the connection speaks RESP3.
func pairsOf(part any) map[string]string {
	pairs := map[string]string{}
	switch all := part.(type) {
	case []any:
		for i := 0; i+1 < len(all); i += 2 {
			pairs[fmt.Sprint(all[i])] = fmt.Sprint(all[i+1])
		}
	case map[any]any:
		for name, value := range all {
			pairs[fmt.Sprint(name)] = fmt.Sprint(value)
		}
	}
	return pairs
}

func (r replayed) apply(shard int, message any) error {
	parts, _ := message.([]any)
	if len(parts) != 2 {
		return fmt.Errorf("%w: transition %v", ErrFormat, message)
	}
	values := map[string]any{}
	for name, value := range pairsOf(parts[1]) {
		values[name] = value
	}
	t, err := readTransition(shard, redis.XMessage{ID: fmt.Sprint(parts[0]), Values: values})
	if err != nil {
		return err
	}
	if t.Field == FieldDecision {
		return nil
	}
	entry := r[t.Device]
	if t.Field == FieldSeen {
		entry.seen, entry.seenAt = t.value, t.Revision
	} else {
		entry.cased, entry.casedAt = t.value, t.Revision
	}
	if entry.empty() {
		delete(r, t.Device)
		return nil
	}
	r[t.Device] = entry
	return nil
}
