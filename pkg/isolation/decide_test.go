package isolation_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

var start = time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)

// ward is one node's isolation under test, with its clock and with what live looks find.
type ward struct {
	t      *testing.T
	i      isolation.Isolation
	now    time.Time
	policy isolation.Policy
	// sees is what a look finds.
	sees isolation.Looked
}

func newWard(t *testing.T, p isolation.Policy) *ward {
	return &ward{t: t, i: isolation.Isolation{Node: "node-0"}, now: start, policy: p,
		sees: isolation.Looked{Exists: true, UID: "uid", Ready: device.ReadyTrue, Faulty: faulty("gpu-0", "gpu-1")}}
}

func (w *ward) decide(e isolation.Event) *ward {
	w.t.Helper()
	w.i, _ = isolation.Decide(w.i, e, w.now, w.policy)
	return w
}

func (w *ward) report() *ward {
	w.t.Helper()
	return w.decide(isolation.Reported{Levels: isolation.Levels{Total: 4, Faulty: w.sees.Faulty, FaultyCount: len(w.sees.Faulty), Beat: device.HeartbeatAdvancing, By: "a"}})
}

// look answers the look that has to be due.
func (w *ward) look() *ward {
	w.t.Helper()
	if _, ok := w.step().(isolation.Look); !ok {
		w.t.Fatalf("due is %#v, want a look; %+v", w.step(), w.i)
	}
	return w.decide(w.sees)
}

func (w *ward) step() isolation.Step { return isolation.Due(w.i, w.now, w.policy) }

// put answers the Put that has to be due.
func (w *ward) put(outcome isolation.Outcome, detail string) *ward {
	w.t.Helper()
	put, ok := w.step().(isolation.Put)
	if !ok {
		w.t.Fatalf("due is %#v, want to isolate it; %+v", w.step(), w.i)
	}
	if outcome == isolation.InForce {
		w.sees.Found = &isolation.Found{Epoch: put.Epoch, Way: put.Way, Since: put.Since, Why: put.Ground.Text, Whole: true}
	}
	return w.decide(isolation.Written{Outcome: outcome, Epoch: put.Epoch, Way: put.Way, Detail: detail, Again: time.Minute})
}

// lift answers the Lift that has to be due.
func (w *ward) lift() *ward {
	w.t.Helper()
	lift, ok := w.step().(isolation.Lift)
	if !ok {
		w.t.Fatalf("due is %#v, want to lift it; %+v", w.step(), w.i)
	}
	w.sees.Found = nil
	return w.decide(isolation.Taken{Outcome: isolation.Lifted, Epoch: lift.Epoch})
}

func (w *ward) nothing() *ward {
	w.t.Helper()
	if step := w.step(); step != nil {
		w.t.Fatalf("due is %#v, want nothing; %+v", step, w.i)
	}
	return w
}

// next goes on to the next deadline.
func (w *ward) next() *ward {
	w.t.Helper()
	at := isolation.NextWake(w.i, w.now, w.policy)
	if at.IsZero() {
		w.t.Fatalf("nothing will ever be due: %+v", w.i)
	}
	if at.After(w.now) {
		w.now = at
	}
	return w.decide(isolation.Woke{})
}

func (w *ward) after(wait time.Duration) *ward { w.now = w.now.Add(wait); return w }

func (w *ward) phase(want isolation.Phase, waiting isolation.Waiting) *ward {
	w.t.Helper()
	if w.i.Phase != want || w.i.Waiting != waiting {
		w.t.Fatalf("phase %q waiting for %q (%s), want %q and %q", w.i.Phase, w.i.Waiting, w.i.Detail, want, waiting)
	}
	return w
}

func (w *ward) told(kind isolation.NoticeKind) (n int) {
	for _, notice := range w.i.Story {
		if notice.Kind == kind {
			n++
		}
	}
	return n
}

func isolated(t *testing.T) *ward {
	t.Helper()
	return newWard(t, policy()).report().look().put(isolation.InForce, "").phase(isolation.Isolated, "").nothing()
}

