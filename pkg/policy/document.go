package policy

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

const (
	// APIVersion and Kind are what every policy begins with.
	APIVersion = "sickbay.dev/v1"
	Kind       = "Policy"
	// ConfigMapName and ConfigMapKey are where it stands, in Sickbay's namespace.
	ConfigMapName = "sickbay-policy"
	ConfigMapKey  = "policy.yaml"
)

// Document is a policy as it is written. What isn't said is nil.
type Document struct {
	APIVersion string `yaml:"apiVersion" oneof:"sickbay.dev/v1" desc:"Form of this object."`
	Kind       string `yaml:"kind" oneof:"Policy" desc:"What it is."`
	// Mode, Quarantine and ReportingDelay hold for all devices.
	Mode           *quarantine.Mode `yaml:"mode,omitempty" oneof:"observe enforce" env:"SICKBAY_MODE" desc:"observe changes nothing in the cluster and shows what would be done; enforce makes marks."`
	Quarantine     *Quarantine      `yaml:"quarantine,omitempty" desc:"How cases go on."`
	ReportingDelay *Duration        `yaml:"reportingDelay,omitempty" min:"1s" max:"1h" env:"SICKBAY_REPORTING_DELAY" desc:"How long after the fact the health in a Pod's status may still be the old one. Health that comes back has to stay good for no shorter than that."`
	Incidents      *Incidents       `yaml:"incidents,omitempty" desc:"How long many devices at once are held."`
	Budgets        *Budgets         `yaml:"budgets,omitempty" desc:"How many devices may be kept out at once."`
	Returns        *Returns         `yaml:"returns,omitempty" desc:"How many devices that are proven healthy come back at once."`
	Nodes          *Nodes           `yaml:"nodes,omitempty" desc:"When a whole node is isolated. It goes by mode above, and not by that of a driver or a class."`
	Recovery       *Recovery        `yaml:"recovery,omitempty" desc:"By what a device is proven healthy before it is given back."`
	// Drivers and Classes hold for some of them.
	Drivers map[string]*Driver `yaml:"drivers,omitempty" desc:"What holds for the devices of single drivers, by the name of the DRA driver or of the device plugin's resource."`
	Classes map[string]*Class  `yaml:"classes,omitempty" desc:"What holds for the devices of single classes, by the name of the DeviceClass or of the device plugin's resource."`
}

// Driver is what is said of a driver's devices.
type Driver struct {
	Mode           *quarantine.Mode `yaml:"mode,omitempty" oneof:"observe enforce" desc:"As above, for these devices."`
	Quarantine     *Quarantine      `yaml:"quarantine,omitempty" desc:"As above, for these devices."`
	ReportingDelay *Duration        `yaml:"reportingDelay,omitempty" min:"1s" max:"1h" desc:"As above, for these devices."`
	Recovery       *Recovery        `yaml:"recovery,omitempty" desc:"As above, for these devices."`
}

// Class is what is said of a class's devices.
type Class struct {
	Mode       *quarantine.Mode `yaml:"mode,omitempty" oneof:"observe enforce" desc:"As above, for these devices."`
	Quarantine *Quarantine      `yaml:"quarantine,omitempty" desc:"As above, for these devices."`
	Budget     *Limit           `yaml:"budget,omitempty" desc:"How many of the class, in place of budgets.class."`
	Recovery   *Recovery        `yaml:"recovery,omitempty" desc:"As above, for these devices."`
}

