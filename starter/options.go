package starter

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/pkg/telemetry"
)

// UnknownPolicy says what Unknown means where a driver never reported any health
// on a node: most such drivers have no health service.
type UnknownPolicy string

const (
	// UnknownAuto opens a case only where the driver's health was known on that
	// node before. The rest is counted as unmonitored. This is the default.
	UnknownAuto UnknownPolicy = "auto"
	// UnknownIgnore never opens a case for Unknown.
	UnknownIgnore UnknownPolicy = "ignore"
	// UnknownFault opens a case for Unknown even if nothing else was ever known.
	UnknownFault UnknownPolicy = "fault"
)

// DriverPolicy is what an operator says of one DRA driver or extended resource.
type DriverPolicy struct {
	Unknown UnknownPolicy
	// HidesAllocated: the driver takes devices out of its slices while they are
	// allocated (some network drivers do). A device that is allocated and not
	// listed is in use then, and not missing.
	HidesAllocated bool
	// HeartbeatLimit is how long a node's Lease may stand still before nothing that
	// was read of the driver's devices there is believed. Zero is what Timing says.
	HeartbeatLimit time.Duration
}

// Timing holds all the starter's waits. The zero value of each means its default.
type Timing struct {
	// Lease is how long a leader that fell silent keeps others waiting; Renew is
	// when it gives up by itself, Retry how often it renews. Defaults 8 s, 5 s, 1 s.
	Lease, Renew, Retry time.Duration
	// Quiet is how long nothing may change after a start or a relist before
	// levels are compared; SettleLimit bounds the wait. Defaults 500 ms, 5 s.
	Quiet, SettleLimit time.Duration
	// SyncLimit is how long to wait for claims, slices, nodes and marks at the
	// start; Pods are waited for without limit. Default 30 s.
	SyncLimit time.Duration
	// InventoryQuiet is how long a pool's slices have to stay unchanged before
	// the pool is judged. Default 1 s.
	InventoryQuiet time.Duration
	// PluginAway is how long nothing of a resource may be allocatable on a node before
	// what Pods there say of its devices isn't believed any more: a kubelet that
	// restarts and a plugin that is replaced look like a dead one. Default 30 s.
	PluginAway time.Duration
	// DriverAway is the same for a pool whose slices are gone or incomplete. Default
	// 2 min: a kubelet that starts deletes them, and drivers publish them again.
	DriverAway time.Duration
	// Heartbeats is how often the Leases of nodes are listed. Default 15 s; kubelets
	// renew them every 10 s.
	Heartbeats time.Duration
	// HeartbeatLimit holds for drivers of which DriverPolicy says nothing. Default 50 s.
	HeartbeatLimit time.Duration
	// NodeReturn is how long a node that was out has to be back before what is read
	// on it counts. Default 30 s.
	NodeReturn time.Duration
	// Return is how long a driver that hides what is allocated has to list a device
	// again that was given back. Default 30 s.
	Return time.Duration
	// Send bounds one call to Temporal. Default 5 s.
	Send time.Duration
	// RetryFirst and RetryMax bound the exponential backoff of what may work
	// later, RetryRefused is the pause after what was refused. Defaults 100 ms,
	// 5 s, 1 min.
	RetryFirst, RetryMax, RetryRefused time.Duration
	// Recheck is how often every mark is checked for its case. Default 30 s.
	Recheck time.Duration
	// Poke is how often the kubelet of each watch Pod is asked for a reading of now.
	// Default 1 min.
	Poke time.Duration
	// Rediscover is how often the API server is asked whether it serves device
	// taint rules by now. Default 1 min.
	Rediscover time.Duration
	// MemoryFirst is how long a starter leads before it first writes down who reported
	// health, MemoryEvery how long after that it waits before it does again. Defaults
	// 10 s, 1 min.
	MemoryFirst, MemoryEvery time.Duration
	// Drain bounds the sending of what is queued when the starter ends. Default 10 s.
	Drain time.Duration
	// Standby is how long one that doesn't lead remembers what an ended Pod said,
	// in case the leader fails before it told. Default 1 min.
	Standby time.Duration
}

