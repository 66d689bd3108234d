package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/incident"
)

// Starter is the configuration of `sickbay starter`.
type Starter struct {
	Service
	PolicyPlace
	ProbePlace
	Storm
	SettleQuiet    time.Duration   `split_words:"true" default:"500ms" min:"1ms" max:"1m" desc:"How long nothing may change after the starter began or listed anew, before it compares what it knows and signals."`
	SettleLimit    time.Duration   `split_words:"true" default:"5s" min:"1ms" max:"10m" desc:"How long it waits for that quiet at most."`
	PluginAway     time.Duration   `split_words:"true" default:"30s" min:"1s" max:"10m" desc:"How long nothing of a device-plugin resource may be allocatable on a node before its devices in use count as Unknown. A kubelet that restarts and a plugin that is replaced look like a dead one for that long."`
	DriverAway     time.Duration   `split_words:"true" default:"2m" min:"1s" max:"1h" desc:"How long the slices of a DRA driver may be gone or incomplete before a Healthy of its devices in use counts as Unknown. A kubelet that starts deletes them all, and the driver has to publish them again."`
	HeartbeatLimit DriverDurations `split_words:"true" default:"50s" min:"30s" max:"1h" desc:"How long the Lease of a node may stand still before nothing that was read on it is believed, for all drivers and for single ones. Kubelets renew it every 10 s, and it is looked at every 15 s."`
	NodeReturn     time.Duration   `split_words:"true" default:"30s" min:"1s" max:"10m" desc:"How long a node that was out has to be back before what is read on it counts again. A kubelet that starts wipes slices and forgets health."`
	MarkCheck      time.Duration   `split_words:"true" default:"30s" min:"1s" max:"1h" desc:"How often every mark is checked for its case; one without gets its case back."`
	WatchPoke      time.Duration   `split_words:"true" default:"1m" min:"5s" max:"1h" desc:"How often the kubelet of each watch Pod is asked for a reading of now, where SICKBAY_WATCH_NAMESPACE is set. A driver that fell silent shows within its own timeout and this."`
	Drain          time.Duration   `split_words:"true" default:"10s" min:"1s" max:"10m" desc:"How long what is queued may take to be sent after SIGTERM. The Pod's grace period has to be longer."`
	SignalWorkers  int             `split_words:"true" default:"8" min:"1" max:"256" desc:"Signals to Temporal under way at once."`
	LeaderElection LeaderElection  `split_words:"true"`
	UnknownPolicy  UnknownPolicies `split_words:"true" desc:"What Unknown means where a driver never reported any health on a node, by DRA driver or extended resource. auto: no case, counted as unmonitored; ignore: never a case; fault: a case. Those not named are auto."`
	HidesAllocated DriverList      `split_words:"true" desc:"DRA drivers that take devices out of their slices while they are allocated. A device that is allocated and not listed is then in use and not missing."`
}

func (s *Starter) check() []error { return s.Service.check() }

// Storm says when many devices at once are one incident: starter.Storm as variables.
type Storm struct {
	StormGather      time.Duration `split_words:"true" default:"10s" min:"1ms" max:"5m" desc:"How long an Unknown waits before it may open a case, so that a storm is seen before any of its cases is opened. Faults never wait for it."`
	StormDevices     int           `split_words:"true" default:"16" min:"1" max:"1000000" desc:"So many Unknown devices of a driver, on several nodes, are one incident."`
	StormPercent     int           `split_words:"true" default:"20" min:"1" max:"100" desc:"So many percent of a driver's devices are one, too, if that is less; at least 4 devices."`
	StormNodePercent int           `split_words:"true" default:"50" min:"1" max:"100" desc:"So many percent of a node's devices of one driver are an incident of the node; at least SICKBAY_STORM_NODE_DEVICES."`
	StormNodeDevices int           `split_words:"true" default:"3" min:"1" max:"1000000" desc:"Fewer Unknown devices than this are never an incident of their node."`
	CrowdDevices     int           `split_words:"true" default:"8" min:"1" max:"1000000" desc:"So many devices of a driver, on several nodes, may become Unhealthy within SICKBAY_CROWD_WITHIN and are marked at once. Those beyond are held and asked about."`
	CrowdPercent     int           `split_words:"true" default:"10" min:"1" max:"100" desc:"So many percent of a driver's devices may, too, if that is more."`
	CrowdWithin      time.Duration `split_words:"true" default:"1m" min:"1s" max:"1h" desc:"How close together faults are a crowd."`
	CrowdNodePercent int           `split_words:"true" default:"50" min:"1" max:"100" desc:"So many percent of a node's devices of one driver that become Unhealthy within 30s are one incident, at least 4 devices. Each is marked at once."`
}

// Thresholds are the variables as pkg/incident takes them.
func (s Storm) Thresholds() incident.Thresholds {
	t := incident.DefaultThresholds()
	t.Devices, t.Percent, t.NodePercent, t.NodeFloor = s.StormDevices, s.StormPercent, s.StormNodePercent, s.StormNodeDevices
	t.CrowdDevices, t.CrowdPercent, t.CrowdWithin, t.CrowdNodePercent = s.CrowdDevices, s.CrowdPercent, s.CrowdWithin, s.CrowdNodePercent
	return t
}

// LeaderElection says by which Lease one of several starters is the active one.
type LeaderElection struct {
	Enabled   bool   `split_words:"true" default:"true" desc:"Take part in the election of the active starter. false: this is the only one; it then writes nothing at all into the cluster, and who ever reported health is forgotten when it restarts."`
	Namespace string `split_words:"true" form:"name" desc:"Namespace of the Lease by which one of several starters is the active one. Empty: the Pod's own, else the kubeconfig's."`
	Name      string `split_words:"true" default:"sickbay-starter" form:"name" desc:"Name of that Lease."`
}

// DriverList holds the names of drivers.
type DriverList []string

func (DriverList) allowed() string { return "a list like nic.example.com,dpu.example.com" }

// Decode reads the list. envconfig calls it.
func (l *DriverList) Decode(text string) error {
	var drivers DriverList
	for entry := range strings.SplitSeq(text, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		if strings.ContainsAny(entry, " =") {
			return fmt.Errorf("%q isn't a driver's name", entry)
		}
		drivers = append(drivers, entry)
	}
	*l = drivers
	return nil
}

// UnknownPolicies maps a driver (or, on the device-plugin path, a resource name)
// to what its Unknown means.
type UnknownPolicies map[string]string

func unknownChoices() []string { return []string{"auto", "ignore", "fault"} }

func (UnknownPolicies) allowed() string {
	return "a list like gpu.example.com=ignore,nic.example.com=fault, each " + oneOf(unknownChoices())
}

// Decode reads the list. envconfig calls it.
func (p *UnknownPolicies) Decode(text string) error {
	policies := UnknownPolicies{}
	for entry := range strings.SplitSeq(text, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		driver, policy, _ := strings.Cut(entry, "=")
		driver, policy = strings.TrimSpace(driver), strings.TrimSpace(policy)
		if _, twice := policies[driver]; twice {
			return fmt.Errorf("%s stands twice", driver)
		}
		if driver == "" || !slices.Contains(unknownChoices(), policy) {
			return fmt.Errorf("%q isn't driver=policy", entry)
		}
		policies[driver] = policy
	}
	*p = policies
	return nil
}
