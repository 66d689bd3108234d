package device_test

// What has to hold in a simulated life, at each step and at its end.

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// keyed is what a life is about.
type keyed struct{ key device.Key }

// strayMark is why a mark may be made where one of a case that is lost was found.
const strayMark = "there was a mark"

// record is what a life remembers, to be compared.
type record struct {
	// released counts the devices that were given back.
	released int
	// calm tells that no device is ever known to be at fault; mayMark says why a mark
	// may be made, if it may.
	calm    bool
	mayMark string
	// granted are the epochs in which the device might be restricted, shortest is the
	// shortest grace window that was ever set.
	granted  map[int64]bool
	shortest time.Duration
	// skew is by how much the starter's clock is wrong.
	skew   time.Duration
	pauses []time.Duration
	actors int

	// sent is what the starter told, onTheWay what no run has taken yet, expect the
	// readings that the last step has to have brought into the state, and expected when.
	sent, onTheWay []signal
	expect         []quarantine.Reading
	expected       time.Time
	// asked are the actors whose word was acknowledged, unnamed counts what was
	// acknowledged and is to be refused as nobody's. updating are the updates that
	// were accepted and not answered.
	asked     []string
	unnamed   int
	updating  map[string]string
	cancelled bool
	// mute tells that nothing can be announced, trail what was, by its number, of the
	// workflow that runs now, which workflow numbers.
	mute     bool
	workflow int
	trail    map[int64]quarantine.Notice

	last quarantine.Case
	// wanted is since when a mark is wanted that nobody writes.
	wanted time.Time
	// heard is when the run could first learn that a new one is suggested.
	heard time.Time
	// lifting is set if the last step was to lift the mark.
	lifting bool

	reopened, looked int
	trace            []string
}

// violation is an invariant that doesn't hold.
type violation struct{ text string }

func (l *life) fail(format string, args ...any) {
	panic(violation{fmt.Sprintf(format, args...)})
}

const maxTrace = 120

// say keeps what happened, for the one life in many that ends badly.
func (l *life) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(text) > 600 {
		text = text[:600] + "…"
	}
	l.trace = append(l.trace, l.clock().Format("02 15:04:05.000 ")+text)
	if len(l.trace) > 2*maxTrace {
		l.trace = slices.Clone(l.trace[maxTrace:])
	}
}

