package directory

// This file asks what the Redis server is like that holds the directory.

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/rights.lua
var rightsLua string

// Prefix is what the names of the directory's keys begin with, in braces and
// followed by the shard.
func (d *Directory) Prefix() string { return d.names.prefix }

// probeKey begins the names of the keys that Refused makes and removes.
func (d *Directory) probeKey() string { return d.names.tag(0) + "doctor" }

// Info is what INFO says of the server that is written to: in a cluster, of the
// master of the first shard.
func (d *Directory) Info(ctx context.Context) (map[string]string, error) {
	node := redis.Cmdable(d.client)
	if cluster, ok := d.client.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(ctx, d.probeKey())
		if err != nil {
			return nil, fmt.Errorf("find a master of the cluster: %w", err)
		}
		node = master
	}
	text, err := node.Info(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("ask for INFO: %w", err)
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[key] = value
		}
	}
	return info, nil
}

// Refused tries each command that a directory is read and written with, in one
// script that removes what it made, and names those that this user may not run on
// the directory's keys. The error is one of the script as a whole.
func (d *Directory) Refused(ctx context.Context) ([]string, error) {
	key := d.probeKey()
	refused, err := d.client.Eval(ctx, rightsLua, []string{key, key + ":renamed"}).StringSlice()
	if err != nil {
		return nil, fmt.Errorf("try the commands of the directory: %w", err)
	}
	slices.Sort(refused)
	return slices.Compact(refused), nil
}
