package probe

import (
	"bufio"
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Place is the container that is looked at. The zero value of a field is its usual place.
type Place struct {
	// Dev is where device nodes are, MountInfo what is mounted (proc_pid_mountinfo(5)).
	Dev, MountInfo string
	// Environ are the variables, as NAME=value.
	Environ []string
}

// Here is the container that this runs in.
func Here() Place { return Place{Environ: os.Environ()} }

func (p Place) dev() string       { return cmp.Or(p.Dev, "/dev") }
func (p Place) mountInfo() string { return cmp.Or(p.MountInfo, "/proc/self/mountinfo") }

// What a device's driver may give a container is, by CDI (containerEdits of the Container
// Device Interface): variables, device nodes, mounts, and what hooks do with the root file
// system, which shows as one of these. What every container has is told from it by name.

// everywhere are the device nodes of every container (opencontainers/runtime-spec,
// config-linux.md, default devices), by their paths below /dev.
var everywhere = []string{"null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "termination-log"}

// nodes lists the device nodes below /dev that not every container has, sorted.
func (p Place) nodes() ([]string, error) {
	var found []string
	err := filepath.WalkDir(p.dev(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			if path == p.dev() {
				return err
			}
			return nil // a directory that can't be read has no nodes that can be opened
		}
		below, err := filepath.Rel(p.dev(), path)
		if err != nil {
			return err
		}
		switch {
		case entry.IsDir() && slices.Contains([]string{"pts", "shm", "mqueue"}, below):
			return filepath.SkipDir
		case entry.Type()&fs.ModeDevice != 0 && !slices.Contains(everywhere, below):
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for device nodes: %w", err)
	}
	slices.Sort(found)
	return found, nil
}

var (
	// about are the variables by which an attempt at recovery says what it is about: what
	// is said in them was not seen.
	about = []string{"DEVICE", "DEVICE_UUID", "DEVICE_SERIAL", "DEVICE_SLOT", "DEVICE_NODE", "DEADLINE"}
	// others begin the names of variables that no driver sets.
	others = []string{"KUBERNETES_", "SICKBAY_"}
	// nothing is what stands where a variable names no device: NVIDIA's CDI specs say void
	// to keep another hook from giving devices.
	nothing = []string{"", "void", "none", "all"}
	// calls is how drivers call variables that name a device, and naming what names one
	// whatever its variable is called: a UUID with its kind, a PCI address, a node.
	calls  = regexp.MustCompile(`(?i)device|gpu|npu|tpu|fpga|accel|pci`)
	naming = regexp.MustCompile(`\b[A-Z]+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b|^/dev/`)
)

// variable is a variable and its value.
type variable struct{ name, value string }

// given are the variables that say something and that somebody else than the attempt set,
// sorted.
func (p Place) given() []variable {
	var found []variable
	for _, entry := range p.Environ {
		name, value, _ := strings.Cut(entry, "=")
		if name == "" || slices.Contains(about, name) || slices.Contains(nothing, strings.ToLower(value)) ||
			slices.ContainsFunc(others, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			continue
		}
		found = append(found, variable{name, value})
	}
	slices.SortFunc(found, func(a, b variable) int { return strings.Compare(a.name, b.name) })
	return found
}

// variables are those of them that name a device.
func (p Place) variables() []variable {
	return slices.DeleteFunc(p.given(), func(v variable) bool { return !calls.MatchString(v.name) && !naming.MatchString(v.value) })
}

// value is that of a variable, whoever set it.
func (p Place) value(name string) string {
	for _, entry := range slices.Backward(p.Environ) {
		if n, value, _ := strings.Cut(entry, "="); n == name {
			return value
		}
	}
	return ""
}

// usual are the places where every container has something mounted; what is below them is
// no device's either. Below /tmp it may be: Sickbay mounts only that itself.
var usual = []string{"/proc", "/sys", "/dev/pts", "/dev/shm", "/dev/mqueue", "/dev/termination-log", "/dev/console",
	"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/run/secrets", "/var/run/secrets", "/run/.containerenv"}

// mounts lists what is mounted into the container and not into every one, sorted.
func (p Place) mounts() ([]string, error) {
	file, err := os.Open(p.mountInfo())
	if err != nil {
		return nil, fmt.Errorf("look for what is mounted: %w", err)
	}
	defer file.Close()
	var found []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		path := unescape(fields[4])
		if path == "/" || path == "/dev" || path == "/tmp" || slices.Contains(found, path) || slices.ContainsFunc(usual, func(u string) bool {
			return path == u || strings.HasPrefix(path, u+"/")
		}) {
			continue
		}
		// A runtime that may make no device nodes mounts those of the host.
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeDevice != 0 {
			continue
		}
		found = append(found, path)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("look for what is mounted: %w", err)
	}
	slices.Sort(found)
	return found, nil
}

// unescape undoes how mountinfo writes spaces and their like: \040.
func unescape(text string) string {
	var plain strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if c, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				plain.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		plain.WriteByte(text[i])
	}
	return plain.String()
}
