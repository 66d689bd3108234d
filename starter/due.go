package starter

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reading"
)

// maxReadings bounds the readings in one signal; a case keeps no more. The
// gravest go first.
const maxReadings = 32

// delivery is one thing that is owed to a device's case.
type delivery struct {
	key   device.Key
	event quarantine.Event
	// open starts a case if there is none; otherwise only an open case hears of it.
	open bool
	// check asks whether the device's mark has its case before anything is sent.
	check   bool
	urgency urgency
	// since is when the oldest of the news came.
	since time.Time
	// told are the readings that are news, by Pod, as they were sent.
	told map[string]device.Report
	// worst are the faults that were sent although they are over.
	worst map[string]quarantine.Reading
}

// owes tells whether anything is owed to the device's case now, and how urgently.
// A device that is well and never was otherwise owes nothing.
func (t *tracker) owes(r *record) (urgency, bool) {
	grave, open := t.owesReadings(r)
	switch {
	case t.wantsCheck(r):
		return urgencyCase, true
	case grave:
		return urgencyFault, true
	case open || r.adopt || t.wantsInventory(r) && r.inventory.open:
		return urgencyCase, true
	case (r.maybe || r.governed) && (t.wantsInventory(r) || r.markNews != nil || t.tellable(r) || r.governed):
		return urgencyNews, true
	}
	return 0, false
}

// owesReadings tells whether readings call for a case that doesn't know them:
// open for any, grave where one is a fault and not only an Unknown. What waits for an
// incident calls for none yet.
func (t *tracker) owesReadings(r *record) (grave, open bool) {
	grave, open = t.callsFor(r)
	switch {
	case grave && t.inCrowd(r), open && !grave && t.waits(r):
		return false, false
	}
	return grave, open
}

// wantsCheck tells whether it has to be asked whether the device's case is still open,
// before it is known what is owed to it.
func (t *tracker) wantsCheck(r *record) bool {
	if t.guard == nil || !r.doubtful || r.mark != nil {
		return false
	}
	_, calls := t.callsFor(r)
	return calls
}

// callsFor is owesReadings without a look at what else there is.
func (t *tracker) callsFor(r *record) (grave, open bool) {
	if t.isOut(r) {
		return false, false
	}
	for _, s := range r.readings {
		switch {
		case s.worst != nil:
			grave, open = true, true
		case !t.bad(r, s.now) || !s.untold():
		case s.now.Ended && (s.now.Counts() == device.Unknown || s.toldBeforeItEnded()):
			// Nobody misses an Unknown that ended with its Pod, and a fault that the
			// case knows needs no case: that the Pod ended is only worth telling.
		default:
			open = true
			grave = grave || s.now.Health == device.Unhealthy
		}
	}
	return grave, open
}

// tellable tells whether readings are news to an open case. While a case waits to be
// opened, only one that is known to be open is told.
func (t *tracker) tellable(r *record) bool {
	if !r.opened && t.guard != nil {
		if _, calls := t.callsFor(r); calls {
			return false
		}
	}
	return t.untold(r)
}

// untold tells whether any reading is news that may be told.
func (t *tracker) untold(r *record) bool {
	if t.isOut(r) {
		return false
	}
	for _, s := range r.readings {
		if s.worst != nil || s.untold() {
			return true
		}
	}
	return false
}

// due works out, from what is known at this moment, what is owed to a device's
// case next.
func (t *tracker) due(key device.Key) (delivery, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.devices[key]
	if r == nil {
		return delivery{}, false
	}
	u, owed := t.owes(r)
	if !owed {
		return delivery{}, false
	}
	d := t.next(r)
	d.key, d.urgency = key, u
	return d, true
}

