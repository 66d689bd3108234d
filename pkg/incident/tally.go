package incident

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Thresholds are how many devices make an incident. Where a number and a share are
// given, the lesser of them counts, and the share counts from a floor on.
type Thresholds struct {
	// Devices and Percent: so many Unknown devices of a driver, over several nodes,
	// are a storm. At least Floor of them.
	Devices, Percent, Floor int
	// NodePercent: such a share of a node's devices of one driver is a storm on that
	// node. At least NodeFloor of them.
	NodePercent, NodeFloor int
	// CrowdDevices and CrowdPercent: more Unhealthy devices of a driver than both
	// of them, over several nodes and within CrowdWithin, are a crowd.
	CrowdDevices, CrowdPercent int
	CrowdWithin                time.Duration
	// CrowdNodePercent: such a share of a node's devices of one driver, Unhealthy
	// within CrowdNodeWithin, is a crowd on that node. At least CrowdNodeFloor of them.
	CrowdNodePercent, CrowdNodeFloor int
	CrowdNodeWithin                  time.Duration
}

// DefaultThresholds returns the values that hold where the operator says nothing.
func DefaultThresholds() Thresholds {
	return Thresholds{
		Devices: 16, Percent: 20, Floor: 4,
		NodePercent: 50, NodeFloor: 3,
		CrowdDevices: 8, CrowdPercent: 10, CrowdWithin: time.Minute,
		CrowdNodePercent: 50, CrowdNodeFloor: 4, CrowdNodeWithin: 30 * time.Second,
	}
}

// Validate names everything that is wrong with thresholds, all at once.
func (t Thresholds) Validate() error {
	var errs []error
	for _, n := range []struct {
		name  string
		value int
		most  int
	}{
		{"storm devices", t.Devices, 1 << 30}, {"storm percent", t.Percent, 100}, {"storm floor", t.Floor, 1 << 30},
		{"storm node percent", t.NodePercent, 100}, {"storm node floor", t.NodeFloor, 1 << 30},
		{"crowd devices", t.CrowdDevices, 1 << 30}, {"crowd percent", t.CrowdPercent, 100},
		{"crowd node percent", t.CrowdNodePercent, 100}, {"crowd node floor", t.CrowdNodeFloor, 1 << 30},
	} {
		if n.value < 1 || n.value > n.most {
			errs = append(errs, fmt.Errorf("%s %d: want 1 to %d", n.name, n.value, n.most))
		}
	}
	if t.CrowdWithin <= 0 || t.CrowdNodeWithin <= 0 {
		errs = append(errs, fmt.Errorf("crowd within %s and on a node %s: want more than zero", t.CrowdWithin, t.CrowdNodeWithin))
	}
	return errors.Join(errs...)
}

// share rounds up: 20 % of 41 devices are 9.
func share(percent, of int) int { return (percent*of + 99) / 100 }

// OfDriver is how many of a driver's devices make a storm. Worked example: with 16,
// 20 % and a floor of 4, that is 4 of 12, 8 of 40 and 16 of 10,000.
func (t Thresholds) OfDriver(total int) int {
	return min(t.Devices, max(t.Floor, share(t.Percent, total)))
}

// OfNode is how many of a node's devices of one driver make a storm there: with
// 50 % and a floor of 3, that is 3 of 4, 4 of 8, and never 2 of 2.
func (t Thresholds) OfNode(total int) int { return max(t.NodeFloor, share(t.NodePercent, total)) }

// CrowdOfDriver is up to how many Unhealthy devices of a driver are marked as ever:
// with 8 and 10 %, that is 8 of 80 and 1,000 of 10,000.
func (t Thresholds) CrowdOfDriver(total int) int {
	return max(t.CrowdDevices, t.CrowdPercent*total/100)
}

// CrowdOfNode is how many Unhealthy devices of one driver make a crowd on a node.
func (t Thresholds) CrowdOfNode(total int) int {
	return max(t.CrowdNodeFloor, share(t.CrowdNodePercent, total))
}

// Pair is a driver on a node.
type Pair struct{ Driver, Node string }

// Level is one device that is Unknown, or was a moment ago.
type Level struct {
	Device string
	Pair
	Since time.Time
	// Now tells that it still is, Fresh that it may make an incident begin: no
	// case knows of it yet, or it is new.
	Now, Fresh bool
}

// Count is how many devices of a scope are Unknown.
type Count struct {
	// Now are Unknown now; Fresh may make an incident begin; Total report at all.
	Now, Fresh, Total int
	// Nodes are those that they are on.
	Nodes map[string]struct{}
	// Oldest is since when the first of them is Unknown.
	Oldest time.Time
	// Sample names some of them.
	Sample []string
}

// maxSample bounds the devices that an incident names.
const maxSample = 5

func (c *Count) add(l Level) {
	if l.Fresh {
		c.Fresh++
	}
	if !l.Now {
		return
	}
	c.Now++
	if c.Oldest.IsZero() || l.Since.Before(c.Oldest) {
		c.Oldest = l.Since
	}
	if len(c.Sample) < maxSample {
		c.Sample = append(c.Sample, l.Device)
	}
}

// Totals are how many devices report a health. They are kept from one tally to the
// next: a large fleet isn't counted each second.
type Totals struct {
	all     int
	drivers map[string]int
	nodes   map[string]map[string]int // node → driver → devices
}

// NewTotals returns those of no device.
func NewTotals() *Totals {
	return &Totals{drivers: map[string]int{}, nodes: map[string]map[string]int{}}
}

