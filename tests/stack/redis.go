package stack

import (
	"bufio"
	"context"
	"errors"
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
// and may be installed. It is the one part that is not built from a Go module.
func findRedis(ctx context.Context, progress io.Writer) (string, error) {
	if path, err := exec.LookPath("redis-server"); err == nil {
		return path, nil
	}
	if _, err := os.Stat(redisPath); err == nil {
		return redisPath, nil
	}
	if os.Geteuid() != 0 {
		return "", errors.New("redis-server is not installed: run `apt-get install redis-server` as root")
	}
	if progress == nil {
		progress = os.Stderr
	}
	fmt.Fprintln(progress, "stack: installing redis-server with apt-get")
	install := func() ([]byte, error) {
		cmd := exec.CommandContext(ctx, "apt-get", "install", "-y", "--no-install-recommends", "redis-server")
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		return cmd.CombinedOutput()
	}
	output, err := install()
	if err != nil {
		// A machine that never updated its package lists can't find anything.
		if update, updateErr := exec.CommandContext(ctx, "apt-get", "update").CombinedOutput(); updateErr != nil {
			return "", fmt.Errorf("install redis-server: apt-get update: %w\n%s", updateErr, update)
		}
		output, err = install()
	}
	if err != nil {
		return "", fmt.Errorf("install redis-server: %w\n%s", err, output)
	}
	return redisPath, nil
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
