package isolation

import (
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// Step is what is to be done next: one of Look, Put and Lift, or nothing (nil).
type Step any

// Due tells what is to be done now. One step at a time is under way, and what comes of it
// is an event.
func Due(i Isolation, now time.Time, p Policy) Step {
	due := func(at time.Time) bool { return !at.After(now) }
	switch {
	case !i.Open():
		return nil
	case !i.LookAt.IsZero() && due(i.LookAt):
		return look(i, p)
	case !due(i.RetryAt):
		return nil
	case wantsLift(i, now, p):
		return Lift{Node: i.Node, Epoch: i.Epoch}
	case wantsPut(i, p):
		if now.Sub(i.LookedAt) > fresh {
			return look(i, p)
		}
		since := i.Mark.Since
		if since.IsZero() {
			since = now
		}
		return Put{
			Node: i.Node, Epoch: i.Epoch, Way: p.Way, Since: since, Ground: i.Ground, Levels: i.Levels,
			Observe: !p.enforces(), Again: i.Mark.Way != "",
		}
	}
	return nil
}

func look(i Isolation, p Policy) Look {
	l := Look{Node: i.Node, Epoch: i.Epoch, Conditions: p.Conditions}
	for _, f := range i.Levels.Faulty {
		if !f.Marked {
			l.Devices = append(l.Devices, f)
		}
	}
	return l
}

// wantsLift tells whether what Sickbay wrote on the node is to be taken off. A node that
// is out keeps it, unless somebody said so.
func wantsLift(i Isolation, now time.Time, p Policy) bool {
	if i.Mark.Way == "" || !p.enforces() {
		return false
	}
	if i.Lifting || !p.isolates() {
		return true
	}
	over := i.UnjustifiedSince.Add(p.Calm)
	return !i.UnjustifiedSince.IsZero() && !over.After(now) && !i.LookedAt.Before(over) && i.Verdict == device.NodeUp
}

// wantsPut tells whether the node is to be kept out and isn't, or not in that way.
func wantsPut(i Isolation, p Policy) bool {
	if i.Lifting || i.Phase == Spared || !p.isolates() || i.Verdict != device.NodeUp || i.LookedAt.IsZero() ||
		i.Waiting == WaitsNode || !i.Justified {
		return false
	}
	switch {
	case !p.enforces():
		return i.Phase == Considered && i.Mark.Way == ""
	case i.Mark.Way == "":
		return i.Waiting != WaitsOthers || p.Way == Taint
	}
	return i.Mark.Missing || i.Mark.Way != p.Way
}

// NextWake is the next moment at which something is to be done, or zero.
func NextWake(i Isolation, now time.Time, p Policy) time.Time {
	if !i.Open() {
		return time.Time{}
	}
	next := i.LookAt
	wants := wantsPut(i, p) || i.Mark.Way != "" && p.enforces() && (i.Lifting || !p.isolates() || !i.UnjustifiedSince.IsZero())
	if wants && i.RetryAt.After(now) && (next.IsZero() || i.RetryAt.Before(next)) {
		next = i.RetryAt
	}
	return next
}
