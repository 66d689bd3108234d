package starter

import (
	"maps"
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reading"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// pod is a Pod that has, or had, something to say of devices.
type pod struct {
	view device.Pod
	// highest is the newest version ever seen. A lower one means that etcd was
	// restored: until it is passed, versions can't be compared with older ones.
	highest device.Version
	ended   bool
	// devices are those that the Pod said something of.
	devices  map[device.Key]struct{}
	unmapped []unmapped
	// pools and chips are where the Pod has devices of its own.
	pools map[device.PoolKey]struct{}
	chips map[device.Key]struct{}
}

// concerns tells whether a Pod can have anything to say of devices.
func concerns(view device.Pod) bool {
	return len(view.Claims) > 0 || view.ExtendedClaim != "" ||
		slices.ContainsFunc(view.Containers, func(c device.Container) bool { return len(c.Entries) > 0 })
}

// podSeen takes in a Pod as the watch or a relist delivered it.
func (t *tracker) podSeen(view device.Pod) {
	view = t.ours.Pod(view)
	t.do(func() {
		if uid := t.podNames[view.Ref.String()]; uid != "" && uid != view.Ref.UID {
			// Another Pod under the same name: the watch missed the end of the first.
			t.endPod(uid)
		}
		p := t.pods[view.Ref.UID]
		switch {
		case p == nil && !concerns(view):
			return
		case p == nil:
			p = &pod{devices: map[device.Key]struct{}{}, pools: map[device.PoolKey]struct{}{}, chips: map[device.Key]struct{}{}}
			t.pods[view.Ref.UID] = p
			t.podNames[view.Ref.String()] = view.Ref.UID
		case p.view.ResourceVersion == view.ResourceVersion:
			t.metrics.duplicates.Inc()
			return
		}
		t.look(p, view)
	})
}

func (t *tracker) look(p *pod, view device.Pod) {
	for _, c := range claimsOf(p.view) {
		t.podsByClaim.remove(c, view.Ref.UID)
	}
	fresh := p.view.Ref.UID == "" || p.view.ContainersReady != view.ContainersReady
	p.view = view
	if fresh {
		t.shiftPod(p)
	}
	if view.ResourceVersion.Newer(p.highest) {
		p.highest = view.ResourceVersion
	}
	for _, c := range claimsOf(view) {
		t.podsByClaim.add(c, view.Ref.UID)
	}
	if view.Terminal {
		t.endReadings(p)
		return
	}
	t.evaluate(p)
}

// claimsOf lists the claims that a Pod refers to, by namespace and name.
func claimsOf(view device.Pod) []string {
	names := view.ClaimNames()
	for i, name := range names {
		names[i] = view.Ref.Namespace + "/" + name
	}
	return names
}

// evaluate reads a Pod's entries against what is known of claims and pools now,
// and keeps what is new.
func (t *tracker) evaluate(p *pod) {
	if p.ended {
		return
	}
	now := t.clock.Now()
	observations, unmappedEntries := device.Observe(p.view, t.claim)
	if !p.view.Ours { // what is tried on Sickbay's own claim, its attempt reads itself
		t.keepUnmapped(p, unmappedEntries, now)
	}
	reports := device.Digest(observations, now)
	device.Doubt(reports, t.doubt)
	t.placePod(p, reports)
	read := reading.FromPod(reports, t.catalogue, t.concerned)
	for i := range read {
		read[i].Relisted = p.highest.Newer(p.view.ResourceVersion)
		t.keep(p, read[i], now)
	}
	t.withdraw(p, read, now)
}

func (t *tracker) claim(namespace, name string) (device.Claim, bool) {
	c, ok := t.claims[namespace+"/"+name]
	return c, ok
}

// concerned names the devices that a fault seen on one of them concerns.
func (t *tracker) concerned(key device.Key, scope device.Scope) []device.Key {
	if key.Path() == device.PathPlugin {
		return device.Replicas(key, slices.Collect(maps.Keys(t.chips[chipOf(key)])))
	}
	p := t.pools[device.PoolKey{Driver: key.Driver, Pool: key.Pool}]
	if p == nil {
		return []device.Key{key}
	}
	return device.Concerned(p.believed(), key, scope)
}

// placePod records in which pools and on which chips the Pod has devices.
func (t *tracker) placePod(p *pod, reports []device.DeviceReport) {
	uid := p.view.Ref.UID
	for _, r := range reports {
		if r.Device.Path() == device.PathPlugin {
			chip := chipOf(r.Device)
			p.chips[chip] = struct{}{}
			t.podsByChip.add(chip, uid)
			continue
		}
		key := device.PoolKey{Driver: r.Device.Driver, Pool: r.Device.Pool}
		p.pools[key] = struct{}{}
		t.podsByPool.add(key, uid)
		t.vouchPool(key)
	}
}

// keep takes one reading in, unless it says what is known already.
func (t *tracker) keep(p *pod, of reading.Of, now time.Time) {
	r := t.record(of.Device, of.Node)
	if of.Own() && of.Health != device.Unknown {
		t.pairKnown(r.pair())
	}
	known := r.readings[of.Pod.UID]
	if known == nil {
		r.readings[of.Pod.UID] = &said{now: of.Reading, own: of.Own(), seenOn: of.SeenOn, since: now}
		p.devices[of.Device] = struct{}{}
		t.note(r, of)
		t.changed(r)
		return
	}
	known.own, known.seenOn = of.Own(), of.SeenOn
	if device.Keep(known.now.Report, of.Report) == known.now.Report {
		// Who holds the device by which claim may still have changed.
		if known.now.Monitor != of.Monitor || known.now.Claim != of.Claim {
			t.shift(of.Device)
		}
		known.now.Monitor, known.now.Claim, known.now.Container = of.Monitor, of.Claim, of.Container
		t.metrics.duplicates.Inc()
		return
	}
	if !known.untold() || known.worst == nil && (!t.bad(r, known.now) || of.Fault && !known.now.Fault) {
		// A Healthy that nobody was told of, and nobody had to be, is no news that
		// the next reading would be a part of; nor is an Unknown part of a fault.
		known.since = now
	} else if known.now.Fault && (known.worst == nil || reading.Graver(known.now, *known.worst)) {
		fault := known.now
		known.worst = &fault
	}
	known.now = of.Reading
	t.note(r, of)
	t.changed(r)
}

// withdraw goes through the devices that the Pod said something of before and
// says nothing of now. The kubelet erases a terminated container's DRA entries,
// and claims are deleted under their Pods: then the last word stands. Where the
// word was only carried over from another part of the chip, and that part says
// something else now, that is what the Pod says of this one too.
func (t *tracker) withdraw(p *pod, read []reading.Of, now time.Time) {
	origins := map[device.Key]reading.Of{}
	for _, of := range read {
		origins[of.Device] = of
	}
	for _, key := range slices.SortedFunc(maps.Keys(p.devices), device.Key.Compare) {
		if _, still := origins[key]; still {
			continue
		}
		r := t.devices[key]
		if r == nil {
			continue
		}
		last := r.readings[p.view.Ref.UID]
		if last == nil || last.own {
			continue
		}
		if origin, ok := origins[last.seenOn]; ok && origin.Own() {
			origin.Device, origin.Monitor = key, true
			t.keep(p, origin, now)
		}
	}
}

// pairKnown records that the driver reports health on the device's node. What
// was Unknown there before is a loss from now on.
func (t *tracker) pairKnown(p pair) {
	if _, known := t.known[p]; known {
		return
	}
	t.known[p] = struct{}{}
	for _, other := range t.sortedRecords(t.devicesByPair[p]) {
		t.changed(other)
	}
}

// changed follows a change of what is said of a device.
func (t *tracker) changed(r *record) {
	t.follow(r)
	// Of an Unknown that waits nobody was told, so that nobody need be told that it
	// is over. Another starter may have led when it began: then somebody may.
	if t.anyBad(r) && !t.isOut(r) && !(t.leading() && t.held(r) && r.fault.since.IsZero()) {
		r.maybe = true
	}
	if p := t.poolOf(r.key); p != nil && p.unlisted(r.key) {
		p.dirty = true
	}
	t.touch(r.key)
	t.shift(r.key)
}

// anyBad tells whether any reading calls for a case.
func (t *tracker) anyBad(r *record) bool {
	for _, s := range r.readings {
		if t.bad(r, s.now) {
			return true
		}
	}
	return false
}

// note records an Unhealthy that the catalogue doesn't lay at the device's door:
// no case comes of it, and nobody should have to wonder why.
func (t *tracker) note(r *record, of reading.Of) {
	if of.Health != device.Unhealthy || of.Fault {
		return
	}
	if of.Reason.Action == reason.ActionWatch {
		r.watched++
	}
	t.metrics.noted.WithLabelValues(string(of.Reason.Code), string(of.Reason.Action)).Inc()
	if t.leading() {
		t.log.Info("unhealthy, but no device fault by the catalogue", "device", r.key.String(), "node", of.Node,
			"pod", of.Pod.String(), "reason", of.Reason.Code, "action", of.Reason.Action, "rule", of.Reason.Rule,
			"message", of.Message, "watched", r.watched)
	}
}

// podGone takes in that a Pod isn't there any more, as the watch or a relist says.
func (t *tracker) podGone(ref device.PodRef) {
	t.do(func() { t.endPod(ref.UID) })
}

func (t *tracker) endPod(uid string) {
	p := t.pods[uid]
	if p == nil {
		return
	}
	t.endReadings(p)
	for _, c := range claimsOf(p.view) {
		t.podsByClaim.remove(c, uid)
	}
	t.shiftPod(p)
	delete(t.pods, uid)
	if t.podNames[p.view.Ref.String()] == uid {
		delete(t.podNames, p.view.Ref.String())
	}
}

// endReadings turns what a Pod said into history, as far as it matters: what was
// not good, and what an open case would like to know. The rest is forgotten.
func (t *tracker) endReadings(p *pod) {
	if p.ended {
		return
	}
	p.ended, p.unmapped = true, nil
	uid, now := p.view.Ref.UID, t.clock.Now()
	for pool := range p.pools {
		t.podsByPool.remove(pool, uid)
		t.vouchPool(pool)
	}
	for chip := range p.chips {
		t.podsByChip.remove(chip, uid)
	}
	for key := range p.devices {
		r := t.devices[key]
		if r == nil || r.readings[uid] == nil {
			continue
		}
		last := r.readings[uid]
		if !r.maybe && !last.now.Fault && last.worst == nil {
			delete(r.readings, uid)
			t.follow(r)
			t.shift(key)
			t.dropIfIdle(r)
			continue
		}
		if !last.untold() {
			last.since = now
		}
		last.now.Ended, last.ended = true, now
		t.changed(r)
	}
}

// expire forgets, on a starter that has not led for a while, what the leader has
// told long since: told again much later, it would open a case anew.
func (t *tracker) expire() {
	deadline := t.clock.Now().Add(-t.timing.Standby)
	if t.leading() || t.following.After(deadline) {
		return
	}
	for _, r := range t.devices {
		recent := false
		for uid, s := range r.readings {
			switch {
			case !s.ended.IsZero() && s.ended.Before(deadline):
				delete(r.readings, uid)
				continue
			case s.since.Before(deadline):
				s.worst = nil
			}
			recent = recent || t.bad(r, s.now) || s.since.After(deadline)
		}
		r.maybe = r.maybe && (recent || r.mark != nil)
		t.dropIfIdle(r)
	}
}

// liveSays tells whether any live reading satisfies a condition.
func (r *record) liveSays(what func(quarantine.Reading) bool) bool {
	for _, s := range r.readings {
		if !s.now.Ended && what(s.now) {
			return true
		}
	}
	return false
}

// tidy is expire, for whoever doesn't hold the lock.
func (t *tracker) tidy() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire()
}
