package quarantine

import (
	"fmt"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// Outage is a node that is out: what its Pods' status says is what a kubelet last
// wrote, and a device of which nothing was found but Unknown isn't judged by it.
type Outage struct {
	// Since is the look that found the node out, and Why how.
	Since time.Time        `json:"since"`
	Why   device.Staleness `json:"why"`
	// Left is what was left of the grace window.
	Left time.Duration `json:"left,omitempty"`
	// Returning is set while the node seems to be back, and has yet to renew its Lease
	// between two looks.
	Returning bool `json:"returning,omitempty"`
}

// renewal is a little more than the pause between two renewals of a node's Lease
// (kubelet: a quarter of 40 s), so that two looks so far apart tell whether it lives.
const renewal = 15 * time.Second

// nodeSeen takes in whether a look found the node out, or back. It is out while its
// kubelet isn't ready or its Lease stands still, on our own clock; back once it is
// ready and was seen to renew.
func (d *decision) nodeSeen(e Looked) {
	c := &d.c
	switch c.Phase {
	case PhaseSuspect, PhaseRestricted:
	case PhaseGone:
		return // it is judged again when the device returns
	default:
		c.Outage = nil
		return
	}
	deleted := e.Presence != nil && e.Presence.Missing == device.NodeDeleted
	why := d.nodeOut(e)
	switch {
	case deleted || e.Node == "":
		// It is the device that is gone then, or a device that is on no node.
		d.nodeBack("")
	case c.Outage == nil && why != device.Fresh:
		c.Outage = &Outage{Since: c.LookedAt, Why: why, Left: max(c.GraceUntil.Sub(c.LookedAt), 0)}
		c.GraceUntil, c.GoodSince, c.Asking, c.Looks = time.Time{}, time.Time{}, false, 0
		d.notify(NoticeNodeOut, false, fmt.Sprintf("node %s is out (%s): nothing is judged until it returns, and no window runs", e.Node, why))
	case c.Outage == nil:
	case why != device.Fresh:
		c.Outage.Why, c.Outage.Returning = why, false
	case !d.nodeLives():
		c.Outage.Returning = true
	default:
		d.nodeBack(fmt.Sprintf("node %s is back after %s; everything is read anew", e.Node, c.LookedAt.Sub(c.Outage.Since)))
	}
}

// nodeBack goes on judging. What a kubelet that has just started says is worth
// little: slices come back, and health, as late as hysteresis allows for.
func (d *decision) nodeBack(text string) {
	c := &d.c
	if c.Outage == nil {
		return
	}
	if c.Phase == PhaseSuspect {
		c.GraceUntil = d.now.Add(max(c.Outage.Left, d.p.Hysteresis))
		if !c.HalfAt.IsZero() {
			c.HalfAt = later(c.HalfAt, c.GraceUntil.Add(-d.p.Grace/2))
		}
	}
	c.Outage, c.Looks = nil, 0
	if text != "" {
		d.notify(NoticeNodeBack, false, text)
	}
}

// nodeOut says why the node is out, as far as this look tells; Fresh where it doesn't.
func (d *decision) nodeOut(e Looked) device.Staleness {
	switch {
	case e.Node == "" || e.Presence != nil && e.Presence.Missing == device.NodeDeleted:
		return device.Fresh
	case d.p.Rules >= rulesOfProof && e.Readiness != "":
		return device.JudgeNode(d.heartbeat(), e.Readiness).Staleness()
	case d.heartbeat() == device.HeartbeatStopped:
		return device.NodeSilent
	case !e.NodeReady:
		return device.NodeNotReady
	}
	return device.Fresh
}

// heartbeat judges the node's Lease by what the looks found of it.
func (d *decision) heartbeat() device.Heartbeat {
	c := &d.c
	switch {
	case c.LookedAt.Sub(c.LeaseSince) > leaseStill:
		return device.HeartbeatStopped
	case !c.LeaseLives.IsZero() && c.LookedAt.Sub(c.LeaseLives) <= leaseStill:
		return device.HeartbeatAdvancing
	}
	return device.HeartbeatUnseen
}

// nodeLives tells whether the last look found that the node's Lease had been renewed
// since one shortly before, or just was.
func (d *decision) nodeLives() bool {
	return d.c.Node == "" || d.heartbeat() == device.HeartbeatAdvancing
}