// Q2 in part. It is looked at live before anything is written, isolated with its reason on
// record, and given back once nothing has justified it for long enough.
func TestANodeIsIsolatedAndGivenBack(t *testing.T) {
	w := isolated(t)
	if w.told(isolation.NoticeIsolated) != 1 || !strings.Contains(w.i.Ground.Text, "2 of the node's 4 devices") {
		t.Errorf("on record: %+v", w.i.Story)
	}
	w.sees.Faulty = faulty("gpu-0")
	w.after(time.Minute).report().look().nothing()
	for w.now.Before(start.Add(10 * time.Minute)) {
		if w.next(); w.step() != nil {
			w.report().look()
		}
		if _, lifts := w.step().(isolation.Lift); lifts && w.now.Before(start.Add(11*time.Minute)) {
			t.Fatalf("lifted at %s, before it was calm for long enough", w.now)
		}
	}
	w.next().report().look().lift().phase(isolation.Closed, "")
	if w.i.End != isolation.EndUnjustified || w.told(isolation.NoticeLifted) != 1 {
		t.Errorf("ended by %s: %+v", w.i.End, w.i.Story)
	}
}

// Q2 in part. A node that is out isn't faulty: nothing is written because of it, whatever
// stands in the API, and nothing is lifted.
func TestANodeThatIsOutIsLeftAsItIs(t *testing.T) {
	for name, out := range map[string]func(*ward){
		"its kubelet isn't ready":       func(w *ward) { w.sees.Ready = device.ReadyFalse },
		"nothing is heard of it":        func(w *ward) { w.sees.Ready = device.ReadyUnknown },
		"its Lease stands still by now": func(w *ward) { w.i.Levels.Beat = device.HeartbeatStopped },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWard(t, policy()).report()
			out(w)
			w.look().nothing().phase(isolation.Considered, isolation.WaitsNode)
			if w.told(isolation.NoticeOut) != 1 {
				t.Errorf("told: %+v", w.i.Story)
			}
			w = isolated(t)
			out(w)
			w.sees.Faulty = nil
			for range 10 {
				w.next().look().nothing().phase(isolation.Isolated, isolation.WaitsNode)
			}
		})
	}
	t.Run("looks find the same renewal of its Lease", func(t *testing.T) {
		w := newWard(t, policy())
		w.sees.Lease = "2026-11-02T08:00:00Z"
		w.report().look().put(isolation.Held, "full")
		w.after(time.Minute).look().nothing().phase(isolation.Considered, isolation.WaitsNode)
		w.sees.Lease = "2026-11-02T08:01:05Z"
		w.next().look().phase(isolation.Considered, "")
	})
}

// Q2 in part. What somebody takes away is put back while it is justified, and reported.
func TestWhatSomebodyTakesAwayIsPutBack(t *testing.T) {
	w := isolated(t)
	w.sees.Found = nil
	w.after(time.Minute).decide(isolation.Reported{Levels: isolation.Levels{Total: 4, Faulty: w.sees.Faulty}}).look()
	if put, ok := w.step().(isolation.Put); !ok || !put.Again || put.Epoch != start.UnixMilli() {
		t.Fatalf("due is %#v", w.step())
	}
	w.put(isolation.InForce, "").phase(isolation.Isolated, "")
	if w.told(isolation.NoticePutBack) != 2 || w.told(isolation.NoticeIsolated) != 1 {
		t.Errorf("told: %+v", w.i.Story)
	}
	// An uncordon leaves what is written of it.
	w.sees.Found.Whole = false
	w.next().report().look().put(isolation.InForce, "")
}

// Q2 in part. Without a permit it waits, visibly, and is read anew before it goes on.
func TestANodeWithoutAPermitWaits(t *testing.T) {
	w := newWard(t, policy()).report().look().put(isolation.Held, "8 of the 8 that cluster allows are in force")
	w.phase(isolation.Considered, isolation.WaitsPermit).nothing()
	if w.told(isolation.NoticeHeld) != 1 || !strings.Contains(w.i.Detail, "cluster allows") {
		t.Errorf("told: %+v", w.i)
	}
	w.after(10*time.Second).decide(isolation.Offered{Epoch: w.i.Epoch}).look().put(isolation.InForce, "").phase(isolation.Isolated, "")

	w = newWard(t, policy()).report().look().put(isolation.Held, "full")
	w.sees.Faulty = nil
	w.after(10*time.Second).decide(isolation.Offered{Epoch: w.i.Epoch}).look().phase(isolation.Closed, "")
}

// Q2 in part. Somebody else's cordon is left, and the node is cordoned once that is gone.
func TestSomebodyElsesCordonStaysTheirs(t *testing.T) {
	w := newWard(t, policy(func(p *isolation.Policy) { p.Way = isolation.Cordon }))
	w.sees.Others = "somebody cordoned it"
	w.report().look().nothing().phase(isolation.Considered, isolation.WaitsOthers)
	w.sees.Others = ""
	w.next().look().put(isolation.InForce, "").phase(isolation.Isolated, "")
}

