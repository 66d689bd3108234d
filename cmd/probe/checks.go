package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// Expectation is what has to be seen somewhere of what the container was given.
type Expectation struct{ Name, Value string }

// ParseExpectation reads name=value.
func ParseExpectation(text string) (Expectation, error) {
	name, value, _ := strings.Cut(text, "=")
	if name == "" || value == "" {
		return Expectation{}, fmt.Errorf("%q: want NAME=VALUE, such as uuid=GPU-0a671a0b-deed-4727-8000-1a0bdeedb727", text)
	}
	return Expectation{name, value}, nil
}

// Options says what is checked.
type Options struct {
	// Nodes are the device nodes that have to be there; none is whichever there are.
	Nodes []string
	// Env are the variables that have to be set; none is whichever there are.
	Env []string
	// Mounts are the files and directories that have to be there and can be read; none is
	// whatever is mounted.
	Mounts []string
	Expect []Expectation
	// Run are commands that have to end with exit code 0, as words.
	Run [][]string
}

// round makes all checks once. before are those that an earlier round made: what was
// there then has to be there still.
func (o Options) round(ctx context.Context, place Place, before []Check) []Check {
	var checks []Check
	checks = append(checks, o.nodes(ctx, place, before)...)
	checks = append(checks, o.env(place, before)...)
	checks = append(checks, o.mounts(place, before)...)
	if len(checks) == 0 {
		checks = append(checks, Check{Name: "device", State: StateFailed,
			Detail: "nothing of a device can be seen: no device node, no variable that names one, and no mount that not every container has; its driver gave the container nothing, or only what has to be named (--env)"})
	}
	checks = append(checks, identity(place)...)
	for _, expected := range o.Expect {
		checks = append(checks, expect(place, checks, expected))
	}
	for _, words := range o.Run {
		checks = append(checks, run(ctx, words))
	}
	return checks
}

// earlier are the things that checks of a kind were about.
func earlier(before []Check, name string) []string {
	var all []string
	for _, c := range before {
		if c.Name == name && c.About != "" {
			all = append(all, c.About)
		}
	}
	return all
}

// with adds what was there before and isn't found any more.
func with(found, before []string) []string {
	all := slices.Concat(found, before)
	slices.Sort(all)
	return slices.Compact(all)
}

func (o Options) nodes(ctx context.Context, place Place, before []Check) []Check {
	nodes := o.Nodes
	if len(nodes) == 0 {
		found, err := place.nodes()
		if err != nil {
			return []Check{{Name: "node", State: StateUnchecked, Detail: short(err.Error())}}
		}
		nodes = with(found, earlier(before, "node"))
	}
	var checks []Check
	for _, path := range nodes {
		checks = append(checks, openNode(ctx, path))
	}
	return checks
}

// openNode opens a device node and closes it again. A driver that hangs keeps whoever
// opens its node, so that it isn't waited for.
func openNode(ctx context.Context, path string) Check {
	check := Check{Name: "node", About: path}
	done := make(chan error, 1)
	go func() { done <- openDevice(path) }()
	select {
	case err := <-done:
		if err != nil {
			check.State, check.Detail = StateFailed, because(err)
			return check
		}
		check.State, check.Detail = StateOK, "opened"
	case <-ctx.Done():
		check.State, check.Detail = StateFailed, "not opened in time: its driver doesn't answer"
		if errors.Is(context.Cause(ctx), errTold) {
			check.State, check.Detail = StateUnchecked, "told to end while it was being opened"
		}
	}
	return check
}

func openDevice(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeDevice == 0 {
		return errors.New("no device node: it is a " + kindOf(info.Mode()))
	}
	flags := syscall.O_RDWR | syscall.O_NONBLOCK | syscall.O_NOCTTY | syscall.O_CLOEXEC
	if info.Mode()&fs.ModeCharDevice == 0 {
		flags = flags&^syscall.O_RDWR | syscall.O_RDONLY // nothing is ever written to a disk
	}
	opened, err := syscall.Open(path, flags, 0)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		opened, err = syscall.Open(path, flags&^syscall.O_RDWR|syscall.O_RDONLY, 0)
	}
	if err != nil {
		return err
	}
	return syscall.Close(opened)
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "directory"
	case mode.IsRegular():
		return "file"
	}
	return "thing of another kind, " + mode.Type().String()
}

