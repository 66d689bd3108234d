package doctor

// This file looks at the Redis that holds the device directory.

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/sickbay-dev/sickbay/pkg/directory"
)

// Redis is the server that is asked.
type Redis struct {
	// Directory is nil where none is configured.
	Directory *directory.Directory
}

// testedRedis is the oldest Redis that Sickbay is tested with.
const testedRedis = "7.0"

// Reach asks whether Redis answers, if there is one.
func (r Redis) Reach() Check {
	name := "redis/server"
	return Check{Name: name, Ask: func(ctx context.Context) ([]Finding, error) {
		f := Finding{Check: name, State: OK, Needed: "none, or Redis " + testedRedis + " or later for the device directory"}
		if r.Directory == nil {
			f.Found = "no directory is configured (SICKBAY_REDIS_ADDRESSES)"
			return []Finding{f}, nil
		}
		info, err := r.Directory.Info(ctx)
		if err != nil && strings.Contains(err.Error(), "NOPERM") {
			f.State, f.Found = Unknown, err.Error()
			f.Without = "what the server is like isn't known; the directory doesn't need that right"
			f.Remedy = "Let its user run INFO, or ask whoever runs it for version, persistence and eviction."
			return []Finding{f}, nil
		}
		if err != nil {
			f.State, f.Found = Degraded, fmt.Sprintf("Redis doesn't answer: %v", err)
			f.Without = "whoever reads the directory reads nothing, or something old; cases and marks go on without it"
			f.Remedy = "See that SICKBAY_REDIS_ADDRESSES leads to it, and that SICKBAY_REDIS_USERNAME, _PASSWORD_FILE and _TLS_* are what it asks for."
			f.stops = true
			return []Finding{f}, nil
		}
		return append([]Finding{judgeServer(f, info)}, judgeKeeping(info)...), nil
	}}
}

func judgeServer(f Finding, info map[string]string) Finding {
	f.Found = fmt.Sprintf("%s %s, %s", "Redis", info["redis_version"], info["role"])
	switch {
	case info["role"] != "master" && info["role"] != "":
		f.State, f.Without = Degraded, "nothing can be written into the directory"
		f.Remedy = "Point SICKBAY_REDIS_ADDRESSES at the master, or set SICKBAY_REDIS_KIND=sentinel with the sentinels' addresses."
	case older(info["redis_version"], testedRedis):
		f.State, f.Without = Degraded, "nothing is known of what it lacks"
		f.Remedy = "Upgrade Redis."
	}
	return f
}

func judgeKeeping(info map[string]string) []Finding {
	persistence := Finding{Check: "redis/persistence", State: OK, Found: "append-only file", Needed: "an append-only file (appendonly yes)"}
	if info["aof_enabled"] != "1" {
		persistence.State, persistence.Found = Degraded, "no append-only file"
		persistence.Without = "a Redis that restarts is empty, or as old as its last snapshot, until starter and workers have rebuilt the directory; transitions since then are lost"
		persistence.Remedy = "Set appendonly yes, with appendfsync everysec."
	}
	eviction := Finding{Check: "redis/eviction", State: OK, Needed: "maxmemory-policy noeviction, or no maxmemory"}
	limit, _ := strconv.ParseInt(info["maxmemory"], 10, 64) // a server that doesn't tell has none
	eviction.Found = "maxmemory-policy " + info["maxmemory_policy"]
	if limit == 0 {
		eviction.Found += ", no maxmemory"
	}
	used, _ := strconv.ParseInt(info["used_memory"], 10, 64)
	switch {
	case limit > 0 && info["maxmemory_policy"] == "noeviction" && used > limit/10*9:
		eviction.State = Degraded
		eviction.Found += fmt.Sprintf(", and %d of %d bytes used", used, limit)
		eviction.Without = "writes are refused when it is full, and the directory grows old"
		eviction.Remedy = "Give it more memory: 3 KB a device."
	case limit > 0 && info["maxmemory_policy"] != "noeviction":
		eviction.State = Degraded
		eviction.Without = "entries vanish one by one when memory is short; who lists devices is told that they are missing"
		eviction.Remedy = "Set maxmemory-policy noeviction, and memory for 3 KB a device."
	}
	return []Finding{persistence, eviction}
}

// Rights tries each command that the directory is read and written with, on keys
// that are gone again when it ends.
func (r Redis) Rights() Check {
	name := "redis/rights"
	return Check{Name: name, Lost: "what this Redis user may do", Ask: func(ctx context.Context) ([]Finding, error) {
		if r.Directory == nil {
			return nil, nil
		}
		f := Finding{Check: name, State: OK, Found: "all", Needed: "the commands of docs/directory.md on keys that begin with {" + r.Directory.Prefix() + "-"}
		refused, err := r.Directory.Refused(ctx)
		switch {
		case err != nil && strings.Contains(err.Error(), "NOPERM"):
			refused = []string{"EVAL"}
		case err != nil && strings.Contains(err.Error(), "READONLY"):
			return nil, nil // a replica: redis/server says so
		case err != nil:
			return nil, err
		}
		if len(refused) > 0 {
			f.State, f.Found = Degraded, "this Redis user may not "+strings.Join(refused, ", ")
			f.Without = "the directory isn't written, or can't be read"
			f.Remedy = "Let the user run these commands on these keys (ACL SETUSER; docs/directory.md has a whole rule)."
		}
		return []Finding{f}, nil
	}}
}
