package starter

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/incident"
)

// upgradeBook stands where the permits workflow does.
type upgradeBook struct {
	all  []budget.Pause
	fail error
}

func (b *upgradeBook) Upgrades(context.Context) ([]budget.Pause, error) { return b.all, b.fail }

// newUpgrade makes a guarded starter that knows of an upgrade of its driver for so long.
func newUpgrade(t *testing.T, scope budget.Scope, lasts time.Duration) (*stormScene, *upgradeBook) {
	s := newStorm(t)
	book := &upgradeBook{all: []budget.Pause{{
		Scope: scope, Actor: "oncall@example.com", Reason: "580.95", Since: s.clock.Now(), Until: s.clock.Now().Add(lasts), Upgrade: true,
	}}}
	s.reporter.announced = &announced{tracker: s.tracker, upgrades: book, clock: s.clock, log: s.sender.log, limit: time.Second}
	return s, book
}

// ask has the starter ask as it does between two rounds.
func (s *stormScene) ask() { s.reporter.announced.ask(s.t.Context()) }

var ofDriver = budget.Scope{Kind: budget.Driver, Name: driver}

// B4. A driver is upgraded on node after node, faster than it comes back, and longer than
// an incident would hold it. Because it was announced there is no case and no incident,
// and nothing is sent of any device.
func TestARollingUpgradeThatWasAnnouncedRaisesNothing(t *testing.T) {
	const nodes, devices, every, silent = 120, 4, 30 * time.Second, 8
	s, _ := newUpgrade(t, ofDriver, 2*time.Hour)
	s.fleet(nodes, devices, device.Healthy)
	s.ask()
	most := 0.0
	sent := s.run(nodes*every, every, func(passed time.Duration) {
		at := int(passed / every)
		s.node(at, devices, device.Unknown)
		if at >= silent {
			s.node(at-silent, devices, device.Healthy)
		}
		s.ask()
		s.tracker.heldDevices(func(n float64, labels ...string) {
			if labels[0] == "Upgrade" {
				most = max(most, n)
			} else if n != 0 {
				t.Errorf("%v devices wait as %s", n, labels[0])
			}
		})
	})
	none(t, sent, "an upgrade that was announced")
	// All but one come back just before its end: that is one Unknown, and not a storm.
	s.fleet(nodes, devices, device.Unknown)
	s.run(time.Minute, time.Second)
	s.fleet(nodes, devices, device.Healthy)
	lost := gpu("node-7", "gpu-1")
	s.report("train-node-7", lost, device.Unknown, "")
	s.run(time.Hour-time.Minute-10*time.Second, 10*time.Second)
	if keys := opened(s.run(2*time.Minute, time.Second)); len(keys) != 1 || keys[0] != lost {
		t.Errorf("opened %v after it, want the one that didn't come back", keys)
	}
	if s.incidents.began != 0 {
		t.Errorf("%d incidents", s.incidents.began)
	}
	if most < silent*devices {
		t.Errorf("at most %v devices were shown to wait for it, want %d", most, silent*devices)
	}
}

