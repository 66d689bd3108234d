package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sickbay-dev/sickbay/tests/stack"
)

// binary builds the real sickbay once for all tests of a run.
var binary = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "sickbay-bin-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "sickbay")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build sickbay: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// fastEnvironment sets windows of seconds where the defaults are minutes.
func fastEnvironment() []string {
	return []string{
		"SICKBAY_MODE=enforce", "SICKBAY_GRACE=20s", "SICKBAY_RECHECK_FIRST=1s", "SICKBAY_RECHECK_MAX=2s",
		"SICKBAY_HYSTERESIS=2s", "SICKBAY_STABILITY=3s", "SICKBAY_COOL_DOWN=1s", "SICKBAY_MARK_RETRY=2s",
		"SICKBAY_SETTLE_POOL=2s", "SICKBAY_SETTLE_POOL_GONE=2s", "SICKBAY_SETTLE_NODE=2s",
	}
}

// starterEnvironment shortens what a starter waits for.
func starterEnvironment() []string {
	return []string{"SICKBAY_MARK_CHECK=1s", "SICKBAY_LEADER_ELECTION_NAMESPACE=default"}
}

// process runs `sickbay <command>` under a name as a part of the stack.
func (c *cluster) process(name, command, kubeconfig string, env ...string) {
	c.t.Helper()
	path, err := binary()
	if err != nil {
		c.t.Fatal(err)
	}
	port, err := c.stack.FreePort()
	if err != nil {
		c.t.Fatal(err)
	}
	if kubeconfig == "" {
		kubeconfig = c.stack.Kubeconfig()
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	err = c.stack.StartProcess(c.t.Context(), stack.Process{
		Name: name, Path: path, Args: []string{command},
		Env: append([]string{
			"SICKBAY_KUBECONFIG=" + kubeconfig, "SICKBAY_HTTP_ADDRESS=" + address, "SICKBAY_LOG_LEVEL=debug",
			"SICKBAY_TEMPORAL_ADDRESS=" + c.stack.TemporalAddress(), "SICKBAY_TEMPORAL_NAMESPACE=" + c.stack.TemporalNamespace(),
		}, env...),
		Ready: func(ctx context.Context) error { return get(ctx, "http://"+address+"/healthz") },
	})
	if err != nil {
		c.t.Fatalf("start %s: %v", name, err)
	}
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.t.Logf("%s said last:\n%s", name, c.lastLines(name, 60))
		}
	})
}

func get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

// lastLines are the last lines of a process's log.
func (c *cluster) lastLines(name string, count int) string {
	data, err := os.ReadFile(c.stack.Log(name))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-count):], "\n")
}

// logged returns the log lines of a process whose msg is the given one.
func (c *cluster) logged(name, msg string) []map[string]any {
	c.t.Helper()
	data, err := os.ReadFile(c.stack.Log(name))
	if err != nil {
		c.t.Fatal(err)
	}
	var found []map[string]any
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line map[string]any
		if json.Unmarshal(lines.Bytes(), &line) == nil && line["msg"] == msg {
			found = append(found, line)
		}
	}
	return found
}
