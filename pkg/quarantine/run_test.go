package quarantine_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

func itoa(n int) string { return strconv.Itoa(n) }

// failer is a *testing.T or *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// run is a case in a world: what a device workflow does, without the workflow.
// At most one mark command, one look and one announcement are under way, and one
// that is owed again meanwhile isn't started twice.
type run struct {
	t   failer
	w   *world
	c   quarantine.Case
	p   quarantine.Policy
	now time.Time

	owed []quarantine.Command
	mark *markTask
	look *lookTask
	// ask is the question that is under way, whether the device may be restricted.
	ask *quarantine.AskRestriction
	// permit is the question that is under way, whether a mark would have a permit.
	permit *quarantine.AskPermit
	// tend, clean and turn are what is asked about an attempt at recovery.
	tend  *quarantine.Tend
	clean *quarantine.CleanUp
	turn  *quarantine.AskReturn

	// watch holds what the watch has yet to deliver, in order; told everything
	// that it ever delivered of Pods.
	watch []quarantine.Event
	told  []quarantine.Reading
	// writes and looks count the commands started.
	writes, looks int
	// quick skips the checks of the wire form, for long fair runs.
	quick bool
	// blamed is how many devices were listed when a look of the case with that epoch
	// last found its plugin calling it Unhealthy, and it was on the list; blamedMoves
	// counts the others' comings and goings until then.
	blamed, blamedEpoch int64
	blamedMoves         int
}

type markTask struct {
	command quarantine.Command
	since   time.Time
	report  *quarantine.MarkReported
}

type lookTask struct {
	command quarantine.Look
	since   time.Time
	answer  *quarantine.Looked
}

// taskTime bounds how long a command may be under way, as the workflow's
// schedule-to-close does.
const taskTime = 2 * time.Minute

// tell feeds an event to the case and checks everything that has to hold of one
// step.
func (r *run) tell(e quarantine.Event) {
	r.t.Helper()
	before := r.c
	var frozen []byte
	if !r.quick {
		frozen = encode(r.t, before)
	}
	after, owed := quarantine.Decide(before, e, r.now, r.p)
	r.checkStep(before, after, owed, e)
	if !r.quick {
		r.checkPure(frozen, before, after, owed, e)
		r.checkRepeated(after, e)
	}
	r.c, r.owed = after, owed
	r.perform()
}

// perform starts what is owed and not under way, and announces at once.
func (r *run) perform() {
	for _, command := range r.owed {
		switch c := command.(type) {
		case quarantine.PutMark, quarantine.LiftMark:
			if r.mark == nil {
				r.mark = &markTask{command: c, since: r.now}
				r.writes++
			}
		case quarantine.Look:
			if r.look == nil {
				r.look = &lookTask{command: c, since: r.now}
				r.looks++
			}
		case quarantine.AskRestriction:
			if r.ask == nil {
				r.ask = &c
			}
		case quarantine.AskPermit:
			if r.permit == nil {
				r.permit = &c
			}
		case quarantine.Tend:
			if r.tend == nil {
				r.tend = &c
			}
		case quarantine.CleanUp:
			if r.clean == nil && r.tend == nil {
				r.clean = &c
			}
		case quarantine.AskReturn:
			if r.turn == nil {
				r.turn = &c
			}
		}
	}
	r.c, r.owed = quarantine.Decide(r.c, quarantine.Announced{UpTo: r.c.NoticeSeq}, r.now, r.p)
}

// markRuns executes the mark command on the world; markAnswers tells the case.
func (r *run) markRuns() {
	if r.mark == nil || r.mark.report != nil {
		return
	}
	var report quarantine.MarkReported
	before := r.w.mark
	switch c := r.mark.command.(type) {
	case quarantine.PutMark:
		report = r.w.put(c)
	case quarantine.LiftMark:
		report = r.w.lift(c)
	}
	r.mark.report = &report
	if before == nil != (r.w.mark == nil) || before != r.w.mark {
		r.watch = append(r.watch, r.w.seen(report.Epoch))
	}
}

