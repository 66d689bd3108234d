package config

import (
	"fmt"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// Worker is the configuration of `sickbay worker`.
type Worker struct {
	Service
	PolicyPlace
	Governing
	StopTimeout time.Duration `split_words:"true" default:"25s" min:"1s" max:"10m" desc:"How long activities under way may take to end after SIGTERM. The Pod's grace period has to be longer."`
}

// Incidents is the operator's part of incidents: incident.Policy as variables.
type Incidents struct {
	IncidentMax     time.Duration `split_words:"true" default:"1h" min:"1s" max:"24h" desc:"How long an incident of a driver or of the cluster holds its devices. After that it asks, and lets them through one by one."`
	IncidentMaxNode time.Duration `split_words:"true" default:"15m" min:"1s" max:"24h" desc:"The same for an incident on a node."`
	IncidentPace    time.Duration `split_words:"true" default:"30s" min:"1s" max:"24h" desc:"Time between two Unknown devices that an incident lets through past its maximum."`
	IncidentCalm    time.Duration `split_words:"true" default:"2m" min:"1s" max:"1h" desc:"How long less than half of what makes an incident has to be left before it is over. Below 90s it flaps: the kubelet shows a driver's silence that late. For a driver that SICKBAY_REPORTING_DELAY names it is no shorter than that."`
	CrowdPace       time.Duration `split_words:"true" default:"10s" min:"1s" max:"24h" desc:"Time between two devices that are marked of a driver's crowd of Unhealthy ones."`
}

// Storms is the policy as pkg/incident takes it.
func (i Incidents) Storms() incident.Policy {
	return incident.Policy{Max: i.IncidentMax, MaxNode: i.IncidentMaxNode, Pace: i.IncidentPace, CrowdPace: i.CrowdPace, Calm: i.IncidentCalm}
}

// Budgets are how many devices may be kept out at once: budget.Limits as variables.
type Budgets struct {
	BudgetCluster Limit         `split_words:"true" default:"10% min 2" desc:"How many devices may be kept out at once in the whole cluster: a percentage of those that are eligible, rounded down, with a floor and a ceiling if need be, like 10% min 2 max 40. A new mark beyond that waits."`
	BudgetClass   Limit         `split_words:"true" default:"10% min 2" desc:"The same for the devices of one class: a DRA driver's, or those of a device plugin's resource."`
	BudgetNode    Limit         `split_words:"true" default:"none" desc:"The same for the devices of one driver on one node; none is no limit."`
	BudgetTenant  Limit         `split_words:"true" default:"none" desc:"The same for the devices that one namespace's Pods hold; none is no limit. How many those are in all isn't known, so of a percentage only its floor counts."`
	BudgetPace    time.Duration `split_words:"true" default:"10s" min:"0s" max:"1h" desc:"Time between two devices of one class that are let in after they had to wait: a budget that opens again isn't used up at once."`

	ReturnPerNode  int           `split_words:"true" default:"1" min:"1" max:"1000" desc:"How many devices of one node may be coming back at once, of those that are proven healthy (docs/budgets.md)."`
	ReturnPerClass int           `split_words:"true" default:"4" min:"1" max:"1000" desc:"The same of one class."`
	ReturnCluster  int           `split_words:"true" default:"8" min:"1" max:"1000" desc:"The same of the whole cluster."`
	ReturnSettle   time.Duration `split_words:"true" default:"10m" min:"0s" max:"24h" desc:"How long a device counts as coming back from when it is given back. What fails again in that time stops the returns of its class for the rest of it."`
}

// Limits are the limits as pkg/budget takes them.
func (b Budgets) Limits() budget.Limits {
	return budget.Limits{
		Cluster: budget.Limit(b.BudgetCluster), Class: budget.Limit(b.BudgetClass),
		Node: budget.Limit(b.BudgetNode), Tenant: budget.Limit(b.BudgetTenant), Pace: int(b.BudgetPace / time.Second),
		Returns: budget.ReturnLimits{Node: b.ReturnPerNode, Class: b.ReturnPerClass, Cluster: b.ReturnCluster, Settle: int(b.ReturnSettle / time.Second)},
	}
}

// Limit is a budget.Limit in a variable.
type Limit budget.Limit

func (Limit) allowed() string {
	return `a percentage, with a floor and a ceiling if need be, like "10% min 2 max 40", or none`
}

// Decode reads a limit as people write it.
func (l *Limit) Decode(text string) error {
	limit, err := budget.ParseLimit(text)
	*l = Limit(limit)
	return err
}

func (w *Worker) check() []error { return append(w.Service.check(), w.Policy.check()...) }

// Policy is the operator's part of every decision: quarantine.Policy as variables.
type Policy struct {
	Mode              string        `split_words:"true" default:"observe" oneof:"observe enforce" desc:"observe changes nothing in the cluster and shows what would be done; enforce makes marks."`
	Grace             time.Duration `split_words:"true" default:"5m" min:"1s" desc:"How long Unknown, or a reason that only raises suspicion, is waited out."`
	RecheckFirst      time.Duration `split_words:"true" default:"10s" min:"1s" desc:"First pause between two live looks at a device; it doubles up to SICKBAY_RECHECK_MAX."`
	RecheckMax        time.Duration `split_words:"true" default:"2m" min:"1s" desc:"Longest pause between two live looks at a suspect."`
	Hysteresis        time.Duration `split_words:"true" default:"2m" min:"1s" desc:"How long a suspect's health has to stay good before its case ends. Below 90s it flaps: the kubelet shows a driver's silence that late."`
	Stability         time.Duration `split_words:"true" default:"15m" min:"1s" desc:"How long a device has to stay healthy, on fresh evidence, before it is given back; and before an advisory or observed case ends."`
	Lease             time.Duration `split_words:"true" default:"1h" min:"1s" desc:"How long a quarantine's record is valid. At its end the case looks again; the device is never freed by it."`
	CoolDown          time.Duration `split_words:"true" default:"5m" min:"1s" desc:"How long a device rests after its last holder left."`
	MarkRetry         time.Duration `split_words:"true" default:"1m" min:"1s" desc:"Longest pause between two tries at a mark that was refused."`
	SettlePool        time.Duration `split_words:"true" default:"1m" min:"1s" desc:"How long a complete pool has to be without a device before it counts as gone."`
	SettlePoolGone    time.Duration `split_words:"true" default:"5m" min:"1s" desc:"The same where all slices of the pool are gone; a kubelet that restarts deletes them."`
	SettleAllocatable time.Duration `split_words:"true" default:"5m" min:"1s" desc:"The same where a node offers fewer devices of a device-plugin resource."`
	SettleNode        time.Duration `split_words:"true" default:"1m" min:"1s" desc:"The same where the node is deleted."`
	Forget            time.Duration `split_words:"true" default:"72h" min:"1s" desc:"How long the mark of a device that is gone is kept."`
	FlapLimit         int           `split_words:"true" default:"3" min:"2" max:"100" desc:"How many times a device may go Unknown within SICKBAY_FLAP_WINDOW. The last of them is a case of a flapping device: its health has to stay good for SICKBAY_STABILITY, and its window is short."`
	FlapWindow        time.Duration `split_words:"true" default:"1h" min:"1m" max:"720h" desc:"How long it is remembered that a device went Unknown."`

	ProveWithin     time.Duration `split_words:"true" default:"10m" min:"10s" max:"24h" desc:"How long an attempt at recovery waits to see its device healthy on its own claim."`
	ProbeWithin     time.Duration `split_words:"true" default:"15m" min:"10s" max:"24h" desc:"How long a probe may take, from the making of its Job."`
	CanaryWithin    time.Duration `split_words:"true" default:"30m" min:"10s" max:"168h" desc:"How long a canary may take, from the making of its Job: longer than its load runs."`
	Attempts        int           `split_words:"true" default:"5" min:"1" max:"100" desc:"How many attempts at recovery may fail before the device is retired."`
	AttemptPause    time.Duration `split_words:"true" default:"30m" min:"1s" max:"168h" desc:"How long a device rests after the first attempt that failed; twice as long after each further one."`
	AttemptPauseMax time.Duration `split_words:"true" default:"24h" min:"1s" max:"720h" desc:"Longest rest between two attempts."`
	RelapseWatch    time.Duration `split_words:"true" default:"24h" min:"1s" max:"720h" desc:"How long after it was given back a fault counts against a device: it rests longer then."`
}

// Quarantine is the policy as pkg/quarantine takes it.
func (p Policy) Quarantine() quarantine.Policy {
	return quarantine.Policy{
		Rules:             quarantine.Rules,
		Mode:              quarantine.Mode(p.Mode),
		Grace:             p.Grace,
		RecheckFirst:      p.RecheckFirst,
		RecheckMax:        p.RecheckMax,
		Hysteresis:        p.Hysteresis,
		Stability:         p.Stability,
		Lease:             p.Lease,
		CoolDown:          p.CoolDown,
		MarkRetry:         p.MarkRetry,
		SettlePool:        p.SettlePool,
		SettlePoolGone:    p.SettlePoolGone,
		SettleAllocatable: p.SettleAllocatable,
		SettleNode:        p.SettleNode,
		Forget:            p.Forget,
		FlapLimit:         p.FlapLimit,
		FlapWindow:        p.FlapWindow,
		ProveWithin:       p.ProveWithin,
		ProbeWithin:       p.ProbeWithin,
		CanaryWithin:      p.CanaryWithin,
		Attempts:          p.Attempts,
		AttemptPause:      p.AttemptPause,
		AttemptPauseMax:   p.AttemptPauseMax,
		RelapseWatch:      p.RelapseWatch,
	}
}

func (p Policy) check() []error {
	var errs []error
	if p.RecheckMax < p.RecheckFirst {
		errs = append(errs, wrong(fmt.Errorf("SICKBAY_RECHECK_MAX=%s: want at least SICKBAY_RECHECK_FIRST, which is %s", p.RecheckMax, p.RecheckFirst)))
	}
	if p.AttemptPauseMax < p.AttemptPause {
		errs = append(errs, wrong(fmt.Errorf("SICKBAY_ATTEMPT_PAUSE_MAX=%s: want at least SICKBAY_ATTEMPT_PAUSE, which is %s", p.AttemptPauseMax, p.AttemptPause)))
	}
	return errs
}