// Q2 in part. Taken out of the policy, it is lifted at once; in mode observe nothing is
// written or lifted.
func TestThePolicyRules(t *testing.T) {
	w := isolated(t)
	w.policy.Way = isolation.Off
	w.decide(isolation.Woke{}).lift().phase(isolation.Closed, "")
	if w.i.End != isolation.EndPolicy {
		t.Errorf("ended by %s", w.i.End)
	}

	w = isolated(t)
	w.policy.Mode = "observe"
	w.sees.Faulty = nil
	for range 10 {
		w.next().report().look().nothing().phase(isolation.Isolated, "")
	}

	w = newWard(t, policy(func(p *isolation.Policy) { p.Mode = "observe" })).report().look()
	if put := w.step().(isolation.Put); !put.Observe {
		t.Fatalf("mode observe: %#v", put)
	}
	w.put(isolation.WouldBe, "").phase(isolation.Observed, "").nothing()
	w.policy.Mode = "enforce"
	w.next().look().put(isolation.InForce, "").phase(isolation.Isolated, "")

	w = isolated(t)
	w.policy.Way = isolation.Cordon
	w.next().look().put(isolation.InForce, "")
	if w.i.Mark.Way != isolation.Cordon {
		t.Errorf("another way: %+v", w.i.Mark)
	}
}

// Q2 in part. An operator has it lifted, and it stays so as long as they said; what makes
// no sense is refused on record.
func TestAnOperatorHasItLifted(t *testing.T) {
	word := isolation.Message{Verb: isolation.VerbLift, Actor: "oncall@example.com", Reason: "the riser is being swapped"}
	w := isolated(t).decide(word).lift().phase(isolation.Spared, "")
	for range 5 {
		w.next().report().look().nothing().phase(isolation.Spared, "")
	}
	w.sees.Faulty = nil
	w.next().report().look()
	for range 3 {
		if w.i.Open() {
			w.next().report().look()
		}
	}
	w.phase(isolation.Closed, "")

	word.For = 2 * time.Minute
	w = newWard(t, policy()).report().look().put(isolation.Held, "full").decide(word).phase(isolation.Spared, "")
	w.next().look().put(isolation.InForce, "")
	for name, row := range map[string]struct {
		change func(*isolation.Message)
		says   string
	}{
		"nobody":       {func(m *isolation.Message) { m.Actor = " " }, "actor is empty"},
		"for no cause": {func(m *isolation.Message) { m.Reason = "" }, "reason is empty"},
		"too long":     {func(m *isolation.Message) { m.For = 1000 * time.Hour }, "want 1m to 720h"},
		"another word": {func(m *isolation.Message) { m.Verb = "cancel" }, "no such message; want one of [lift]"},
		"no JSON":      {func(m *isolation.Message) { m.Malformed = "the payload is missing" }, "the payload is missing; want JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			m := word
			row.change(&m)
			before := len(w.i.Story)
			if w.decide(m); len(w.i.Story) != before+1 || !strings.Contains(w.i.Story[before].Text, row.says) || w.i.Lifting {
				t.Errorf("said %+v", w.i.Story[before:])
			}
		})
	}
}

// Q2 in part. With an empty Temporal an isolation is taken over under its epoch.
func TestAnIsolationThatLostItsWorkflowIsTakenOver(t *testing.T) {
	w := newWard(t, policy())
	w.sees.Found = &isolation.Found{Epoch: 42, Way: isolation.Taint, Since: start.Add(-time.Hour), Why: "3 of 4", Whole: true}
	w.report().look().nothing().phase(isolation.Isolated, "")
	if w.i.Epoch != 42 || w.told(isolation.NoticeAdopted) != 1 || !w.i.Since.Equal(start.Add(-time.Hour)) {
		t.Errorf("taken over as %+v", w.i)
	}
}

// A starter that tells nothing makes nothing unjustified, and a node that is made anew is
// another one.
func TestNothingIsLiftedOutOfBlindness(t *testing.T) {
	w := isolated(t)
	w.sees.Faulty = nil
	for range 20 {
		if w.next(); w.now.Before(start.Add(10 * time.Minute)) {
			w.report()
		}
		if w.now.After(start.Add(30 * time.Minute)) {
			break
		}
		if _, ok := w.step().(isolation.Look); ok && w.now.After(start.Add(21*time.Minute)) {
			w.look().nothing().phase(isolation.Isolated, "")
		} else if ok {
			w.i.UnjustifiedSince = time.Time{}
			w.i.LookedAt, w.i.LookAt = w.now, w.now.Add(time.Minute)
		}
	}
	w = isolated(t)
	w.sees.UID = "another"
	w.next().look().phase(isolation.Closed, "")
	if w.i.End != isolation.EndGone {
		t.Errorf("ended by %s", w.i.End)
	}
}

