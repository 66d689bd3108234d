package realnode

// This file is about the machine that a node takes: that it is free and has the
// tools, the node's directory, cgroup and address, and giving all of it back.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// nodeDir is fixed so that a start finds what a killed test left.
	nodeDir = "/var/lib/sickbay-realnode"
	// pluginDir is where every kubelet has it, whatever its root directory is.
	pluginDir = "/var/lib/kubelet/device-plugins"
	// cgroupName is the cgroup below which the kubelet makes all others.
	cgroupName = "sickbay-realnode"
	bridge     = "sickbay0"
	// nodeIP is on the loopback interface: a kubelet refuses 127.0.0.1.
	nodeIP = "10.99.0.1"
	podNet = "10.88.7.0/24"
)

// machine is the claim on this machine.
type machine struct {
	dir  string
	cni  string // directory with the CNI plugins
	lock *os.File
}

// takeMachine waits until no other node has the machine, removes what an
// earlier one left, and prepares directory, cgroup and address.
func takeMachine(ctx context.Context, logf func(string, ...any)) (_ *machine, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a real node needs root: it makes mounts, cgroups and network interfaces")
	}
	cni, err := findTools(ctx, logf)
	if err != nil {
		return nil, err
	}
	m := &machine{dir: nodeDir, cni: cni}
	if m.lock, err = lockFile(ctx, nodeDir+".lock", logf); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			m.lock.Close()
		}
	}()
	if conn, err := net.Dial("unix", filepath.Join(pluginDir, "kubelet.sock")); err == nil {
		conn.Close()
		return nil, fmt.Errorf("another kubelet runs on this machine: something listens on %s/kubelet.sock; a real node can't share that directory", pluginDir)
	}
	if err := m.clean(); err != nil {
		return nil, fmt.Errorf("remove what an earlier node left: %w", err)
	}
	for _, dir := range []string{m.dir, pluginDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make the node's directory: %w", err)
		}
	}
	if err := makeCgroup(); err != nil {
		return nil, err
	}
	if err := addAddress(ctx, nodeIP); err != nil {
		return nil, fmt.Errorf("give the node its address: %w", err)
	}
	return m, nil
}

// release gives everything back.
func (m *machine) release() error {
	return errors.Join(m.clean(), m.lock.Close())
}

// lockFile takes a lock that ends with the process.
func lockFile(ctx context.Context, path string, logf func(string, ...any)) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock this machine for one real node: %w", err)
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	said := false
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !said {
			logf("node: another real node has this machine; waiting for it to stop")
			said = true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("wait for %s, which another real node on this machine holds: %w", path, context.Cause(ctx))
		}
	}
}

// findTools makes sure that runc, ip and the CNI plugins are there, and returns
// the plugins' directory.
func findTools(ctx context.Context, logf func(string, ...any)) (string, error) {
	cni, missing := lookForTools()
	if len(missing) == 0 {
		return cni, nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return "", fmt.Errorf("a real node needs %s: install them, by the names of your system's packages", strings.Join(missing, ", "))
	}
	logf("node: installing %s with apt", strings.Join(missing, ", "))
	if err := run(ctx, "apt-get", "update", "-qq"); err != nil {
		return "", fmt.Errorf("install %s: %w", strings.Join(missing, ", "), err)
	}
	install := append([]string{"apt-get", "install", "-y", "-qq", "--no-install-recommends"}, missing...)
	if err := run(ctx, "env", append([]string{"DEBIAN_FRONTEND=noninteractive"}, install...)...); err != nil {
		return "", fmt.Errorf("install %s: %w", strings.Join(missing, ", "), err)
	}
	if cni, missing = lookForTools(); len(missing) > 0 {
		return "", fmt.Errorf("a real node needs %s, which apt installed and which still can't be found", strings.Join(missing, ", "))
	}
	return cni, nil
}

// lookForTools returns the Debian packages of what is not there.
func lookForTools() (cni string, missing []string) {
	if _, err := exec.LookPath("runc"); err != nil {
		missing = append(missing, "runc")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		missing = append(missing, "iproute2")
	}
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin"} {
		if _, err := os.Stat(filepath.Join(dir, "host-local")); err == nil {
			return dir, missing
		}
	}
	return "", append(missing, "containernetworking-plugins")
}

// run runs a command and returns what it said if it failed.
func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// cgroups are the directories of the node's cgroup: one under v2, one for each
// hierarchy under v1.
func cgroups() ([]string, error) {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return []string{filepath.Join(root, cgroupName)}, nil
	}
	hierarchies, err := filepath.Glob(filepath.Join(root, "*", "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, h := range hierarchies {
		dirs = append(dirs, filepath.Join(filepath.Dir(h), cgroupName))
	}
	if len(dirs) == 0 {
		return nil, fmt.Errorf("no cgroups in %s: a kubelet needs them", root)
	}
	return dirs, nil
}

func makeCgroup() error {
	dirs, err := cgroups()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make the node's cgroup: %w", err)
		}
	}
	return nil
}