// next is what is owed first of all that is owed.
func (t *tracker) next(r *record) delivery {
	_, open := t.owesReadings(r)
	switch {
	case r.adopt:
		return delivery{open: true, event: quarantine.MarkSeen{
			Node: r.mark.node, Present: true, Intact: r.mark.intact, Mark: r.mark.found,
		}}
	case t.wantsCheck(r):
		return delivery{check: true}
	case open && r.mark != nil && !r.checked && r.mark.found.Epoch != r.made.Epoch:
		// With an empty Temporal the mark's own case comes first.
		return delivery{check: true}
	case open:
		return t.readingsDue(r, true)
	case t.wantsInventory(r) && r.inventory.open:
		return delivery{event: r.inventory.want, open: true}
	case t.tellable(r):
		return t.readingsDue(r, false)
	case r.markNews != nil:
		return delivery{event: *r.markNews}
	case r.governed:
		return t.readingsDue(r, false)
	}
	return delivery{event: r.inventory.want}
}

// readingsDue puts a signal with readings together: all that live Pods say, and of
// ended ones what the case doesn't know.
func (t *tracker) readingsDue(r *record, open bool) delivery {
	d := delivery{open: open, told: map[string]device.Report{}, worst: map[string]quarantine.Reading{}}
	lost, about := false, false
	var readings []quarantine.Reading
	for _, uid := range slices.SortedFunc(maps.Keys(r.readings), strings.Compare) {
		s := r.readings[uid]
		if s.worst != nil {
			readings = append(readings, *s.worst)
			d.worst[uid] = *s.worst
		}
		if !s.now.Ended || s.untold() {
			readings = append(readings, s.now)
		}
		if s.untold() || s.worst != nil {
			d.told[uid] = s.now.Report
			// What the delivery is about came when its first bad news did, or without
			// any when the first of the rest did.
			switch bad := s.worst != nil || t.bad(r, s.now); {
			case d.since.IsZero(), bad && !about, bad == about && s.since.Before(d.since):
				d.since, about = s.since, bad
			}
		}
		lost = lost || s.now.Counts() == device.Unknown && t.lost(r)
	}
	sent := t.clock.Now()
	d.event = quarantine.Observed{
		Node: r.node, Readings: dated(bound(readings), sent), Lost: lost, Incarnation: t.incarnation(r.key), Sent: sent,
		Around: t.bounds(r.key, r.node), Made: r.made,
	}
	return d
}

// dated gives readings the dates that they have on this clock as it goes now. It may
// have been set since they were taken; how long ago that was, the monotonic clock tells.
func dated(readings []quarantine.Reading, sent time.Time) []quarantine.Reading {
	for i, r := range readings {
		if !r.Observed.IsZero() {
			readings[i].Observed = sent.Add(-sent.Sub(r.Observed))
		}
	}
	return readings
}

// bound keeps the gravest readings. Those of one Pod stay in the order in which
// they were taken.
func bound(readings []quarantine.Reading) []quarantine.Reading {
	if len(readings) <= maxReadings {
		return readings
	}
	slices.SortStableFunc(readings, func(a, b quarantine.Reading) int {
		switch {
		case reading.Graver(a, b):
			return -1
		case reading.Graver(b, a):
			return 1
		}
		return 0
	})
	readings = readings[:maxReadings]
	slices.SortStableFunc(readings, func(a, b quarantine.Reading) int { return strings.Compare(a.Pod.UID, b.Pod.UID) })
	return readings
}

// incarnation is the hardware behind the name, as the slices say.
func (t *tracker) incarnation(key device.Key) device.Incarnation {
	p := t.poolOf(key)
	if p == nil {
		return device.Incarnation{}
	}
	listed, _ := p.believed().Find(key.Device)
	return listed.Incarnation
}

// delivered takes in that a case acknowledged a delivery.
func (t *tracker) delivered(d delivery) {
	t.do(func() {
		r := t.devices[d.key]
		if r == nil {
			return
		}
		if d.open {
			r.maybe, r.opened, r.checked, r.doubtful = true, true, true, false
			r.ahead, r.made = false, quarantine.Made{}
		}
		// Whatever a case is told is a decision, by what holds then.
		r.governed = false
		switch e := d.event.(type) {
		case quarantine.Observed:
			t.readingsTold(r, d)
			if r.inventory.hardware.IsZero() {
				r.inventory.hardware = e.Incarnation
			}
		case quarantine.Inventory:
			t.inventoryTold(r, e)
		case quarantine.MarkSeen:
			if r.markNews != nil && *r.markNews == e {
				r.markNews = nil
			}
			r.adopt = r.adopt && !d.open
		}
		t.dropIfIdle(r)
	})
}

