package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// shape is how large a fleet is. A driver has the nodes of whole racks.
type shape struct {
	racks, nodesPerRack, perNode int
	// second is how many of the racks have the second driver.
	second int
}

func (s shape) nodes() int   { return s.racks * s.nodesPerRack }
func (s shape) devices() int { return s.nodes() * s.perNode }

// The drivers. What the catalogue knows of the first one's messages counts.
const (
	driverOne = "gpu.nvidia.com"
	driverTwo = "gpu.example.com"
)

// What drivers say. The catalogue decides what it means.
var (
	saysFatal  = []string{"Xid 79: GPU has fallen off the bus", "Xid 48: double bit ECC error", "Xid 95: uncontained ECC error", "Xid 119: GSP RPC timeout", "device failed its self test"}
	saysHinted = []string{"Xid 171: uncorrectable ECC error in DRAM", "Xid 149: NVLink error"}
)

const (
	saysAllLost = "GPU is lost"
	saysNewBad  = "can't read the device's state"
)

// defect is what is really wrong with a device.
type defect int

const (
	sound defect = iota
	// told: its driver says so, or hints at it.
	told
	// hung: its health is Unknown from then on.
	hung
	// silent: its driver goes on saying Healthy.
	silent
)

// node is a node and what befalls it. Times are those since the beginning.
type node struct {
	name   string
	number int
	rack   int
	driver string
	units  []*unitOf
	chance *chance

	// silentUntil is how long its driver says nothing; wipedUntil how long its slices are
	// gone, and published counts how often they were made anew.
	silentUntil, wipedUntil time.Duration
	published               int
	// lemon is how much more often than others its devices break.
	lemon float64
	// deadUntil and cutUntil: it has no power, its network is away. outSince is when its
	// Lease stopped, zero while it lives; held is set while the starter tells nothing of it.
	deadUntil, cutUntil time.Duration
	outSince            time.Duration
	out, held           bool
	// accuser is the broken device for which all of the node's are called Unhealthy; bad
	// is set while a driver's version does that that is there.
	accuser *unitOf
	bad     bool
	version int
}

func (n *node) reachable(now time.Duration) bool { return n.deadUntil <= now && n.cutUntil <= now }

// unitOf is a device: what is true of it, what its kubelet and the API say, and what
// Sickbay has of it.
type unitOf struct {
	key    device.Key
	name   string
	number int
	node   *node
	chance *chance

	// What is true.
	defect  defect
	message string
	brokeAt time.Duration
	episode int           // counts its defects
	shownAt time.Duration // -1 until something is seen of it
	// openSince is since when it can be given out although something was seen, or -1.
	openSince time.Duration
	wasOut    bool // Sickbay kept it out in this episode
	byHand    bool // people took it out
	falseFor  time.Duration
	falsely   string
	glitch    time.Duration

	// What its driver says, since when, and what of that its kubelet and the API have.
	said, kubelet, api saying
	saidSince          time.Duration
	saidGen            int
	version            int

	// Who holds it.
	pod      string
	pods     int
	heldTill time.Duration // when it is let go, or held again
	podSeen  time.Duration // when the API first said of this Pod what it says now
	minded   time.Duration // when that is waited for, or -1

	c         quarantine.Case
	markBusy  bool
	lookBusy  bool
	askBusy   bool
	wakeGen   int
	wakeAt    time.Time
	mark      *quarantine.MarkFound
	markWrong bool
	idleSince time.Duration // since when it is kept out though sound and nobody works with it, or -1
	heldSince time.Duration // since when it waits for a permit, -1 while it doesn't
	visiting  bool
	unhealthy bool // the API said Unhealthy of it since its last case ended
	watch     watched
}

// saying is one health with its words.
type saying struct {
	health  device.Health
	message string
}

var healthy = saying{health: device.Healthy}

// says is what the driver would say of a device now.
func (u *unitOf) says(now time.Duration) saying {
	switch n := u.node; {
	case n.silentUntil > now || u.defect == hung || u.glitch > now:
		return saying{health: device.Unknown}
	case n.bad:
		return saying{device.Unhealthy, saysNewBad}
	case n.accuser != nil:
		return saying{device.Unhealthy, saysAllLost}
	case u.defect == told:
		return saying{device.Unhealthy, u.message}
	case u.falseFor > now:
		return saying{device.Unhealthy, u.falsely}
	}
	return healthy
}

// held tells whether a Pod has the device.
func (u *unitOf) held() bool { return u.pod != "" }

// newFleet builds a fleet in which all is well.
func newFleet(s shape, seed uint64) ([]*node, []*unitOf) {
	var nodes []*node
	var units []*unitOf
	for rack := range s.racks {
		driver := driverOne
		if rack >= s.racks-s.second {
			driver = driverTwo
		}
		for range s.nodesPerRack {
			n := &node{name: fmt.Sprintf("node-%03d", len(nodes)), number: len(nodes), rack: rack, driver: driver, version: 1}
			n.chance = stream(seed, "node", uint64(n.number))
			n.lemon = math.Exp(lemonSpread * n.chance.normal())
			for i := range s.perNode {
				key, err := device.NewDRA(driver, n.name, "gpu-"+strconv.Itoa(i))
				if err != nil {
					panic(err) // the names are made here
				}
				u := &unitOf{
					key: key, name: key.String(), number: len(units), node: n, chance: stream(seed, "device", uint64(len(units))),
					said: healthy, kubelet: healthy, api: healthy, heldSince: -1, idleSince: -1, openSince: -1, minded: -1,
				}
				u.c = quarantine.Case{Device: key, Node: n.name}
				n.units = append(n.units, u)
				units = append(units, u)
			}
			nodes = append(nodes, n)
		}
	}
	all := 0.0
	for _, n := range nodes {
		all += n.lemon
	}
	for _, n := range nodes {
		n.lemon *= float64(len(nodes)) / all
	}
	return nodes, units
}

// nodesOf are the nodes of a driver.
func nodesOf(nodes []*node, driver string) []*node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { return n.driver != driver })
}
