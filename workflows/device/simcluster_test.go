package device_test

// The cluster of a simulated life: the part of one that bears on a single device, as
// an API server would have it. It answers what the activities ask by the rules of
// pkg/kube, which has its own tests against real API servers.

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

const simNode = "anvil-07"

// errAway is what every call gets while the API server is away.
var errAway = errors.New("the API server is away")

type cluster struct {
	key device.Key
	// version numbers the writes of all objects.
	version int
	// pods are those that ever had the device.
	pods []*simPod

	// ready is the node's condition, dead when its Lease stopped; zero while it lives.
	ready bool
	dead  time.Time

	// listed tells whether the driver lists the device, why how it went missing, and
	// complete whether its pool is.
	listed   bool
	why      device.MissingReason
	complete bool
	hardware device.Incarnation
	movedTo  string
	// others are listed on the device-plugin path beside this one, which left the list
	// if left; away tells that there is no plugin.
	others int64
	left   bool
	away   bool

	// served tells whether there is an API for marks, forbidden that Sickbay may not
	// write them, foreign that somebody else has the mark's name, down that nobody answers.
	served, forbidden, foreign, down bool
	mark                             *quarantine.MarkFound
	intact                           bool

	// incident tells whether the device is a part of something larger, driver what Pods
	// say of the driver's other devices, and published how often its slices were made anew.
	incident bool
	// full tells whether as many devices are kept out already as may be.
	full      bool
	driver    quarantine.DriverSign
	published int
	// proof is what becomes of attempts at recovery.
	proof simProof
}

type simPod struct {
	ref     device.PodRef
	running bool
	monitor bool
	health  device.Health
	message string
	version int
	seen    time.Time
}

var (
	simOldCard = device.Incarnation{UUID: "GPU-old"}
	simNewCard = device.Incarnation{UUID: "GPU-new"}
)

func newCluster(key device.Key, served bool) *cluster {
	return &cluster{
		key: key, ready: true, listed: true, complete: true, hardware: simOldCard, others: 3,
		served: served && key.Path() == device.PathDRA, proof: newSimProof(),
	}
}

func (c *cluster) write(p *simPod, health device.Health, message string, now time.Time) {
	c.version++
	p.health, p.message, p.version, p.seen = health, message, c.version, now
}

func (c *cluster) start(monitor bool, health device.Health, message string, now time.Time) *simPod {
	name := fmt.Sprintf("train-%d", len(c.pods))
	p := &simPod{ref: device.PodRef{Namespace: "team-kestrel", Name: name, UID: "uid-" + name}, running: true, monitor: monitor}
	c.pods = append(c.pods, p)
	c.write(p, health, message, now)
	return p
}

func (c *cluster) end(p *simPod) {
	c.version++
	p.running, p.version = false, c.version
}

func (c *cluster) running() []*simPod {
	var running []*simPod
	for _, p := range c.pods {
		if p.running {
			running = append(running, p)
		}
	}
	return running
}

// reading is what a Pod's status says, as the starter would send it.
func (c *cluster) reading(p *simPod) quarantine.Reading {
	r := classified(device.Report{
		Pod: p.ref, Node: simNode, Health: p.health, Message: p.message,
		Version: device.Version(strconv.Itoa(p.version)), Observed: p.seen, Monitor: p.monitor, Ended: !p.running,
	})
	if r.Health == device.Healthy && c.unvouched() {
		r.Stale = device.PluginAbsent
	}
	return r
}

// unvouched tells whether no plugin stands behind a Healthy.
func (c *cluster) unvouched() bool {
	return c.key.Path() == device.PathPlugin && (c.away || !c.listed)
}

func (c *cluster) inventory() quarantine.Inventory {
	i := quarantine.Inventory{Node: simNode, Present: c.listed}
	switch {
	case !c.listed:
		i.Missing, i.MovedTo = c.why, c.movedTo
	case c.key.Path() == device.PathPlugin:
		i.Listed = c.others
		if !c.left {
			i.Listed++
		}
	default:
		i.Now, i.MovedTo = c.hardware, c.movedTo
	}
	return i
}

// seen is what the watch says of the mark; epoch is that of one that is gone.
func (c *cluster) seen(epoch int64) quarantine.MarkSeen {
	if c.mark == nil {
		return quarantine.MarkSeen{Node: simNode, Mark: quarantine.MarkFound{Name: kube.MarkName(c.key), Epoch: epoch, Version: c.rv()}}
	}
	return quarantine.MarkSeen{Node: simNode, Present: true, Intact: c.intact, Mark: *c.mark}
}

func (c *cluster) rv() device.Version { return device.Version(strconv.Itoa(c.version)) }

// look reads everything that bears on the device.
func (c *cluster) look(ask quarantine.Look, now time.Time) (quarantine.Looked, error) {
	if c.down {
		return quarantine.Looked{}, errAway
	}
	looked := quarantine.Looked{Asked: ask.Asked, Node: simNode, NodeReady: c.ready, Driver: c.driver}
	if c.listed && c.complete {
		looked.Slices = strconv.Itoa(c.published)
	}
	renewed := now.Truncate(10 * time.Second)
	if !c.dead.IsZero() {
		renewed = c.dead
	}
	looked.NodeLease = renewed.Format(time.RFC3339)
	for _, p := range c.pods {
		r := c.reading(p)
		switch {
		case p.running:
			r.Observed = now
			looked.Readings = append(looked.Readings, r)
			if !p.monitor {
				looked.Holders = append(looked.Holders, quarantine.Holder{Pod: r.Pod})
			}
		case slices.Contains(ask.Known, r.Pod):
			looked.Ended = append(looked.Ended, r.Pod.UID)
		}
	}
	if !c.listed && c.why == device.NodeDeleted || c.key.Path() == device.PathPlugin || c.complete {
		presence := c.inventory()
		looked.Presence = &presence
	}
	if c.mark != nil && c.served && !c.foreign {
		found := *c.mark
		looked.Mark, looked.MarkIntact = &found, c.intact
	}
	return looked, nil
}

