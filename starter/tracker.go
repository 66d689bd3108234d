package starter

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reading"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// tracker is what is known in memory of all devices, Pods, claims, pools, nodes
// and marks, and of what was told about them. It keeps its own views, and doesn't
// look things up in the informers' caches, because a cache may be ahead of the
// events that were delivered so far: a Pod would seem to go back in time.
//
// One mutex guards all of it. Methods are short, wait for nothing and call
// nothing outside while they hold it.
type tracker struct {
	clock     clock.PassiveClock
	catalogue *reason.Catalogue
	drivers   map[string]DriverPolicy
	ours      device.Ours
	delay     func(driver string) time.Duration
	timing    Timing
	settling  *settling
	log       *slog.Logger
	metrics   *metrics
	// guard is nil where nobody keeps incidents.
	guard *guard
	// upgrades are what operators announced; see upgrades.go.
	upgrades []budget.Pause

	mu sync.Mutex
	// notify is told of devices that have something to be told. It is nil while
	// this starter doesn't lead.
	notify func(device.Key, urgency)
	// following is since when this starter hasn't led.
	following time.Time
	// ledSince is since when it has.
	ledSince time.Time

	pods     map[string]*pod   // by UID
	podNames map[string]string // namespace/name → UID
	claims   map[string]device.Claim
	pools    map[device.PoolKey]*pool
	sliceOf  map[string]device.PoolKey // slice name → its pool
	nodes    map[string]node
	devices  map[device.Key]*record
	// empty is since when a node has nothing of a resource allocatable that Pods there
	// have devices of; unvouched is where that has lasted.
	empty     map[pair]time.Time
	unvouched map[pair]struct{}
	// away is since when a pool that Pods have devices of has been gone or incomplete;
	// absent is where that has lasted.
	away   map[device.PoolKey]time.Time
	absent map[device.PoolKey]struct{}
	// sighted is when something was last not to be seen; blindSince is since when, or
	// zero while everything is seen.
	sighted, blindSince time.Time
	// unprepared holds the Pods that wait for devices of pools that are gone.
	unprepared map[string]*unprepared
	// known holds the drivers that reported a health on a node: they have a health
	// service there.
	known map[pair]struct{}
	// recalled is set once it is read which of them earlier starters knew.
	recalled bool
	marks    map[string]device.Key // rule name → the device that it marks
	foreign  map[string]string     // rule name → what it selects
	counted  eligible
	// wholes is what nodes show of themselves as a whole, of those that show anything;
	// unmarkable is set where no device taint rules are served.
	wholes     map[string]wholeNode
	unmarkable bool

	// show is told of devices of which something changed that is seen, be it news
	// to a case or not; shifted holds them until the lock is given up. It is nil
	// without a directory.
	show    func(...device.Key)
	shifted map[device.Key]struct{}

	// ready is what nodes say of themselves, beats how their Leases behave.
	ready map[string]device.Readiness
	beats map[string]nodeBeat
	// beatsListed is when all Leases were last listed, and at which version.
	beatsListed  time.Time
	beatsVersion device.Version
	// outages is what isn't judged because its node is out, nodesOut how many of
	// these a node has.
	outages  map[pair]*outage
	nodesOut map[string]int

	podsByClaim   index[string, string]
	podsByPool    index[device.PoolKey, string]
	podsByChip    index[device.Key, string]
	claimsByPool  index[device.PoolKey, string]
	devicesByPool index[device.PoolKey, device.Key]
	devicesByNode index[string, device.Key]
	devicesByPair index[pair, device.Key]
	// totals are how many devices there are by pair.
	totals *incident.Totals
	// chips leads from the chip behind device-plugin IDs to those known of it.
	chips index[device.Key, device.Key]

	// again holds the UIDs of Pods to be evaluated before the lock is given up,
	// touched the devices about which something may be owed since.
	again   map[string]struct{}
	touched map[device.Key]struct{}
	// complete is set once claims, slices and nodes have been listed: before
	// that, nothing is concluded from what isn't there.
	complete bool
}

// index finds what refers to something.
type index[K, V comparable] map[K]map[V]struct{}

func (i index[K, V]) add(key K, value V) {
	if i[key] == nil {
		i[key] = map[V]struct{}{}
	}
	i[key][value] = struct{}{}
}

func (i index[K, V]) remove(key K, value V) {
	delete(i[key], value)
	if len(i[key]) == 0 {
		delete(i, key)
	}
}

// record is one device.
type record struct {
	key  device.Key
	node string
	// readings holds what each Pod says of the device, by the Pod's UID.
	readings map[string]*said
	// maybe is set while a case may exist: something bad was seen, or a mark is there.
	maybe bool
	// opened is set while this starter knows that a case is open.
	opened bool
	// doubtful is set once its case was told that all is well: it may be over since.
	doubtful bool
	// unknown and fault are how long it has been so; see guard.
	unknown episode
	fault   fault
	// governed is set while its case is to be told that the policy changed.
	governed bool
	// watched counts readings that the catalogue only watches.
	watched int

	inventory inventory
	mark      *mark
	// markNews is what the case doesn't know of its mark yet.
	markNews *quarantine.MarkSeen
	// adopt asks for a case to be opened for the mark.
	adopt bool
	// ahead is set once the mark of the case that is about to be opened was asked for
	// ahead of it, and made is that mark if it was made.
	ahead bool
	made  quarantine.Made
	// checked is set once the mark was found to have its case since this starter leads.
	checked bool
}

