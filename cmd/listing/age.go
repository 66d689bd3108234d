package listing

// This file is about how old evidence may be. Health in a Pod's status carries no
// time (KEP-4680), and text that doesn't change is no new evidence. What can be said
// is until when its surroundings are known to have borne it out, and by how much the
// driver's own word may lag behind that.

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/reading"
)

// nodeGrace is how long ago the last heartbeat of a node may be that is ready by the
// node controller's word: its grace period (50 s) and the pause between two of its
// rounds (5 s), if a cluster doesn't set others (k8s.io/kubernetes v1.36.3 and v1.37.2,
// pkg/controller/nodelifecycle/config/v1alpha1/defaults.go).
const nodeGrace = 55 * time.Second

// Unbounded is the lag of what a device plugin said: while it is registered and says
// nothing, its last word stands.
const Unbounded = "unbounded"

// Age is how old what is reported of a device may be.
type Age struct {
	// Confirmed is a moment at which node, driver and plugin are known to have stood
	// behind what is reported; the last one may have been later. Nil where nobody tells.
	Confirmed *time.Time `json:"confirmed,omitempty"`
	// Ceased is when they were first seen not to any more; the truth may be older. Nil
	// where they do, and where nobody tells.
	Ceased *time.Time `json:"ceased,omitempty"`
	// Lag is by how much what the driver says may be older than that: its reporting
	// delay, or Unbounded. Empty where it isn't known.
	Lag string `json:"lag,omitempty"`
}

// Delays gives the reporting delay of a driver or of an extended resource.
type Delays func(driver string) time.Duration

// lag is by how much a device's reports may lag.
func (d Delays) lag(key device.Key) string {
	switch {
	case key.Path() == device.PathPlugin:
		return Unbounded
	case d == nil:
		return ""
	}
	return d(reading.DriverOf(key)).String()
}

// confirmed is until when a node is known to have stood behind what its Pods say.
func (n Node) confirmed(now time.Time) *time.Time {
	switch {
	case n.Ready == corev1.ConditionTrue:
		return moment(now.Add(-nodeGrace))
	case n.Since.IsZero():
		return nil
	case n.Ready == corev1.ConditionUnknown:
		// The node controller waited for its grace period before it said so.
		return moment(n.Since.Add(-nodeGrace))
	}
	return moment(n.Since)
}

// aged works out how old the evidence of each device may be.
func (j *joiner) aged(delays Delays, now time.Time) {
	for key, reports := range j.reports {
		d := j.devices[key]
		d.Age = &Age{Lag: delays.lag(key)}
		if d.Stale == device.Fresh || nodesFault(d.Stale) { // of drivers and plugins, nothing tells since when they are away
			d.Age.Confirmed = j.byNodes(reports, now)
		}
		// A case looks past every cache, at the node too.
		if looked := j.looked[key]; d.Stale == device.Fresh && !looked.IsZero() && (d.Age.Confirmed == nil || looked.After(*d.Age.Confirmed)) {
			d.Age.Confirmed = moment(looked)
		}
	}
}

// byNodes is until when all nodes on which something is reported are known to have
// stood behind it: each may be the one that has something to say. Nil where that isn't
// known of one.
func (j *joiner) byNodes(reports []device.Report, now time.Time) *time.Time {
	var oldest *time.Time
	for _, r := range reports {
		at := j.nodes[r.Node].confirmed(now)
		if at == nil {
			return nil
		}
		if oldest == nil || at.Before(*oldest) {
			oldest = at
		}
	}
	return oldest
}

// nodesFault tells that a Healthy isn't believed because of its node.
func nodesFault(why device.Staleness) bool {
	return why == device.NodeSilent || why == device.NodeNotReady
}
