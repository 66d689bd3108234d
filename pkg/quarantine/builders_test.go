package quarantine_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

var (
	start     = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	gpu       = device.Key{Driver: "gpu.example.com", Pool: "anvil-07", Device: "gpu-3"}
	plugged   = device.Key{Node: "anvil-07", Resource: "example.com/gpu", ID: "GPU-3"}
	catalogue = reason.Builtin()
	oldCard   = device.Incarnation{UUID: "GPU-old"}
	newCard   = device.Incarnation{UUID: "GPU-new"}
)

// Messages as drivers write them, by what the catalogue makes of them.
const (
	fatalFault   = "critical XID 79 reported by NVML"  // quarantined at once, fatal
	majorFault   = "critical XID 109 reported by NVML" // quarantined at once, major
	suspectFault = "critical XID 9999 reported by NVML"
	appError     = "critical XID 31 reported by NVML"
)

// ReadingBuilder builds one Pod's reading of the device.
type ReadingBuilder struct{ r quarantine.Reading }

// MakeReading begins a reading by the Pod of that name, Healthy at version 1.
func MakeReading(pod string) *ReadingBuilder {
	return &ReadingBuilder{quarantine.Reading{Report: device.Report{
		Pod:  device.PodRef{Namespace: "team-kestrel", Name: pod, UID: "uid-" + pod},
		Node: "anvil-07", Claim: pod + "-gpu", Container: "main",
		Health: device.Healthy, Version: "1", Observed: start,
	}}}
}

// Healthy is what the driver reports when it has nothing to report.
func (b *ReadingBuilder) Healthy() *ReadingBuilder { return b.says(device.Healthy, "") }

// Unknown is what the kubelet writes of a silent driver.
func (b *ReadingBuilder) Unknown() *ReadingBuilder { return b.says(device.Unknown, "") }

// Unhealthy is judged by the catalogue, as the starter and live looks do.
func (b *ReadingBuilder) Unhealthy(message string) *ReadingBuilder {
	b.says(device.Unhealthy, message)
	b.r.Reason = catalogue.Match(gpu.Driver, message)
	b.r.Fault = b.r.Reason.DeviceFault()
	return b
}

func (b *ReadingBuilder) says(health device.Health, message string) *ReadingBuilder {
	b.r.Health, b.r.Message = health, message
	b.r.Reason, b.r.Fault = reason.Match{}, false
	return b
}

// Stale makes it one that can't be believed.
func (b *ReadingBuilder) Stale(why device.Staleness) *ReadingBuilder { b.r.Stale = why; return b }

// Version sets the status version.
func (b *ReadingBuilder) Version(v device.Version) *ReadingBuilder { b.r.Version = v; return b }

// SeenAt sets when the reading was first seen, as an offset from the start.
func (b *ReadingBuilder) SeenAt(offset time.Duration) *ReadingBuilder {
	b.r.Observed = start.Add(offset)
	return b
}

// Ended makes it the last word of a Pod that is gone or terminal.
func (b *ReadingBuilder) Ended() *ReadingBuilder { b.r.Ended = true; return b }

// Monitor makes its Pod one that watches the device through admin access.
func (b *ReadingBuilder) Monitor() *ReadingBuilder { b.r.Monitor = true; return b }

// Obj is the finished reading.
func (b *ReadingBuilder) Obj() quarantine.Reading { return b.r }

// An event is made when its turn comes, from the case as it is then.
type event func(c quarantine.Case, now time.Time) quarantine.Event

func observed(readings ...*ReadingBuilder) event { return saw(false, readings) }

// lost is observed by a driver that has reported a health on this node before.
func lost(readings ...*ReadingBuilder) event { return saw(true, readings) }

func saw(known bool, readings []*ReadingBuilder) event {
	return func(quarantine.Case, time.Time) quarantine.Event {
		e := quarantine.Observed{Node: "anvil-07", Lost: known, Incarnation: oldCard}
		for _, r := range readings {
			e.Readings = append(e.Readings, r.Obj())
		}
		return e
	}
}

func missing(why device.MissingReason) event {
	return always(quarantine.Inventory{Node: "anvil-07", Missing: why})
}

func listed(as device.Incarnation) event {
	return always(quarantine.Inventory{Node: "anvil-07", Present: true, Now: as})
}

// counted is what the watch says when the plugin's list became longer or shorter.
func counted(count int64) event {
	return always(quarantine.Inventory{Node: "anvil-07", Present: true, Listed: count})
}

func always(e quarantine.Event) event {
	return func(quarantine.Case, time.Time) quarantine.Event { return e }
}

func woke() event { return always(quarantine.Woke{}) }

func says(verb quarantine.Verb) event {
	return always(quarantine.Message{Verb: verb, Actor: "oncall@example.com", Reason: "replaced the riser"})
}

// LookedBuilder builds a live look's answer.
type LookedBuilder struct{ e quarantine.Looked }

// MakeLooked begins an answer from a ready node with no holders, where the device
// is listed as it was and the mark is as the case believes it to be.
func MakeLooked() *LookedBuilder {
	return &LookedBuilder{quarantine.Looked{
		Node: "anvil-07", NodeReady: true,
		Presence: &quarantine.Inventory{Node: "anvil-07", Present: true, Now: oldCard},
	}}
}

