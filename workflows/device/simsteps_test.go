package device_test

// What happens in a simulated life: to Pods, node, driver and mark, to what the
// starter tells of them, what operators say, and to workers and servers.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// signal is one message on its way to the workflow.
type signal struct {
	name    string
	payload any
	// readings are what an Observed says; opens tells that the starter starts a
	// workflow for it.
	readings []quarantine.Reading
	opens    bool
	// actor is who sent a message; unnamed that it is refused as nobody's.
	actor   string
	unnamed bool
}

// simFaults are the messages that drivers give: what quarantines at once, what
// only raises suspicion, what is an application's, and what the catalogue doesn't know.
var simFaults = []string{
	"critical XID 79 reported by NVML", "critical XID 48 reported by NVML", "critical XID 63 reported by NVML",
	simAppError, "", "something else",
}

const simAppError = "critical XID 31 reported by NVML"

// step is something that may happen, as often as its weight says. Those that are
// grave don't happen in a calm life, in which no device is ever known to be at fault.
type step struct {
	name   string
	weight int
	grave  bool
	do     func(l *life)
}

var steps = slices.Concat(attemptSteps, []step{
	{"a Pod starts", 6, false, func(l *life) {
		if len(l.cluster.running()) < 3 && len(l.cluster.pods) < 8 {
			health, message := l.health()
			l.tellOf(l.cluster.start(l.rng.IntN(4) == 0, health, message, l.clock()))
		}
	}},
	{"health changes", 12, false, func(l *life) {
		if p := l.somePod(); p != nil && !l.cluster.left {
			health, message := l.health()
			l.cluster.write(p, health, message, l.clock())
			l.tellOf(p)
		}
	}},
	{"health flaps", 3, false, func(l *life) {
		if p := l.somePod(); p != nil && !l.cluster.left {
			for i := range 2 + l.rng.IntN(6) {
				l.in(time.Duration(i)*time.Second+l.upTo(time.Second), func() {
					if p.running && !l.fair && !l.cluster.left {
						health, message := l.health()
						l.cluster.write(p, health, message, l.clock())
						l.tellOf(p)
					}
				})
			}
		}
	}},
	{"a Pod ends", 4, false, func(l *life) {
		if p := l.somePod(); p != nil {
			l.cluster.end(p)
			l.tellOf(p)
		}
	}},
	{"something comes again", 4, false, func(l *life) {
		if len(l.sent) > 0 {
			l.deliver(l.sent[l.rng.IntN(len(l.sent))])
		}
	}},
	{"a burst of what was said before", 2, false, func(l *life) {
		if len(l.sent) > 0 {
			var batch []signal
			for range 2 + l.rng.IntN(12) {
				batch = append(batch, l.sent[l.rng.IntN(len(l.sent))])
			}
			l.hand(batch)
		}
	}},
	{"the starter compares levels", 3, false, func(l *life) { l.tellLevels() }},
	{"the node's condition changes", 3, false, func(l *life) { l.cluster.ready = l.rng.IntN(2) == 0 }},
	{"the Lease stops or goes", 3, false, func(l *life) {
		if l.cluster.dead.IsZero() {
			l.cluster.dead = l.clock().Truncate(10 * time.Second)
		} else {
			l.cluster.dead = time.Time{}
		}
	}},
	{"the pool or the node goes", 3, false, func(l *life) {
		l.goes([]device.MissingReason{device.PoolGone, device.NodeDeleted}[l.rng.IntN(2)])
	}},
	{"the device goes missing", 2, true, func(l *life) {
		if l.cluster.key.Path() == device.PathPlugin {
			l.goes(device.AllocatableDropped)
			return
		}
		l.goes(device.MissingFromPool)
		l.because("it went missing from its pool")
	}},
	{"the device is listed", 6, false, func(l *life) {
		l.cluster.listed, l.cluster.movedTo = true, ""
		l.tell(l.inventory())
	}},
	{"another card is there", 1, true, func(l *life) {
		l.cluster.hardware = []device.Incarnation{simOldCard, simNewCard, {}}[l.rng.IntN(3)]
		l.cluster.movedTo = []string{"", "", "gpu.example.com/anvil-07/gpu-7"}[l.rng.IntN(3)]
		l.because("its hardware changed")
		l.tell(l.inventory())
	}},
	{"the pool is incomplete or not", 2, false, func(l *life) { l.cluster.complete = l.rng.IntN(2) == 0 }},
	{"the plugin leaves the device out, or lists it again", 2, true, func(l *life) {
		if l.cluster.key.Path() != device.PathPlugin {
			return
		}
		l.cluster.left = !l.cluster.left
		l.tell(l.inventory())
		if l.cluster.left {
			// The kubelet's default for a device that isn't listed, at its next sync.
			l.in(7*time.Second+l.upTo(80*time.Second), l.sync)
		}
	}},
	{"other devices come or go", 1, false, func(l *life) {
		l.cluster.others = 1 + l.rng.Int64N(5)
		l.tell(l.inventory())
	}},
	{"the plugin dies or comes back", 2, false, func(l *life) {
		l.cluster.away = l.rng.IntN(2) == 0
		for _, p := range l.cluster.running() {
			l.tellOf(p)
		}
	}},
	{"the mark is deleted by hand", 2, true, func(l *life) {
		if m := l.cluster.mark; m != nil {
			l.cluster.version++
			l.cluster.mark = nil
			l.tell(l.seenMark(m.Epoch))
		}
	}},
	{"the mark is changed by hand", 2, true, func(l *life) {
		if m := l.cluster.mark; m != nil {
			l.cluster.version++
			l.cluster.intact, m.Version = false, l.cluster.rv()
			l.tell(l.seenMark(0))
		}
	}},
	{"the mark of another case is there", 2, true, func(l *life) {
		if l.cluster.served && l.cluster.mark == nil {
			l.cluster.version++
			found := l.strayMark()
			l.cluster.mark, l.cluster.intact = &found, l.rng.IntN(2) == 0
			l.mayMark = strayMark
			l.tell(l.seenMark(0))
		}
	}},
	{"somebody else has the mark's name", 1, true, func(l *life) {
		l.cluster.foreign = l.cluster.mark == nil && l.rng.IntN(2) == 0
	}},
	{"the driver shows itself or not", 3, false, func(l *life) {
		signs := []quarantine.DriverSign{quarantine.DriverSilent, quarantine.DriverSpeaks, quarantine.DriverUnknown}
		l.cluster.driver = signs[l.rng.IntN(len(signs))]
		l.cluster.published += l.rng.IntN(2)
	}},
	{"the budget is used up or not", 3, false, func(l *life) { l.cluster.full = l.rng.IntN(2) == 0 }},
	{"an incident begins or ends", 3, false, func(l *life) { l.cluster.incident = l.rng.IntN(2) == 0 }},
	{"the starter's clock steps", 2, false, func(l *life) { l.skew = l.upTo(2*time.Hour) - time.Hour }},
	{"rights come or go", 2, false, func(l *life) { l.cluster.forbidden = l.rng.IntN(2) == 0 }},
	{"the API server goes away or comes back", 3, false, func(l *life) { l.cluster.down = l.rng.IntN(2) == 0 }},
	{"nothing can be announced for a while", 1, false, func(l *life) {
		l.mute = true
		l.in(l.upTo(10*time.Minute), func() { l.mute = false })
	}},
	{"an operator writes", 5, false, func(l *life) { l.deliver(l.message()) }},
	{"operators write much", 1, false, func(l *life) {
		var batch []signal
		for range 5 + l.rng.IntN(30) {
			batch = append(batch, l.message())
		}
		l.hand(batch)
	}},
	{"an operator asks by update", 4, false, func(l *life) { l.update() }},
	{"something unreadable comes", 1, false, func(l *life) {
		l.deliver(l.unreadable())
	}},
	{"somebody cancels the workflow", 1, false, func(l *life) { l.cancel() }},
	{"the worker's settings change", 3, false, func(l *life) {
		l.knobs.Policy.Mode = []quarantine.Mode{quarantine.ModeObserve, quarantine.ModeEnforce}[l.rng.IntN(2)]
		l.knobs.Policy.Grace = time.Duration(1+l.rng.IntN(10)) * time.Minute
		l.shortest = min(l.shortest, l.knobs.Policy.Grace)
		l.knobs.Policy.Lease = time.Duration(10+l.rng.IntN(50)) * time.Minute
		l.say("now mode %s, grace %s, lease %s", l.knobs.Policy.Mode, l.knobs.Policy.Grace, l.knobs.Policy.Lease)
	}},
	{"the server suggests to continue", 4, false, func(l *life) { l.suggest() }},
	{"the history is long enough for a stage", 4, false, func(l *life) {
		if l.env != nil {
			l.env.SetCurrentHistoryLength(60 + l.rng.IntN(100))
		}
	}},
})

