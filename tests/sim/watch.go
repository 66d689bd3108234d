package main

import (
	"slices"
	"strconv"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// This file is what the starter does: it tells cases what the watch brings, and opens
// them unless many devices at once are one incident (guard.go).

// watched is what the starter knows of a device.
type watched struct {
	pending bool // it hears of it when the API server is back
	told    string

	// An episode of Unknown, as in the starter.
	unknown                bool
	since, until           time.Duration
	over                   bool
	through, counted, open bool

	// A fault, and the crowd that it waits in.
	faulty bool
	at     time.Duration
	crowd  incident.Scope
}

// delivered has the watch bring what the API says of a device.
func (w *world) delivered(u *unitOf) {
	if w.apiUntil <= w.now {
		w.heard(u)
		return
	}
	if !u.watch.pending {
		u.watch.pending = true
		w.at(w.apiUntil+time.Second, func() {
			u.watch.pending = false
			w.delivered(u)
		})
	}
}

// heard takes in what is said of a device. While its node is out nothing counts.
func (w *world) heard(u *unitOf) {
	if u.node.held {
		return
	}
	w.hold(u)
	w.guard.follow(u)
	w.tellDue(u)
}

// reading is what the API says of a device's Pod.
func (w *world) reading(u *unitOf) quarantine.Reading {
	r := quarantine.Reading{Report: device.Report{
		Pod: device.PodRef{Namespace: "jobs", Name: u.pod, UID: u.pod}, Node: u.node.name, Claim: u.pod,
		Health: u.api.health, Message: u.api.message, Version: device.Version(strconv.Itoa(u.version)),
		Observed: began.Add(u.podSeen),
	}}
	if r.Health == device.Unhealthy {
		r.Reason = w.match(u.key.Driver, r.Message)
		r.Fault = r.Reason.DeviceFault()
	}
	return r
}

// faultShows and unknownShows tell what a live Pod says.
func (w *world) faultShows(u *unitOf) bool {
	return u.held() && u.api.health == device.Unhealthy && w.match(u.key.Driver, u.api.message).DeviceFault()
}

func (u *unitOf) unknownShows() bool { return u.held() && u.api.health == device.Unknown }

// tellDue tells a device's case what it doesn't know, and opens one if that calls for it.
func (w *world) tellDue(u *unitOf) {
	open := u.c.Open()
	if !open {
		switch {
		case w.faultShows(u):
			if w.guard.inCrowd(u) {
				return
			}
		case u.unknownShows():
			if w.guard.waits(u) {
				return
			}
		default:
			return
		}
	}
	var readings []quarantine.Reading
	told := ""
	for _, known := range u.c.Reports {
		if open && !known.Ended && known.Pod.UID != u.pod {
			ended := quarantine.Reading{Report: known}
			ended.Ended = true
			if known.Health == device.Unhealthy {
				ended.Reason = w.match(u.key.Driver, known.Message)
			}
			readings = append(readings, ended)
			told += known.Pod.UID + " ended "
		}
	}
	if u.held() {
		readings = append(readings, w.reading(u))
		told += u.pod + strconv.Itoa(u.version)
	}
	if len(readings) == 0 || open && told == u.watch.told {
		return
	}
	u.watch.told = told
	all, of := w.size()
	u.watch.open = true
	w.tell(u, quarantine.Observed{
		Node: u.node.name, Readings: readings, Lost: u.unknownShows(),
		Around: quarantine.Around{OnNode: len(u.node.units), InClass: of[u.key.Driver], InCluster: all},
	})
}

// look answers a case's live look as the API would.
func (w *world) look(u *unitOf, c quarantine.Look) quarantine.Looked {
	if w.apiUntil > w.now {
		return quarantine.Looked{Asked: c.Asked, Failed: "the API server is away"}
	}
	w.hold(u)
	n := u.node
	looked := quarantine.Looked{Asked: c.Asked, Node: n.name, NodeReady: true, Readiness: device.ReadyTrue, Driver: w.sign(u)}
	renewed := w.now
	if n.out {
		renewed = n.outSince
		if w.now-n.outSince >= leaseStill {
			looked.NodeReady, looked.Readiness = false, device.ReadyUnknown
		}
	}
	looked.NodeLease = renewed.Truncate(10 * time.Second).String()
	if u.held() {
		r := w.reading(u)
		r.Observed = w.time()
		looked.Readings = []quarantine.Reading{r}
		looked.Holders = []quarantine.Holder{{Pod: r.Pod, Claim: r.Claim}}
	}
	for _, pod := range c.Known {
		if pod.UID != u.pod {
			looked.Ended = append(looked.Ended, pod.UID)
		}
	}
	if n.wipedUntil <= w.now {
		looked.Presence = &quarantine.Inventory{Node: n.name, Present: true}
		looked.Slices = strconv.Itoa(n.published)
	}
	if u.mark != nil {
		found := *u.mark
		looked.Mark, looked.MarkIntact = &found, true
	}
	return looked
}

// sign is what the Pods on a device's node say of its driver's other devices.
func (w *world) sign(u *unitOf) quarantine.DriverSign {
	sign := quarantine.DriverSilent
	for _, other := range u.node.units {
		if other == u {
			continue
		}
		w.hold(other)
		switch {
		case !other.held():
		case other.api.health == device.Unknown:
			return quarantine.DriverUnknown
		default:
			sign = quarantine.DriverSpeaks
		}
	}
	return sign
}

// byNumber orders devices, so that nothing depends on the order of a map.
func byNumber(a, b *unitOf) int { return a.number - b.number }

// include adds a device to a sorted list.
func include(list []*unitOf, u *unitOf) []*unitOf {
	if i, there := slices.BinarySearchFunc(list, u, byNumber); !there {
		return slices.Insert(list, i, u)
	}
	return list
}

// exclude takes a device from a sorted list.
func exclude(list []*unitOf, u *unitOf) []*unitOf {
	if i, there := slices.BinarySearchFunc(list, u, byNumber); there {
		return slices.Delete(list, i, i+1)
	}
	return list
}