func (r *run) markAnswers() {
	if r.mark == nil || r.mark.report == nil {
		return
	}
	report := *r.mark.report
	r.mark = nil
	r.tell(report)
}

func (r *run) lookReads() {
	if r.look == nil || r.look.answer != nil {
		return
	}
	answer := r.w.look(r.look.command, r.now)
	r.look.answer = &answer
}

func (r *run) lookAnswers() {
	if r.look == nil || r.look.answer == nil {
		return
	}
	answer := *r.look.answer
	r.look = nil
	r.tell(answer)
}

// askAnswers tells the case whether its device may be restricted.
func (r *run) askAnswers() {
	if r.permit != nil {
		answer := quarantine.PermitAnswered{Epoch: r.permit.Epoch, Granted: !r.w.full}
		if r.w.full {
			answer.Again, answer.Why = 15*time.Minute, "2 of the 2 that cluster allows are in force"
		}
		r.permit = nil
		r.tell(answer)
	}
	if r.ask == nil {
		return
	}
	answer := quarantine.RestrictionAnswered{Epoch: r.ask.Epoch, Granted: !r.w.incident}
	if r.w.incident {
		answer.Again, answer.Incident, answer.Why = time.Minute, "incident/cluster", "many devices are Unknown"
	}
	r.ask = nil
	r.tell(answer)
}

func (r *run) lookFails() {
	if r.look == nil {
		return
	}
	asked := r.look.command.Asked
	r.look = nil
	r.tell(quarantine.Looked{Asked: asked, Failed: "the API server is away"})
}

// delivers hands over what the watch has first.
func (r *run) delivers() {
	if len(r.watch) == 0 {
		return
	}
	e := r.watch[0]
	r.watch = r.watch[1:]
	if o, ok := e.(quarantine.Observed); ok {
		r.told = append(r.told, o.Readings...)
	}
	r.tell(e)
}

// settle ends everything that is under way and delivers everything that is known.
func (r *run) settle() {
	for range 100 {
		if r.mark == nil && r.look == nil && r.ask == nil && !r.tends() && len(r.watch) == 0 {
			return
		}
		r.askAnswers()
		r.tendAnswers()
		r.markRuns()
		r.markAnswers()
		r.lookReads()
		r.lookAnswers()
		r.delivers()
	}
	r.t.Fatalf("commands without end at %s: the case owes %q\n%s", r.now, owes(r.owed), encode(r.t, r.c))
}

// passes moves the clock on and wakes the case at its deadlines.
func (r *run) passes(d time.Duration) {
	end := r.now.Add(d)
	for range 1000 {
		for _, since := range r.underWay() {
			if r.now.Sub(since) >= taskTime {
				r.settle()
			}
		}
		next := r.c.NextWake(r.now)
		if next.IsZero() || next.After(end) {
			r.now = latest(r.now, end)
			return
		}
		r.now = next
		r.tell(quarantine.Woke{})
		if d > taskTime {
			r.settle()
		}
	}
	r.t.Fatalf("deadlines without end at %s", r.now)
}

// tends tells whether something about an attempt at recovery is asked.
func (r *run) tends() bool { return r.tend != nil || r.clean != nil || r.turn != nil }

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (r *run) underWay() []time.Time {
	var since []time.Time
	if r.mark != nil {
		since = append(since, r.mark.since)
	}
	if r.look != nil {
		since = append(since, r.look.since)
	}
	return since
}

