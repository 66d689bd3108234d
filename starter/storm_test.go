package starter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// incidents stand where the incident workflows do: the same decisions, kept in memory.
type incidents struct {
	clock  clock.PassiveClock
	policy incident.Policy

	mu     sync.Mutex
	states map[incident.Scope]incident.Incident
	// began counts the incidents that ever began, reports what they were told.
	began, reports int
	fail           error
}

func (i *incidents) Report(_ context.Context, scope incident.Scope, levels incident.Levels) (incident.Answer, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.fail != nil {
		return incident.Answer{}, i.fail
	}
	state := i.states[scope]
	if !state.Open() {
		state = incident.Incident{Scope: scope}
		i.began++
	}
	i.reports++
	state, answer := incident.Decide(state, incident.Reported{Levels: levels}, i.clock.Now(), i.policy)
	i.states[scope] = state
	return answer, nil
}

func (i *incidents) Open(context.Context) ([]incident.Scope, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	var open []incident.Scope
	for scope, state := range i.states {
		if state.Open() {
			open = append(open, scope)
		}
	}
	return open, i.fail
}

// say is an operator's word on an incident.
func (i *incidents) say(scope incident.Scope, m incident.Message) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m.Actor, m.Reason = "oncall@example.com", "we know of it"
	i.states[scope], _ = incident.Decide(i.states[scope], m, i.clock.Now(), i.policy)
}

func (i *incidents) of(scope incident.Scope) incident.Incident {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.states[scope]
}

func (i *incidents) failWith(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fail = err
}

// stormScene is a scene whose starter is guarded against storms.
type stormScene struct {
	*scene
	incidents *incidents
	reporter  *reporter
}

// gather is how long an Unknown waits in a stormScene.
const gather = 10 * time.Second

func newStorm(t *testing.T, change ...func(*Options)) *stormScene {
	s := newStandbyStorm(t, nil, change...)
	s.tracker.listed()
	s.tracker.remember(nil)
	s.takeOver()
	return s
}

// newStandbyStorm makes a guarded starter that doesn't lead, beside another one where
// there is one.
func newStandbyStorm(t *testing.T, beside *stormScene, change ...func(*Options)) *stormScene {
	t.Helper()
	s := &stormScene{incidents: &incidents{policy: incident.DefaultPolicy(), states: map[incident.Scope]incident.Incident{}}}
	if beside != nil {
		s.incidents = beside.incidents
	}
	s.scene = newStandby(t, append([]func(*Options){func(o *Options) {
		o.Incidents, o.Storm.Gather = s.incidents, gather
	}}, change...)...)
	if beside != nil {
		s.clock.SetTime(beside.clock.Now())
	}
	s.incidents.clock = s.clock
	s.reporter = &reporter{
		tracker: s.tracker, incidents: s.incidents, overview: s.cases, settling: s.sender.settling, identity: fmt.Sprintf("starter-%p", s),
		clock: s.clock, log: s.sender.log, limit: time.Second,
	}
	return s
}

func (s *stormScene) takeOver() {
	s.lead()
	s.reporter.list(s.t.Context(), true)
}

// run lets time go by in steps, and returns everything that was sent meanwhile.
func (s *stormScene) run(total, step time.Duration, each ...func(passed time.Duration)) []call {
	s.t.Helper()
	var sent []call
	for passed := time.Duration(0); passed < total; passed += step {
		for _, do := range each {
			do(passed)
		}
		s.pass(step)
		s.reporter.round(s.t.Context())
		sent = append(sent, s.send()...)
	}
	return sent
}

// fleet has every device of these nodes held by a Pod that says this of it.
func (s *stormScene) fleet(nodes, devices int, health device.Health) {
	for n := range nodes {
		s.node(n, devices, health)
	}
}

