// Package directory tests the device directory on the real redis-server: alone,
// behind sentinels, and as a cluster.
package directory

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// server is a redis-server of a stack, and a directory on it.
type server struct {
	*directory.Directory
	t      testing.TB
	stack  *stack.Stack
	client redis.UniversalClient
}

// start runs a redis-server that keeps what it acknowledged through a kill -9 (its
// append-only file).
func start(t testing.TB) *server {
	t.Helper()
	st := stack.Start(t, stack.Options{Redis: true})
	client := connect(t, directory.Connection{Kind: directory.KindSingle, Addresses: []string{st.RedisAddress()}})
	return &server{Directory: directory.New(client, "sickbay"), t: t, stack: st, client: client}
}

func connect(t testing.TB, c directory.Connection) redis.UniversalClient {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = 2 * time.Second
	}
	client, err := directory.Connect(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// gpu is a device of node n.
func gpu(n, i int) device.Key {
	key, err := device.NewDRA("gpu.example.com", fmt.Sprintf("node-%d", n), fmt.Sprintf("gpu-%d", i))
	if err != nil {
		panic(err)
	}
	return key
}

func seen(key device.Key, health device.Health) *directory.Seen {
	return &directory.Seen{
		Device: key, Node: key.Pool, Listed: true, Health: health, Objective: directory.ObjectiveNotConfigured,
	}
}

func openCase(key device.Key, epoch int64, phase quarantine.Phase) *directory.Case {
	return &directory.Case{
		Device: key, Node: key.Pool, Phase: phase, Epoch: epoch, Reason: "XidFallenOffBus", Source: directory.SourceWorkflow,
	}
}

// claimAll claims every shard, as the starter that leads does.
func claimAll(t testing.TB, d *directory.Directory) []directory.Claim {
	t.Helper()
	held := make([]directory.Claim, directory.Shards)
	for shard := range held {
		claim, err := d.Claim(t.Context(), shard, directory.Claim{}, false)
		if err != nil {
			t.Fatal(err)
		}
		held[shard] = claim
	}
	return held
}

// seeing is the operation that writes what is seen.
func seeing(held []directory.Claim, s *directory.Seen, expected int64) directory.Operation {
	claim := held[directory.ShardOf(s.Device)]
	return directory.Operation{
		Device: s.Device, Field: directory.FieldSeen, ID: directory.NewID(), Expected: expected,
		Identity: claim.Identity, Generation: claim.Generation, Seen: s,
	}
}

func deciding(c *directory.Case, expected int64) directory.Operation {
	return directory.Operation{
		Device: c.Device, Field: directory.FieldCase, ID: directory.NewID(), Expected: expected,
		Epoch: c.Epoch, Attempt: int64(c.Attempt), Case: c,
	}
}

// write does an operation and wants an outcome.
func write(t testing.TB, d *directory.Directory, o directory.Operation, want directory.Outcome) directory.Result {
	t.Helper()
	result, err := d.Write(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if result.Outcome != want {
		t.Fatalf("writing %s of %s: %s, want %s", o.Field, o.Device, result.Outcome, want)
	}
	return result
}

// get reads an entry that has to be there.
func get(t testing.TB, d *directory.Directory, key device.Key) directory.Entry {
	t.Helper()
	entry, ok, err := d.Get(t.Context(), key)
	if err != nil || !ok {
		t.Fatalf("entry of %s: there %t, error %v", key, ok, err)
	}
	return entry
}

// listed lists the names of what a query finds.
func listed(t testing.TB, d *directory.Directory, q directory.Query) map[string]directory.Entry {
	t.Helper()
	found := map[string]directory.Entry{}
	for entry, err := range d.List(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := found[entry.Device.String()]; twice {
			t.Fatalf("%s is listed twice", entry.Device)
		}
		found[entry.Device.String()] = entry
	}
	return found
}

// eventually polls until check returns nil, and fails with its last error.
func eventually(t testing.TB, what string, within time.Duration, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s: %v", what, within, last)
		case <-ticker.C:
		}
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