func (t Timing) withDefaults() Timing {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Lease, 8 * time.Second}, {&t.Renew, 5 * time.Second}, {&t.Retry, time.Second},
		{&t.Quiet, 500 * time.Millisecond}, {&t.SettleLimit, 5 * time.Second}, {&t.SyncLimit, 30 * time.Second},
		{&t.InventoryQuiet, time.Second}, {&t.PluginAway, 30 * time.Second}, {&t.DriverAway, 2 * time.Minute},
		{&t.Heartbeats, 15 * time.Second}, {&t.HeartbeatLimit, 50 * time.Second}, {&t.NodeReturn, 30 * time.Second},
		{&t.Return, 30 * time.Second}, {&t.Send, 5 * time.Second},
		{&t.RetryFirst, 100 * time.Millisecond}, {&t.RetryMax, 5 * time.Second}, {&t.RetryRefused, time.Minute},
		{&t.Recheck, 30 * time.Second}, {&t.Poke, time.Minute}, {&t.Rediscover, time.Minute},
		{&t.MemoryFirst, 10 * time.Second}, {&t.MemoryEvery, time.Minute},
		{&t.Drain, 10 * time.Second}, {&t.Standby, time.Minute},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return t
}

func (t Timing) validate() error {
	var errs []error
	if t.Lease <= t.Renew || t.Renew <= t.Retry {
		errs = append(errs, fmt.Errorf("timing: want lease %s > renew %s > retry %s", t.Lease, t.Renew, t.Retry))
	}
	if t.RetryMax < t.RetryFirst {
		errs = append(errs, fmt.Errorf("timing: want retry max %s at least retry first %s", t.RetryMax, t.RetryFirst))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"retry", t.Retry}, {"quiet", t.Quiet}, {"settle limit", t.SettleLimit}, {"sync limit", t.SyncLimit},
		{"inventory quiet", t.InventoryQuiet}, {"plugin away", t.PluginAway}, {"driver away", t.DriverAway},
		{"heartbeats", t.Heartbeats}, {"heartbeat limit", t.HeartbeatLimit}, {"node return", t.NodeReturn},
		{"return", t.Return}, {"send", t.Send}, {"retry first", t.RetryFirst}, {"retry refused", t.RetryRefused},
		{"recheck", t.Recheck}, {"poke", t.Poke}, {"rediscover", t.Rediscover}, {"memory first", t.MemoryFirst}, {"memory every", t.MemoryEvery}, {"drain", t.Drain}, {"standby", t.Standby},
	} {
		if d.value <= 0 {
			errs = append(errs, fmt.Errorf("timing: %s %s: want more than zero", d.name, d.value))
		}
	}
	return errors.Join(errs...)
}

