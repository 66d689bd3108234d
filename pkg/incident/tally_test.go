package incident_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/incident"
)

// unknowns are so many devices on each of these nodes.
func unknowns(driver string, each int, nodes ...string) []incident.Level {
	var levels []incident.Level
	for _, node := range nodes {
		for i := range each {
			levels = append(levels, incident.Level{
				Device: fmt.Sprintf("%s/%s/gpu-%d", driver, node, i), Pair: incident.Pair{Driver: driver, Node: node},
				Since: start.Add(time.Duration(i) * time.Second), Now: true, Fresh: true,
			})
		}
	}
	return levels
}

func nodesTo(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("node-%d", i))
	}
	return names
}

// U4. How many Unknowns make an incident, and of which scope: the widest one
// stands for what is in it.
func TestWhatMakesAnIncident(t *testing.T) {
	const other = "nic.example.com"
	stale := func(levels []incident.Level) []incident.Level {
		for i := range levels {
			levels[i].Fresh = false
		}
		return levels
	}
	for name, tc := range map[string]struct {
		nodes  int // with 8 devices of each driver
		levels []incident.Level
		open   []incident.Scope
		want   []string
	}{
		"two of a node's eight are none":                     {nodes: 100, levels: unknowns(driver, 2, "node-0")},
		"half of a node's eight are the node's":              {nodes: 100, levels: unknowns(driver, 4, "node-0"), want: []string{"node/node-0"}},
		"one on each of fifteen nodes is none":               {nodes: 100, levels: unknowns(driver, 1, nodesTo(15)...)},
		"one on each of sixteen nodes is the driver's":       {nodes: 100, levels: unknowns(driver, 1, nodesTo(16)...), want: []string{"driver/" + driver}},
		"a fifth of a small fleet is the driver's":           {nodes: 4, levels: unknowns(driver, 2, "node-0", "node-1", "node-2", "node-3"), want: []string{"driver/" + driver}},
		"a fifth of a tiny fleet is at least four":           {nodes: 1, levels: unknowns(driver, 2, "node-0")},
		"two silent nodes are the driver's and not theirs":   {nodes: 100, levels: unknowns(driver, 8, "node-0", "node-1"), want: []string{"driver/" + driver}},
		"a silent node beside it is of the same storm":       {nodes: 100, levels: unknowns(driver, 8, "node-0"), open: []incident.Scope{incident.OfDriver(driver)}},
		"two drivers at once are the cluster's":              {nodes: 100, levels: append(unknowns(driver, 8, "node-0", "node-1"), unknowns(other, 8, "node-2", "node-3")...), want: []string{"cluster"}},
		"everything belongs to the cluster's storm":          {nodes: 100, levels: unknowns(driver, 8, "node-0", "node-1"), open: []incident.Scope{incident.Cluster()}},
		"a storm that runs begins no second time":            {nodes: 100, levels: unknowns(driver, 8, "node-0", "node-1"), open: []incident.Scope{incident.OfDriver(driver)}},
		"what cases have known for long begins none":         {nodes: 100, levels: stale(unknowns(driver, 8, "node-0", "node-1"))},
		"a driver's storm hides no other driver's on a node": {nodes: 100, levels: append(unknowns(driver, 8, "node-0", "node-1"), unknowns(other, 8, "node-0")...), want: []string{"driver/" + driver, "node/node-0"}},
	} {
		t.Run(name, func(t *testing.T) {
			totals := incident.NewTotals()
			for _, node := range nodesTo(tc.nodes) {
				totals.Add(incident.Pair{Driver: driver, Node: node}, 8)
				totals.Add(incident.Pair{Driver: other, Node: node}, 8)
			}
			tally := incident.NewTally(incident.DefaultThresholds(), tc.levels, totals)
			var got []string
			for _, scope := range tally.Begin(func(s incident.Scope) bool { return slices.Contains(tc.open, s) }) {
				got = append(got, scope.String())
				if l := tally.Of(scope); l.Now < l.Enough || l.Total == 0 || l.Nodes == 0 || l.Oldest.IsZero() || len(l.Sample) == 0 {
					t.Errorf("%s is told as %+v", scope, l)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("begins %v, want %v", got, tc.want)
			}
		})
	}
}

func TestThresholdsAreRefusedWithEverythingThatIsWrong(t *testing.T) {
	if err := incident.DefaultThresholds().Validate(); err != nil {
		t.Error(err)
	}
	if err := incident.DefaultPolicy().Validate(); err != nil {
		t.Error(err)
	}
	if (incident.Thresholds{Percent: 101}).Validate() == nil || (incident.Policy{}).Validate() == nil {
		t.Error("nonsense is accepted")
	}
}