func (c *cluster) put(ask quarantine.PutMark) (quarantine.MarkReported, error) {
	report := quarantine.MarkReported{Epoch: ask.Epoch, Revision: ask.Revision, Name: kube.MarkName(c.key)}
	switch {
	case c.down:
		return report, errAway
	case !c.served:
		report.Outcome, report.Detail = quarantine.OutcomeUnavailable, "the API server serves no DeviceTaintRule"
		return report, nil
	case c.full && c.mark == nil && !c.foreign:
		report.Outcome, report.Detail, report.Again = quarantine.OutcomeHeld, "2 of the 2 that cluster allows are in force", 15*time.Minute
		return report, nil
	case c.forbidden:
		report.Outcome, report.Detail = quarantine.OutcomeRefused, "forbidden"
		return report, nil
	case c.foreign:
		report.Outcome, report.Detail = quarantine.OutcomeForeign, "it isn't Sickbay's"
		return report, nil
	case c.mark != nil && c.mark.Epoch > ask.Epoch:
		before := *c.mark
		report.Outcome, report.Before = quarantine.OutcomeSuperseded, &before
		return report, nil
	case c.mark != nil && c.mark.Epoch < ask.Epoch && c.mark.Epoch > 0:
		before := *c.mark
		report.Before = &before
	}
	c.version++
	c.mark = &quarantine.MarkFound{
		Name: report.Name, Epoch: ask.Epoch, Severity: ask.Severity, Reason: ask.Reason.Code, Closes: ask.Reason.Closes,
		Message: ask.Message, Actor: ask.Actor, Attempt: ask.Attempt, Since: ask.Since.UnixMilli(), Until: ask.Until.UnixMilli(),
		Retired: ask.Retired, Restricted: ask.Restricted, Hardware: ask.Hardware, Version: c.rv(),
	}
	c.intact = true
	report.Outcome, report.Version = quarantine.OutcomeInForce, c.rv()
	return report, nil
}

func (c *cluster) lift(ask quarantine.LiftMark) (quarantine.MarkReported, error) {
	report := quarantine.MarkReported{Epoch: ask.Epoch, Name: kube.MarkName(c.key)}
	switch {
	case c.down:
		return report, errAway
	case !c.served:
		report.Outcome = quarantine.OutcomeLifted
	case c.foreign:
		report.Outcome, report.Detail = quarantine.OutcomeForeign, "it isn't Sickbay's and stays"
	case c.mark == nil:
		report.Outcome = quarantine.OutcomeLifted
	case c.mark.Epoch > ask.Epoch:
		before := *c.mark
		report.Outcome, report.Before = quarantine.OutcomeSuperseded, &before
	case c.mark.Epoch < ask.Epoch || !c.intact:
		report.Outcome, report.Detail = quarantine.OutcomeChanged, "it was changed by somebody else and stays"
	case c.forbidden:
		report.Outcome, report.Detail = quarantine.OutcomeRefused, "forbidden"
	default:
		c.version++
		report.Outcome, c.mark = quarantine.OutcomeLifted, nil
	}
	return report, nil
}

// may answers whether the device may be restricted.
func (c *cluster) may(ask quarantine.AskRestriction) (quarantine.RestrictionAnswered, error) {
	switch {
	case c.down:
		return quarantine.RestrictionAnswered{}, errAway
	case c.incident:
		return quarantine.RestrictionAnswered{Epoch: ask.Epoch, Again: time.Minute, Incident: "incident/cluster", Why: "many devices are Unknown"}, nil
	}
	return quarantine.RestrictionAnswered{Epoch: ask.Epoch, Granted: true}, nil
}

// permits answers whether a mark that isn't made would have a permit.
func (c *cluster) permits(ask quarantine.AskPermit) (quarantine.PermitAnswered, error) {
	switch {
	case c.down:
		return quarantine.PermitAnswered{}, errAway
	case c.full:
		return quarantine.PermitAnswered{Epoch: ask.Epoch, Again: 15 * time.Minute, Why: "2 of the 2 that cluster allows are in force"}, nil
	}
	return quarantine.PermitAnswered{Epoch: ask.Epoch, Granted: true}, nil
}

// out tells whether the node is.
func (c *cluster) out() bool { return !c.ready || !c.dead.IsZero() }

// held tells whether a Pod holds the device.
func (c *cluster) held() bool {
	return slices.ContainsFunc(c.pods, func(p *simPod) bool { return p.running && !p.monitor })
}

// vouched tells whether everybody who runs with the device, and somebody does, says
// what good calls good, from a live, ready node.
func (c *cluster) vouched(good func(quarantine.Reading) bool) bool {
	running := c.running()
	bad := slices.ContainsFunc(running, func(p *simPod) bool { return !good(c.reading(p)) })
	return len(running) > 0 && !bad && c.ready && c.dead.IsZero()
}

func (c *cluster) healthy() bool {
	return c.vouched(func(r quarantine.Reading) bool { return r.Counts() == device.Healthy })
}

// notTheDevice is healthy, application errors not counted.
func (c *cluster) notTheDevice() bool {
	return c.vouched(func(r quarantine.Reading) bool {
		return r.Counts() == device.Healthy || r.Health == device.Unhealthy && !r.Fault
	})
}

// faulty tells whether a running Pod reports a fault of the device.
func (c *cluster) faulty() bool {
	return slices.ContainsFunc(c.running(), func(p *simPod) bool { r := c.reading(p); return r.Health == device.Unhealthy && r.Fault })
}
