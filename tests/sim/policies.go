package main

import (
	"time"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// policy is everything that an operator chooses, and the defaults where they don't.
type policy struct {
	name string
	// late is set where a fault of which its driver says so is not marked at once.
	late       bool
	quarantine quarantine.Policy
	incidents  incident.Policy
	thresholds incident.Thresholds
	storms     bool
	crowds     bool
	gather     time.Duration
	limits     budget.Limits
	// catalogue is what a site lays over the catalogue of reasons.
	catalogue *reason.Overrides
}

// defaults is what holds where the operator says nothing, and marks.
func defaults() policy {
	p := policy{
		name: "defaults", quarantine: quarantine.DefaultPolicy(), incidents: incident.DefaultPolicy(),
		thresholds: incident.DefaultThresholds(), storms: true, crowds: true, gather: 10 * time.Second, limits: budget.DefaultLimits(),
	}
	p.quarantine.Mode = quarantine.ModeEnforce
	return p
}

// but is the defaults with something else.
func but(name string, change func(*policy)) policy {
	p := defaults()
	p.name = name
	change(&p)
	return p
}

func grace(name string, d time.Duration) policy {
	return but(name, func(p *policy) { p.quarantine.Grace = d })
}

func budgetOf(name string, limit budget.Limit) policy {
	return but(name, func(p *policy) { p.limits.Cluster, p.limits.Class = limit, limit })
}

// policies are those that are compared.
func policies() []policy {
	return []policy{
		defaults(),
		grace("grace 1 m", time.Minute),
		grace("grace 15 m", 15*time.Minute),
		but("hysteresis 30 s", func(p *policy) { p.quarantine.Hysteresis = 30 * time.Second }),
		but("hysteresis 10 m", func(p *policy) { p.quarantine.Hysteresis = 10 * time.Minute }),
		but("storm guard off", func(p *policy) { p.storms, p.gather = false, 0 }),
		but("crowd guard off", func(p *policy) { p.crowds = false }),
		but("storms hold 1 h on a node, 4 h else", func(p *policy) { p.incidents.MaxNode, p.incidents.Max = time.Hour, 4*time.Hour }),
		budgetOf("budget none", budget.Limit{None: true}),
		budgetOf("budget 1 %", budget.Limit{Percent: 1, Min: 2}),
		budgetOf("budget 5 %", budget.Limit{Percent: 5, Min: 2}),
		budgetOf("budget 20 %", budget.Limit{Percent: 20, Min: 2}),
		but("node budget 25 %", func(p *policy) { p.limits.Node = budget.Limit{Percent: 25, Min: 1} }),
		but("node budget 50 %", func(p *policy) { p.limits.Node = budget.Limit{Percent: 50, Min: 1} }),
		but(suspectedFirst, func(p *policy) { p.late, p.catalogue = true, suspectFirst() }),
		but(unguarded, func(p *policy) {
			p.storms, p.crowds, p.gather = false, false, 0
			p.limits.Cluster, p.limits.Class = budget.Limit{None: true}, budget.Limit{None: true}
		}),
	}
}

// Policies that the page speaks of.
const (
	suspectedFirst = "each fault is suspected first"
	unguarded      = "no guards, no budget"
)

// suspectFirst has a site wait out whatever a driver calls Unhealthy.
func suspectFirst() *reason.Overrides {
	return &reason.Overrides{Version: "suspect-first", Rules: []reason.Rule{{
		Name: "suspect-first", Message: ".", Code: "SuspectedFirst",
		Verdict: reason.Verdict{Severity: reason.SeverityMajor, Action: reason.ActionSuspect, Closes: reason.ClosesByGates, Scope: device.ScopeInstance},
	}}}
}

// floors are compared in a small fleet, where a percentage alone keeps next to nothing out.
func floors() []policy {
	return []policy{
		but("floor 2 (defaults)", func(*policy) {}),
		budgetOf("floor 1", budget.Limit{Percent: 10, Min: 1}),
		budgetOf("floor 4", budget.Limit{Percent: 10, Min: 4}),
		budgetOf("no budget", budget.Limit{None: true}),
	}
}

// rivals are those of the policies that are held against the defaults wherever a rate is
// changed: at least one for each kind of value that moves the cost.
func rivals() []policy {
	keep := map[string]bool{
		"defaults": true, "storms hold 1 h on a node, 4 h else": true, "budget 5 %": true, suspectedFirst: true,
	}
	var all []policy
	for _, p := range policies() {
		if keep[p.name] {
			all = append(all, p)
		}
	}
	return all
}