// node has the Pod that holds a node's devices say this of all of them. Their driver
// lists them.
func (s *stormScene) node(n, devices int, health device.Health) {
	node := fmt.Sprintf("node-%d", n)
	var entries []device.Entry
	var all []device.Listed
	for d := range devices {
		name := fmt.Sprintf("gpu-%d", d)
		entries = append(entries, entry(gpu(node, name), health, ""))
		all = append(all, listed(name, ""))
	}
	if s.tracker.pools[device.PoolKey{Driver: driver, Pool: node}] == nil {
		s.slice(node, 1, all...)
	}
	s.see(podOn(node, "train-"+node, entries...))
}

func opened(calls []call) (keys []device.Key) {
	for _, c := range calls {
		if c.open {
			keys = append(keys, c.key)
		}
	}
	return keys
}

// U4. Ten thousand devices on 1,250 nodes become Unknown within ten seconds: one
// incident, no case, and nothing is sent of any of them; when they are well again the
// incident ends by itself, and still nothing is sent.
func TestTenThousandUnknownsAtOnceAreOneIncidentAndNoCase(t *testing.T) {
	const nodes, devices = 1250, 8
	s := newStorm(t)
	s.fleet(nodes, devices, device.Healthy)
	none(t, s.run(time.Minute, time.Second), "all is well")
	sent := s.run(30*time.Second, time.Second, func(passed time.Duration) {
		if at := int(passed / time.Second); at < 10 {
			for n := at * nodes / 10; n < (at+1)*nodes/10; n++ {
				s.node(n, devices, device.Unknown)
			}
		}
	})
	none(t, sent, "ten thousand Unknowns")
	if s.incidents.began != 1 {
		t.Errorf("%d incidents, want one", s.incidents.began)
	}
	scope := incident.OfDriver(driver)
	if i := s.incidents.of(scope); i.Phase != incident.Holding || i.Levels.Now != nodes*devices || i.Levels.Held != nodes*devices || i.Levels.Nodes != nodes {
		t.Errorf("the incident knows %s, %+v", i.Phase, i.Levels)
	}
	none(t, s.run(5*time.Minute, 15*time.Second), "while it lasts")
	s.fleet(nodes, devices, device.Healthy)
	none(t, s.run(5*time.Minute, 15*time.Second), "all is well again")
	if i := s.incidents.of(scope); i.Phase != incident.Closed || i.End != incident.EndLevels || s.incidents.began != 1 {
		t.Errorf("the incident is %s by %s; %d began", i.Phase, i.End, s.incidents.began)
	}
	// Every 15 s while it lasted: counted calls and not seconds.
	if s.incidents.reports > 60 {
		t.Errorf("%d reports in ten minutes", s.incidents.reports)
	}
}

// U4. A driver upgrade that goes from node to node is one incident however long it
// takes, although hardly more than a node is silent at any time. With an operator's
// word that it is known none of its devices gets a case; without, past the maximum,
// not more than the pace allows.
func TestADriverUpgradeThatRollsOverAThousandNodesIsOneIncident(t *testing.T) {
	const devices, every, silent = 4, 5 * time.Second, 8
	for name, known := range map[string]bool{"announced": true, "not announced": false} {
		t.Run(name, func(t *testing.T) {
			s := newStorm(t)
			nodes := time.Duration(1000)
			if !known {
				nodes, s.incidents.policy.Max = 250, 10*time.Minute
			}
			s.fleet(int(nodes), devices, device.Healthy)
			said := false
			sent := s.run(nodes*every, every, func(passed time.Duration) {
				at := int(passed / every)
				s.node(at, devices, device.Unknown)
				if at >= silent {
					s.node(at-silent, devices, device.Healthy)
				}
				if known && !said && s.incidents.of(incident.OfDriver(driver)).Open() {
					s.incidents.say(incident.OfDriver(driver), incident.Message{Verb: incident.VerbWait, For: 8 * time.Hour})
					said = true
				}
			})
			if open := len(s.incidents.states); open > 3 {
				t.Errorf("%d incidents over a thousand nodes, want the driver's and at most two of the first nodes", open)
			}
			limit := int((nodes*every-s.incidents.policy.Max)/s.incidents.policy.Pace) + 1
			if known {
				limit = 0
			}
			if got := len(opened(sent)); got > limit {
				t.Errorf("%d cases, want at most %d", got, limit)
			}
		})
	}
}