// B4. What is still Unknown when the time is over, or when it is called off, counts from
// then on: its case opens a moment later, not dated back, and many of them are a storm.
// Meanwhile a fault is told at once, and so is an Unknown elsewhere after its moment.
func TestWhatIsUnknownAfterAnUpgradeCountsFromThenOn(t *testing.T) {
	for name, end := range map[string]func(*stormScene, *upgradeBook){
		"by the clock": func(*stormScene, *upgradeBook) {},
		"called off":   func(_ *stormScene, b *upgradeBook) { b.all = nil },
		"by the clock, while nobody can be asked": func(_ *stormScene, b *upgradeBook) { b.fail = errors.New("away") },
	} {
		t.Run(name, func(t *testing.T) {
			s, book := newUpgrade(t, budget.Scope{Kind: budget.Node, Name: "node-0"}, time.Hour)
			s.fleet(9, 2, device.Healthy)
			s.ask()
			s.node(0, 2, device.Unknown)
			s.report("train-node-1", gpu("node-1", "gpu-0"), device.Unknown, "")
			sent := s.run(time.Minute, time.Second, func(time.Duration) { s.ask() })
			if keys := opened(sent); len(keys) != 1 || keys[0] != gpu("node-1", "gpu-0") {
				t.Fatalf("opened %v, want the one that no upgrade is about", keys)
			}
			s.see(podOn("node-0", "train-node-0", entry(gpu("node-0", "gpu-0"), device.Unhealthy, xid79), entry(gpu("node-0", "gpu-1"), device.Unknown, "")))
			if keys := opened(s.send()); len(keys) != 1 || keys[0] != gpu("node-0", "gpu-0") {
				t.Fatalf("opened %v, want the fault at once", keys)
			}
			end(s, book)
			over := s.clock.Now()
			if name != "called off" {
				s.run(59*time.Minute-time.Second, time.Second, func(time.Duration) { s.ask() })
				none(t, s.send(), "while it is upgraded")
				over = startOfTime.Add(time.Hour)
			}
			sent = s.run(30*time.Second, time.Second, func(time.Duration) { s.ask() })
			e := observed(t, sent, gpu("node-0", "gpu-1"), true)
			if first := e.Readings[0].Observed; first.Before(over) || first.After(over.Add(askUpgrades+2*time.Second)) || !e.Lost {
				t.Errorf("it counts from %s, want from %s on", first, over)
			}
		})
	}
}

// B4. A whole driver that doesn't come back from its upgrade is one incident at its end.
func TestADriverThatDoesNotComeBackFromItsUpgradeIsAnIncident(t *testing.T) {
	s, _ := newUpgrade(t, ofDriver, 30*time.Minute)
	s.fleet(20, 4, device.Healthy)
	s.ask()
	s.fleet(20, 4, device.Unknown)
	none(t, s.run(30*time.Minute-time.Second, time.Second), "while it is upgraded")
	if s.incidents.began != 0 {
		t.Fatalf("%d incidents while it is upgraded", s.incidents.began)
	}
	none(t, s.run(5*time.Minute, time.Second), "an incident holds them")
	if s.incidents.began != 1 {
		t.Errorf("%d incidents after it, want one", s.incidents.began)
	}
}

// inOrder notes what a starter asks for that begins to lead.
type inOrder struct {
	*incidents
	*upgradeBook
	asked  []string
	listed chan struct{}
}

func (o *inOrder) Upgrades(ctx context.Context) ([]budget.Pause, error) {
	o.asked = append(o.asked, "upgrades")
	return o.upgradeBook.Upgrades(ctx)
}

func (o *inOrder) Open(ctx context.Context) ([]incident.Scope, error) {
	if o.asked = append(o.asked, "incidents"); o.asked[0] == "upgrades" {
		close(o.listed)
	}
	return o.incidents.Open(ctx)
}

// B4. A starter that begins to lead asks which drivers are being upgraded before it takes
// any Unknown for something, and goes on without an answer after a few tries.
func TestAStarterThatBeginsToLeadAsksForUpgradesFirst(t *testing.T) {
	for name, fail := range map[string]error{"answered": nil, "not answered": errors.New("away")} {
		s, book := newUpgrade(t, ofDriver, time.Hour)
		book.fail = fail
		o := &inOrder{incidents: s.incidents, upgradeBook: book, listed: make(chan struct{})}
		s.reporter.incidents, s.reporter.announced.upgrades = o, o
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.reporter.run(ctx)
		}()
		for listed := false; !listed; {
			select {
			case <-o.listed:
				listed = true
			default:
				if s.clock.HasWaiters() {
					s.clock.Step(judgeEvery)
				}
			}
		}
		stop()
		<-ended
		if first := o.asked[0]; first != "upgrades" {
			t.Errorf("%s: it asked for %v", name, o.asked)
		}
	}
}
