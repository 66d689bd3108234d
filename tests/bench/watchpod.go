package main

// This file measures what the process of a watch Pod has in memory: what is its own, and
// what are pages of files, which the kernel takes back when it wants them.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ownMemory bounds what a watch Pod's process has of its own. Measured: 7 to 9 MiB.
const ownMemory = 16 << 20

// settling is for how long its memory may not have grown to be measured.
const settling = 2 * time.Second

func measureWatchPod(ctx context.Context, binary, _ string, _ sizes) (r report, err error) {
	r.title = "The process of a watch Pod, on " + runtime.GOARCH
	command := exec.CommandContext(ctx, binary, "watch")
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		return r, err
	}
	defer func() {
		err = errors.Join(err, command.Process.Signal(syscall.SIGTERM), command.Wait())
	}()
	m, err := settledMemory(ctx, command.Process.Pid)
	if err != nil {
		return r, err
	}
	r.table("of a process that only waits (`sickbay watch`)", "in memory")
	r.row("its own (Anonymous)", size(m.own))
	r.row("pages of files, most of them of the program (Rss without Anonymous)", size(m.all-m.own))
	r.row("together (Rss)", size(m.all))
	r.most("bytes of its own", float64(m.own), ownMemory)
	return r, nil
}

// memory is what a process has in memory: in all, and of its own.
type memory struct{ all, own int64 }

// settledMemory is what a process has once that grows no more.
func settledMemory(ctx context.Context, pid int) (memory, error) {
	var last memory
	for since := time.Now(); ; {
		m, err := memoryOf(pid)
		if err != nil {
			return last, err
		}
		if m.all > last.all {
			since = time.Now()
		}
		if last = m; time.Since(since) >= settling {
			return m, nil
		}
		select {
		case <-ctx.Done():
			return last, context.Cause(ctx)
		case <-time.After(settling / 10):
		}
	}
}

func memoryOf(pid int) (memory, error) {
	var m memory
	file, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return m, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch {
		case err != nil:
		case name == "Rss":
			m.all = kilobytes << 10
		case name == "Anonymous":
			m.own = kilobytes << 10
		}
	}
	if m.all == 0 {
		return m, fmt.Errorf("/proc/%d/smaps_rollup tells nothing: the process has ended", pid)
	}
	return m, lines.Err()
}