// Reading adds a Pod's reading. Its Pod holds the device.
func (b *LookedBuilder) Reading(r *ReadingBuilder) *LookedBuilder {
	b.e.Readings = append(b.e.Readings, r.Obj())
	if !r.r.Monitor {
		b.Holder(r.r.Pod.Name)
	}
	return b
}

// Holder adds a holder.
func (b *LookedBuilder) Holder(pod string) *LookedBuilder {
	r := MakeReading(pod).Obj()
	b.e.Holders = append(b.e.Holders, quarantine.Holder{Pod: r.Pod, Claim: r.Claim})
	return b
}

// Ended lists Pods that are gone.
func (b *LookedBuilder) Ended(pods ...string) *LookedBuilder {
	for _, p := range pods {
		b.e.Ended = append(b.e.Ended, "uid-"+p)
	}
	return b
}

// Asked sets when the look was asked for, as an offset from the start; by default
// it is answered at once.
func (b *LookedBuilder) Asked(offset time.Duration) *LookedBuilder {
	b.e.Asked = start.Add(offset)
	return b
}

// Lease sets the node's Lease renewal; by default it advances with the clock.
func (b *LookedBuilder) Lease(renewal string) *LookedBuilder { b.e.NodeLease = renewal; return b }

// NotReady makes the node not ready.
func (b *LookedBuilder) NotReady() *LookedBuilder { b.e.NodeReady = false; return b }

// Ready sets the node's condition Ready.
func (b *LookedBuilder) Ready(r device.Readiness) *LookedBuilder { b.e.Readiness = r; return b }

// Presence sets what the inventory says; nil where it has no answer.
func (b *LookedBuilder) Presence(p *quarantine.Inventory) *LookedBuilder { b.e.Presence = p; return b }

// Missing makes the device one that isn't listed.
func (b *LookedBuilder) Missing(why device.MissingReason) *LookedBuilder {
	return b.Presence(&quarantine.Inventory{Node: "anvil-07", Missing: why})
}

// Listed is what a node says on the device-plugin path: how many devices of the
// resource are on the plugin's list.
func (b *LookedBuilder) Listed(count int64) *LookedBuilder {
	return b.Presence(&quarantine.Inventory{Node: "anvil-07", Present: true, Listed: count})
}

// Mark sets the mark that was found.
func (b *LookedBuilder) Mark(found quarantine.MarkFound, intact bool) *LookedBuilder {
	b.e.Mark, b.e.MarkIntact = &found, intact
	return b
}

// Answer is the event.
func (b *LookedBuilder) Answer() event {
	return func(c quarantine.Case, now time.Time) quarantine.Event {
		e := b.e
		if e.Asked.IsZero() {
			e.Asked = now
		}
		if e.NodeLease == "" {
			e.NodeLease = e.Asked.Format(time.RFC3339Nano)
		}
		if e.Mark == nil && c.Mark.State == quarantine.MarkInForce {
			e.Mark, e.MarkIntact = &quarantine.MarkFound{Name: c.Mark.Name, Epoch: c.Epoch}, true
		}
		return e
	}
}

// NoMark is Answer with no mark to be found, whatever the case believes.
func (b *LookedBuilder) NoMark() event {
	return func(c quarantine.Case, now time.Time) quarantine.Event {
		c.Mark.State = quarantine.MarkNone
		return b.Answer()(c, now)
	}
}

func lookFailed(why string) event {
	return func(_ quarantine.Case, now time.Time) quarantine.Event {
		return quarantine.Looked{Asked: now, Failed: why}
	}
}

// reported is the answer to the mark command that the case owes now.
func reported(outcome quarantine.MarkOutcome, detail string) event {
	return func(c quarantine.Case, _ time.Time) quarantine.Event {
		return quarantine.MarkReported{
			Outcome: outcome, Epoch: c.Epoch, Revision: c.Mark.Revision, Name: "sickbay-gpu-3", Detail: detail,
		}
	}
}

func inForce() event { return reported(quarantine.OutcomeInForce, "") }

// markDeleted is what the watch says when somebody deletes the case's mark.
func markDeleted() event {
	return func(c quarantine.Case, _ time.Time) quarantine.Event {
		return quarantine.MarkSeen{Mark: quarantine.MarkFound{Name: "sickbay-gpu-3", Epoch: c.Epoch}}
	}
}

// markChanged is what the watch says when somebody edits the case's mark.
func markChanged() event {
	return func(c quarantine.Case, _ time.Time) quarantine.Event {
		return quarantine.MarkSeen{Present: true, Mark: quarantine.MarkFound{Name: "sickbay-gpu-3", Epoch: c.Epoch}}
	}
}

func markSeen(found quarantine.MarkFound) event {
	return always(quarantine.MarkSeen{Node: "anvil-07", Present: true, Intact: true, Mark: found})
}