// said is what one Pod says of one device.
type said struct {
	now    quarantine.Reading
	own    bool
	seenOn device.Key
	// worst is a fault that the Pod reported since the last signal and doesn't
	// report any more. Coalescing must not swallow it.
	worst *quarantine.Reading
	// told is the reading that the case acknowledged last; nil for none.
	told *device.Report
	// since is when the untold news came; ended when the Pod went.
	since, ended time.Time
}

// untold tells whether the present reading isn't what the case knows: the
// deduplication by node, device, Pod and status version.
func (s *said) untold() bool {
	return s.told == nil || s.told.Version != s.now.Version || !s.told.Says(s.now.Report)
}

// toldBeforeItEnded tells whether the case knows the reading, and doesn't know
// only that its Pod ended.
func (s *said) toldBeforeItEnded() bool {
	live := s.now.Report
	live.Ended = false
	return s.told != nil && s.told.Version == live.Version && s.told.Says(live)
}

// pair is a driver (or plugin's resource) on a node.
type pair struct{ driver, node string }

func newTracker(o Options, settling *settling, m *metrics) *tracker {
	var many *guard
	if o.Incidents != nil {
		many = newGuard(o.Storm)
	}
	return &tracker{
		guard:     many,
		following: o.Clock.Now(),
		clock:     o.Clock, catalogue: o.Catalogue, drivers: o.Drivers, ours: o.Ours, delay: o.Delay, timing: o.Timing, settling: settling, log: o.Log, metrics: m,
		pods: map[string]*pod{}, podNames: map[string]string{}, claims: map[string]device.Claim{},
		pools: map[device.PoolKey]*pool{}, sliceOf: map[string]device.PoolKey{}, nodes: map[string]node{},
		devices: map[device.Key]*record{}, known: map[pair]struct{}{},
		empty: map[pair]time.Time{}, unvouched: map[pair]struct{}{},
		away: map[device.PoolKey]time.Time{}, absent: map[device.PoolKey]struct{}{},
		marks: map[string]device.Key{}, foreign: map[string]string{}, wholes: map[string]wholeNode{},
		podsByClaim: index[string, string]{}, podsByPool: index[device.PoolKey, string]{},
		podsByChip: index[device.Key, string]{}, claimsByPool: index[device.PoolKey, string]{},
		devicesByPool: index[device.PoolKey, device.Key]{}, devicesByNode: index[string, device.Key]{},
		devicesByPair: index[pair, device.Key]{}, totals: incident.NewTotals(), chips: index[device.Key, device.Key]{},
		again: map[string]struct{}{}, touched: map[device.Key]struct{}{},
		shifted: map[device.Key]struct{}{}, ready: map[string]device.Readiness{},
		beats: map[string]nodeBeat{}, outages: map[pair]*outage{}, nodesOut: map[string]int{},
	}
}

// news is a device about which something is owed, and how urgently.
type news struct {
	key     device.Key
	urgency urgency
}

// do runs one step under the lock, brings everything that follows from it up to
// date, and tells of the devices that have news.
func (t *tracker) do(step func()) {
	t.mu.Lock()
	step()
	for len(t.again) > 0 {
		uids := slices.Sorted(maps.Keys(t.again))
		clear(t.again)
		for _, uid := range uids {
			if p := t.pods[uid]; p != nil && !p.ended {
				t.evaluate(p)
			}
		}
	}
	disturbed := len(t.touched) > 0
	found := t.takeTouched()
	notify, show, shifted := t.notify, t.show, t.takeShifted()
	t.mu.Unlock()
	if show != nil && len(shifted) > 0 {
		show(shifted...)
	}
	if disturbed {
		t.settling.disturb()
	}
	if notify == nil {
		return
	}
	for _, n := range found {
		notify(n.key, n.urgency)
	}
}

func (t *tracker) takeTouched() []news {
	defer func() { t.touched = emptied(t.touched) }()
	if t.notify == nil {
		return nil
	}
	var found []news
	for key := range t.touched {
		if record := t.devices[key]; record != nil {
			if u, ok := t.owes(record); ok {
				found = append(found, news{key, u})
			}
		}
	}
	slices.SortFunc(found, func(a, b news) int { return a.key.Compare(b.key) })
	return found
}

// emptied empties a set for its next use. A large one is given up: it would keep its
// size for ever, and emptying it would cost as much each time.
func emptied(set map[device.Key]struct{}) map[device.Key]struct{} {
	if len(set) > 1000 {
		return map[device.Key]struct{}{}
	}
	clear(set)
	return set
}