// Q2. Whatever is told, found and said, in whatever order: nothing is written without a
// policy that says so, in mode observe, on a node that is out, or on an old look; nothing
// is lifted that isn't there; and deciding changes nothing else and is repeatable.
func TestNothingIsEverDoneWithoutCause(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := policy(func(p *isolation.Policy) { p.Conditions = []string{"GpuRackFault"} })
		i, now := isolation.Isolation{Node: "node-0"}, start
		var justified bool
		for range rapid.IntRange(1, 60).Draw(rt, "events") {
			now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(rt, "seconds")) * time.Second)
			if rapid.IntRange(0, 9).Draw(rt, "policy") == 0 {
				p.Way = rapid.SampledFrom([]isolation.Way{isolation.Off, isolation.Taint, isolation.Cordon}).Draw(rt, "way")
				p.Mode = rapid.SampledFrom([]quarantine.Mode{quarantine.ModeObserve, quarantine.ModeEnforce}).Draw(rt, "mode")
			}
			bad := faulty([]string{"gpu-0", "gpu-1", "gpu-2"}[:rapid.IntRange(0, 3).Draw(rt, "faulty")]...)
			var e isolation.Event
			switch rapid.IntRange(0, 6).Draw(rt, "event") {
			case 0, 1:
				e = isolation.Reported{Levels: isolation.Levels{Total: 4, Faulty: bad, Beat: rapid.SampledFrom([]device.Heartbeat{"", "Advancing", "Stopped"}).Draw(rt, "beat")}}
			case 2, 3:
				l := isolation.Looked{Exists: true, UID: "uid", Ready: rapid.SampledFrom([]device.Readiness{"True", "True", "False", "Unknown"}).Draw(rt, "ready"), Faulty: bad}
				if rapid.Bool().Draw(rt, "found") {
					l.Found = &isolation.Found{Epoch: now.UnixMilli() - 1, Way: isolation.Taint, Since: now, Whole: rapid.Bool().Draw(rt, "whole")}
				}
				_, justified = isolation.Justify(4, bad, nil, p)
				e = l
			case 4:
				e = isolation.Written{Epoch: i.Epoch, Way: p.Way, Outcome: rapid.SampledFrom([]isolation.Outcome{isolation.InForce, isolation.Held, isolation.Refused, isolation.Foreign}).Draw(rt, "outcome")}
			case 5:
				e = isolation.Taken{Epoch: i.Epoch, Outcome: rapid.SampledFrom([]isolation.Outcome{isolation.Lifted, isolation.Refused}).Draw(rt, "taken")}
			default:
				e = isolation.Message{Verb: isolation.VerbLift, Actor: "x", Reason: rapid.SampledFrom([]string{"", "y"}).Draw(rt, "reason")}
			}
			before := i
			once, _ := isolation.Decide(i, e, now, p)
			twice, _ := isolation.Decide(before, e, now, p)
			if !reflect.DeepEqual(once, twice) {
				rt.Fatalf("decided twice:\n%+v\n%+v", once, twice)
			}
			i = once
			switch step := isolation.Due(i, now, p).(type) {
			case isolation.Put:
				switch {
				case p.Way == isolation.Off, p.Mode == "observe" && !step.Observe, i.Verdict != device.NodeUp, now.Sub(i.LookedAt) > 30*time.Second, step.Ground.Text == "":
					rt.Fatalf("isolates: %+v by %+v, after %+v", step, p, i)
				case i.LookedAt.Equal(now) && !justified:
					rt.Fatalf("isolates what a look found unjustified: %+v", i)
				}
			case isolation.Lift:
				if i.Mark.Way == "" || p.Mode == "observe" {
					rt.Fatalf("lifts: %+v", i)
				}
			}
			if i.Open() && isolation.Due(i, now, p) == nil && isolation.NextWake(i, now, p).IsZero() {
				rt.Fatalf("it would wait for ever: %+v", i)
			}
			if !slices.IsSortedFunc(i.Notices, func(a, b isolation.Notice) int { return int(a.Seq - b.Seq) }) {
				rt.Fatalf("notices: %+v", i.Notices)
			}
			if !i.Open() && i.Phase != isolation.PhaseNone {
				i = isolation.Isolation{Node: "node-0"}
			}
		}
	})
}