// checkStep checks what holds of every step: severity, epoch and the first
// not-good moment; no end while a mark is in force; nothing written in mode
// observe; and that the case isn't stuck in silence.
func (r *run) checkStep(before, after quarantine.Case, owed []quarantine.Command, e quarantine.Event) {
	r.t.Helper()
	fail := func(format string, args ...any) {
		r.t.Helper()
		r.t.Fatalf("%s\nevent  %T %s\nbefore %s\nafter  %s", fmt.Sprintf(format, args...), e, encode(r.t, e), encode(r.t, before), encode(r.t, after))
	}
	sameCase := before.Open() && before.Epoch == after.Epoch
	switch {
	case after.Epoch < before.Epoch:
		fail("the epoch fell")
	case sameCase && after.Severity < before.Severity:
		fail("the severity fell")
	case sameCase && !after.FirstNotGood.Equal(before.FirstNotGood):
		fail("the first not-good moment moved")
	case before.Phase == quarantine.PhaseClosed && after.Open() && after.Epoch <= before.Epoch:
		fail("a case was opened without a new epoch")
	}
	if before.Open() && !after.Open() {
		answer, _ := e.(quarantine.MarkReported)
		switch before.Mark.State {
		case quarantine.MarkInForce, quarantine.MarkRefused:
			fail("the case ended with a mark that was %s", before.Mark.State)
		case quarantine.MarkWanted:
			if answer.Outcome != quarantine.OutcomeUnavailable || after.End != quarantine.EndAdvisory {
				fail("the case ended while its mark was being written")
			}
		case quarantine.MarkLifting:
			if answer.Outcome != quarantine.OutcomeLifted || after.End != quarantine.EndGone && after.End != quarantine.EndHealthBack && after.End != quarantine.EndReleased {
				fail("the case ended before its mark was lifted")
			}
		}
	}
	if sameCase && before.Phase == quarantine.PhaseSuspect && after.Phase == quarantine.PhaseRestricted && after.Mark.State != quarantine.MarkAdopted && after.Mark.State != quarantine.MarkInForce {
		r.checkRestricted(before, after, e, fail)
	}
	for _, command := range owed {
		switch command.(type) {
		case quarantine.PutMark, quarantine.LiftMark:
			if r.p.Mode == quarantine.ModeObserve {
				fail("%T in mode observe", command)
			}
			if _, ok := command.(quarantine.LiftMark); ok && !slices.Contains([]quarantine.Phase{quarantine.PhaseGone, quarantine.PhaseRestricted, quarantine.PhaseRecovering}, after.Phase) {
				fail("a mark is lifted in phase %s", after.Phase)
			}
		}
	}
	if after.Open() && after.Waiting == quarantine.WaitingForNothing && after.NextWake(r.now).IsZero() &&
		len(owed) == 0 && r.mark == nil && r.look == nil && r.ask == nil && !r.tends() {
		fail("the case is stuck in silence")
	}
	r.checkRecovery(before, after, owed, fail)
	if looked, ok := e.(quarantine.Looked); ok && looked.Presence != nil && r.w.key.Path() == device.PathPlugin {
		r.checkList(before, after, looked, fail)
	}
	if n := len(after.Reports); n > 32 {
		fail("%d reports are kept", n)
	}
}

// checkRestricted checks that a device is restricted only past its window, by the
// answer to the case's own question, and while a Pod that runs says Unknown of it.
func (r *run) checkRestricted(before, after quarantine.Case, e quarantine.Event, fail func(string, ...any)) {
	r.t.Helper()
	answer, asked := e.(quarantine.RestrictionAnswered)
	switch window := before.FirstNotGood.Add(r.p.Grace); {
	case !asked || !answer.Granted:
		fail("restricted without the answer that it may be")
	case r.now.Before(window):
		fail("restricted %s before its window is over", window.Sub(r.now))
	case before.LookedAt.Before(window):
		fail("restricted without a look past its window")
	case !slices.ContainsFunc(before.Reports, func(r device.Report) bool { return !r.Ended && r.Counts() == device.Unknown }):
		fail("restricted although no Pod that runs says Unknown")
	case before.Outage != nil:
		fail("restricted while its node is out")
	}
}

