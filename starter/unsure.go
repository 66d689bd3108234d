package starter

import (
	"fmt"
	"strings"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/pkg/reading"
)

// An incident ends when few of its devices are left. A starter that has just begun, or
// that can't see, counts few, too. So it tells what it doesn't know beside what it
// counts, and who isn't sure ends no incident.

// unsure says why there may be more Unknown devices in a scope than are counted; it is
// empty where there aren't.
func (t *tracker) unsure(scope incident.Scope) string {
	var why []string
	if !t.complete {
		why = append(why, "not everything has been listed yet")
	}
	if !t.blindSince.IsZero() {
		why = append(why, "it can't watch everything")
	}
	if n := t.unremembered(scope); n > 0 {
		why = append(why, fmt.Sprintf("%d are Unknown of which it can't be read whether they ever reported health", n))
	}
	if n := t.unvouchedYet(scope); n > 0 {
		why = append(why, fmt.Sprintf("of %d nobody has stood behind what is said of them for a while", n))
	}
	return strings.Join(why, "; ")
}

// unremembered counts the devices of a scope whose Unknown is a loss or not, depending
// on what earlier starters wrote down, as long as that isn't read. A starter that is
// alone never reads it.
func (t *tracker) unremembered(scope incident.Scope) int {
	if t.recalled || scope.Kind == incident.Crowd {
		return 0
	}
	n := 0
	for key, r := range t.devices {
		driver := reading.DriverOf(key)
		if !scope.Covers(r.node, driver) || t.drivers[driver].Unknown == UnknownIgnore || t.lost(r) || t.isOut(r) {
			continue
		}
		for _, s := range r.readings {
			if !s.now.Ended && s.now.Counts() == device.Unknown {
				n++
				break
			}
		}
	}
	return n
}

// unvouchedYet counts the devices of a scope that will be Unknown soon unless their
// driver or plugin shows itself.
func (t *tracker) unvouchedYet(scope incident.Scope) int {
	if scope.Kind == incident.Crowd {
		return 0
	}
	n := 0
	for key := range t.away {
		if _, already := t.absent[key]; already || t.hidden(key) || t.poolHeld(key) {
			continue
		}
		for one := range t.devicesByPool[key] {
			if r := t.devices[one]; r != nil && len(r.readings) > 0 && scope.Covers(r.node, key.Driver) {
				n++
			}
		}
	}
	for p := range t.empty {
		if _, already := t.unvouched[p]; already || t.outages[p] != nil || !scope.Covers(p.node, p.driver) {
			continue
		}
		n += len(t.devicesByPair[p])
	}
	return n
}
