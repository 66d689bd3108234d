package starter

import (
	"fmt"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/incident"
)

// fail has one device of a fleet reported at fault.
func (s *stormScene) fail(n, d int, message string) device.Key {
	node := fmt.Sprintf("node-%d", n)
	key := gpu(node, fmt.Sprintf("gpu-%d", d))
	s.report("train-"+node+key.Device, key, device.Unhealthy, message)
	return key
}

// U4. Case 14, rows t=0: an error that names no card condemns all eight of a node at
// once. That is one incident of the node, told once; each of the eight gets its case
// at once, which keeps it out of new allocations, so that none is ignored; and nothing
// but that is done to any of them.
func TestAnErrorThatNamesNoCardIsOneIncidentOfItsNode(t *testing.T) {
	s := newStorm(t)
	// The rest of the fleet is well.
	s.fleet(20, 8, device.Healthy)
	var entries []device.Entry
	for d := range 8 {
		entries = append(entries, entry(gpu("anvil-07", fmt.Sprintf("gpu-%d", d)), device.Healthy, ""))
	}
	s.see(podOn("anvil-07", "train", entries...))
	for d := range entries {
		// One after the other, within 20 ms, as the kubelet writes them.
		entries[d].Health, entries[d].Message = device.Unhealthy, xid79
		s.see(podOn("anvil-07", "train", entries...))
		observed(t, s.send(), gpu("anvil-07", fmt.Sprintf("gpu-%d", d)), true)
		s.pass(2 * time.Millisecond)
	}
	none(t, s.run(5*time.Minute, time.Second), "after that")
	scope := incident.CrowdOfNode("anvil-07")
	i := s.incidents.of(scope)
	if s.incidents.began != 1 || i.Phase != incident.Noted || i.Holds() || i.Levels.Now != 8 || i.Levels.Total != 8 {
		t.Errorf("%d incidents; this one is %s with %+v", s.incidents.began, i.Phase, i.Levels)
	}
	alerts := 0
	for _, n := range i.Story {
		if n.Alert {
			alerts++
		}
	}
	if alerts != 1 {
		t.Errorf("%d alerts, want one: %+v", alerts, i.Story)
	}
}

// U4. A crowd of faults of one driver over many nodes: the first ones, up to the
// threshold, are sent as ever and at once; the others wait, are asked about, and are
// let through at the pace, the oldest first. None is ever ignored.
func TestOfACrowdTheFirstAreMarkedAndTheRestAsked(t *testing.T) {
	s := newStorm(t)
	s.fleet(20, 4, device.Healthy)
	s.run(time.Minute, time.Second)
	var failed []device.Key
	var at []device.Key
	for n := range 20 {
		failed = append(failed, s.fail(n, 0, xid79))
		at = append(at, opened(s.send())...)
		s.pass(100 * time.Millisecond)
	}
	if len(at) != 8 {
		t.Fatalf("%d cases at once, want the first 8: %v", len(at), at)
	}
	scope := incident.CrowdOfDriver(driver, "")
	paced := opened(s.run(time.Minute, time.Second))
	if i := s.incidents.of(scope); s.incidents.began != 1 || i.Phase != incident.Pacing || i.Levels.Enough != 8 {
		t.Errorf("%d incidents; this one is %s, %+v", s.incidents.began, i.Phase, i.Levels)
	}
	if len(paced) < 4 || len(paced) > 6 {
		t.Errorf("%d cases within a minute at a pace of 10 s", len(paced))
	}
	all := append(at, paced...)
	all = append(all, opened(s.run(3*time.Minute, time.Second))...)
	if len(all) != len(failed) {
		t.Fatalf("%d cases in the end, want one for each of %d faults", len(all), len(failed))
	}
	for i := range failed {
		if all[i] != failed[i] {
			t.Errorf("case %d is of %s, want %s, the oldest", i, all[i], failed[i])
		}
	}
	none(t, s.run(5*time.Minute, 5*time.Second), "afterwards")
	if i := s.incidents.of(scope); i.Phase != incident.Closed {
		t.Errorf("nothing waits any more and it is %s", i.Phase)
	}
	lone := s.fail(7, 3, xid79)
	observed(t, s.send(), lone, true)
}

