package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/sickbay-dev/sickbay/tests/product"
)

func TestMain(m *testing.M) { product.Main(m) }

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
	return []string{"SICKBAY_MARK_CHECK=1s", "SICKBAY_STORM_GATHER=1s"}
}

// process runs `sickbay <command>` under a name as a part of the stack, with the
// rights that are shipped if no other kubeconfig is named. It returns the address
// of its metrics when the process runs, which may be before what it needs is there.
func (c *cluster) process(name, command, kubeconfig string, env ...string) (address string) {
	c.t.Helper()
	binary, err := product.Shared()
	if err != nil {
		c.t.Fatal(err)
	}
	env = append([]string{"SICKBAY_LOG_LEVEL=debug"}, env...)
	if kubeconfig != "" {
		env = append(env, "SICKBAY_KUBECONFIG="+kubeconfig)
	}
	address, err = product.Start(c.t.Context(), c.stack, product.Service{
		Binary: binary, Command: command, Name: name, Env: env, Ready: "/healthz",
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.t.Logf("%s said last:\n%s", name, c.lastLines(name, 60))
		}
	})
	return address
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
