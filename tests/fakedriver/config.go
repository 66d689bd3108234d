package fakedriver

// This file holds what a driver process is told when it starts: the
// configuration, its two profiles, and its form as command-line flags.

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
)

// Profile names a set of defaults.
type Profile string

// The profiles. See the package comment for what "nasty" turns on.
const (
	Nasty Profile = "nasty"
	Plain Profile = "plain"
)

// HealthAPI says which DRAResourceHealth gRPC services the driver offers.
type HealthAPI string

// The health services. Kubelet 1.36 speaks v1alpha1 only and asks for it
// whether or not it is offered; 1.37 takes v1 and falls back to v1alpha1.
const (
	HealthBoth     HealthAPI = "both"
	HealthV1       HealthAPI = "v1"
	HealthV1alpha1 HealthAPI = "v1alpha1"
	// HealthNone offers no health service at all.
	HealthNone HealthAPI = "none"
	// HealthDeclined offers both and answers Unimplemented, which is what the
	// vendors' helper library does for a driver that has no health to report.
	HealthDeclined HealthAPI = "declined"
)

// CDI says which CDI device IDs Prepare returns. The first of them becomes the
// resourceID in the Pod's status.
type CDI string

// The CDI modes.
const (
	CDIOff    CDI = "off"    // none: resourceID is driver/pool/device
	CDIDevice CDI = "device" // <driver>/gpu=<device>
	CDIClaim  CDI = "claim"  // k8s.<driver>/claim=<claim uid>-<device>
)

// Overlap says what Prepare does when another claim already has the device.
type Overlap string

// The overlap rules.
const (
	OverlapAllow  Overlap = "allow"  // no check
	OverlapAdmin  Overlap = "admin"  // refused, except from and with admin-access claims
	OverlapRefuse Overlap = "refuse" // refused, admin access or not
)

// Config is everything that a driver process is told when it starts. Start from
// [Defaults]; the zero value is not valid.
type Config struct {
	Name        string // driver name
	Node        string // node name
	Pool        string // pool name, may contain slashes; empty means the node's name
	Kubeconfig  string // path of a kubeconfig that may write ResourceSlices and read claims
	KubeletRoot string // the kubelet's --root-dir
	CDIDir      string // where CDI specs go; needed unless CDI is off
	StateDir    string // where the driver keeps its files between runs
	Control     string // loopback address of the HTTP control, port 0 for any
	AddressFile string // written with the control's address once it listens

	Devices    int    // number of whole devices: gpu-0, gpu-1, …
	Partitions int    // partitions published beside each whole device
	Instance   string // set for a rolling upgrade: unique ID of this instance

	Profile      Profile
	HealthAPI    HealthAPI
	CDI          CDI
	Overlap      Overlap
	OwnTaints    bool          // put taints of its own on devices that are not well
	Memory       bool          // remember health and taints over a restart
	UnknownFirst time.Duration // how long all devices are Unknown after a stream opened
	Loss         float64       // share of reports that are dropped, 0 to 1; never more than maxLost in a row
	Seed         uint64        // seed of that choice
	Resend       time.Duration // a full report is repeated after this
	Timeout      time.Duration // health check timeout of every device, whole seconds; 0 leaves it to the kubelet
}

// Defaults returns the configuration of a profile: two whole devices, no
// partitions, a report every 5 s.
func Defaults(p Profile) Config {
	c := Config{
		Name: "dra.example.com", Control: "127.0.0.1:0", Devices: 2,
		Profile: Plain, HealthAPI: HealthBoth, CDI: CDIOff, Overlap: OverlapAllow,
		Memory: true, Resend: 5 * time.Second,
	}
	if p == Nasty {
		c.Profile = Nasty
		c.Name = "gpu.nvidia.com"
		c.CDI = CDIClaim
		c.Overlap = OverlapAdmin
		c.OwnTaints = true
		c.Memory = false
		c.UnknownFirst = time.Second
		c.Loss = 0.3
		c.Seed = 1
		c.Resend = time.Second
	}
	return c
}

// poolName is the pool that the driver publishes.
func (c Config) poolName() string {
	if c.Pool != "" {
		return c.Pool
	}
	return c.Node
}

