package quarantine

import (
	"fmt"
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// A new mark needs a permit: how many devices may be kept out at once is bounded. A
// case whose mark was refused one is held. It waits in sight, goes on looking at its
// device, and when it is its turn it looks once more: what is still bad is marked, and
// what has become healthy meanwhile was never marked at all.

// Around is what bounds a device's mark counts in beside its node: as a starter saw it
// last.
type Around struct {
	// Classes are the device classes that admit the device, or its plugin's resource.
	Classes []string `json:"classes,omitempty"`
	// OnNode is how many devices its pool, or its plugin on its node, has.
	OnNode int `json:"onNode,omitempty"`
	// InClass and InCluster are how many devices its class and the cluster have.
	InClass   int `json:"inClass,omitempty"`
	InCluster int `json:"inCluster,omitempty"`
}

// maxClasses bounds the classes that a case remembers.
const maxClasses = 8

// around takes in what a starter saw around the device.
func (d *decision) around(a Around) {
	if len(a.Classes) > 0 {
		classes := slices.Clone(a.Classes[:min(len(a.Classes), maxClasses)])
		for i, name := range classes {
			classes[i] = clip(name, maxName)
		}
		d.c.Around.Classes = classes
	}
	if a.InCluster > 0 {
		d.c.Around.OnNode, d.c.Around.InClass, d.c.Around.InCluster = a.OnNode, a.InClass, a.InCluster
	}
}

// tenants are the namespaces whose Pods hold the device.
func (c Case) tenants() []string {
	var names []string
	add := func(pod device.PodRef) {
		if pod.Namespace != "" && !slices.Contains(names, pod.Namespace) {
			names = append(names, pod.Namespace)
		}
	}
	for _, h := range c.Holders {
		add(h.Pod)
	}
	for _, r := range c.Reports {
		if !r.Ended {
			add(r.Pod)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), maxClasses)]
}

// markHeld has a case wait whose mark was refused a permit.
func (d *decision) markHeld(e MarkReported) {
	m := &d.c.Mark
	switch {
	case d.p.Rules >= rulesOfBursts && m.State == MarkInForce:
		// One that is there needs no permit to be brought up to date.
		d.restoreDeleted("the mark was not there when it was to be written")
		return
	case m.State != MarkWanted && m.State != MarkRefused, d.p.Rules >= rulesOfBursts && e.Revision < m.Revision:
		// An answer to what was asked before says nothing of what is asked now.
		return
	}
	m.State, m.Tries = MarkHeld, 0
	m.RetryAt = d.now.Add(max(e.Again, d.p.RecheckFirst))
	detail := clip(e.Detail, maxText)
	if m.HeldSince.IsZero() {
		m.HeldSince = d.now
		d.notify(NoticeMarkHeld, true, "no permit for its mark now: "+detail)
	}
	m.Detail = detail
	c := &d.c
	// The look before it asks again is soon enough.
	enough := c.GoodSince.IsZero() && !c.DoubtedAt.After(c.LookedAt) && !c.LookedAt.IsZero()
	switch {
	case enough && (d.p.Rules >= rulesOfBursts || !c.LookAt.IsZero()):
		c.LookAt = later(m.RetryAt, c.LookHeld)
	case c.LookAt.IsZero():
		d.lookBy(d.now.Add(d.pause(c.Looks)))
	}
}

// permitOffered takes in that it is a held case's turn. The device is read anew first.
func (d *decision) permitOffered(e PermitOffered) {
	c := &d.c
	if e.Epoch != c.Epoch || !c.Open() || c.Mark.State != MarkHeld {
		return
	}
	c.Mark.RetryAt = d.now
	d.lookAnew()
}

// stepHeld goes on with a case that is held, and tells whether it is over. It asks
// again once it is time and a look from then on found the device no better.
func (d *decision) stepHeld() (closed bool) {
	c := &d.c
	switch {
	case c.Mark.State != MarkHeld:
		return false
	case c.Phase == PhaseQuarantined && d.goodFor(d.hysteresis()) && !d.handHolds():
		d.close(EndNeverMarked, fmt.Sprintf("held since %s and never marked; healthy on live reads since %s", stamp(c.Mark.HeldSince), stamp(c.GoodSince)))
		return true
	case c.Mark.RetryAt.After(d.now):
		return false
	case c.LookedAt.Before(c.Mark.RetryAt):
		d.lookBy(d.now)
		return false
	case !c.GoodSince.IsZero() && !d.handHolds():
		// It looks well now: the end of the window decides.
		return false
	}
	c.Mark.State, c.Mark.RetryAt = MarkWanted, time.Time{}
	return false
}

// observedAgain is how often a case that only observes asks whether its mark would have a
// permit: that it would doesn't stay so by itself.
const observedAgain = 20 * time.Minute

// asksPermit tells whether it is time to ask, in mode observe, for what isn't made.
func (d *decision) asksPermit() bool {
	c := &d.c
	return d.p.Rules >= rulesOfPermits && c.Open() && c.Mark.State == MarkObserved && !c.Mark.RetryAt.After(d.now)
}

// permitAnswered takes in whether the mark that isn't made would have a permit, and says
// so when that is news.
func (d *decision) permitAnswered(e PermitAnswered) {
	c := &d.c
	if e.Epoch != c.Epoch || !c.Open() || c.Mark.State != MarkObserved {
		return
	}
	m := &c.Mark
	again := observedAgain
	if !e.Granted && e.Again > 0 {
		again = max(min(e.Again, observedAgain), d.p.RecheckFirst)
	}
	m.RetryAt = d.now.Add(again)
	held := !m.HeldSince.IsZero()
	m.Detail = clip(e.Why, maxText)
	switch {
	case e.Granted && held:
		m.HeldSince, m.Detail = time.Time{}, ""
		d.notify(NoticeMarkHeld, false, "mode observe: its mark would have a permit now")
	case e.Granted:
		m.Detail = ""
	case !held:
		m.HeldSince = d.now
		d.notify(NoticeMarkHeld, false, "mode observe: its mark would have to wait: "+m.Detail)
	}
}
