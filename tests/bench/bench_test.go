package main

import (
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// smallSizes measures next to nothing, so that every part of the bench is run with
// each change.
func smallSizes() sizes {
	return sizes{
		fleetNodes: 50, generatedNodes: 500, perNode: 8, generatedFault: 3, window: 5 * time.Second,
	}
}

func TestMain(m *testing.M) {
	if renewing() {
		return
	}
	product.Main(m)
}

func binary(t *testing.T) string {
	t.Helper()
	path, err := product.Shared()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func wantReport(t *testing.T, r report, err error, rows ...string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + r.text())
	for _, broken := range r.broken() {
		t.Error(broken)
	}
	for _, row := range rows {
		if !strings.Contains(r.text(), row) {
			t.Errorf("nothing is said of %q", row)
		}
	}
}

// A healthy fleet costs no workflow and no signal, and a bounded number of requests
// and bytes. Shows O9.
func TestAHealthyFleetCostsNoWorkflow(t *testing.T) {
	st := stack.Start(t, stack.Options{Kubernetes: "1.37", Temporal: true, Redis: true, SearchAttributes: product.SearchAttributes()})
	r, err := measureFleetOn(t.Context(), st, binary(t), smallSizes())
	wantReport(t, r, err, "| open workflows | 0 |", "| signals sent | 0 |", "| starter |", "| worker |", "entries")
	compareWithGenerated(t, st)
	readLeases(t, st)
}

// The same with a generated fleet, of which every device is listed, and in which a
// fault becomes a case.
func TestAGeneratedFleetIsSeenListedAndItsFaultsFound(t *testing.T) {
	r, err := measureGenerated(t.Context(), binary(t), "", smallSizes())
	wantReport(t, r, err, "| open workflows | 0 |", "`sickbay devices`", "`sickbay devices -o json`", "`sickbay devices --counts`", "accepted by Temporal | 3 |")
}

// U4: all devices of a fleet go Unknown at once, for longer than a case's window: that
// is one incident, and it is no case, no mark and no eviction. When their health is back
// it is over by itself.
func TestAStormOfUnknownsIsOneIncident(t *testing.T) {
	s := smallSizes()
	s.storm = storming{nodes: 50, watch: 12 * time.Second, grace: 4 * time.Second, settings: []string{"SICKBAY_STORM_GATHER=2s", "SICKBAY_INCIDENT_CALM=3s"}}
	r, err := measureStorm(t.Context(), binary(t), "", s)
	wantReport(t, r, err, "| device workflows, ever | 0 |", "| requests to write marks | 0 |", "| requests to write, evict or delete Pods | 0 |", "| starter |")
}

// Many faults at once, within the budgets, have their marks made ahead of their cases, at
// a bounded cost for each.
func TestABurstOfFaultsIsMarkedAtABoundedCost(t *testing.T) {
	s := smallSizes()
	s.burstOf = bursting{nodes: 60, faults: 60, quiet: 3 * time.Second}
	r, err := measureBurst(t.Context(), binary(t), "1.37", s)
	wantReport(t, r, err, "| API writes |", "| events in its history |", "StartWorkflowExecution", "| apiserver |")
}

// readLeases measures what reading the Leases of nodes costs: a request each time that
// they are listed.
func readLeases(t *testing.T, st *stack.Stack) {
	t.Helper()
	r, err := measureLeasesOn(t.Context(), st, sizes{leaseNodes: []int{40}, window: 2 * time.Second})
	wantReport(t, r, err, "| 40 | not at all | 0 |", "| 40 | listed every 15 s | 1 |", "| 40 | watched | 2 |")
}

// A watch Pod's process has little memory of its own.
func TestAWatchPodsProcessIsSmall(t *testing.T) {
	r, err := measureWatchPod(t.Context(), binary(t), "", sizes{})
	wantReport(t, r, err, "Anonymous", "Rss")
}

// A gate that doesn't hold is an error that names the count and its bound.
func TestACountPastItsBoundFailsTheBench(t *testing.T) {
	r := report{title: "fleet"}
	r.most("open workflows", 1, 0)
	r.most("requests", 70, 140)
	broken := r.broken()
	if len(broken) != 1 || broken[0].Error() != "fleet: open workflows: 1, want at most 0" {
		t.Errorf("broken: %v", broken)
	}
}
