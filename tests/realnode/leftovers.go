package realnode

// This file removes what a node has on the machine, after a clean stop as after
// a kill -9 of the test: container processes, mounts, cgroups, the bridge, the
// address, files.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// goneIn bounds the wait for killed processes.
const goneIn = 20 * time.Second

// clean removes everything below the node's directory and all that goes with
// it. There is no harm in doing it twice.
func (m *machine) clean() error {
	ctx, cancel := context.WithTimeout(context.Background(), goneIn)
	defer cancel()
	return errors.Join(
		m.killProcesses(ctx),
		m.unmount(),
		removeCgroups(ctx),
		removeNetwork(ctx),
		removeContents(pluginDir),
		os.RemoveAll(m.dir),
	)
}

// killProcesses ends the containers, which are in the node's cgroup, and their
// shims, which name the node's directory on their command line.
func (m *machine) killProcesses(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		pids, err := m.processes()
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("end process %d of the node: %w", pid, err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("processes %v of the node are still there %s after SIGKILL", pids, goneIn)
		}
	}
}

func (m *machine) processes() ([]int, error) {
	var pids []int
	dirs, err := cgroups()
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.Name() != "cgroup.procs" {
				return ignoreGone(err)
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return ignoreGone(err)
			}
			for line := range strings.FieldsSeq(string(content)) {
				pid, err := strconv.Atoi(line)
				if err != nil {
					return fmt.Errorf("read %s: %w", path, err)
				}
				pids = append(pids, pid)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list the node's containers: %w", err)
		}
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, path := range commands {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // it ended
		}
		program, args, _ := strings.Cut(string(content), "\x00")
		if filepath.Base(program) != "containerd-shim-runc-v2" || !strings.Contains(args, m.dir+"/") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

func ignoreGone(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil
	}
	return err
}

// unmount takes down every mount below the node's directory, the innermost
// first.
func (m *machine) unmount() error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("list the node's mounts: %w", err)
	}
	defer f.Close()
	var points []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20) // an overlay with many layers is a long line
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 4 && strings.HasPrefix(fields[4], m.dir+"/") {
			points = append(points, fields[4])
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("list the node's mounts: %w", err)
	}
	for _, point := range slices.Backward(points) {
		err := syscall.Unmount(point, syscall.MNT_DETACH)
		if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return nil
}

// removeCgroups removes the node's cgroup, the innermost first. A cgroup whose
// last process was just killed is busy for a moment.
func removeCgroups(ctx context.Context) error {
	dirs, err := cgroups()
	if err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var failures []error
		for _, top := range dirs {
			var all []string
			err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					all = append(all, path)
				}
				return ignoreGone(err)
			})
			failures = append(failures, err)
			for _, dir := range slices.Backward(all) {
				if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
					failures = append(failures, fmt.Errorf("remove cgroup %s: %w", dir, err))
				}
			}
		}
		if err = errors.Join(failures...); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

func removeNetwork(ctx context.Context) error {
	var failures []error
	if _, err := os.Stat("/sys/class/net/" + bridge); err == nil {
		failures = append(failures, run(ctx, "ip", "link", "delete", bridge))
	}
	addresses, err := ourAddresses()
	failures = append(failures, err)
	for _, address := range addresses {
		failures = append(failures, run(ctx, "ip", "address", "delete", address, "dev", "lo"))
	}
	return errors.Join(failures...)
}

// removeContents empties a directory and leaves it: others may have made it.
func removeContents(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("empty %s: %w", dir, err)
	}
	var failures []error
	for _, e := range entries {
		failures = append(failures, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return errors.Join(failures...)
}
