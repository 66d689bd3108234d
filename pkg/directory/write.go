package directory

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

var (
	//go:embed lua/write.lua
	writeLua string
	//go:embed lua/claim.lua
	claimLua string
	//go:embed lua/beat.lua
	beatLua string
	//go:embed lua/beatcase.lua
	beatCaseLua string
	//go:embed lua/snapshot.lua
	snapshotLua string
	//go:embed lua/decide.lua
	decideLua string
	//go:embed lua/replay.lua
	replayLua string
)

// Outcome is what became of a write.
type Outcome string

const (
	// Applied: the field says it now.
	Applied Outcome = "applied"
	// Duplicate: this very operation was applied before; nothing was written.
	Duplicate Outcome = "duplicate"
	// Conflict: the field isn't at the expected revision. Read it, and compare again.
	Conflict Outcome = "conflict"
	// Fenced: a later writer has the shard, or a later case the device.
	Fenced Outcome = "fenced"
	// Lost: the shard isn't the one that was claimed. It is empty, new, or has been
	// restored from older data; claim it and compare everything.
	Lost Outcome = "lost"
)

// Claim is what a writer holds of a shard, and compares: the identity that the
// shard was given when it began, and the writer's generation. Position counts the
// writes into the shard, and Beat is the last that it acknowledged, in Unix
// milliseconds: one lower than was seen before is older data.
type Claim struct {
	Identity   string
	Generation int64
	Position   int64
	Beat       int64
}

// Operation is one write of one field.
type Operation struct {
	Device device.Key
	Field  Field
	// ID makes the write idempotent: the client may send a script twice.
	ID string
	// Expected is the revision that the field has to be at.
	Expected int64
	// Identity and Generation fence FieldSeen; they are those of the Claim. Epoch
	// and Attempt fence FieldCase.
	Identity       string
	Generation     int64
	Epoch, Attempt int64
	// Seen or Case is the value; nil removes the field.
	Seen *Seen
	Case *Case
	// Last is what the transition says of a case that is removed, if known.
	Last *Case
}

// Result is the answer to a write: the outcome, the field's revision, and the
// shard as it is now.
type Result struct {
	Outcome  Outcome
	Revision int64
	Shard    Claim
}

// Directory reads and writes the directory of one installation.
type Directory struct {
	client redis.UniversalClient
	names  names
	// The scripts know their hash, so they are shared by all calls.
	write, claim, beat, beatCase, snapshot, replay, decide *redis.Script
}

// New returns a directory on a client, whose keys begin with {prefix-.
func New(client redis.UniversalClient, prefix string) *Directory {
	return &Directory{
		client: client, names: names{prefix},
		write: redis.NewScript(writeLua), claim: redis.NewScript(claimLua), beat: redis.NewScript(beatLua), beatCase: redis.NewScript(beatCaseLua),
		snapshot: redis.NewScript(snapshotLua), replay: redis.NewScript(replayLua),
		decide: redis.NewScript(decideLua),
	}
}

// NewID is an ID for an operation or a shard.
func NewID() string { return rand.Text() }

// Write does one operation. An error says that it isn't known whether it was done.
func (d *Directory) Write(ctx context.Context, o Operation) (Result, error) {
	results, err := d.WriteAll(ctx, []Operation{o})
	if err != nil {
		return Result{}, err
	}
	return results[0], nil
}

// WriteAll does operations in one round trip per server. They are independent of
// each other; an error says that it isn't known which were done.
func (d *Directory) WriteAll(ctx context.Context, all []Operation) ([]Result, error) {
	return d.run(ctx, d.write, len(all), func(i int) ([]string, []any) {
		return d.keysOf(all[i]), d.argumentsOf(all[i])
	})
}

func (d *Directory) keysOf(o Operation) []string {
	shard := ShardOf(o.Device)
	return []string{d.names.meta(shard), d.names.device(o.Device), d.names.devices(shard), d.names.transitions(shard)}
}

func (d *Directory) argumentsOf(o Operation) []any {
	value, last := "", ""
	var sets []string
	fence, minor := o.Generation, int64(0)
	switch {
	case o.Seen != nil:
		value, sets = encode(o.Seen), o.Seen.indexes()
	case o.Case != nil:
		value, sets = encode(o.Case), o.Case.indexes()
	case o.Last != nil:
		last = encode(o.Last)
	}
	if o.Field == FieldCase {
		fence, minor = o.Epoch, o.Attempt
	}
	arguments := []any{
		d.names.tag(ShardOf(o.Device)), string(o.Field), o.Device.String(), o.ID, o.Expected,
		o.Identity, fence, minor, value, last,
	}
	for _, set := range sets {
		arguments = append(arguments, set)
	}
	return arguments
}

// run runs a script several times in one pipeline. A server that doesn't know the
// script, because it is new or was restarted, is given it and asked again; the
// operations that it did do meanwhile are duplicates then.
func (d *Directory) run(ctx context.Context, script *redis.Script, n int, of func(int) ([]string, []any)) ([]Result, error) {
	results := make([]Result, n)
	left := make([]int, n)
	for i := range left {
		left[i] = i
	}
	for try := 0; len(left) > 0; try++ {
		commands := make([]*redis.Cmd, len(left))
		_, err := d.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for j, i := range left {
				keys, arguments := of(i)
				if try == 0 {
					commands[j] = script.EvalSha(ctx, p, keys, arguments...)
				} else {
					commands[j] = script.Eval(ctx, p, keys, arguments...)
				}
			}
			return nil
		})
		if err != nil && !redis.HasErrorPrefix(err, "NOSCRIPT") {
			return nil, fmt.Errorf("write the directory: %w", err)
		}
		var again []int
		for j, i := range left {
			answer, err := commands[j].Slice()
			if try == 0 && redis.HasErrorPrefix(err, "NOSCRIPT") {
				again = append(again, i)
				continue
			}
			if err == nil {
				results[i], err = readResult(answer)
			}
			if err != nil {
				return nil, fmt.Errorf("write the directory: %w", err)
			}
		}
		left = again
	}
	return results, nil
}

func readResult(answer []any) (Result, error) {
	texts := make([]string, len(answer))
	for i, a := range answer {
		texts[i] = fmt.Sprint(a)
	}
	if len(texts) != 5 {
		return Result{}, fmt.Errorf("the script answered %q", texts)
	}
	revision, err1 := strconv.ParseInt(texts[1], 10, 64)
	generation, err2 := strconv.ParseInt(texts[3], 10, 64)
	position, err3 := strconv.ParseInt(texts[4], 10, 64)
	return Result{
		Outcome: Outcome(texts[0]), Revision: revision,
		Shard: Claim{Identity: texts[2], Generation: generation, Position: position},
	}, errors.Join(err1, err2, err3)
}
