package stack

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
)

// redisPath is where Debian's package puts the server, which is not in every
// PATH.
const redisPath = "/usr/bin/redis-server"

// RedisAddress is the server's address, "host:port".
func (s *Stack) RedisAddress() string { return loopback(s.ports.port(portRedis)) }

// findRedis finds redis-server, and installs Debian's package if it is missing
// and may be installed. It is not built from a Go module, as PostgreSQL isn't.
func findRedis(ctx context.Context, progress io.Writer) (string, error) {
	if path, err := exec.LookPath("redis-server"); err == nil {
		return path, nil
	}
	if _, err := os.Stat(redisPath); err == nil {
		return redisPath, nil
	}
	return redisPath, install(ctx, progress, "redis-server")
}

func (s *Stack) startRedis(ctx context.Context) error {
	return s.StartProcess(ctx, Process{
		Name: Redis,
		Path: s.redis,
		Args: []string{
			"--bind", "127.0.0.1", "--port", fmt.Sprint(s.ports.port(portRedis)),
			"--dir", s.Dir(), "--daemonize", "no", "--save", "",
			// So that a restarted server has its data; tests that want an empty
			// one flush it.
			"--appendonly", "yes", "--appendfsync", "everysec",
			// Replicas of a test attach at once.
			"--repl-diskless-sync-delay", "0",
		},
		Ready: s.redisReady,
	})
}

// redisReady sends the inline PING; a server that is still loading its file
// answers with an error.
func (s *Stack) redisReady(ctx context.Context) error {
	dialer := net.Dialer{Timeout: probeLimit}
	connection, err := dialer.DialContext(ctx, "tcp", s.RedisAddress())
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(probeLimit)); err != nil {
		return err
	}
	if _, err := io.WriteString(connection, "PING\r\n"); err != nil {
		return err
	}
	answer, err := bufio.NewReader(connection).ReadString('\n')
	if err != nil {
		return err
	}
	if strings.TrimSpace(answer) != "+PONG" {
		return fmt.Errorf("redis answered %q", strings.TrimSpace(answer))
	}
	return nil
}
