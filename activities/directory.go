package activities

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

const (
	// queryLimit bounds one question to a workflow, listLimit the listing of all.
	queryLimit = 3 * time.Second
	listLimit  = 30 * time.Second
	// afterDeadline is how long a workflow has to act on a deadline before it is
	// asked what came of it.
	afterDeadline = time.Second
	// overdue is how long a deadline may be over before a workflow that still shows
	// it is taken to have acted on it.
	overdue = 5 * time.Second
)

// CaseReader asks device workflows for their cases.
type CaseReader interface {
	State(ctx context.Context, key device.Key) (devicewf.State, error)
	OpenDevices(ctx context.Context) iter.Seq2[device.Key, error]
}

// Cases are the open cases as the directory's truth: what their workflows say when
// they are asked. One is asked when an activity of it ran, when its next deadline
// is over, and when all are compared.
type Cases struct {
	Reader CaseReader
	// Later has a device looked at again at a time.
	Later func(at time.Time, keys ...device.Key)

	listed map[int][]device.Key
}

// Devices implements directory.Truth.
func (c *Cases) Devices(ctx context.Context, shard int) iter.Seq2[device.Key, error] {
	return func(yield func(device.Key, error) bool) {
		if _, there := c.listed[shard]; !there {
			if err := c.list(ctx); err != nil {
				yield(device.Key{}, err)
				return
			}
		}
		keys := c.listed[shard]
		// One list serves one comparison of all shards.
		delete(c.listed, shard)
		for _, key := range keys {
			if !yield(key, nil) {
				return
			}
		}
	}
}

func (c *Cases) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	listed := make(map[int][]device.Key, directory.Shards)
	for shard := range directory.Shards {
		listed[shard] = nil
	}
	for key, err := range c.Reader.OpenDevices(ctx) {
		if err != nil {
			return err
		}
		shard := directory.ShardOf(key)
		listed[shard] = append(listed[shard], key)
	}
	c.listed = listed
	return nil
}

// Level implements directory.Truth.
func (c *Cases) Level(ctx context.Context, key device.Key) (directory.Level, error) {
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	state, err := c.Reader.State(ctx, key)
	switch {
	case errors.Is(err, devicewf.ErrNoCase):
		return directory.Level{}, nil
	case err != nil:
		return directory.Level{}, fmt.Errorf("%w: %w", directory.ErrUnknown, err)
	}
	now := time.Now()
	record := directory.CaseOf(state.Case, devicewf.ID(key), now)
	if !state.Case.Open() {
		return directory.Level{Last: record}, nil
	}
	// A deadline that is just over may not have been acted on yet.
	if due := state.Case.NextWake(now.Add(-overdue)); !due.IsZero() && c.Later != nil {
		if due.Before(now) {
			due = now
		}
		c.Later(due.Add(afterDeadline), key)
	}
	return directory.Level{Case: record}, nil
}
