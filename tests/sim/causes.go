package main

import "time"

// cause is what a mark of a sound device came of.
type cause int

const (
	byAlarm cause = iota
	byAccusation
	byVersion
	bySilence
	byGlitch
	byThePast
	causes
)

func (c cause) String() string {
	return [causes]string{
		"its driver called it Unhealthy, and took that back later", "another device of the node was broken", "a bad version of the driver",
		"its driver was silent", "its own health was Unknown for a while", "what was over by then",
	}[c]
}

// causeOf is why a sound device is marked now.
func causeOf(u *unitOf, now time.Duration) cause {
	switch n := u.node; {
	case n.bad:
		return byVersion
	case n.accuser != nil:
		return byAccusation
	case u.falseFor > now:
		return byAlarm
	case n.silentUntil > now:
		return bySilence
	case u.glitch > now:
		return byGlitch
	}
	return byThePast
}

// miss is why a fault of which its driver said something was never kept out.
type miss int

const (
	forBudget miss = iota
	unseen
	tooLate
	misses
)

func (m miss) String() string {
	return [misses]string{"there was no permit", "no Pod had the device, so that nothing was reported", "people came first"}[m]
}

// missOf is why a broken device was not kept out before people took it out.
func missOf(u *unitOf) miss {
	switch {
	case u.heldSince >= 0:
		return forBudget
	case u.shownAt < 0:
		return unseen
	}
	return tooLate
}