func brief(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func outcome(result any, err error) string {
	switch r := result.(type) {
	case quarantine.MarkReported:
		return fmt.Sprintf("%s of epoch %d, %v", r.Outcome, r.Epoch, err)
	case quarantine.Looked:
		return fmt.Sprintf("read, %v", err)
	}
	return fmt.Sprint(err)
}

// check compares the state now with what it was at the last check.
func (l *life) check() {
	if l.env == nil {
		return
	}
	value, err := l.env.QueryWorkflow(devicewf.QueryCase)
	if err != nil {
		return // the run hasn't begun
	}
	var state devicewf.State
	if err := value.Get(&state); err != nil {
		l.fail("the state can't be read: %v", err)
	}
	l.mu.Lock()
	warned := l.warned
	l.warned = nil
	l.mu.Unlock()
	for _, text := range warned {
		if strings.Contains(text, "unhandled signals") || strings.Contains(text, "update handlers are still running") {
			l.fail("a run ended early: %s", text)
		}
	}
	before, now := l.last, state.Case
	if before.Phase != now.Phase || before.Waiting != now.Waiting || before.Mark.State != now.Mark.State {
		l.say("case %d is %s %s, mark %s", now.Epoch, now.Phase, now.Waiting, now.Mark.State)
	}
	l.compare(before, now)
	l.taken(before, now)
	l.givenBack(before, now)
	if l.lifting && !slices.Contains([]quarantine.Phase{quarantine.PhaseGone, quarantine.PhaseRestricted, quarantine.PhaseRecovering, quarantine.PhaseReleased}, now.Phase) {
		l.fail("a mark is to be lifted in phase %s", now.Phase)
	}
	l.last, l.lifting = now, false
	l.prompt(now)
}

// prompt checks that nothing waits for long that nobody has to be waited for: a mark
// never does behind a look or an announcement, and a run that should end does.
func (l *life) prompt(now quarantine.Case) {
	wanted := now.Mark.State == quarantine.MarkWanted && l.knobs.Policy.Mode == quarantine.ModeEnforce &&
		l.tasks[devicewf.ActivityPutMark] == nil && l.tasks[devicewf.ActivityLiftMark] == nil
	switch {
	case !wanted || l.env.IsWorkflowCompleted():
		l.wanted = time.Time{}
	case l.wanted.IsZero():
		l.wanted = l.clock()
	case l.clock().Sub(l.wanted) > time.Second:
		l.fail("a mark is wanted since %s, and nobody writes it; under way are %v", l.wanted, slices.Sorted(maps.Keys(l.tasks)))
	}
	// A run learns of a suggestion at its next task, and only then.
	switch {
	case !l.fair || l.suggested.IsZero() || l.env.IsWorkflowCompleted():
	case l.heard.IsZero():
		l.heard = l.clock()
	case l.clock().Sub(l.heard) > 5*time.Minute:
		l.fail("a new run was suggested by %s, and this one goes on", l.heard)
	}
}

// compare checks what only rises, what never moves, and how a case may end.
func (l *life) compare(before, now quarantine.Case) {
	same := before.Open() && before.Epoch == now.Epoch
	switch {
	case now.Epoch < before.Epoch:
		l.fail("the epoch fell from %d to %d", before.Epoch, now.Epoch)
	case same && now.Severity < before.Severity:
		l.fail("the severity fell from %s to %s", before.Severity, now.Severity)
	case same && !now.FirstNotGood.Equal(before.FirstNotGood):
		l.fail("the first not-good moment moved from %s to %s", before.FirstNotGood, now.FirstNotGood)
	case before.Phase == quarantine.PhaseClosed && now.Open() && now.Epoch <= before.Epoch:
		l.fail("a case was opened without a new epoch")
	case same && before.Phase == quarantine.PhaseSuspect && now.Phase == quarantine.PhaseRestricted &&
		now.Mark.State != quarantine.MarkAdopted && now.Mark.State != quarantine.MarkInForce:
		l.restricted(now)
	case now.Mark.State == quarantine.MarkLifting && (now.Phase == quarantine.PhaseQuarantined || now.Phase == quarantine.PhaseRetired):
		l.fail("the mark of a device that is %s is being lifted: %s", now.Phase, brief(now))
	case len(now.Reports) > 32:
		l.fail("%d reports are kept", len(now.Reports))
	case now.Open() && now.Waiting == quarantine.WaitingForNothing && now.NextWake(l.clock()).IsZero() && len(l.tasks) == 0 && !l.owes(now):
		l.fail("the case is stuck in silence: %s", brief(now))
	}
}

// restricted checks that a device is restricted only past its window, by the answer
// to its case's own question, after a live look, while a Pod that runs says Unknown of it
// and its node isn't out.
func (l *life) restricted(now quarantine.Case) {
	switch window := now.FirstNotGood.Add(l.shortest); {
	case !l.granted[now.Epoch]:
		l.fail("restricted without the answer that it may be: %s", brief(now))
	case l.clock().Before(window):
		l.fail("restricted %s before its window is over: %s", window.Sub(l.clock()), brief(now))
	case now.LookedAt.Before(window):
		l.fail("restricted without a look past its window: %s", brief(now))
	case !slices.ContainsFunc(now.Reports, func(r device.Report) bool { return !r.Ended && r.Counts() == device.Unknown }):
		l.fail("restricted although no Pod that runs says Unknown: %s", brief(now))
	case now.Outage != nil:
		l.fail("restricted while its node is out: %s", brief(now))
	}
}

// owes tells whether the case owes the world something, which is then being started.
func (l *life) owes(now quarantine.Case) bool {
	_, owed := quarantine.Decide(now, quarantine.Woke{}, l.clock(), l.knobs.Policy)
	return len(owed) > 0
}

// taken checks that what was acknowledged is in the state: a reading that is worse,
// or as new, than what the state has of its Pod.
func (l *life) taken(before, now quarantine.Case) {
	expect := l.expect
	l.expect = nil
	if !l.expected.Equal(l.clock()) {
		return // a run that had yet to begin took them, and more has happened since
	}
	if !now.Open() || before.Open() && before.Epoch != now.Epoch {
		return // there is other hardware now, of which those readings say nothing
	}
	for _, r := range expect {
		i := slices.IndexFunc(now.Reports, func(known device.Report) bool { return known.Pod.UID == r.Pod.UID })
		if i < 0 && now.Evidence().Value.WorseThan(counts(r.Report)) {
			continue // what makes things better, a live look has to say
		}
		if i < 0 {
			l.fail("a reading was acknowledged and isn't in the state: %s", brief(r))
		}
		known := now.Reports[i]
		if r.Ended {
			continue // without its Pod things may be better, which a live look has to say
		}
		if known.Version.Newer(r.Version) || known.Ended && !r.Ended {
			continue
		}
		if counts(r.Report).WorseThan(counts(known)) {
			l.fail("a reading was acknowledged, and the state has a better and older one: %s, %s", brief(r), brief(known))
		}
	}
}

// counts is what a report counts for where an application's error is no fault.
func counts(r device.Report) device.Health {
	if r.Health == device.Unhealthy && !r.Fault {
		return device.Healthy
	}
	return r.Counts()
}

// scheduled checks a command when the workflow gives it.
func (l *life) scheduled(t *task) {
	switch c := t.command.(type) {
	case quarantine.PutMark:
		switch {
		case l.knobs.Policy.Mode == quarantine.ModeObserve:
			l.fail("a mark is to be put in mode observe")
		case c.Restricted && !l.granted[c.Epoch] && l.mayMark != strayMark:
			l.fail("a device is to be restricted, and nobody said that it may be: %s", brief(c))
		case !c.Restricted && l.mayMark == "":
			l.fail("a mark is to be put, and no fault was ever known: %s", brief(c))
		}
	case quarantine.LiftMark:
		switch {
		case l.knobs.Policy.Mode == quarantine.ModeObserve:
			l.fail("a mark is to be lifted in mode observe")
		}
		l.lifting = true
	case quarantine.Look:
		l.looked++
	}
}

// marked lets the watch tell of what became of the mark.
func (l *life) marked(before *quarantine.MarkFound, report quarantine.MarkReported) {
	if before != l.cluster.mark {
		l.tell(l.seenMark(report.Epoch))
	}
}

// announced takes in decisions: each comes once, or again as it was.
func (l *life) announced(t *task, notices []quarantine.Notice) {
	if t.workflow != l.workflow {
		return // an attempt that outlived its workflow
	}
	for _, n := range notices {
		if known, ok := l.trail[n.Seq]; ok && known.Text != n.Text {
			l.fail("decision %d was %q and is now %q", n.Seq, known.Text, n.Text)
		}
		l.trail[n.Seq] = n
	}
}

// onRecord checks that each operator's word, and each refusal, is announced, or
// waits for it in the state.
func (l *life) onRecord(waiting []quarantine.Notice) {
	unnamed, actors := 0, []string{}
	count := func(n quarantine.Notice) {
		if n.Actor == "unnamed" {
			unnamed++
		}
		actors = append(actors, n.Actor)
	}
	for _, n := range waiting {
		if _, ok := l.trail[n.Seq]; !ok {
			count(n)
		}
	}
	for _, n := range l.trail {
		count(n)
	}
	for _, actor := range l.asked {
		if !contains(actors, actor) {
			l.fail("the word of %s was acknowledged and is on no record", actor)
		}
	}
	if unnamed != l.unnamed {
		l.fail("%d messages of nobody were acknowledged, and %d are on record", l.unnamed, unnamed)
	}
	if len(l.updating) > 0 {
		l.fail("the run ended and %v were never answered", l.updating)
	}
}

// handedOn checks what one run gives to the next.
func (l *life) handedOn(next devicewf.State) {
	if a, b := brief(l.last), brief(next.Case); a != b {
		l.fail("the next run gets another state\nlast %s\nnext %s", a, b)
	}
	if size := len(brief(next)); size > 64<<10 {
		l.fail("the state takes %d bytes", size)
	}
	l.onRecord(next.Case.Notices)
	l.cancelled = false
	l.resend()
}

// resend tells once more what the run that ended hadn't taken.
func (l *life) resend() {
	if batch := l.onTheWay; len(batch) > 0 {
		l.onTheWay = nil
		l.in(time.Second, func() { l.hand(batch) })
	}
}

// ended checks how a workflow's last run ended, and forgets it.
func (l *life) ended() {
	c := l.last
	l.say("the workflow ended: %s %s", c.Phase, c.End)
	if c.Open() || len(c.Notices) > 0 {
		l.fail("the workflow ended with an open case or with decisions to announce: %s", brief(c))
	}
	switch c.Mark.State {
	case quarantine.MarkNone, quarantine.MarkObserved, quarantine.MarkAdvisory, quarantine.MarkHeld:
	default:
		l.fail("the case ended with a mark that is %s: %s", c.Mark.State, brief(c))
	}
	if m := l.cluster.mark; m != nil && l.cluster.intact && m.Epoch == c.Epoch && m.Name == kube.MarkName(l.key) {
		l.fail("the case ended and its mark is in force: %s", brief(c))
	}
	l.onRecord(nil)
	l.asked, l.unnamed, l.trail, l.cancelled = nil, 0, map[int64]quarantine.Notice{}, false
	l.workflow++
	l.resend()
}

// rest checks that the case came to its end, or waits under a name that says for what.
func (l *life) rest() {
	if n := len(l.tasks); n > 1 || n == 1 && l.tasks[devicewf.ActivityTend] == nil {
		l.in(5*time.Second, l.rest) // it is just trying something
		return
	}
	l.check()
	limit := l.endsAt.Sub(l.chaosUntil)
	if most := 60 + 6*int(limit/time.Hour); l.looked > most && l.reopened == 0 {
		l.fail("%d looks in %s of a world that holds still, want at most %d: %+v\n%s", l.looked, limit, most, *l.cluster, brief(l.last))
	}
	c := l.last
	if l.env == nil || !c.Open() {
		if l.cluster.mark != nil && l.cluster.served && !l.cluster.foreign {
			l.fail("no case is open and a mark stays behind: %s", brief(l.cluster.mark))
		}
		if l.cluster.faulty() && l.cluster.listed {
			l.fail("no case is open and the device is faulty: %+v", *l.cluster)
		}
		return
	}
	if !l.cluster.listed && l.reopened > 0 {
		return // forgotten, and told of again by a Pod that still runs
	}
	if rests := l.restsAt(c); !slices.Contains(rests, c.Waiting) || c.Waiting == quarantine.WaitingForNothing {
		l.fail("after %s of a fair world the case is %s %q and may only rest at %q\ncluster %+v\nmark %s\n%s",
			limit, c.Phase, c.Waiting, rests, *l.cluster, brief(l.cluster.mark), brief(c))
	}
	if m := l.cluster.mark; l.knobs.Policy.Mode == quarantine.ModeEnforce && c.Mark.State == quarantine.MarkInForce &&
		(m == nil || m.Epoch != c.Epoch || !l.cluster.intact) && !l.cluster.forbidden && !l.cluster.foreign {
		l.fail("the case believes in a mark that isn't so: %s\n%s", brief(m), brief(c))
	}
}

// restsAt tells where a case may rest in a world that holds still. Everything else
// has to go on by itself.
func (l *life) restsAt(c quarantine.Case) []quarantine.Waiting {
	w := l.cluster
	switch c.Phase {
	case quarantine.PhaseSuspect:
		switch {
		case !w.listed:
			return nil
		case w.out():
			return []quarantine.Waiting{quarantine.WaitingForNode}
		case !c.Evidence().Live() && !w.faulty() && !l.driverBack(c):
			return []quarantine.Waiting{quarantine.WaitingForEvidence}
		}
		return nil // health is back, or it is restricted, or its fault outlasted the window
	case quarantine.PhaseRestricted:
		return l.restsRestricted(c)
	case quarantine.PhaseRetired:
		return []quarantine.Waiting{quarantine.WaitingForOperator}
	case quarantine.PhaseGone:
		switch {
		case w.listed:
			return nil
		case l.knobs.Policy.Mode == quarantine.ModeObserve && w.mark != nil:
			return []quarantine.Waiting{quarantine.WaitingForReturn} // mode observe removes nothing
		case w.foreign || w.forbidden || w.mark != nil && (!w.intact || w.mark.Epoch != c.Epoch):
			return []quarantine.Waiting{quarantine.WaitingForOperator}
		}
		return nil
	case quarantine.PhaseQuarantined:
		return l.restsInQuarantine(c)
	case quarantine.PhaseRecovering:
		return l.restsToTry(c)
	}
	return nil
}

// driverBack tells whether the driver of a device that nobody holds has shown itself.
func (l *life) driverBack(c quarantine.Case) bool {
	w := l.cluster
	anew := c.SlicesRead && c.Slices != fmt.Sprint(w.published)
	return (w.driver == quarantine.DriverSpeaks || w.driver != quarantine.DriverUnknown && anew) && w.inventory().Listed >= c.Listed
}

func (l *life) restsRestricted(c quarantine.Case) []quarantine.Waiting {
	w := l.cluster
	refused := w.served && (w.foreign || w.forbidden)
	switch {
	case !w.listed:
		return nil
	case refused && c.Mark.State != quarantine.MarkInForce && !c.Advisory():
		return []quarantine.Waiting{quarantine.WaitingForMark}
	case w.out():
		return []quarantine.Waiting{quarantine.WaitingForNode}
	case w.faulty():
		return nil
	case w.notTheDevice(), !c.Evidence().Live() && l.driverBack(c):
		switch {
		case refused:
			return []quarantine.Waiting{quarantine.WaitingForMark}
		case l.knobs.Policy.Mode == quarantine.ModeObserve && c.Mark.State == quarantine.MarkInForce:
			return []quarantine.Waiting{quarantine.WaitingForOperator}
		}
		return nil
	case !c.Evidence().Live():
		return []quarantine.Waiting{quarantine.WaitingForEvidence}
	}
	return []quarantine.Waiting{quarantine.WaitingForHealth}
}

func (l *life) restsInQuarantine(c quarantine.Case) []quarantine.Waiting {
	w := l.cluster
	switch {
	case !w.listed:
		return nil
	case c.Advisory():
		if w.healthy() {
			return nil
		}
		return []quarantine.Waiting{quarantine.WaitingForHealth}
	case c.Mark.State != quarantine.MarkInForce:
		if w.served && (w.foreign || w.forbidden) {
			return []quarantine.Waiting{quarantine.WaitingForMark}
		}
		return nil
	case c.MovedTo != "":
		return []quarantine.Waiting{quarantine.WaitingForOperator}
	case w.held():
		return []quarantine.Waiting{quarantine.WaitingForHolder}
	}
	return l.restsToTry(c)
}