// because is an error of the system, with what it means of a device where that is known.
func because(err error) string {
	text := err.Error()
	var path *fs.PathError
	if errors.As(err, &path) {
		text = path.Err.Error()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "it isn't there"
	case errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.ENODEV):
		return text + ": no driver answers for it"
	case errors.Is(err, fs.ErrPermission):
		return text + ": user " + fmt.Sprint(os.Geteuid()) + " may not open it, or the container wasn't given it; name those that matter with --device-node"
	case errors.Is(err, syscall.EBUSY):
		return text + ": somebody else has it"
	}
	return text
}

func (o Options) env(place Place, before []Check) []Check {
	var checks []Check
	names := o.Env
	if len(names) == 0 {
		for _, v := range place.variables() {
			names = append(names, v.name)
		}
		names = with(names, earlier(before, "env"))
	}
	for _, name := range names {
		check := Check{Name: "env", About: name, State: StateOK, Detail: "it is set"}
		switch value := place.value(name); {
		case value == "":
			check.State, check.Detail = StateFailed, "it isn't set, or it is empty"
		case naming.MatchString(value):
			// What names no device may be a secret, and reports are read by many.
			check.Detail = short(value)
		}
		checks = append(checks, check)
	}
	return checks
}

func (o Options) mounts(place Place, before []Check) []Check {
	paths := o.Mounts
	if len(paths) == 0 {
		found, err := place.mounts()
		if err != nil {
			return []Check{{Name: "mount", State: StateUnchecked, Detail: short(err.Error())}}
		}
		paths = with(found, earlier(before, "mount"))
	}
	var checks []Check
	for _, path := range paths {
		check := Check{Name: "mount", About: path, State: StateOK, Detail: "can be read"}
		if err := readable(path); err != nil {
			check.State, check.Detail = StateFailed, because(err)
		}
		checks = append(checks, check)
	}
	return checks
}

// readable tells why something that was mounted can't be read. Sockets and pipes wait for
// somebody at their other end; that they are there is enough.
func readable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() && !info.IsDir() {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if info.IsDir() {
		_, err = file.ReadDir(1)
	} else {
		_, err = file.Read(make([]byte, 1))
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// uuid is a device's, with its kind before it: GPU-…, MIG-….
var uuid = regexp.MustCompile(`^([A-Z]+)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// identity holds the UUIDs that the driver wrote into variables against the one that the
// attempt is about: a container that was given another device proves nothing of this one.
func identity(place Place) []Check {
	meant := place.value("DEVICE_UUID")
	kind := uuid.FindStringSubmatch(meant)
	if kind == nil {
		return nil
	}
	var seen []string
	for _, v := range place.given() {
		for word := range strings.FieldsFuncSeq(v.value, func(c rune) bool { return c == ',' || c == ' ' || c == ';' }) {
			if word == meant {
				return []Check{{Name: "identity", About: meant, State: StateOK, Detail: "as " + v.name + " says"}}
			}
			if other := uuid.FindStringSubmatch(word); other != nil && other[1] == kind[1] {
				seen = append(seen, v.name+"="+word)
			}
		}
	}
	if len(seen) == 0 {
		return nil // the driver doesn't say
	}
	return []Check{{Name: "identity", About: meant, State: StateFailed, Detail: "another device: the container was given " + short(strings.Join(seen, ", "))}}
}

// maxRead bounds what is read of a file that was mounted.
const maxRead = 64 << 10

// expect looks for a value in what was given: in variables, in the names of nodes and
// mounts, and in small files.
func expect(place Place, seen []Check, wanted Expectation) Check {
	check := Check{Name: "expect", About: wanted.Name + "=" + wanted.Value, State: StateOK}
	for _, v := range place.given() {
		if strings.Contains(v.value, wanted.Value) {
			check.Detail = "in variable " + v.name
			return check
		}
	}
	for _, c := range seen {
		if c.State != StateOK || c.Name != "node" && c.Name != "mount" {
			continue
		}
		if strings.Contains(c.About, wanted.Value) || c.Name == "mount" && fileHas(c.About, wanted.Value) {
			check.Detail = "in " + c.About
			return check
		}
	}
	check.State, check.Detail = StateFailed, "not to be found in any variable, name of a node or mount, or file that the container was given: it may be another device"
	return check
}

func fileHas(path, value string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxRead))
	return err == nil && strings.Contains(string(content), value)
}