// next lets one thing happen, and then the next, until the world becomes fair.
func (l *life) next() {
	if l.fair {
		return
	}
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	at := l.rng.IntN(total)
	for _, s := range steps {
		if at -= s.weight; at < 0 {
			if !s.grave || !l.calm {
				l.say("%s", s.name)
				s.do(l)
			}
			break
		}
	}
	if len(l.pauses) > 0 {
		pause := l.pauses[0]
		l.pauses = l.pauses[1:]
		l.in(pause, l.next)
	}
}

// drawPauses are the times between steps: moments, in which much is under way at
// once, and hours, in which deadlines pass.
func drawPauses(rng *rand.Rand) []time.Duration {
	pauses := make([]time.Duration, 15+rng.IntN(60))
	for i := range pauses {
		longest := []time.Duration{500 * time.Millisecond, 500 * time.Millisecond, 5 * time.Second, 30 * time.Second, 30 * time.Second, 3 * time.Minute, 3 * time.Minute, 10 * time.Minute, time.Hour}
		pauses[i] = time.Duration(rng.Int64N(int64(longest[rng.IntN(len(longest))])) + 1)
	}
	return pauses
}

func (l *life) somePod() *simPod {
	running := l.cluster.running()
	if len(running) == 0 {
		return nil
	}
	return running[l.rng.IntN(len(running))]
}