// Add takes in so many more devices of a driver on a node, or fewer.
func (t *Totals) Add(p Pair, n int) {
	t.all += n
	if t.drivers[p.Driver] += n; t.drivers[p.Driver] == 0 {
		delete(t.drivers, p.Driver)
	}
	if t.nodes[p.Node] == nil {
		t.nodes[p.Node] = map[string]int{}
	}
	if t.nodes[p.Node][p.Driver] += n; t.nodes[p.Node][p.Driver] == 0 {
		delete(t.nodes[p.Node], p.Driver)
	}
	if len(t.nodes[p.Node]) == 0 {
		delete(t.nodes, p.Node)
	}
}

// Of is how many devices a driver has.
func (t *Totals) Of(driver string) int { return t.drivers[driver] }

// Tally counts levels by scope.
type Tally struct {
	thresholds Thresholds
	totals     *Totals
	cluster    *Count
	drivers    map[string]*Count
	pairs      map[Pair]*Count
}

// NewTally counts. totals are the devices that report a health, by driver and node.
// The order of levels says which devices are named, and nothing else.
func NewTally(thresholds Thresholds, levels []Level, totals *Totals) *Tally {
	t := &Tally{thresholds: thresholds, totals: totals, cluster: newCount(), drivers: map[string]*Count{}, pairs: map[Pair]*Count{}}
	for _, l := range levels {
		if t.drivers[l.Driver] == nil {
			t.drivers[l.Driver] = newCount()
		}
		if t.pairs[l.Pair] == nil {
			t.pairs[l.Pair] = newCount()
		}
		for _, c := range []*Count{t.cluster, t.drivers[l.Driver], t.pairs[l.Pair]} {
			c.add(l)
			c.Nodes[l.Node] = struct{}{}
		}
	}
	t.cluster.Total = totals.all
	for driver, c := range t.drivers {
		c.Total = totals.drivers[driver]
	}
	for pair, c := range t.pairs {
		c.Total = totals.nodes[pair.Node][pair.Driver]
	}
	return t
}

func newCount() *Count { return &Count{Nodes: map[string]struct{}{}} }

// stormy tells whether a driver has a storm.
func (t *Tally) stormy(driver string) bool {
	c := t.drivers[driver]
	return c != nil && len(c.Nodes) > 1 && c.Fresh >= t.thresholds.OfDriver(c.Total)
}

// Begin lists the scopes in which an incident begins, sorted. The widest one stands
// for those in it: two drivers at once are the cluster's storm, and a driver's storm
// is none of its nodes. open tells which are there already.
func (t *Tally) Begin(open func(Scope) bool) []Scope {
	if open(Cluster()) {
		return nil
	}
	var stormy []string
	covered := map[string]bool{}
	for driver := range t.drivers {
		if t.stormy(driver) {
			stormy = append(stormy, driver)
		}
		covered[driver] = t.stormy(driver) || open(OfDriver(driver))
	}
	if len(stormy) > 1 {
		return []Scope{Cluster()}
	}
	found := map[Scope]struct{}{}
	for _, driver := range stormy {
		if scope := OfDriver(driver); !open(scope) {
			found[scope] = struct{}{}
		}
	}
	for pair, c := range t.pairs {
		scope := OfNode(pair.Node)
		if !covered[pair.Driver] && pair.Node != "" && c.Fresh >= t.thresholds.OfNode(c.Total) && !open(scope) {
			found[scope] = struct{}{}
		}
	}
	return slices.SortedFunc(maps.Keys(found), compareScopes)
}

func compareScopes(a, b Scope) int { return strings.Compare(a.String(), b.String()) }

// Of is what an incident of that scope is told: how many there are, and how many
// make one.
func (t *Tally) Of(scope Scope) Levels {
	var c *Count
	enough := 0
	switch {
	case scope.Node != "":
		c, enough = t.onNode(scope.Node)
	case scope.Driver != "":
		if c = t.drivers[scope.Driver]; c == nil {
			c = newCount()
			c.Total = t.totals.drivers[scope.Driver]
		}
		enough = t.thresholds.OfDriver(c.Total)
	default:
		c = t.cluster
		enough = 2 * t.thresholds.OfDriver(c.Total)
	}
	return Levels{Now: c.Now, Total: c.Total, Enough: enough, Lately: c.Fresh, Nodes: len(c.Nodes), Oldest: c.Oldest, Sample: c.Sample}
}

// onNode puts a node's drivers together; enough is what its worst driver needs.
func (t *Tally) onNode(node string) (*Count, int) {
	sum, worst, enough := newCount(), 0, 0
	for driver, total := range t.totals.nodes[node] {
		sum.Total += total
		c := t.pairs[Pair{Driver: driver, Node: node}]
		if c == nil {
			continue
		}
		sum.Now, sum.Fresh, sum.Nodes[node] = sum.Now+c.Now, sum.Fresh+c.Fresh, struct{}{}
		sum.Sample = append(sum.Sample, c.Sample...)
		if !c.Oldest.IsZero() && (sum.Oldest.IsZero() || c.Oldest.Before(sum.Oldest)) {
			sum.Oldest = c.Oldest
		}
		if needs := t.thresholds.OfNode(total); c.Now > worst || c.Now == worst && needs > enough {
			worst, enough = c.Now, needs
		}
	}
	slices.Sort(sum.Sample)
	sum.Sample = sum.Sample[:min(len(sum.Sample), maxSample)]
	return sum, enough
}
