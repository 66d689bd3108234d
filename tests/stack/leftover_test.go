// What a stack leaves behind: nothing, however it ends.

package stack_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/tests/stack"
)

// childVariable makes the test binary run a stack until it is killed.
const childVariable = "STACK_TEST_CHILD"

// childReport is what such a child prints once its stack runs.
type childReport struct {
	Dir   string
	Redis string
	PIDs  map[string]int
}

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		if err := runChild(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func everything() stack.Options {
	return stack.Options{Kubernetes: "1.36", Temporal: true, Redis: true}
}

func parts() []string {
	return []string{stack.Etcd, stack.APIServer, stack.Scheduler, stack.ControllerManager, stack.Temporal, stack.Redis}
}

func runChild() error {
	s, err := stack.Run(context.Background(), everything())
	if err != nil {
		return err
	}
	report := childReport{Dir: s.Dir(), Redis: s.RedisAddress(), PIDs: map[string]int{}}
	for _, name := range parts() {
		report.PIDs[name] = s.PID(name)
	}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		return err
	}
	select {} // until killed
}

func TestATestKilledWithSignal9LeavesNoProcessAndTheNextStackRemovesItsData(t *testing.T) {
	child, report := startChild(t)

	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // "signal: killed" is what was asked for

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for name, pid := range report.PIDs {
		await(t, ctx, fmt.Sprintf("%s (pid %d) is gone", name, pid), func() bool { return !alive(pid) })
	}
	stack.Start(t, stack.Options{Redis: true})
	if _, err := os.Stat(report.Dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", report.Dir, err)
	}
}

func TestStacksOfTwoProcessesRunSideBySide(t *testing.T) {
	_, other := startChild(t)

	s := stack.Start(t, everything())

	if s.RedisAddress() == other.Redis {
		t.Errorf("both serve Redis on %s", other.Redis)
	}
	for name, pid := range other.PIDs {
		if !alive(pid) {
			t.Errorf("the other stack's %s (pid %d) died", name, pid)
		}
	}
}

func TestStopLeavesNoProcessAndNoData(t *testing.T) {
	s, err := stack.Run(t.Context(), everything())
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, name := range parts() {
		pids = append(pids, s.PID(name))
	}
	// Stopped with SIGSTOP, a process can't hear SIGTERM.
	if err := s.SignalPart(stack.Scheduler, 19); err != nil {
		t.Fatal(err)
	}

	begin := time.Now()
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("not everything ended in time: %v", err)
	}
	t.Logf("stopped in %.1fs", time.Since(begin).Seconds())

	for i, pid := range pids {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); !os.IsNotExist(err) {
			t.Errorf("%s (pid %d) is still there, or a zombie", parts()[i], pid)
		}
	}
	if _, err := os.Stat(s.Dir()); !os.IsNotExist(err) {
		t.Errorf("%s is still there", s.Dir())
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("a second Stop failed: %v", err)
	}
}

func TestAGivenDirectoryIsKeptAndServesTheNextStack(t *testing.T) {
	dir := t.TempDir()
	opts := stack.Options{Redis: true, Dir: dir}
	first, err := stack.Run(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stack.Run(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "another stack runs in") {
		t.Errorf("a second stack in the same directory: error %v", err)
	}
	if got := redis(t, first, "SET kept yes"); got != "+OK" {
		t.Fatalf("SET: %s", got)
	}
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}

	second := stack.Start(t, opts)

	if got := redis(t, second, "GET kept"); got != "$3" {
		t.Errorf("the second stack answers %q to GET", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "log", "redis.log")); err != nil {
		t.Error(err)
	}
}

func TestAPartThatEndsOnItsOwnIsReported(t *testing.T) {
	s, err := stack.Run(t.Context(), stack.Options{Redis: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	redis(t, s, "SHUTDOWN NOSAVE")
	select {
	case err := <-s.Crashed():
		if !strings.Contains(err.Error(), "redis ended on its own") {
			t.Errorf("reported as %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("nobody noticed")
	}
}

// startChild runs a stack in another process, which is killed at the latest
// when the test ends.
func startChild(t *testing.T) (*exec.Cmd, childReport) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childVariable+"=1")
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	var report childReport
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&report); err != nil {
		t.Fatalf("the child's stack did not start: %v", err)
	}
	return child, report
}

// alive says whether a process exists and is not merely waiting to be reaped by
// whoever inherited it.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

// await polls until a condition holds.
func await(t *testing.T, ctx context.Context, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: still not: %v", what, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}