// health draws what a Pod's status says. In a calm life no device is at fault.
func (l *life) health() (device.Health, string) {
	if l.cluster.left {
		return device.Healthy, ""
	}
	switch l.rng.IntN(5) {
	case 0, 1:
		return device.Healthy, ""
	case 2, 3:
		return device.Unknown, ""
	}
	message := simAppError
	if !l.calm {
		message = simFaults[l.rng.IntN(len(simFaults))]
		l.because("a fault was reported")
	}
	return device.Unhealthy, message
}

// because notes why a mark may be made from now on.
func (l *life) because(why string) {
	if l.mayMark != strayMark {
		l.mayMark = why
	}
}

func (l *life) goes(why device.MissingReason) {
	if l.cluster.listed {
		l.cluster.listed, l.cluster.why = false, why
		l.tell(l.inventory())
	}
}

// sync lets Pods say Healthy of a device that its plugin left out.
func (l *life) sync() {
	for _, p := range l.cluster.running() {
		if l.cluster.left && p.health != device.Healthy {
			l.cluster.write(p, device.Healthy, "", l.clock())
			l.tellOf(p)
		}
	}
}

// strayMark is that of a case of which nobody knows any more, older than this one or
// later.
func (l *life) strayMark() quarantine.MarkFound {
	now := l.clock().UnixMilli()
	return quarantine.MarkFound{
		Name: "sickbay-stray", Epoch: now + l.rng.Int64N(7_200_000) - 3_600_000, Severity: 2, Reason: "XidEngineTimeout", Closes: "gates",
		Message: "XID 109", Actor: "sickbay", Attempt: l.rng.IntN(3), Since: now - 3_600_000, Retired: l.rng.IntN(5) == 0,
		Hardware: l.cluster.hardware, Version: l.cluster.rv(),
	}
}

// tell lets the starter say something: mostly soon, sometimes late, behind what
// was later, and sometimes never.
func (l *life) tell(s signal) {
	switch l.rng.IntN(15) {
	case 0:
	case 1, 2:
		l.in(l.upTo(10*time.Minute), func() { l.deliver(s) })
	default:
		l.in(l.upTo(200*time.Millisecond), func() { l.deliver(s) })
	}
}

func (l *life) tellOf(p *simPod) { l.tell(l.observed(p)) }

// tellLevels tells all that is so now, as a starter does that begins.
func (l *life) tellLevels() {
	var batch []signal
	if l.cluster.mark != nil && l.cluster.served && !l.cluster.foreign {
		batch = append(batch, l.seenMark(0))
	}
	batch = append(batch, l.inventory())
	for _, p := range l.cluster.running() {
		batch = append(batch, l.observed(p))
	}
	l.hand(batch)
}

