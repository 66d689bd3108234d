package cmd

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/directory"
)

// connectDirectory sets the way to the directory up, or returns nil where none is
// configured. It connects when it is first used: no service waits for Redis.
func connectDirectory(set config.Redis, name string, logger *slog.Logger) (shown *directory.Directory, end func(), err error) {
	if !set.Configured() {
		return nil, func() {}, nil
	}
	redis.SetLogger(redisLog{logger.With("component", "redis")})
	client, err := directory.Connect(set.Connection(name))
	if err != nil {
		return nil, nil, &configurationError{err}
	}
	// What goes wrong while it is closed can't be helped any more.
	return directory.New(client, set.Prefix), func() { _ = client.Close() }, nil
}

// redisLog takes in what the Redis client has to say. It says the same of each
// failed connection; the directory's writer says once that it can't write.
type redisLog struct{ *slog.Logger }

// Printf implements the client's logger.
func (l redisLog) Printf(ctx context.Context, format string, values ...any) {
	l.DebugContext(ctx, fmt.Sprintf(format, values...))
}