func (c *Config) flags(out io.Writer) *flag.FlagSet {
	fs := flag.NewFlagSet("fakedriver", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.StringVar((*string)(&c.Profile), "profile", string(c.Profile), "defaults of all other flags: nasty or plain")
	fs.StringVar(&c.Name, "driver", c.Name, "driver name")
	fs.StringVar(&c.Node, "node", c.Node, "node name")
	fs.StringVar(&c.Pool, "pool", c.Pool, "pool name, may contain slashes (default: the node's name)")
	fs.StringVar(&c.Kubeconfig, "kubeconfig", c.Kubeconfig, "path of the kubeconfig")
	fs.StringVar(&c.KubeletRoot, "kubelet-root", c.KubeletRoot, "the kubelet's root directory")
	fs.StringVar(&c.CDIDir, "cdi-dir", c.CDIDir, "directory for CDI specs")
	fs.StringVar(&c.StateDir, "state-dir", c.StateDir, "directory for the driver's own files")
	fs.StringVar(&c.Control, "control", c.Control, "loopback address of the HTTP control")
	fs.StringVar(&c.AddressFile, "address-file", c.AddressFile, "file to write the control's address to")
	fs.IntVar(&c.Devices, "devices", c.Devices, "number of whole devices")
	fs.IntVar(&c.Partitions, "partitions", c.Partitions, "partitions beside each whole device")
	fs.StringVar(&c.Instance, "instance", c.Instance, "unique ID of this instance, for a rolling upgrade")
	fs.StringVar((*string)(&c.HealthAPI), "health", string(c.HealthAPI), "health services: both, v1, v1alpha1, none or declined")
	fs.StringVar((*string)(&c.CDI), "cdi", string(c.CDI), "CDI device IDs: off, device or claim")
	fs.StringVar((*string)(&c.Overlap), "overlap", string(c.Overlap), "second Prepare of one device: allow, admin or refuse")
	fs.BoolVar(&c.OwnTaints, "own-taints", c.OwnTaints, "taint devices that are not well")
	fs.BoolVar(&c.Memory, "memory", c.Memory, "remember health and taints over a restart")
	fs.DurationVar(&c.UnknownFirst, "unknown-first", c.UnknownFirst, "how long all devices are Unknown after a stream opened")
	fs.Float64Var(&c.Loss, "loss", c.Loss, "share of reports that are dropped, 0 to 1")
	fs.Uint64Var(&c.Seed, "seed", c.Seed, "seed of the choice of dropped reports")
	fs.DurationVar(&c.Resend, "resend", c.Resend, "time after which a report is repeated")
	fs.DurationVar(&c.Timeout, "timeout", c.Timeout, "health check timeout of every device, 0 for the kubelet's default")
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
	c.Profile = probe.Profile
	fs := c.flags(out)
	if err := fs.Parse(args); err != nil {
		return Config{}, err
	}
	if fs.NArg() > 0 {
		return Config{}, fmt.Errorf("unexpected argument %q: fakedriver takes flags only", fs.Arg(0))
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
	need := func(flag, value string) {
		if value == "" {
			errs = append(errs, fmt.Errorf("-%s is not set: it is needed", flag))
		}
	}
	oneOf := func(flag, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			errs = append(errs, fmt.Errorf("-%s is %q: allowed are %q", flag, value, allowed))
		}
	}
	need("driver", c.Name)
	need("node", c.Node)
	need("kubeconfig", c.Kubeconfig)
	need("kubelet-root", c.KubeletRoot)
	need("state-dir", c.StateDir)
	if c.CDI != CDIOff {
		need("cdi-dir", c.CDIDir)
	}
	oneOf("profile", string(c.Profile), string(Nasty), string(Plain))
	oneOf("health", string(c.HealthAPI), string(HealthBoth), string(HealthV1), string(HealthV1alpha1), string(HealthNone), string(HealthDeclined))
	oneOf("cdi", string(c.CDI), string(CDIOff), string(CDIDevice), string(CDIClaim))
	oneOf("overlap", string(c.Overlap), string(OverlapAllow), string(OverlapAdmin), string(OverlapRefuse))
	if c.Loss < 0 || c.Loss > 1 {
		errs = append(errs, fmt.Errorf("-loss is %s: allowed is 0 to 1", strconv.FormatFloat(c.Loss, 'g', -1, 64)))
	}
	if c.Devices < 0 || c.Devices > maxDevices {
		errs = append(errs, fmt.Errorf("-devices is %d: allowed is 0 to %d", c.Devices, maxDevices))
	}
	if c.Partitions < 0 || c.Partitions > maxPartitions {
		errs = append(errs, fmt.Errorf("-partitions is %d: allowed is 0 to %d", c.Partitions, maxPartitions))
	}
	if c.Partitions > 0 && c.Devices > maxPartitioned {
		errs = append(errs, fmt.Errorf("-devices is %d with partitions: allowed is 0 to %d, one counter set each in one slice", c.Devices, maxPartitioned))
	}
	if c.Resend <= 0 {
		errs = append(errs, fmt.Errorf("-resend is %s: it must be more than zero", c.Resend))
	}
	if c.Timeout%time.Second != 0 {
		errs = append(errs, fmt.Errorf("-timeout is %s: only whole seconds reach the kubelet", c.Timeout))
	}
	return errors.Join(errs...)
}