// Options is everything a starter needs.
type Options struct {
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	Cases      Cases
	Answers    Answers
	// Incidents keeps many devices at once from becoming cases one by one, by Storm; nil
	// is nobody.
	Incidents Incidents
	Storm     Storm
	// Budgets is told which marks exist; nil is nobody.
	Budgets Budgets
	// Upgrades says which drivers are being upgraded; nil is nobody.
	Upgrades Upgrades
	// Ahead makes the marks of many faults at once ahead of their cases; nil is nobody.
	Ahead Ahead
	// Isolations is told what the devices of a node are like that NodePolicy isolates; nil is
	// nobody.
	Isolations Isolations
	NodePolicy func() isolation.Policy
	// Overview tells a starter that begins to lead which devices have a case already, so
	// that it takes what these know for no storm; nil tells nothing.
	Overview Overview
	// Counter counts open cases, for a metric; nil is not at all.
	Counter    Counter
	Catalogue  *reason.Catalogue
	Log        *slog.Logger
	Registerer prometheus.Registerer
	// Tracer makes the first spans of each epoch's trace. The zero value makes none.
	Tracer telemetry.Tracer
	// Directory is where what is seen of every device is shown; nil is nowhere.
	// Nothing waits for it, and nothing depends on it.
	Directory *directory.Directory
	// Poker asks watch Pods' kubelets for readings of now; nil asks nobody.
	Poker *kube.Poker
	// Ours is where Sickbay's own claims and Pods are; nothing there holds a device.
	Ours device.Ours
	// Clock defaults to the real one.
	Clock clock.WithTicker
	// Identity names this process among the starters; Namespace and LeaseName
	// name the Lease that they share. LeaseName defaults to "sickbay-starter".
	Identity, Namespace, LeaseName string
	// Alone is set where no other starter runs: there is no election then, it
	// leads from the start, and nothing at all is written to the cluster.
	Alone bool
	// Workers is how many signals may be under way at once. Default 8.
	Workers int
	// CheckRate bounds the checks for marks without a case, per second. Default 20.
	CheckRate int
	// Drivers holds what an operator says of drivers, by DRA driver name or
	// extended resource name.
	Drivers map[string]DriverPolicy
	// Delay is how long after the fact an entry of a driver may still say what was, as the
	// policy has it now. Default 2 min for each.
	Delay func(driver string) time.Duration
	// Governed is what the policy says, so that open cases learn of a change; nil tells
	// them nothing.
	Governed Governed
	Timing   Timing
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.LeaseName == "" {
		o.LeaseName = "sickbay-starter"
	}
	if o.Workers == 0 {
		o.Workers = 8
	}
	if o.CheckRate == 0 {
		o.CheckRate = 20
	}
	if o.Storm.Thresholds == (incident.Thresholds{}) {
		o.Storm.Thresholds = incident.DefaultThresholds()
	}
	if o.Delay == nil {
		o.Delay = func(string) time.Duration { return 2 * time.Minute }
	}
	if o.NodePolicy == nil {
		o.NodePolicy = isolation.DefaultPolicy
	}
	o.Timing = o.Timing.withDefaults()
	return o
}

// Validate names everything that is missing or wrong, all at once.
func (o Options) Validate() error {
	var errs []error
	for _, need := range []struct {
		missing bool
		name    string
	}{
		{o.Kubernetes == nil, "Kubernetes"}, {o.Dynamic == nil, "Dynamic"}, {o.Cases == nil, "Cases"},
		{o.Catalogue == nil, "Catalogue"}, {o.Log == nil, "Log"}, {o.Registerer == nil, "Registerer"},
		{o.Identity == "" && !o.Alone, "Identity"}, {o.Namespace == "" && !o.Alone, "Namespace"},
	} {
		if need.missing {
			errs = append(errs, fmt.Errorf("starter option %s is missing", need.name))
		}
	}
	if o.Workers < 0 {
		errs = append(errs, fmt.Errorf("starter option Workers is %d; want at least 1", o.Workers))
	}
	if o.CheckRate < 0 {
		errs = append(errs, fmt.Errorf("starter option CheckRate is %d; want at least 1 per second", o.CheckRate))
	}
	if err := o.withDefaults().Storm.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("starter option Storm: %w", err))
	}
	if o.Storm.Gather < 0 || o.Storm.Window < 0 {
		errs = append(errs, fmt.Errorf("starter option Storm: gather %s, window %s: want none below zero", o.Storm.Gather, o.Storm.Window))
	}
	for _, driver := range slices.Sorted(maps.Keys(o.Drivers)) {
		switch policy := o.Drivers[driver]; policy.Unknown {
		case "", UnknownAuto, UnknownIgnore, UnknownFault:
		default:
			errs = append(errs, fmt.Errorf("policy of driver %s: unknown %q; want auto, ignore or fault", driver, policy.Unknown))
		}
	}
	return errors.Join(append(errs, o.Answers.validate(), o.Timing.withDefaults().validate())...)
}

// heartbeatLimit is how long the Lease of a node may stand still for a driver.
func (t *tracker) heartbeatLimit(driver string) time.Duration {
	if own := t.drivers[driver].HeartbeatLimit; own > 0 {
		return own
	}
	return t.timing.HeartbeatLimit
}