// oldMark is a mark of an earlier case, of an hour before the start.
func oldMark() quarantine.MarkFound {
	return quarantine.MarkFound{
		Name: "sickbay-gpu-3", Epoch: start.Add(-time.Hour).UnixMilli(), Severity: reason.SeverityFatal,
		Reason: "XidFallenOffBus", Closes: reason.ClosesByRepair, Message: fatalFault, Actor: "sickbay", Attempt: 2,
		Since: start.Add(-time.Hour).UnixMilli(), Hardware: oldCard,
	}
}

// life drives one case along a clock.
type life struct {
	t     *testing.T
	c     quarantine.Case
	p     quarantine.Policy
	now   time.Time
	owed  []quarantine.Command
	heard []quarantine.Notice
}

func live(t *testing.T, key device.Key, p quarantine.Policy) *life {
	t.Helper()
	if err := p.Validate(); err != nil {
		t.Fatalf("policy of the test: %v", err)
	}
	return &life{t: t, c: quarantine.Case{Device: key}, p: p, now: start}
}

// tell feeds an event to the case at its present time, and takes its notices.
func (l *life) tell(e event) {
	l.t.Helper()
	heard := l.c.NoticeSeq
	l.c, l.owed = quarantine.Decide(l.c, e(l.c, l.now), l.now, l.p)
	for _, n := range l.c.Notices {
		if n.Seq > heard {
			l.heard = append(l.heard, n)
		}
	}
	l.c, l.owed = quarantine.Decide(l.c, quarantine.Announced{UpTo: l.c.NoticeSeq}, l.now, l.p)
}

// reach moves the clock to an offset from the start, waking the case at each of
// its deadlines as the workflow's timer does.
func (l *life) reach(offset time.Duration) {
	l.t.Helper()
	end := start.Add(offset)
	if end.Before(l.now) {
		l.t.Fatalf("the test goes back from %s to %s", l.now, end)
	}
	for range 10000 {
		next := l.c.NextWake(l.now)
		if next.IsZero() || next.After(end) {
			l.now = end
			return
		}
		l.now = next
		l.tell(woke())
	}
	l.t.Fatalf("no end of deadlines before %s", end)
}

// owes names the commands that are owed now, in their order.
func (l *life) owes() string { return owes(l.owed) }

func owes(commands []quarantine.Command) string {
	names := []string{}
	for _, c := range commands {
		names = append(names, strings.TrimPrefix(reflect.TypeOf(c).String(), "quarantine."))
	}
	return strings.Join(names, " ")
}

// kinds lists what was announced since the last call.
func (l *life) kinds() string {
	names := []string{}
	for _, n := range l.heard {
		names = append(names, string(n.Kind))
	}
	l.heard = nil
	return strings.Join(names, " ")
}

func commandOf[C quarantine.Command](t *testing.T, commands []quarantine.Command) C {
	t.Helper()
	i := slices.IndexFunc(commands, func(c quarantine.Command) bool { _, ok := c.(C); return ok })
	if i < 0 {
		var want C
		t.Fatalf("no %T is owed, only %q", want, owes(commands))
	}
	return commands[i].(C)
}

// step is one event, at an offset from the start.
type step struct {
	at    time.Duration
	event event
}

// want is where a case is to stand after its steps. The last step's notices and
// the commands owed after it are compared too.
type want struct {
	phase    quarantine.Phase
	waiting  quarantine.Waiting
	end      quarantine.End
	mark     quarantine.MarkState
	severity reason.Severity
	reason   reason.Code
	owes     string
	notices  string
}

func (l *life) run(steps []step) {
	l.t.Helper()
	for _, s := range steps {
		l.heard = nil
		l.reach(s.at)
		l.tell(s.event)
	}
}

func (l *life) check(w want) {
	l.t.Helper()
	got := want{
		phase: l.c.Phase, waiting: l.c.Waiting, end: l.c.End, mark: l.c.Mark.State,
		severity: l.c.Severity, reason: l.c.Reason.Code, owes: l.owes(), notices: l.kinds(),
	}
	if got != w {
		l.t.Errorf("the case stands\n  at   %s\n  want %s", got, w)
	}
}

func (w want) String() string {
	return fmt.Sprintf("phase=%s waiting=%s end=%s mark=%s severity=%s reason=%s owes=%q notices=%q",
		w.phase, w.waiting, w.end, w.mark, w.severity, w.reason, w.owes, w.notices)
}

// row is a table's row: what happens, and where that leaves the case.
type row struct {
	device device.Key
	policy func(*quarantine.Policy)
	steps  []step
	want   want
}

func enforce() quarantine.Policy {
	p := quarantine.DefaultPolicy()
	p.Mode = quarantine.ModeEnforce
	return p
}

func observe(p *quarantine.Policy) { p.Mode = quarantine.ModeObserve }

func check(t *testing.T, rows map[string]row) {
	t.Helper()
	for name, r := range rows {
		t.Run(name, func(t *testing.T) {
			p := enforce()
			if r.policy != nil {
				r.policy(&p)
			}
			key := r.device
			if key.IsZero() {
				key = gpu
			}
			l := live(t, key, p)
			l.run(r.steps)
			l.check(r.want)
		})
	}
}