// U4. What an operator says of a crowd counts for all that wait.
func TestAnOperatorDecidesACrowd(t *testing.T) {
	s := newStorm(t)
	s.fleet(20, 4, device.Healthy)
	s.run(time.Minute, time.Second)
	for n := range 20 {
		s.fail(n, 0, xid79)
	}
	if at := opened(s.send()); len(at) != 8 {
		t.Fatalf("%d cases at once", len(at))
	}
	s.run(time.Second, time.Second)
	scope := incident.CrowdOfDriver(driver, "")
	s.incidents.say(scope, incident.Message{Verb: incident.VerbWait, For: time.Hour})
	none(t, s.run(30*time.Minute, 5*time.Second), "an operator said wait")
	s.incidents.say(scope, incident.Message{Verb: incident.VerbAdmit})
	if all := opened(s.run(20*time.Second, time.Second)); len(all) != 12 {
		t.Errorf("%d cases after admit, want all 12 that waited", len(all))
	}
	// What fails while it is admitted doesn't wait.
	observed(t, func() []call { s.fail(3, 3, xid79); return s.send() }(), gpu("node-3", "gpu-3"), true)
}

// U4. A crowd is one of a driver's version where its slices publish one: the devices
// of another version don't wait for it.
func TestACrowdIsOfOneDriverVersion(t *testing.T) {
	s := newStorm(t)
	s.fleet(24, 4, device.Healthy)
	for n := range 24 {
		version := "580.1"
		if n >= 20 {
			version = "570.9"
		}
		node := fmt.Sprintf("node-%d", n)
		var listed []device.Listed
		for d := range 4 {
			listed = append(listed, device.Listed{Name: fmt.Sprintf("gpu-%d", d), DriverVersion: version})
		}
		s.slice(node, 1, listed...)
	}
	s.run(time.Minute, time.Second)
	for n := range 20 {
		s.fail(n, 0, xid79)
	}
	if at := opened(s.send()); len(at) != 9 {
		t.Errorf("%d cases at once, want a tenth of 96", len(at))
	}
	for n := 20; n < 24; n++ {
		key := s.fail(n, 0, xid79)
		observed(t, s.send(), key, true)
	}
	s.run(5*time.Second, time.Second)
	if i := s.incidents.of(incident.CrowdOfDriver(driver, "580.1")); i.Phase != incident.Pacing || s.incidents.began != 1 {
		t.Errorf("%s, %d incidents", i.Phase, s.incidents.began)
	}
}

// Faults far apart, and those of a node that is an incident by itself, are no crowd of
// their driver.
func TestWhatIsNoCrowd(t *testing.T) {
	t.Run("a fault now and then", func(t *testing.T) {
		s := newStorm(t)
		s.fleet(20, 4, device.Healthy)
		for n := range 20 {
			key := s.fail(n, 0, xid79)
			observed(t, s.send(), key, true)
			none(t, s.run(10*time.Second, time.Second), "until the next")
		}
		if s.incidents.began != 0 {
			t.Errorf("%d incidents", s.incidents.began)
		}
	})
	t.Run("a whole node of sixteen, and two others", func(t *testing.T) {
		s := newStorm(t)
		s.fleet(5, 16, device.Healthy)
		for d := range 16 {
			key := s.fail(0, d, xid79)
			observed(t, s.send(), key, true)
		}
		for n := 1; n < 3; n++ {
			key := s.fail(n, 0, xid79)
			observed(t, s.send(), key, true)
		}
		s.run(5*time.Second, time.Second)
		if i := s.incidents.of(incident.CrowdOfNode("node-0")); s.incidents.began != 1 || i.Phase != incident.Noted {
			t.Errorf("%d incidents, the node's is %s", s.incidents.began, i.Phase)
		}
	})
	t.Run("marks that are there", func(t *testing.T) {
		s := newStorm(t)
		s.fleet(20, 4, device.Healthy)
		for n := range 20 {
			s.marked(gpu(fmt.Sprintf("node-%d", n), "gpu-0"), int64(1700+n), true)
			s.cases.running[gpu(fmt.Sprintf("node-%d", n), "gpu-0")] = true
		}
		for n := range 20 {
			s.fail(n, 0, xid79)
		}
		if got := len(s.send()); got < 20 {
			t.Errorf("%d signals about 20 marked devices", got)
		}
	})
}

