package fakeplugin

// This file holds what a plugin process is told when it starts: the
// configuration, its two profiles, and its form as command-line flags.

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Profile names a set of defaults.
type Profile string

// The profiles. See the package comment for what "nasty" turns on.
const (
	Nasty Profile = "nasty"
	Plain Profile = "plain"
)

// Resources are extended resources with their number of devices. As text:
// example.com/gpu=2,example.com/nic=1.
type Resources map[string]int

// String implements flag.Value.
func (r Resources) String() string {
	var parts []string
	for name, n := range r {
		parts = append(parts, name+"="+strconv.Itoa(n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// Set implements flag.Value. It replaces what was set before.
func (r Resources) Set(text string) error {
	clear(r)
	for part := range strings.SplitSeq(text, ",") {
		name, count, ok := strings.Cut(part, "=")
		n, err := strconv.Atoi(count)
		if !ok || err != nil || n < 0 || !strings.Contains(name, "/") {
			return fmt.Errorf("resource %q: write it as domain/name=count", part)
		}
		r[name] = n
	}
	return nil
}

// Config is everything that a plugin process is told when it starts. Start from
// [Defaults]; the zero value is not valid.
type Config struct {
	Dir         string // the kubelet's device plugin directory
	StateDir    string // where the plugin keeps its files between runs
	Control     string // loopback address of the HTTP control, port 0 for any
	AddressFile string // written with the control's address once it listens
	Instance    string // part of the socket names; two plugins of one resource need two

	Resources  Resources
	Profile    Profile
	Register   bool // register at the start; else only when told to
	Reregister bool // register again when the kubelet's socket is created
	Memory     bool // remember health over a restart
}

// Defaults returns the configuration of a profile: one resource with two
// devices.
func Defaults(p Profile) Config {
	c := Config{
		Dir: "/var/lib/kubelet/device-plugins", Control: "127.0.0.1:0",
		Resources: Resources{"fake.example.com/gpu": 2}, Profile: p, Register: true,
	}
	if p != Nasty {
		c.Reregister = true
		c.Memory = true
	}
	return c
}

func (c *Config) flags(out io.Writer) *flag.FlagSet {
	fs := flag.NewFlagSet("fakeplugin", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.StringVar((*string)(&c.Profile), "profile", string(c.Profile), "defaults of all other flags: nasty or plain")
	fs.StringVar(&c.Dir, "dir", c.Dir, "the kubelet's device plugin directory")
	fs.StringVar(&c.StateDir, "state-dir", c.StateDir, "directory for the plugin's own files")
	fs.StringVar(&c.Control, "control", c.Control, "loopback address of the HTTP control")
	fs.StringVar(&c.AddressFile, "address-file", c.AddressFile, "file to write the control's address to")
	fs.StringVar(&c.Instance, "instance", c.Instance, "part of the socket names")
	fs.Var(c.Resources, "resources", "resources and numbers of devices: example.com/gpu=2,example.com/nic=1")
	fs.BoolVar(&c.Register, "register", c.Register, "register at the start")
	fs.BoolVar(&c.Reregister, "reregister", c.Reregister, "register again when the kubelet's socket is created")
	fs.BoolVar(&c.Memory, "memory", c.Memory, "remember health over a restart")
	return fs
}

// ParseFlags reads a configuration from command-line arguments. Flags that are
// not given have the value that the profile gives them.
func ParseFlags(args []string, out io.Writer) (Config, error) {
	probe := Defaults(Nasty)
	if err := probe.flags(out).Parse(args); err != nil {
		return Config{}, err
	}
	c := Defaults(probe.Profile)
	fs := c.flags(out)
	if err := fs.Parse(args); err != nil {
		return Config{}, err
	}
	if fs.NArg() > 0 {
		return Config{}, fmt.Errorf("unexpected argument %q: fakeplugin takes flags only", fs.Arg(0))
	}
	return c, c.validate()
}

// Args renders the configuration as the flags that [ParseFlags] reads.
func (c Config) Args() []string {
	var args []string
	c.flags(io.Discard).VisitAll(func(f *flag.Flag) {
		args = append(args, "-"+f.Name+"="+f.Value.String())
	})
	return args
}

// validate reports everything that is wrong, not only the first thing.
func (c Config) validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("-dir is not set: it is needed"))
	}
	if c.StateDir == "" {
		errs = append(errs, errors.New("-state-dir is not set: it is needed"))
	}
	if len(c.Resources) == 0 {
		errs = append(errs, errors.New("-resources is empty: give at least one, as domain/name=count"))
	}
	if c.Profile != Nasty && c.Profile != Plain {
		errs = append(errs, fmt.Errorf("-profile is %q: allowed are nasty and plain", c.Profile))
	}
	return errors.Join(errs...)
}