func (l *life) observed(p *simPod) signal {
	r := l.cluster.reading(p)
	r.Observed = r.Observed.Add(l.skew)
	event := quarantine.Observed{Sent: l.clock().Add(l.skew), Node: simNode, Lost: l.calm || l.rng.IntN(8) > 0, Incarnation: l.cluster.hardware, Readings: []quarantine.Reading{r}}
	if l.key.Path() == device.PathPlugin {
		event.Incarnation = device.Incarnation{}
	}
	l.ahead(&event)
	opens := r.Health == device.Unhealthy && r.Fault || r.Counts() == device.Unknown
	return signal{
		name: devicewf.SignalObserved, payload: devicewf.Signal[quarantine.Observed]{Device: l.key, Event: event},
		readings: event.Readings, opens: opens && !r.Ended,
	}
}

// ahead makes the mark of a fault ahead of its case now and then, as a burst does; seldom
// of a device that has a case, which a starter can be wrong about.
func (l *life) ahead(event *quarantine.Observed) {
	if l.rng.IntN(3) > 0 || l.cluster.mark != nil || l.last.Open() && l.rng.IntN(10) > 0 {
		return
	}
	_, owed := quarantine.Decide(quarantine.Case{Device: l.key}, *event, l.clock(), l.knobs.Policy)
	for _, command := range owed {
		put, ok := command.(quarantine.PutMark)
		if !ok {
			continue
		}
		if report, err := l.cluster.put(put); err == nil && report.Outcome == quarantine.OutcomeInForce {
			event.Made = quarantine.Made{Epoch: put.Epoch, Name: report.Name, Version: report.Version, At: l.clock()}
			l.say("mark of epoch %d is made ahead of its case", put.Epoch)
		}
	}
}

func (l *life) inventory() signal {
	event := l.cluster.inventory()
	return signal{
		name: devicewf.SignalInventory, payload: devicewf.Signal[quarantine.Inventory]{Device: l.key, Event: event},
		opens: !event.Present && event.Missing == device.MissingFromPool,
	}
}

func (l *life) seenMark(epoch int64) signal {
	event := l.cluster.seen(epoch)
	return signal{name: devicewf.SignalMark, payload: devicewf.Signal[quarantine.MarkSeen]{Device: l.key, Event: event}, opens: event.Present}
}

// message is an operator's, who is named by a number of his own, so that his word
// can be found again.
func (l *life) message() signal {
	verbs := quarantine.Verbs[:]
	payload := devicewf.OperatorPayload{Actor: l.nobody(), Reason: "replaced the riser"}
	s := signal{name: string(verbs[l.rng.IntN(len(verbs))]), actor: payload.Actor}
	switch l.rng.IntN(6) {
	case 0:
		payload.Reason = ""
	case 1:
		payload.Actor, s.actor, s.unnamed = "", "", true
	}
	s.payload = payload
	if s.name == string(quarantine.VerbRetire) {
		l.because("an operator retired it")
	}
	if s.name == string(quarantine.VerbQuarantine) {
		l.because("an operator quarantined it")
	}
	return s
}

func (l *life) nobody() string {
	l.actors++
	return fmt.Sprintf("ops-%d@example.com", l.actors)
}

func (l *life) unreadable() signal {
	other, _ := device.NewDRA("gpu.example.com", "anvil-07", "gpu-4")
	return []signal{
		{name: "release", payload: "not an object", unnamed: true},
		{name: devicewf.SignalObserved, payload: []string{"neither"}, unnamed: true},
		{name: devicewf.SignalInventory, payload: devicewf.Signal[quarantine.Inventory]{Device: other}, unnamed: true},
	}[l.rng.IntN(3)]
}

// deliver hands over one message.
func (l *life) deliver(s signal) { l.hand([]signal{s}) }

// hand gives messages to the workflow, all in one workflow task. Where none runs, the
// starter starts one for what calls for it; nobody takes the rest.
func (l *life) hand(batch []signal) {
	for _, s := range batch {
		if s.actor == "" && !s.unnamed && len(l.sent) < 60 {
			l.sent = append(l.sent, s)
		}
	}
	if l.env == nil {
		for _, s := range batch {
			if s.opens {
				l.opening = append(l.opening, s)
			}
		}
		return
	}
	if len(batch) == 0 {
		return
	}
	env := l.env
	l.onTheWay = append(l.onTheWay, batch...)
	// What the run does just before may end it; then none of these was taken.
	env.RegisterDelayedCallback(func() { l.acknowledged(batch) }, 0)
	for i, s := range batch {
		if i < len(batch)-1 {
			env.SignalWorkflowSkippingWorkflowTask(s.name, s.payload)
		} else {
			env.SignalWorkflow(s.name, s.payload)
		}
	}
	env.RegisterDelayedCallback(l.check, 0)
}