// U4, U1. Devices that go Unknown and Healthy every second are Unknown: one incident,
// whose maximum isn't restarted by any of it.
func TestDevicesThatFlapEverySecondAreOneStorm(t *testing.T) {
	const nodes, devices = 20, 4
	s := newStorm(t)
	s.fleet(nodes, devices, device.Healthy)
	flap := func(passed time.Duration) {
		health := device.Healthy
		if passed/time.Second%2 == 0 {
			health = device.Unknown
		}
		s.fleet(nodes, devices, health)
	}
	none(t, s.run(2*time.Minute, time.Second, flap), "flapping")
	i := s.incidents.of(incident.OfDriver(driver))
	if i.Phase != incident.Holding || s.incidents.began != 1 || i.Levels.Now != nodes*devices {
		t.Errorf("%s with %d devices, %d incidents", i.Phase, i.Levels.Now, s.incidents.began)
	}
	if want := i.Since.Add(s.incidents.policy.Max); !i.Until.Equal(want) {
		t.Errorf("holds until %s, want %s", i.Until, want)
	}
}

// U1. One device alone that flaps gets its case all the same, and one that is Unknown
// for less than the gathering time is no news at all.
func TestAnUnknownThatIsAloneGathersAndGetsItsCase(t *testing.T) {
	key, brief := gpu("node-0", "gpu-0"), gpu("node-1", "gpu-0")
	s := newStorm(t)
	s.fleet(2, 8, device.Healthy)
	say := func(key device.Key, health device.Health) { s.report("lone-"+key.Pool, key, health, "") }
	sent := s.run(20*time.Second, time.Second, func(passed time.Duration) {
		at := passed / time.Second
		switch {
		case at%2 == 0:
			say(key, device.Unknown)
		default:
			say(key, device.Healthy)
		}
		switch at {
		case 2:
			say(brief, device.Unknown)
		case 11:
			say(brief, device.Healthy)
		}
	})
	if got := opened(sent); !slices.Contains(got, key) || slices.Contains(got, brief) {
		t.Errorf("cases of %v, want one of %s only", got, key)
	}
	for _, c := range sent {
		if c.key == brief {
			t.Errorf("told of %s: %+v", brief, c)
		}
	}
	if s.incidents.began != 0 {
		t.Errorf("%d incidents of one device", s.incidents.began)
	}
}

// U4. While a storm holds, a fault of one of its devices is sent at once.
func TestAFaultInsideAStormIsSentAtOnce(t *testing.T) {
	s := newStorm(t)
	s.fleet(20, 4, device.Healthy)
	s.fleet(20, 4, device.Unknown)
	none(t, s.run(30*time.Second, time.Second), "a storm")
	key := gpu("node-3", "gpu-1")
	s.report("train-node-3", key, device.Unhealthy, xid79)
	observed(t, s.send(), key, true)
}

// U4. At its maximum an incident lets the oldest through first, one at a time; an
// operator's admit lets all through.
func TestAStormAtItsMaximumLetsTheOldestThroughAtItsPace(t *testing.T) {
	s := newStorm(t)
	s.fleet(20, 1, device.Healthy)
	for n := range 20 {
		s.node(n, 1, device.Unknown)
		none(t, s.run(200*time.Millisecond, 200*time.Millisecond), "it begins")
	}
	none(t, s.run(time.Hour-time.Minute, 20*time.Second), "while it holds")
	keys := opened(s.run(5*time.Minute, 5*time.Second))
	if len(keys) < 8 || len(keys) > 10 {
		t.Fatalf("%d cases in five minutes at a pace of 30 s: %v", len(keys), keys)
	}
	for i, key := range keys {
		if want := fmt.Sprintf("node-%d", i); key.Pool != want {
			t.Errorf("case %d is of %s, want the oldest, of %s", i, key, want)
		}
	}
	s.incidents.say(incident.OfDriver(driver), incident.Message{Verb: incident.VerbAdmit})
	if got := len(opened(s.run(20*time.Second, 5*time.Second))); got != 20-len(keys) {
		t.Errorf("%d cases after admit, want the other %d", got, 20-len(keys))
	}
}

