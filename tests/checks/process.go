package checks

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Process is one running process of this machine.
type Process struct {
	PID     int
	Command string
}

// Marked lists the processes whose environment holds an entry NAME=value, but
// not the calling one and those that it descends from. Whatever a test starts
// inherits such a mark, and so does what that starts in turn. Linux only.
func Marked(entry string) ([]Process, error) {
	own, err := lineage(os.Getpid())
	if err != nil {
		return nil, err
	}
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil, err
	}
	var found []Process
	for _, path := range environments {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || slices.Contains(own, pid) {
			continue
		}
		// A process that just ended, or is somebody else's, isn't one of ours.
		environment, err := os.ReadFile(path)
		if err != nil || !slices.ContainsFunc(bytes.Split(environment, []byte{0}), func(e []byte) bool { return string(e) == entry }) {
			continue
		}
		command, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err != nil || len(command) == 0 {
			continue
		}
		found = append(found, Process{PID: pid, Command: strings.TrimSpace(string(bytes.ReplaceAll(command, []byte{0}, []byte{' '})))})
	}
	return found, nil
}

// lineage is a process and all that it descends from.
func lineage(pid int) ([]int, error) {
	var line []int
	for pid > 0 {
		line = append(line, pid)
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if errors.Is(err, os.ErrNotExist) {
			return line, nil
		}
		if err != nil {
			return nil, err
		}
		// The name in parentheses may hold anything; what follows it is the state
		// and the parent (proc(5)).
		fields := strings.Fields(string(status[bytes.LastIndexByte(status, ')')+1:]))
		if len(fields) < 2 {
			return nil, fmt.Errorf("/proc/%d/stat can't be read: %q", pid, status)
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			return nil, err
		}
	}
	return line, nil
}
