package directory

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Claim makes the caller the writer of what is seen in a shard. Whoever wrote
// before is fenced off. renew gives the shard a new identity, as for one that was
// restored from older data: whoever follows it has to begin anew. A shard without
// an identity always gets one. held is what the caller held of the shard, or zero.
func (d *Directory) Claim(ctx context.Context, shard int, held Claim, renew bool) (Claim, error) {
	results, err := d.run(ctx, d.claim, 1, func(int) ([]string, []any) {
		return []string{d.names.meta(shard)}, []any{NewID(), held.Generation, flag(renew), Format}
	})
	if err != nil {
		return Claim{}, fmt.Errorf("claim shard %d: %w", shard, err)
	}
	return results[0].Shard, nil
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// Beat tells every shard that its writer is alive, and what it can't see (empty:
// nothing). It returns what each shard is: Applied where the claim holds, Fenced
// where a later writer has it, Lost where it isn't the one that was claimed, or
// doesn't know of a write or a beat that it acknowledged before. What is held is
// brought up to date where the claim holds.
func (d *Directory) Beat(ctx context.Context, held []Claim, now time.Time, blind string) ([]Outcome, error) {
	beats := make([]int64, len(held))
	for shard := range held {
		beats[shard] = max(now.UnixMilli(), held[shard].Beat+1)
	}
	results, err := d.run(ctx, d.beat, len(held), func(shard int) ([]string, []any) {
		h := held[shard]
		return []string{d.names.meta(shard)}, []any{h.Identity, h.Generation, h.Position, h.Beat, beats[shard], blind}
	})
	if err != nil {
		return nil, err
	}
	outcomes := make([]Outcome, len(held))
	for shard, result := range results {
		outcomes[shard] = result.Outcome
		if result.Outcome == Applied {
			held[shard].Position, held[shard].Beat = result.Shard.Position, beats[shard]
		}
	}
	return outcomes, nil
}

// BeatCases says of the shards that somebody has claimed that their cases are
// written.
func (d *Directory) BeatCases(ctx context.Context, shards []Status, now time.Time) error {
	_, err := d.run(ctx, d.beatCase, len(shards), func(shard int) ([]string, []any) {
		return []string{d.names.meta(shard)}, []any{shards[shard].Identity, now.UnixMilli()}
	})
	return err
}

// Status is what is known of a shard.
type Status struct {
	// Claim is zero for a shard that nobody has written yet.
	Claim
	// Format is the version of its keys and fields.
	Format string
	// Beat is when its writer last said that it is alive; Blind is what it can't see.
	Beat  time.Time
	Blind string
	// CaseBeat is when a worker last said that it writes the shard's cases.
	CaseBeat time.Time
	// WholeSeen and WholeCase are set once everything of that field was compared
	// since the shard got its identity. Before that, something may be missing.
	WholeSeen, WholeCase bool
	// Devices is how many it has.
	Devices int64
}

// Status reads what is known of all shards.
func (d *Directory) Status(ctx context.Context) ([]Status, error) {
	meta := make([]*redis.MapStringStringCmd, Shards)
	devices := make([]*redis.IntCmd, Shards)
	_, err := d.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for shard := range Shards {
			meta[shard] = p.HGetAll(ctx, d.names.meta(shard))
			devices[shard] = p.ZCard(ctx, d.names.devices(shard))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the state of the directory: %w", err)
	}
	all := make([]Status, Shards)
	for shard := range all {
		fields := meta[shard].Val()
		s := Status{
			Claim:  Claim{Identity: fields["identity"], Generation: number(fields["generation"]), Position: number(fields["position"])},
			Format: fields["format"], Blind: fields["blind"], Devices: devices[shard].Val(),
			WholeSeen: fields["identity"] != "" && fields["whole:seen"] == fields["identity"],
			WholeCase: fields["identity"] != "" && fields["whole:case"] == fields["identity"],
		}
		if beat := number(fields["beat"]); beat > 0 {
			s.Beat = time.UnixMilli(beat).UTC()
		}
		if beat := number(fields["beat:case"]); beat > 0 {
			s.CaseBeat = time.UnixMilli(beat).UTC()
		}
		all[shard] = s
	}
	return all, nil
}

// Complete says of a shard that everything of a field was compared since it got
// its identity.
func (d *Directory) Complete(ctx context.Context, shard int, field Field, identity string) error {
	if err := d.client.HSet(ctx, d.names.meta(shard), "whole:"+string(field), identity).Err(); err != nil {
		return fmt.Errorf("mark shard %d as whole: %w", shard, err)
	}
	return nil
}

// Snapshot copies a shard's entries beside its stream, and trims the stream: what
// is behind the snapshot and older than keep. It returns the stream's ID at which
// the copy was made, and how many transitions went.
func (d *Directory) Snapshot(ctx context.Context, shard int, now time.Time, keep time.Duration) (at string, trimmed int64, err error) {
	keys := []string{d.names.meta(shard), d.names.devices(shard), d.names.snapshot(shard), d.names.making(shard), d.names.transitions(shard)}
	answer, err := d.snapshot.Run(ctx, d.client, keys, d.names.tag(shard), max(0, now.Add(-keep).UnixMilli())).Slice()
	if err != nil {
		return "", 0, fmt.Errorf("take a snapshot of shard %d: %w", shard, err)
	}
	if len(answer) != 2 {
		return "", 0, fmt.Errorf("take a snapshot of shard %d: the script answered %v", shard, answer)
	}
	at = fmt.Sprint(answer[0])
	trimmed, err = strconv.ParseInt(fmt.Sprint(answer[1]), 10, 64)
	return at, trimmed, err
}