// checkList checks that a case on a fault doesn't end well by what the kubelet says
// of a device that isn't on its plugin's list, as far as the list's length shows it.
func (r *run) checkList(before, after quarantine.Case, looked quarantine.Looked, fail func(string, ...any)) {
	r.t.Helper()
	well := !after.Open() && (after.End == quarantine.EndHealthBack || after.End == quarantine.EndAdvisory)
	if before.Open() && well && r.w.leftAtRead && r.blamedEpoch == before.Epoch &&
		r.blamedMoves == r.w.moves && looked.Presence.Listed < r.blamed {
		fail("the case ended well, and its device is off the list: %d listed, and %d when it was Unhealthy", looked.Presence.Listed, r.blamed)
	}
	unhealthy := slices.ContainsFunc(looked.Readings, func(o quarantine.Reading) bool { return o.Health == device.Unhealthy && !o.Monitor })
	if after.Open() && after.LookedAt.Equal(looked.Asked) && unhealthy && looked.Presence.Listed > 0 && !r.w.leftAtRead {
		r.blamed, r.blamedEpoch, r.blamedMoves = looked.Presence.Listed, after.Epoch, r.w.moves
	}
}

// checkPure checks that Decide left its argument alone, gives the same answer
// again, and doesn't depend on anything that the wire form of a case loses.
func (r *run) checkPure(frozen []byte, before, after quarantine.Case, owed []quarantine.Command, e quarantine.Event) {
	r.t.Helper()
	if now := encode(r.t, before); !bytes.Equal(frozen, now) {
		r.t.Fatalf("Decide changed its argument by %T\nfrom %s\nto   %s", e, frozen, now)
	}
	var wired quarantine.Case
	if err := json.Unmarshal(frozen, &wired); err != nil {
		r.t.Fatalf("read the case back: %v", err)
	}
	again, owedAgain := quarantine.Decide(wired, e, r.now, r.p)
	if a, b := encode(r.t, after), encode(r.t, again); !bytes.Equal(a, b) {
		r.t.Fatalf("%T decides differently after the case was written and read\nfirst %s\nthen  %s", e, a, b)
	}
	if a, b := encode(r.t, owed), encode(r.t, owedAgain); !bytes.Equal(a, b) || owes(owed) != owes(owedAgain) {
		r.t.Fatalf("%T owes something else after the case was written and read\nfirst %s\nthen  %s", e, a, b)
	}
	if size := len(frozen); size > 64<<10 {
		r.t.Fatalf("the case takes %d bytes", size)
	}
}

// checkRepeated checks that an event that comes twice changes nothing more than
// the case's bookkeeping, and that time alone changes nothing before a deadline.
func (r *run) checkRepeated(after quarantine.Case, e quarantine.Event) {
	r.t.Helper()
	want := encode(r.t, withoutBookkeeping(after))
	for _, next := range []quarantine.Event{quarantine.Woke{}, e} {
		if m, ok := next.(quarantine.Message); ok && m.Verb == quarantine.VerbExtend {
			continue
		}
		again, _ := quarantine.Decide(after, next, r.now, r.p)
		if got := encode(r.t, withoutBookkeeping(again)); !bytes.Equal(want, got) {
			r.t.Fatalf("%T once more changes the case: %s\nfrom %s\nto   %s", next, encode(r.t, next), want, got)
		}
	}
}

// withoutBookkeeping leaves away what may differ when an event is repeated: how
// often and when it is looked and tried, what was announced, and the operator's
// words, each of which counts.
func withoutBookkeeping(c quarantine.Case) quarantine.Case {
	c.Notices, c.NoticeSeq, c.Words, c.RefusedWords = nil, 0, nil, nil
	c.Looks, c.LookAt, c.LookAfter, c.LookHeld, c.DoubtedAt = 0, time.Time{}, time.Time{}, time.Time{}, time.Time{}
	c.Mark.Tries, c.Mark.RetryAt = 0, time.Time{}
	c.CleanAt, c.CleanTries = time.Time{}, 0
	return c
}

func encode(t failer, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("encode %s: %v", reflect.TypeOf(v), err)
	}
	return text
}