// Quarantine is the operator's part of quarantine.Policy: each field is that of the same
// name.
type Quarantine struct {
	Grace             *Duration `yaml:"grace,omitempty" min:"1s" max:"24h" env:"SICKBAY_GRACE" desc:"How long Unknown, or a reason that only raises suspicion, is waited out."`
	RecheckFirst      *Duration `yaml:"recheckFirst,omitempty" min:"1s" max:"1h" env:"SICKBAY_RECHECK_FIRST" desc:"First pause between two live looks at a device; it doubles up to recheckMax."`
	RecheckMax        *Duration `yaml:"recheckMax,omitempty" min:"1s" max:"6h" env:"SICKBAY_RECHECK_MAX" desc:"Longest pause between two live looks at a suspect. Where it is less than recheckFirst, recheckFirst holds."`
	Hysteresis        *Duration `yaml:"hysteresis,omitempty" min:"1s" max:"24h" env:"SICKBAY_HYSTERESIS" desc:"How long a suspect's health has to stay good before its case ends. Below 90s it flaps: the kubelet shows a driver's silence that late."`
	Stability         *Duration `yaml:"stability,omitempty" min:"1s" max:"168h" env:"SICKBAY_STABILITY" desc:"How long a device has to stay healthy, on fresh evidence, before it is given back; and before an advisory or observed case ends."`
	Lease             *Duration `yaml:"lease,omitempty" min:"1s" max:"168h" env:"SICKBAY_LEASE" desc:"How long a quarantine's record is valid. At its end the case looks again; the device is never freed by it."`
	CoolDown          *Duration `yaml:"coolDown,omitempty" min:"1s" max:"168h" env:"SICKBAY_COOL_DOWN" desc:"How long a device rests after its last holder left."`
	MarkRetry         *Duration `yaml:"markRetry,omitempty" min:"1s" max:"1h" env:"SICKBAY_MARK_RETRY" desc:"Longest pause between two tries at a mark that was refused."`
	SettlePool        *Duration `yaml:"settlePool,omitempty" min:"1s" max:"24h" env:"SICKBAY_SETTLE_POOL" desc:"How long a complete pool has to be without a device before it counts as gone."`
	SettlePoolGone    *Duration `yaml:"settlePoolGone,omitempty" min:"1s" max:"24h" env:"SICKBAY_SETTLE_POOL_GONE" desc:"The same where all slices of the pool are gone; a kubelet that restarts deletes them."`
	SettleAllocatable *Duration `yaml:"settleAllocatable,omitempty" min:"1s" max:"24h" env:"SICKBAY_SETTLE_ALLOCATABLE" desc:"The same where a node offers fewer devices of a device-plugin resource."`
	SettleNode        *Duration `yaml:"settleNode,omitempty" min:"1s" max:"24h" env:"SICKBAY_SETTLE_NODE" desc:"The same where the node is deleted."`
	Forget            *Duration `yaml:"forget,omitempty" min:"1s" max:"8760h" env:"SICKBAY_FORGET" desc:"How long the mark of a device that is gone is kept."`
	FlapLimit         *int      `yaml:"flapLimit,omitempty" min:"2" max:"100" env:"SICKBAY_FLAP_LIMIT" desc:"How many times a device may go Unknown within flapWindow. The last of them is a case of a flapping device, which wants stability in place of hysteresis."`
	FlapWindow        *Duration `yaml:"flapWindow,omitempty" min:"1m" max:"720h" env:"SICKBAY_FLAP_WINDOW" desc:"How long it is remembered that a device went Unknown."`
	ProveWithin       *Duration `yaml:"proveWithin,omitempty" min:"10s" max:"24h" env:"SICKBAY_PROVE_WITHIN" desc:"How long an attempt at recovery waits to see its device healthy on its own claim."`
	ProbeWithin       *Duration `yaml:"probeWithin,omitempty" min:"10s" max:"24h" env:"SICKBAY_PROBE_WITHIN" desc:"How long a probe may take, from the making of its Job."`
	CanaryWithin      *Duration `yaml:"canaryWithin,omitempty" min:"10s" max:"168h" env:"SICKBAY_CANARY_WITHIN" desc:"How long a canary may take, from the making of its Job: longer than its load runs."`
	Attempts          *int      `yaml:"attempts,omitempty" min:"1" max:"100" env:"SICKBAY_ATTEMPTS" desc:"How many attempts at recovery may fail before the device is retired."`
	AttemptPause      *Duration `yaml:"attemptPause,omitempty" min:"1s" max:"168h" env:"SICKBAY_ATTEMPT_PAUSE" desc:"How long a device rests after the first attempt that failed; twice as long after each further one."`
	AttemptPauseMax   *Duration `yaml:"attemptPauseMax,omitempty" min:"1s" max:"720h" env:"SICKBAY_ATTEMPT_PAUSE_MAX" desc:"Longest rest between two attempts. Where it is less than attemptPause, attemptPause holds."`
	RelapseWatch      *Duration `yaml:"relapseWatch,omitempty" min:"1s" max:"720h" env:"SICKBAY_RELAPSE_WATCH" desc:"How long after it was given back a fault counts against a device: it rests longer then."`
}

