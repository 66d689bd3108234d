package quarantine

import (
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// A device plugin's list isn't in the API; how many devices are on it is. The
// kubelet says Healthy of a device that left the list, so the two are told apart by
// the number: a device that the plugin calls Unhealthy is on its list, and if it is
// called Healthy later while the list is shorter, it may be the one that left.
// docs/decisions/0008 tells the rule and its limits.

// entryLag is how long a Pod's status may go on saying Unhealthy of a device that
// left the list. The kubelet pushes a change of health, and not that a device is no
// longer there; that shows at the Pod's next sync, after 60 s and half of that again
// at most (--sync-frequency and its jitter; 7 to 87 s seen on 1.36.3).
const entryLag = 2 * time.Minute

// counted compares how many devices a look found listed with how many there are with
// this one among them, and answers for this one.
func (d *decision) counted(found Inventory, readings []Reading, asked time.Time) Inventory {
	c := &d.c
	if !found.Present || found.Listed == 0 {
		c.Shorter = Shorter{}
		return found
	}
	// An Unhealthy that is carried over from another replica of the chip doesn't prove
	// that this one is listed; no Healthy proves anything while the list is short.
	unhealthy := func(r Reading) bool { return !r.Monitor && r.Health == device.Unhealthy }
	healthy := func(r Reading) bool { return r.Health == device.Healthy }
	if slices.ContainsFunc(readings, unhealthy) {
		d.learn(found.Listed, asked)
		found.Listed = 0 // it is there, whatever the number says
		return found
	}
	c.Shorter = Shorter{}
	if found.Listed < c.Listed && slices.ContainsFunc(readings, healthy) {
		found.Present, found.Missing = false, device.MissingFromPlugin
	}
	return found
}

// learn takes in how long the list is while the plugin calls the device Unhealthy. A
// longer list counts at once. A shorter one may lack this very device, until the
// Pods' status would have shown it.
func (d *decision) learn(listed int64, asked time.Time) {
	c := &d.c
	switch {
	case listed >= c.Listed:
	case c.Shorter.Listed != listed:
		c.Shorter = Shorter{Listed: listed, Since: asked}
		return
	case asked.Sub(c.Shorter.Since) < entryLag:
		return
	}
	c.Listed, c.Shorter = listed, Shorter{}
}

// recounted asks for a look where the watch says that the list became longer or
// shorter: whether that is this device, only its Pods' entries can tell.
func (d *decision) recounted(e Inventory) {
	c := &d.c
	if c.Open() && e.Listed != 0 && c.Listed != 0 && e.Listed != c.Listed {
		d.lookBy(later(d.now, c.LookedAt.Add(d.p.RecheckFirst)))
	}
}

// stillShort answers for a device that was found to have left the list: it is on
// it again when the list is as long as it was, and not merely when there is one.
func (d *decision) stillShort(e Inventory) Inventory {
	c := &d.c
	if e.Present && e.Listed != 0 && e.Listed < c.Listed && c.Absence != nil && c.Absence.Reason == device.MissingFromPlugin {
		e.Present, e.Missing = false, device.MissingFromPlugin
	}
	return e
}

// doubted is what a look read, a Healthy not believed of a device that isn't on
// its plugin's list.
func (d *decision) doubted(readings []Reading) []Reading {
	if d.c.Absence == nil || d.c.Absence.Reason != device.MissingFromPlugin {
		return readings
	}
	readings = slices.Clone(readings)
	for i := range readings {
		if readings[i].Health == device.Healthy {
			readings[i].Stale = device.NotListed
		}
	}
	return readings
}
