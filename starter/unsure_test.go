package starter

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/incident"
)

// amid lets a storm of twenty nodes be held by a starter that then is killed, and
// returns one that has just begun beside it.
func amid(t *testing.T) (first, second *stormScene) {
	t.Helper()
	first = newStorm(t)
	first.fleet(20, 4, device.Healthy)
	first.fleet(20, 4, device.Unknown)
	none(t, first.run(2*time.Minute, time.Second), "the first leads")
	if i := first.incidents.of(incident.OfDriver(driver)); i.Phase != incident.Holding {
		t.Fatalf("it is %s", i.Phase)
	}
	first.tracker.detach()
	second = newStandbyStorm(t, first)
	second.cases.running = first.cases.running
	return first, second
}

// on20 are the pairs of the storm's nodes, as an earlier starter wrote them down.
func on20() []pair {
	var known []pair
	for n := range 20 {
		known = append(known, pair{driver, fmt.Sprintf("node-%d", n)})
	}
	return known
}

// U4, O7. A starter that has just begun in the middle of a storm, and can't know yet what
// it sees, ends no incident by that: not before it has read who ever reported health,
// not before a driver that is away has been away for long enough, not while something
// can't be watched or isn't listed. It says why. Once it knows, all goes on.
func TestAStarterThatHasJustBegunEndsNoIncident(t *testing.T) {
	for name, tc := range map[string]struct {
		see, know func(*stormScene)
		says      string
	}{
		"it can't read who ever reported health": {
			see:  func(s *stormScene) { s.tracker.listed(); s.fleet(20, 4, device.Unknown) },
			know: func(s *stormScene) { s.fleetNodes(20); s.tracker.remember(on20()) },
			says: "80 are Unknown of which it can't be read whether they ever reported health",
		},
		"the driver's slices are gone": {
			see: func(s *stormScene) {
				s.tracker.listed()
				s.tracker.remember(nil)
				s.fleet(20, 4, device.Healthy)
				for n := range 20 {
					s.tracker.sliceGone(fmt.Sprintf("node-%d-gpus", n))
				}
				s.pass(time.Second)
			},
			know: func(*stormScene) {},
			says: "nobody has stood behind what is said of them",
		},
		"something can't be watched": {
			see: func(s *stormScene) {
				s.tracker.listed()
				s.tracker.remember(nil)
				s.fleet(20, 4, device.Healthy)
				s.tracker.sees(false)
			},
			know: func(s *stormScene) { s.tracker.sees(true); s.fleet(20, 4, device.Unknown) },
			says: "can't watch everything",
		},
		"not everything is listed": {
			see: func(s *stormScene) { s.tracker.remember(nil) },
			know: func(s *stormScene) {
				s.fleet(20, 4, device.Healthy)
				s.tracker.listed()
				s.fleet(20, 4, device.Unknown)
			},
			says: "not everything has been listed yet",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := amid(t)
			tc.see(s)
			s.takeOver()
			none(t, s.run(90*time.Second, time.Second), "it can't know")
			scope := incident.OfDriver(driver)
			if i := s.incidents.of(scope); i.Phase != incident.Holding || !strings.Contains(i.Levels.Unsure, tc.says) || !i.CalmSince.IsZero() {
				t.Fatalf("it is %s, told %+v", i.Phase, i.Levels)
			}
			tc.know(s)
			none(t, s.run(5*time.Minute, time.Second), "it knows")
			if i := s.incidents.of(scope); i.Phase != incident.Holding || i.Levels.Now != 80 || i.Levels.Unsure != "" || s.incidents.began != 1 {
				t.Fatalf("it is %s, told %+v; %d began", i.Phase, i.Levels, s.incidents.began)
			}
			s.back(20, 4)
			none(t, s.run(5*time.Minute, time.Second), "all is well")
			if i := s.incidents.of(scope); i.Phase != incident.Closed {
				t.Errorf("it is %s, told %+v", i.Phase, i.Levels)
			}
		})
	}
}

// U4. What cases know is no storm to a starter that has just begun, however many of them
// are Unknown: those of mode observe have no marks by which that would show. Nor is a
// driver that is away, which it finds some minutes later only.
func TestWhatCasesKnowIsNoStormToANewStarter(t *testing.T) {
	for name, gone := range map[string]bool{"the driver is silent": false, "the driver is away": true} {
		t.Run(name, func(t *testing.T) {
			first, second := amid(t)
			scope := incident.OfDriver(driver)
			first.lead()
			first.reporter.list(t.Context(), true)
			first.incidents.say(scope, incident.Message{Verb: incident.VerbAdmit})
			if n := len(opened(first.run(time.Minute, time.Second))); n != 80 {
				t.Fatalf("%d cases after admit", n)
			}
			first.tracker.detach()
			delete(first.incidents.states, scope)
			second.tracker.listed()
			second.fleetNodes(20)
			second.tracker.remember(on20())
			health := device.Unknown
			if gone {
				health = device.Healthy
			}
			second.fleet(20, 4, health)
			if gone {
				for n := range 20 {
					second.tracker.sliceGone(fmt.Sprintf("node-%d-gpus", n))
				}
			}
			second.takeOver()
			second.run(5*time.Minute, time.Second)
			if second.incidents.began != 1 {
				t.Errorf("%d incidents began, want the one of before", second.incidents.began)
			}
			// What comes anew is one.
			second.back(20, 4)
			second.run(10*time.Minute, time.Second)
			second.fleet(20, 4, device.Unknown)
			second.run(time.Minute, time.Second)
			if second.incidents.began != 2 {
				t.Errorf("%d incidents began, want another of the next storm: %v", second.incidents.began, second.incidents.states)
			}
		})
	}
}