func (t *tracker) readingsTold(r *record, d delivery) {
	for uid, report := range d.told {
		s := r.readings[uid]
		if s == nil {
			continue
		}
		if s.worst != nil && (*s.worst == d.worst[uid] || s.worst.Report == report) {
			s.worst = nil
		}
		s.told = &report
		if s.untold() {
			continue
		}
		if s.now.Ended && s.worst == nil {
			// It is the case's history from now on.
			delete(r.readings, uid)
		}
	}
	bad := func(s *said) bool { return s.worst != nil || t.bad(r, s.now) }
	if !slices.ContainsFunc(slices.Collect(maps.Values(r.readings)), bad) {
		// The case may end by this, and its workflow lives on for a while. If it has
		// ended, what comes next has to wait for whether it is one of many.
		r.opened, r.doubtful = false, r.opened || r.doubtful
	}
	t.follow(r)
}

func (t *tracker) inventoryTold(r *record, e quarantine.Inventory) {
	i := &r.inventory
	i.told, i.unsure = e, false
	if e.Present && e.MovedTo == "" && !e.Now.IsZero() {
		i.hardware = e.Now
	}
	if i.want == e {
		i.wanted = false
	}
}

// noCase takes in that a device turned out to have no open case. If it is bad all
// the same, its case is opened anew; if not, there is nothing left to tell. One
// that is missing was forgotten, and isn't expected any more.
func (t *tracker) noCase(key device.Key) {
	t.do(func() {
		if r := t.devices[key]; r != nil {
			if p := t.poolOf(key); p != nil && r.inventory.told.Missing != "" {
				p.forget(key)
				t.shift(key)
			}
			t.caseOver(r)
			t.touch(key)
			t.dropIfIdle(r)
		}
	})
}

// caseLost takes in that no case runs for a device, and tells whether one should have:
// a case that had heard that all is well may be over.
func (t *tracker) caseLost(key device.Key) (expected bool) {
	t.do(func() {
		if r := t.devices[key]; r != nil {
			expected = !r.doubtful
			t.caseOver(r)
			t.touch(key)
			if p := t.poolOf(key); p != nil {
				p.dirty = true
			}
		}
	})
	return expected
}

func (t *tracker) caseOver(r *record) {
	r.maybe, r.opened, r.doubtful, r.markNews, r.governed = false, false, false, nil, false
	r.ahead, r.made = false, quarantine.Made{}
	r.adopt, r.checked = r.mark != nil, r.mark != nil
	if !r.inventory.open {
		r.inventory.wanted = false
	}
	r.inventory.told, r.inventory.unsure = quarantine.Inventory{}, false
	for uid, s := range r.readings {
		switch {
		case s.now.Ended && s.told != nil:
			delete(r.readings, uid)
		case t.bad(r, s.now):
			s.told, s.since = nil, t.clock.Now()
			r.maybe = true
		}
	}
}

// caseFound takes in that a device's mark has its case.
func (t *tracker) caseFound(key device.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.devices[key]; r != nil {
		r.checked, r.opened, r.doubtful = true, true, false
	}
}

// expected lists the devices that should have an open case: those with a mark,
// and those that live Pods call bad and whose case knows it.
func (t *tracker) expected() []device.Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	var keys []device.Key
	for key, r := range t.devices {
		known := func() bool {
			for _, s := range r.readings {
				if !s.now.Ended && !s.untold() && t.bad(r, s.now) {
					return true
				}
			}
			return false
		}
		// One whose mark was made ahead of its case is about to get it.
		if r.made.Epoch == 0 && (r.mark != nil || known()) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, device.Key.Compare)
	return keys
}