// acknowledged notes what the server took, which has to be in the state from now on.
func (l *life) acknowledged(batch []signal) {
	l.onTheWay = l.onTheWay[len(batch):]
	for _, s := range batch {
		l.say("signal %s %s", s.name, brief(s.payload))
		if now := l.clock(); !l.expected.Equal(now) {
			l.expect, l.expected = nil, now
		}
		l.expect = append(l.expect, s.readings...)
		switch {
		case s.unnamed:
			l.unnamed++
		case s.actor != "":
			l.asked = append(l.asked, s.actor)
		}
	}
}

// update is an operator's message that waits for its answer.
func (l *life) update() {
	m := l.message()
	if l.env == nil || m.actor == "" {
		return
	}
	env := l.env
	env.UpdateWorkflow(m.name, m.actor, &answer{l, m.name, m.actor}, m.payload)
	env.RegisterDelayedCallback(l.check, 0)
}

// answer follows an update.
type answer struct {
	l           *life
	verb, actor string
}

func (a *answer) Reject(err error) { a.l.say("update %s of %s refused: %v", a.verb, a.actor, err) }

func (a *answer) Accept() {
	a.l.say("update %s of %s accepted", a.verb, a.actor)
	a.l.asked = append(a.l.asked, a.actor)
	a.l.updating[a.actor] = a.verb
}

func (a *answer) Complete(_ any, err error) {
	a.l.say("update %s of %s answered: %v", a.verb, a.actor, err)
	delete(a.l.updating, a.actor)
}

func (l *life) cancel() {
	if l.env != nil && !l.cancelled {
		l.cancelled = true
		l.env.RegisterDelayedCallback(func() { l.unnamed++ }, 0)
		l.env.CancelWorkflow()
		l.env.RegisterDelayedCallback(l.check, 0)
	}
}

// suggest lets the server ask for a new run.
func (l *life) suggest() {
	if l.env != nil && l.suggested.IsZero() {
		l.env.SetContinueAsNewSuggested(true)
		l.suggested = l.clock()
	}
}

// turnFair makes the world one that holds still and answers. Whether the node lives
// and rights are there is as it was, or well.
func (l *life) turnFair() {
	c := l.cluster
	l.fair, l.mute, c.down, c.complete, c.incident, c.full = true, false, false, true, false, false
	if l.rng.IntN(2) == 0 {
		c.driver = quarantine.DriverSpeaks
		c.forbidden, c.foreign, c.ready, c.dead, c.away, c.listed, c.movedTo = false, false, true, time.Time{}, false, true, ""
		c.proof.health, c.proof.message, c.proof.ends = device.Healthy, "", quarantine.JobPassed
		c.proof.trouble, c.proof.blocked, c.proof.waiting, c.proof.stuck = false, false, false, false
	}
	if l.rng.IntN(2) == 0 {
		// Its holders leave, and what Pods of attempts say is how it is.
		for _, p := range c.running() {
			if !p.monitor {
				c.end(p)
				l.tellOf(p)
			}
		}
	}
	l.say("from now on the world is fair: ready %t, Lease stopped %s, listed %t, forbidden %t, foreign %t, mode %s", c.ready, c.dead, c.listed, c.forbidden, c.foreign, l.knobs.Policy.Mode)
	l.sync()
	l.tellLevels()
	l.reopened, l.looked = 0, 0
	if l.rng.IntN(2) == 0 {
		l.in(l.upTo(time.Hour), l.suggest)
	}
	for at := l.clock().Add(time.Hour); at.Before(l.endsAt); at = at.Add(time.Hour) {
		l.in(at.Sub(l.clock()), func() {
			if l.env == nil || !l.last.Open() {
				l.tellLevels()
				l.reopened++
			}
		})
	}
	l.in(l.endsAt.Sub(l.clock())-10*time.Minute, l.rest)
}

func contains(list []string, one string) bool { return slices.Contains(list, one) }
