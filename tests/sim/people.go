package main

import (
	"time"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// This file is what people do. The core has no recovery gates yet: a quarantined device
// stays out until somebody looks after it. Here a person does, some hours after it was
// quarantined or restricted: gives a good one back, and repairs a broken one first. It
// stands for the gates, and is replaced by them once they are there.

// again is when a person comes again who found that nothing can be done yet.
const again = time.Hour

// visits has a person look after a device, unless one is on the way.
func (w *world) visits(u *unitOf) {
	if u.visiting {
		return
	}
	u.visiting = true
	// By the day, so that policies that find the same a little later meet the same person.
	c := stream(w.seed, "visit", uint64(u.number), uint64(w.now/day))
	w.at(w.now+c.lognormal(w.rates.lasts[visit], 0.7), func() { w.visited(u, c) })
}

func (w *world) visited(u *unitOf, c *chance) {
	w.hold(u)
	switch {
	case u.node.out:
		w.at(w.now+again, func() { w.visited(u, c) })
	case u.markBusy:
		w.at(w.now+writeRetry, func() { w.visited(u, c) }) // not in the middle of a write
	case u.defect != sound:
		// Taken out by hand, if nothing else kept it out; its holder loses it.
		u.byHand = true
		w.got.takenOut(w, u)
		if u.held() {
			u.pod, u.heldTill = "", w.now+u.chance.exponential(w.rates.lasts[freeFor])
			w.delivered(u)
			w.mind(u)
		}
		w.at(w.now+c.lognormal(w.rates.lasts[repair], 0.7), func() { w.repaired(u) })
	case u.c.Phase == quarantine.PhaseQuarantined && u.says(w.now) == healthy:
		u.visiting = false
		w.givenBack(u)
	case u.c.Phase == quarantine.PhaseRestricted && !u.held() && quarantine.Refuse(u.c, release) == nil:
		u.visiting = false
		w.tell(u, release)
		if u.c.Phase == quarantine.PhaseRestricted {
			w.visits(u)
		}
	case u.c.Phase == quarantine.PhaseQuarantined, u.c.Phase == quarantine.PhaseRestricted:
		w.at(w.now+again, func() { w.visited(u, c) })
	default:
		u.visiting = false
	}
}

var release = quarantine.Message{Verb: quarantine.VerbRelease, Actor: "operator", Reason: "looked after"}

// repaired puts a good device in the place of a broken one.
func (w *world) repaired(u *unitOf) {
	if u.markBusy {
		w.at(w.now+writeRetry, func() { w.repaired(u) })
		return
	}
	w.hold(u)
	w.got.repaired(w, u)
	u.defect, u.byHand, u.visiting = sound, false, false
	if u.node.accuser == u {
		u.node.accuser = nil
		w.spokeAll(u.node)
	}
	w.spoke(u)
	if u.c.Phase == quarantine.PhaseQuarantined {
		w.givenBack(u)
	} else if u.c.Open() {
		w.visits(u)
	}
}

// givenBack ends a quarantine: what the gates will do.
func (w *world) givenBack(u *unitOf) {
	epoch := u.c.Epoch
	w.got.waitOver(w, u)
	w.unmark(u)
	u.c = quarantine.Case{Device: u.key, Node: u.node.name}
	u.wakeGen++
	u.wakeAt = time.Time{}
	u.watch.faulty, u.watch.told = false, ""
	w.returned(u, epoch)
	u.unhealthy = false
	// What its Pods' status still says is of before.
	u.api, u.kubelet = u.said, u.said
	w.guard.follow(u)
	w.mind(u)
}