// U4. A starter that takes over goes on with the crowd, and lets nothing through
// that the incident doesn't.
func TestACrowdOutlivesItsStarter(t *testing.T) {
	first := newStorm(t)
	first.fleet(20, 4, device.Healthy)
	for n := range 20 {
		first.fail(n, 0, xid79)
	}
	first.send()
	first.run(time.Second, time.Second)
	second := newStandbyStorm(t, first)
	// Those that got their case are marked.
	for n := range 8 {
		key := gpu(fmt.Sprintf("node-%d", n), "gpu-0")
		second.marked(key, int64(1700+n), true)
		second.cases.running[key] = true
	}
	second.fleet(20, 4, device.Healthy)
	for n := range 20 {
		second.fail(n, 0, xid79)
	}
	second.tracker.listed()
	second.takeOver()
	fresh := 0
	for _, key := range opened(second.run(30*time.Second, time.Second)) {
		if !second.cases.running[key] || key.Pool >= "node-8" || len(key.Pool) > len("node-8") {
			fresh++
		}
	}
	if fresh > 8+4 {
		t.Errorf("%d new cases within 30 s of the take-over", fresh)
	}
	if second.incidents.began != 1 {
		t.Errorf("%d incidents", second.incidents.began)
	}
}

// U4, B1. Case 27, rows t=1:00 and t=1:01, must: many devices that turn bad with one driver
// version are held and asked about; and never: 140 of 320 are quarantined on one exporter's
// word. A tenth get their cases at once, the others wait for an operator or the pace, and
// however long nobody answers, the budget keeps no more out than that tenth.
func TestCase27AnExporterCondemns140Of320(t *testing.T) {
	s := newStorm(t)
	s.fleet(40, 8, device.Healthy)
	s.run(time.Minute, time.Second)
	limits := budget.DefaultLimits()
	book, _ := budget.Decide(budget.Book{}, budget.Counted{Sizes: s.tracker.sizes(), By: "a"}, s.clock.Now(), limits)
	marked := func(calls []call) {
		for _, key := range opened(calls) {
			ask := budget.Ask{Device: key.String(), Epoch: 1, Purpose: budget.Mark, Scopes: budget.ScopesOf(key, key.Pool, nil, nil), Severity: 4, Since: s.clock.Now()}
			book, _ = budget.Decide(book, budget.Asked{Asks: []budget.Ask{ask}}, s.clock.Now(), limits)
		}
	}
	var first []call
	for n := range 140 {
		// Three or four on each node, within a minute: no node is a crowd of its own.
		s.fail(n%40, n/40, xid79)
		first = append(first, s.send()...)
		s.pass(400 * time.Millisecond)
	}
	if n := len(opened(first)); n != 32 {
		t.Errorf("%d cases within the minute, want 32", n)
	}
	marked(first)
	marked(s.run(time.Second, time.Second))
	i := s.incidents.of(incident.CrowdOfDriver(driver, ""))
	if s.incidents.began != 1 || i.Phase != incident.Pacing || i.Levels.Now < 100 || i.Levels.Total != 320 {
		t.Errorf("%d incidents; this one is %s with %+v", s.incidents.began, i.Phase, i.Levels)
	}
	if n := len(book.Marks.Grants); n > 32 {
		t.Errorf("%d of 320 are kept out a second later, on one word", n)
	}
	marked(s.run(2*time.Hour, 5*time.Second))
	if n, most := len(book.Marks.Grants), limits.Class.Of(320); n != most || most > 32 {
		t.Errorf("two hours later %d of 320 are kept out, and %d may be", n, most)
	}
}