// U4. Another starter that takes over in the middle of a storm holds what the first
// one held and goes on with its incident, whether it watched all along or has just
// begun, and ends it although it never saw how it began.
func TestATakeOverInTheMiddleOfAStorm(t *testing.T) {
	for name, watched := range map[string]bool{"by a standby": true, "by one that has just started": false} {
		t.Run(name, func(t *testing.T) {
			first := newStorm(t)
			second := newStandbyStorm(t, first)
			all := func(s *stormScene, health device.Health) { s.fleet(20, 4, health) }
			all(first, device.Healthy)
			if watched {
				all(second, device.Healthy)
			}
			all(first, device.Unknown)
			if watched {
				all(second, device.Unknown)
			}
			none(t, first.run(2*time.Minute, time.Second, func(time.Duration) { second.clock.Step(time.Second) }), "the first leads")
			first.tracker.detach()
			if !watched {
				all(second, device.Healthy)
				all(second, device.Unknown)
			}
			second.tracker.listed()
			second.takeOver()
			none(t, second.run(2*time.Minute, time.Second), "the second leads")
			i := second.incidents.of(incident.OfDriver(driver))
			if second.incidents.began != 1 || !i.Since.Before(startOfTime.Add(time.Minute)) || i.Levels.By != second.reporter.identity {
				t.Errorf("%d incidents, since %s, told by %s", second.incidents.began, i.Since, i.Levels.By)
			}
			all(second, device.Healthy)
			none(t, second.run(4*time.Minute, time.Second), "well again")
			if i := second.incidents.of(incident.OfDriver(driver)); i.Phase != incident.Closed {
				t.Errorf("it is %s, %+v, calm since %s, now %s", i.Phase, i.Levels, i.CalmSince, second.clock.Now())
			}
		})
	}
}

// U4. A starter that takes over when all are well again knows nothing of the storm,
// and its incident still ends.
func TestAStormThatEndedBetweenTwoStartersEnds(t *testing.T) {
	first := newStorm(t)
	first.fleet(20, 4, device.Healthy)
	first.fleet(20, 4, device.Unknown)
	none(t, first.run(time.Minute, time.Second), "the first leads")
	second := newStandbyStorm(t, first)
	second.fleet(20, 4, device.Healthy)
	second.tracker.listed()
	second.takeOver()
	none(t, second.run(4*time.Minute, time.Second), "the second leads")
	if i := second.incidents.of(incident.OfDriver(driver)); i.Phase != incident.Closed {
		t.Errorf("it is %s", i.Phase)
	}
}

// U4. A starter that watched all along and takes over after a storm is over begins no
// other one for it, whoever ended that: nobody is Unknown any more.
func TestAStormThatIsOverBeginsNoOtherForTheNextStarter(t *testing.T) {
	first := newStorm(t)
	second := newStandbyStorm(t, first)
	all := func(health device.Health) {
		first.fleet(20, 4, health)
		second.fleet(20, 4, health)
	}
	together := func(time.Duration) { second.clock.Step(time.Second) }
	all(device.Healthy)
	all(device.Unknown)
	none(t, first.run(30*time.Second, time.Second, together), "silent")
	all(device.Healthy)
	none(t, first.run(3*time.Minute, time.Second, together), "well again")
	if i := first.incidents.of(incident.OfDriver(driver)); i.Phase != incident.Closed {
		t.Fatalf("it is %s", i.Phase)
	}
	first.tracker.detach()
	second.tracker.listed()
	second.takeOver()
	none(t, second.run(time.Minute, time.Second), "the second leads")
	if second.incidents.began != 1 {
		t.Errorf("%d incidents of one storm", second.incidents.began)
	}
	second.fleet(20, 4, device.Unknown)
	none(t, second.run(30*time.Second, time.Second), "silent again")
	if second.incidents.began != 2 {
		t.Errorf("%d incidents of two storms", second.incidents.began)
	}
}