// back lets the driver of a fleet be there, and call all devices healthy.
func (s *stormScene) back(nodes, devices int) {
	for n := range nodes {
		var all []device.Listed
		for d := range devices {
			all = append(all, listed(fmt.Sprintf("gpu-%d", d), ""))
		}
		s.slice(fmt.Sprintf("node-%d", n), 2, all...)
	}
	s.fleet(nodes, devices, device.Healthy)
}

// fleetNodes lets the nodes of a fleet be there.
func (s *stormScene) fleetNodes(n int) {
	for i := range n {
		name := fmt.Sprintf("node-%d", i)
		s.tracker.nodeSeen(name, "uid-"+name, nil)
	}
}

// Faults that are marked long since, or have cases, are no crowd to a starter that has
// just begun.
func TestWhatIsMarkedIsNoCrowdToANewStarter(t *testing.T) {
	first := newStorm(t)
	first.fleet(1, 8, device.Healthy)
	for d := range 8 {
		first.report("train-node-0", gpu("node-0", fmt.Sprintf("gpu-%d", d)), device.Healthy, "")
		first.report(fmt.Sprintf("other-%d", d), gpu("node-0", fmt.Sprintf("gpu-%d", d)), device.Unhealthy, xid79)
		first.run(20*time.Second, time.Second)
	}
	if n := len(first.cases.running); n != 8 || first.incidents.began != 0 {
		t.Fatalf("%d cases, %d incidents", n, first.incidents.began)
	}
	second := newStandbyStorm(t, first)
	second.cases.running = first.cases.running
	for d := range 8 {
		second.report(fmt.Sprintf("other-%d", d), gpu("node-0", fmt.Sprintf("gpu-%d", d)), device.Unhealthy, xid79)
	}
	second.tracker.listed()
	second.tracker.remember(nil)
	second.takeOver()
	second.run(2*time.Minute, time.Second)
	if second.incidents.began != 0 {
		t.Errorf("%d incidents of what is known", second.incidents.began)
	}
}

// U4. An incident is told its levels just before its maximum, and asks nobody if its
// devices are well by then.
func TestAStormIsJudgedByItsLevelsAtItsMaximum(t *testing.T) {
	s := newStorm(t)
	s.fleet(20, 4, device.Healthy)
	s.fleet(20, 4, device.Unknown)
	scope := incident.OfDriver(driver)
	s.run(30*time.Second, time.Second)
	s.run(s.incidents.of(scope).Until.Sub(s.clock.Now())-20*time.Second, time.Second)
	s.fleet(20, 4, device.Healthy)
	s.run(5*time.Minute, time.Second)
	i := s.incidents.of(scope)
	for _, n := range i.Story {
		if n.Kind == incident.NoticeAsks {
			t.Errorf("asked: %s", n.Text)
		}
	}
	if i.Phase != incident.Closed {
		t.Errorf("it is %s", i.Phase)
	}
}

// U4. A device whose node is out isn't let through: its turn goes to another.
func TestADeviceWhoseNodeIsOutIsNotLetThrough(t *testing.T) {
	s := newStorm(t)
	s.fleetNodes(20)
	s.fleet(20, 1, device.Healthy)
	s.fleet(20, 1, device.Unknown)
	none(t, s.run(2*time.Minute, time.Second), "it holds")
	for n := range 4 {
		s.tracker.nodeReady(fmt.Sprintf("node-%d", n), device.ReadyFalse)
	}
	keys := opened(s.run(time.Hour+3*time.Minute, 5*time.Second))
	if len(keys) < 5 {
		t.Errorf("%d cases, want one every 30 s", len(keys))
	}
	for _, key := range keys {
		if strings.Contains("node-0 node-1 node-2 node-3", key.Pool) {
			t.Errorf("a case of %s, whose node is out", key)
		}
	}
	for n := range 4 {
		s.tracker.nodeReady(fmt.Sprintf("node-%d", n), device.ReadyTrue)
	}
	if n := len(opened(s.run(2*time.Minute, 5*time.Second))); n > 4 {
		t.Errorf("%d cases in two minutes once the nodes are back", n)
	}
}