// Incidents is the operator's part of incident.Policy: each field is that of the same
// name.
type Incidents struct {
	Max       *Duration `yaml:"max,omitempty" min:"1s" max:"24h" env:"SICKBAY_INCIDENT_MAX" desc:"How long an incident of a driver or of the cluster holds its devices. After that it asks, and lets them through one by one."`
	MaxNode   *Duration `yaml:"maxNode,omitempty" min:"1s" max:"24h" env:"SICKBAY_INCIDENT_MAX_NODE" desc:"The same for an incident on a node."`
	Pace      *Duration `yaml:"pace,omitempty" min:"1s" max:"24h" env:"SICKBAY_INCIDENT_PACE" desc:"Time between two Unknown devices that an incident lets through past its maximum."`
	CrowdPace *Duration `yaml:"crowdPace,omitempty" min:"1s" max:"24h" env:"SICKBAY_CROWD_PACE" desc:"Time between two devices that are marked of a driver's crowd of Unhealthy ones."`
	Calm      *Duration `yaml:"calm,omitempty" min:"1s" max:"1h" env:"SICKBAY_INCIDENT_CALM" desc:"How long less than half of what makes an incident has to be left before it is over. Below 90s it flaps."`
}

// Budgets is budget.Limits, but for single classes: those stand with their class.
type Budgets struct {
	Cluster *Limit    `yaml:"cluster,omitempty" env:"SICKBAY_BUDGET_CLUSTER" desc:"How many of all devices."`
	Class   *Limit    `yaml:"class,omitempty" env:"SICKBAY_BUDGET_CLASS" desc:"How many of each class that classes says nothing of."`
	Tenant  *Limit    `yaml:"tenant,omitempty" env:"SICKBAY_BUDGET_TENANT" desc:"How many of each tenant's."`
	Node    *Limit    `yaml:"node,omitempty" env:"SICKBAY_BUDGET_NODE" desc:"How many of each node's."`
	Pace    *Duration `yaml:"pace,omitempty" min:"1s" max:"1h" whole:"1s" env:"SICKBAY_BUDGET_PACE" desc:"How far apart two of a class are let in that waited, once a budget opens again."`
}

// Nodes is the operator's part of isolation.Policy: each field is that of the same name.
type Nodes struct {
	Isolate      *isolation.Way `yaml:"isolate,omitempty" oneof:"off taint cordon" default:"off" desc:"How a node is isolated: by a taint of Sickbay's with effect NoSchedule, or by a cordon. off isolates none, and gives back those that Sickbay isolated."`
	Devices      *int           `yaml:"devices,omitempty" min:"1" max:"10000" default:"2" desc:"How many of a node's devices have to be faulty at least, and"`
	Percent      *float64       `yaml:"percent,omitempty" min:"0.01" max:"100" default:"50" desc:"how many percent of them at least, for the node to be isolated."`
	Conditions   []string       `yaml:"conditions,omitempty" items:"condition" most:"32" never:"Ready" default:"none" desc:"Conditions of a node that isolate it while they are True, whatever its devices are like."`
	WithoutMarks *bool          `yaml:"withoutMarks,omitempty" oneof:"true false" default:"false" desc:"true: one faulty device isolates its node where nothing can keep a single device out: one of a device plugin, or where DeviceTaintRule isn't served."`
	Calm         *Duration      `yaml:"calm,omitempty" min:"1s" max:"168h" default:"10m" desc:"How long nothing of this may hold before the node is given back."`
}