// U4. While the incident can't be told, its devices wait, that is shown, and faults
// are sent all the same.
func TestAStormWhoseIncidentCanNotBeToldIsHeld(t *testing.T) {
	s := newStorm(t)
	s.fleet(20, 4, device.Healthy)
	s.incidents.failWith(errors.New("temporal is away"))
	s.fleet(20, 4, device.Unknown)
	none(t, s.run(2*time.Hour, time.Minute), "it can't be told")
	counted := map[string]float64{}
	s.tracker.openIncidents(func(n float64, labels ...string) { counted[labels[0]+" "+labels[1]] = n })
	held := map[string]float64{}
	s.tracker.heldDevices(func(n float64, labels ...string) { held[labels[0]] = n })
	if counted["Storm Unreached"] != 1 || held["Storm"] != 80 {
		t.Errorf("shown as %v, %v", counted, held)
	}
	key := gpu("node-3", "gpu-1")
	s.report("train-node-3", key, device.Unhealthy, xid79)
	observed(t, s.send(), key, true)
	s.incidents.failWith(nil)
	none(t, s.run(time.Minute, time.Second), "told, and holding")
	if s.incidents.began != 1 {
		t.Errorf("%d incidents", s.incidents.began)
	}
}

// A device whose Pod ends while it waits is nobody's business any more.
func TestAnUnknownThatEndsWithItsPodWhileItWaitsIsForgotten(t *testing.T) {
	s := newStorm(t)
	key := gpu("node-0", "gpu-0")
	s.report("train-0", key, device.Healthy, "")
	p := s.report("train-0", key, device.Unknown, "")
	none(t, s.run(5*time.Second, time.Second), "it gathers")
	s.tracker.podGone(p.Ref)
	none(t, s.run(time.Minute, time.Second), "its Pod ended")
	if s.tracker.devices[key] != nil {
		t.Errorf("still remembered: %+v", s.tracker.devices[key])
	}
}

// U3 in part: a case that is open hears of its device's Unknown while a storm holds
// the others.
func TestAnOpenCaseHearsOfItsDeviceDuringAStorm(t *testing.T) {
	s := newStorm(t)
	s.fleet(20, 4, device.Healthy)
	key := gpu("node-0", "gpu-0")
	s.report("other", key, device.Unknown, "")
	observed(t, s.run(15*time.Second, time.Second), key, true)
	s.report("other", key, device.Healthy, "")
	observed(t, s.send(), key, false)
	s.fleet(20, 4, device.Unknown)
	var told []quarantine.Observed
	for _, c := range s.run(15*time.Second, time.Second) {
		if c.key != key || c.open {
			t.Fatalf("signal %+v", c)
		}
		told = append(told, c.event.(quarantine.Observed))
	}
	if len(told) != 1 || !slices.ContainsFunc(told[0].Readings, func(r quarantine.Reading) bool { return r.Health == device.Unknown }) {
		t.Errorf("told %+v", told)
	}
}

// U4. A device whose case is over, and only remembered by its workflow, waits like any
// other when it is Unknown again: in a storm none of them gets a case or is told of.
func TestADeviceWhoseCaseIsOverWaitsInTheNextStorm(t *testing.T) {
	s := newStorm(t)
	s.fleet(20, 4, device.Healthy)
	key := gpu("node-0", "gpu-0")
	s.report("other", key, device.Unknown, "")
	observed(t, s.run(15*time.Second, time.Second), key, true)
	s.report("other", key, device.Healthy, "")
	observed(t, s.send(), key, false)
	s.cases.end(key)
	s.fleet(20, 4, device.Unknown)
	none(t, s.run(time.Minute, time.Second), "a storm, and the case of before is over")
}
