package quarantine_test

import (
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// world is the part of a cluster that bears on one device, as an API server
// would have it: what is true, against what the case believes. It executes the
// case's commands and answers them truthfully, by the rules of pkg/kube.
type world struct {
	key device.Key
	// pods are the Pods that ever had the device, by number.
	pods []pod
	// version counts the writes of Pod status.
	version int
	node    node

	listed   bool
	why      device.MissingReason
	complete bool
	hardware device.Incarnation
	movedTo  string

	// On the device-plugin path: how many other devices the plugin lists, whether it
	// left this one out, and whether it is away.
	others int64
	left   bool
	away   bool
	// moves counts how often others came or went; leftAt is when this one went, and
	// leftAtRead whether it had when the last look was read.
	moves      int
	leftAt     time.Time
	leftAtRead bool

	// served tells whether there is an API for marks; forbidden whether Sickbay
	// may not write them.
	served    bool
	forbidden bool
	foreign   bool
	mark      *quarantine.MarkFound
	intact    bool
	// incident tells whether something larger is going on that the device is a part
	// of, driver what else there is to be seen of its driver.
	incident bool
	// full tells whether as many devices are kept out already as may be.
	full   bool
	driver quarantine.DriverSign
	// proof is what becomes of attempts at recovery.
	proof proof
	// published counts how often the driver made its slices anew.
	published int
}

type pod struct {
	name    string
	running bool
	monitor bool
	health  device.Health
	message string
	version int
	seen    time.Time
}

type node struct {
	ready bool
	// dead is when its Lease stopped advancing; zero while it lives.
	dead time.Time
}

func newWorld(key device.Key, served bool) *world {
	return &world{
		key: key, served: served && key.Path() == device.PathDRA, listed: true, complete: true, hardware: oldCard,
		node: node{ready: true}, others: 3, proof: soundProof(),
	}
}

// reading is what a Pod's status says, as the starter would send it.
func (w *world) reading(p pod) quarantine.Reading {
	b := MakeReading(p.name)
	switch p.health {
	case device.Unhealthy:
		b.Unhealthy(p.message)
	default:
		b.says(p.health, p.message)
	}
	r := b.Version(device.Version(itoa(p.version))).Obj()
	r.Observed, r.Monitor, r.Ended = p.seen, p.monitor, !p.running
	if r.Health == device.Healthy && w.unvouched() {
		r.Stale = device.PluginAbsent
	}
	return r
}

// unvouched tells whether no plugin stands behind a Healthy.
func (w *world) unvouched() bool {
	return w.key.Path() == device.PathPlugin && (w.away || !w.listed)
}

// count is how many devices the node lists on the device-plugin path.
func (w *world) count() int64 {
	if w.left {
		return w.others
	}
	return w.others + 1
}

func (w *world) write(i int, health device.Health, message string, now time.Time) {
	w.version++
	p := &w.pods[i]
	p.health, p.message, p.version, p.seen = health, message, w.version, now
}

func (w *world) start(name string, monitor bool, health device.Health, message string, now time.Time) int {
	w.pods = append(w.pods, pod{name: name, running: true, monitor: monitor})
	w.write(len(w.pods)-1, health, message, now)
	return len(w.pods) - 1
}

func (w *world) inventory() quarantine.Inventory {
	i := quarantine.Inventory{Node: "anvil-07", Present: w.listed, MovedTo: w.movedTo}
	if w.listed && w.key.Path() == device.PathPlugin {
		i.MovedTo, i.Listed = "", w.count()
	} else if w.listed {
		i.Now = w.hardware
	} else {
		i.Missing = w.why
	}
	return i
}

// look reads everything that bears on the device, as a live read would.
func (w *world) look(c quarantine.Look, now time.Time) quarantine.Looked {
	w.leftAtRead = w.left
	looked := quarantine.Looked{Asked: c.Asked, Node: "anvil-07", NodeReady: w.node.ready, Driver: w.driver, Slices: itoa(w.published)}
	renewed := now.Truncate(10 * time.Second)
	if !w.node.dead.IsZero() {
		renewed = w.node.dead
	}
	looked.NodeLease = renewed.Format(time.RFC3339)
	for _, p := range w.pods {
		r := w.reading(p)
		switch {
		case p.running:
			r.Observed = now
			looked.Readings = append(looked.Readings, r)
			if !p.monitor {
				looked.Holders = append(looked.Holders, quarantine.Holder{Pod: r.Pod, Claim: r.Claim})
			}
		case slices.Contains(c.Known, r.Pod):
			looked.Ended = append(looked.Ended, r.Pod.UID)
		}
	}
	switch {
	case !w.listed && w.why == device.NodeDeleted, w.key.Path() == device.PathPlugin, w.complete:
		presence := w.inventory()
		looked.Presence = &presence
	}
	if w.mark != nil && w.served {
		found := *w.mark
		looked.Mark, looked.MarkIntact = &found, w.intact
	}
	return looked
}

// put does what pkg/kube does with a PutMark.
func (w *world) put(c quarantine.PutMark) quarantine.MarkReported {
	report := quarantine.MarkReported{Epoch: c.Epoch, Revision: c.Revision, Name: "sickbay-gpu-3"}
	switch {
	case !w.served:
		report.Outcome, report.Detail = quarantine.OutcomeUnavailable, "the API server serves no DeviceTaintRule"
		return report
	case w.full && w.mark == nil && !w.foreign:
		report.Outcome, report.Detail, report.Again = quarantine.OutcomeHeld, "2 of the 2 that cluster allows are in force", 15*time.Minute
		return report
	case w.forbidden:
		report.Outcome, report.Detail = quarantine.OutcomeRefused, "forbidden"
		return report
	case w.foreign:
		report.Outcome, report.Detail = quarantine.OutcomeForeign, "it isn't Sickbay's"
		return report
	case w.mark != nil && w.mark.Epoch > c.Epoch:
		before := *w.mark
		report.Outcome, report.Before = quarantine.OutcomeSuperseded, &before
		return report
	case w.mark != nil && w.mark.Epoch < c.Epoch && w.mark.Epoch > 0:
		before := *w.mark
		report.Before = &before
	}
	report.Outcome = quarantine.OutcomeInForce
	w.mark = &quarantine.MarkFound{
		Name: report.Name, Epoch: c.Epoch, Severity: c.Severity, Reason: c.Reason.Code, Closes: c.Reason.Closes,
		Message: c.Message, Actor: c.Actor, Attempt: c.Attempt, Since: c.Since.UnixMilli(), Hardware: c.Hardware,
		Retired: c.Retired, Restricted: c.Restricted,
	}
	w.intact = true
	return report
}

// lift does what pkg/kube does with a LiftMark.
func (w *world) lift(c quarantine.LiftMark) quarantine.MarkReported {
	report := quarantine.MarkReported{Epoch: c.Epoch, Name: "sickbay-gpu-3"}
	switch {
	case !w.served:
		report.Outcome = quarantine.OutcomeLifted
	case w.foreign:
		report.Outcome, report.Detail = quarantine.OutcomeForeign, "it isn't Sickbay's and stays"
	case w.mark == nil:
		report.Outcome = quarantine.OutcomeLifted
	case w.mark.Epoch > c.Epoch:
		before := *w.mark
		report.Outcome, report.Before = quarantine.OutcomeSuperseded, &before
	case w.mark.Epoch < c.Epoch || !w.intact:
		report.Outcome, report.Detail = quarantine.OutcomeChanged, "it was changed by somebody else and stays"
	case w.forbidden:
		report.Outcome, report.Detail = quarantine.OutcomeRefused, "forbidden"
	default:
		report.Outcome, w.mark = quarantine.OutcomeLifted, nil
	}
	return report
}

// seen is what the watch says of the mark.
func (w *world) seen(epoch int64) quarantine.MarkSeen {
	if w.mark == nil {
		return quarantine.MarkSeen{Node: "anvil-07", Mark: quarantine.MarkFound{Name: "sickbay-gpu-3", Epoch: epoch}}
	}
	return quarantine.MarkSeen{Node: "anvil-07", Present: true, Intact: w.intact, Mark: *w.mark}
}

// out tells whether the node is.
func (w *world) out() bool { return !w.node.ready || !w.node.dead.IsZero() }

// held tells whether a Pod holds the device; healthy whether everybody who runs
// with it, and somebody does, reports it healthy from a live, ready node.
func (w *world) held() bool {
	return slices.ContainsFunc(w.pods, func(p pod) bool { return p.running && !p.monitor })
}

func (w *world) healthy() bool {
	return w.says(func(p pod) bool { return p.health == device.Healthy })
}

// notTheDevice is healthy, application errors not counted.
func (w *world) notTheDevice() bool {
	return w.says(func(p pod) bool {
		return p.health == device.Healthy ||
			p.health == device.Unhealthy && !catalogue.Match(gpu.Driver, p.message).DeviceFault()
	})
}

func (w *world) says(good func(pod) bool) bool {
	if w.unvouched() {
		return false
	}
	running := slices.ContainsFunc(w.pods, func(p pod) bool { return p.running })
	bad := slices.ContainsFunc(w.pods, func(p pod) bool { return p.running && !good(p) })
	return running && !bad && w.node.ready && w.node.dead.IsZero()
}

// faulty tells whether a running Pod reports a fault that counts, at once or
// after the grace window.
func (w *world) faulty() bool {
	return slices.ContainsFunc(w.pods, func(p pod) bool {
		return p.running && p.health == device.Unhealthy && catalogue.Match(gpu.Driver, p.message).DeviceFault()
	})
}

func earlierMark(epoch int64) *quarantine.MarkFound {
	m := oldMark()
	m.Epoch = epoch
	m.Severity, m.Reason = reason.SeverityMajor, "XidEngineTimeout"
	return &m
}