// Recovery is the operator's part of ProbeSettings. What isn't said of a field is nil; an
// empty list says that there is none.
type Recovery struct {
	Class    *string   `yaml:"class,omitempty" form:"class" default:"one by which the device was claimed, or else the class that has its driver's name" desc:"DeviceClass by which Sickbay's own claim asks for the device."`
	Tolerate *[]string `yaml:"tolerate,omitempty" items:"taint" most:"16" never:"sickbay.dev/" default:"none" desc:"Keys of the driver's own taints that Sickbay's claim may have on the device. Any other keeps it out, and the attempt waits until it is gone."`
	Probe    *Program  `yaml:"probe,omitempty" desc:"The program that looks for what is wrong with the device. Exit code 0 is passed. It is said as a whole: what a class says of it replaces all that the driver or the policy says."`
	Canary   *Program  `yaml:"canary,omitempty" desc:"The same, of the small load that runs on the device for a while."`
}

// Program is what is run on a device in a Pod of Sickbay's.
type Program struct {
	Image   *string   `yaml:"image,omitempty" form:"image" default:"Sickbay's own, of SICKBAY_PROBE_IMAGE" desc:"Its image; best one with a digest."`
	Command *[]string `yaml:"command,omitempty" items:"text" most:"64" default:"the image's own" desc:"Program and first arguments in place of the image's own entrypoint. Only beside an image."`
	Args    *[]string `yaml:"args,omitempty" items:"text" most:"64" default:"the image's own; of Sickbay's none, and for the canary --for 5m" desc:"Its arguments; of Sickbay's own image those of sickbay probe."`
}

// Returns is budget.ReturnLimits.
type Returns struct {
	PerNode  *int      `yaml:"perNode,omitempty" min:"1" max:"1000" env:"SICKBAY_RETURN_PER_NODE" desc:"How many of each node's."`
	PerClass *int      `yaml:"perClass,omitempty" min:"1" max:"1000" env:"SICKBAY_RETURN_PER_CLASS" desc:"How many of each class."`
	Cluster  *int      `yaml:"cluster,omitempty" min:"1" max:"1000" env:"SICKBAY_RETURN_CLUSTER" desc:"How many of all devices."`
	Settle   *Duration `yaml:"settle,omitempty" min:"1s" max:"24h" whole:"1s" env:"SICKBAY_RETURN_SETTLE" desc:"How long a device counts as coming back. What fails again in that time stops the returns of its class for the rest of it."`
}

// Limit is budget.Limit.
type Limit struct {
	None    *bool    `yaml:"none,omitempty" oneof:"true false" desc:"true: no limit at all; then nothing else of it is said."`
	Percent *float64 `yaml:"percent,omitempty" min:"0.01" max:"100" desc:"So many percent of the eligible devices, rounded down."`
	Max     *int     `yaml:"max,omitempty" min:"1" max:"1000000" desc:"The most, whatever the percentage says."`
	Min     *int     `yaml:"min,omitempty" min:"1" max:"1000000" desc:"The least, whatever the percentage says."`
}

// Duration is a duration that is written as people write it: 30s, 5m, 1h30m.
type Duration time.Duration

// String leaves out what is zero at the end: 1h, and not 1h0m0s.
func (d Duration) String() string {
	text := time.Duration(d).String()
	if whole, ok := strings.CutSuffix(text, "m0s"); ok {
		text = whole + "m"
	}
	if whole, ok := strings.CutSuffix(text, "h0m"); ok {
		text = whole + "h"
	}
	return text
}

// MarshalYAML implements yaml.Marshaler.
func (d Duration) MarshalYAML() (any, error) { return d.String(), nil }

// Text is the document as Parse reads it.
func (d *Document) Text() ([]byte, error) {
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	err := errors.Join(encoder.Encode(d), encoder.Close())
	return text.Bytes(), err
}