// eachRecord goes through all devices for a metric. It gives the lock up now and
// then, so that counting a large fleet holds no fault up; a device that comes or goes
// meanwhile may be counted or not.
func (t *tracker) eachRecord(do func(device.Key, *record)) {
	const stretch = 1000
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for key, r := range t.devices {
		do(key, r)
		if n++; n%stretch == 0 {
			t.mu.Unlock()
			t.mu.Lock()
		}
	}
}

func (t *tracker) touch(key device.Key) { t.touched[key] = struct{}{} }

// attach makes the tracker tell of news from now on, beginning with everything
// that is owed at this moment: levels, not what happened on the way to them.
func (t *tracker) attach(notify func(device.Key, urgency)) {
	t.do(func() {
		t.expire()
		t.notify, t.ledSince = notify, t.clock.Now()
		t.guard.begin()
		for key, record := range t.devices {
			record.checked = false
			record.maybe = record.maybe || t.anyBad(record)
			t.touch(key)
		}
	})
}

// detach ends the telling.
func (t *tracker) detach() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notify, t.following = nil, t.clock.Now()
}

func (t *tracker) leading() bool { return t.notify != nil }

// record finds a device's record, or makes one.
func (t *tracker) record(key device.Key, node string) *record {
	r := t.devices[key]
	if r == nil {
		r = &record{key: key, readings: map[string]*said{}}
		t.devices[key] = r
		if key.Path() == device.PathPlugin {
			t.joinChip(key)
		} else {
			t.devicesByPool.add(poolKey(key), key)
		}
	}
	if node != "" && r.node != node {
		t.devicesByNode.remove(r.node, key)
		t.unpair(r)
		r.node = node
		t.devicesByNode.add(node, key)
		t.devicesByPair.add(r.pair(), key)
		t.totals.Add(incident.Pair{Driver: r.pair().driver, Node: node}, 1)
		t.judgePair(r.pair())
		if key.Path() == device.PathPlugin {
			t.vouch(r.pair())
		}
	}
	return r
}

// unpair forgets that a device is on its node.
func (t *tracker) unpair(r *record) {
	p := r.pair()
	if _, there := t.devicesByPair[p][r.key]; there {
		t.devicesByPair.remove(p, r.key)
		t.totals.Add(incident.Pair{Driver: p.driver, Node: p.node}, -1)
	}
}

func (r *record) pair() pair { return pair{reading.DriverOf(r.key), r.node} }

// joinChip adds a device-plugin ID to those of its chip, and has the Pods that
// hold another one of them say what they say about this one too.
func (t *tracker) joinChip(key device.Key) {
	chip := chipOf(key)
	t.chips.add(chip, key)
	if len(t.chips[chip]) > 1 {
		for uid := range t.podsByChip[chip] {
			t.again[uid] = struct{}{}
		}
	}
}

// chipOf names the chip behind a device-plugin ID.
func chipOf(key device.Key) device.Key {
	return device.Key{Node: key.Node, Resource: key.Resource, ID: device.ReplicaOf(key.ID)}
}

// dropIfIdle forgets a device of which nothing is known that can't be seen again.
func (t *tracker) dropIfIdle(r *record) {
	if len(r.readings) > 0 || r.maybe || r.mark != nil || r.markNews != nil || r.adopt || r.inventory.asked() {
		return
	}
	delete(t.devices, r.key)
	delete(t.touched, r.key)
	t.shift(r.key)
	t.devicesByNode.remove(r.node, r.key)
	t.unpair(r)
	if len(t.devicesByPair[r.pair()]) == 0 {
		delete(t.empty, r.pair())
		delete(t.unvouched, r.pair())
		t.outOver(r.pair())
	}
	if r.key.Path() == device.PathPlugin {
		t.chips.remove(chipOf(r.key), r.key)
	} else {
		t.devicesByPool.remove(poolKey(r.key), r.key)
	}
}

// sortedRecords lists records in one order, whatever the maps give.
func (t *tracker) sortedRecords(keys map[device.Key]struct{}) []*record {
	found := make([]*record, 0, len(keys))
	for key := range keys {
		if r := t.devices[key]; r != nil {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b *record) int { return a.key.Compare(b.key) })
	return found
}

// lost tells whether an Unknown of the device is the loss of a known health.
func (t *tracker) lost(r *record) bool {
	switch t.drivers[reading.DriverOf(r.key)].Unknown {
	case UnknownIgnore:
		return false
	case UnknownFault:
		return true
	}
	_, known := t.known[r.pair()]
	return known
}

// bad tells whether a reading calls for a case.
func (t *tracker) bad(r *record, said quarantine.Reading) bool {
	switch said.Counts() {
	case device.Unhealthy:
		return said.Fault
	case device.Unknown:
		return t.lost(r)
	}
	return false
}

// listed marks the end of the first lists of everything that is watched.
func (t *tracker) listed() {
	t.do(func() {
		t.complete = true
		for _, p := range t.pools {
			p.dirty = true
		}
	})
}
