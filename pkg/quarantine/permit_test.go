package quarantine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// noPermit answers a PutMark with the budget's refusal.
func noPermit(again time.Duration) event {
	return func(c quarantine.Case, _ time.Time) quarantine.Event {
		return quarantine.MarkReported{
			Outcome: quarantine.OutcomeHeld, Epoch: c.Epoch, Revision: c.Mark.Revision, Again: again,
			Detail: "2 of the 2 that class/gpu.example.com allows are in force",
		}
	}
}

func offered() event {
	return func(c quarantine.Case, _ time.Time) quarantine.Event {
		return quarantine.PermitOffered{Epoch: c.Epoch}
	}
}

// heldCase brings a case to where its mark has no permit.
func heldCase(t *testing.T) *life {
	t.Helper()
	l := live(t, gpu, enforce())
	l.run([]step{{0, observed(MakeReading("train-0").Unhealthy(fatalFault))}})
	l.must(strings.Contains(l.owes(), "PutMark"), "a fault is marked")
	l.tell(noPermit(15 * minute))
	l.must(l.c.Phase == quarantine.PhaseQuarantined && l.c.Mark.State == quarantine.MarkHeld && l.c.Waiting == quarantine.WaitingForPermit, "it waits in sight")
	l.must(!strings.Contains(l.owes(), "PutMark") && strings.Contains(l.kinds(), "MarkHeld"), "it isn't tried again at once, and said")
	return l
}

func stillBad() *LookedBuilder {
	return MakeLooked().Reading(MakeReading("train-0").Unhealthy(fatalFault))
}

// B2 in part. A case without a permit is read anew when it is its turn: what is still bad
// is marked then.
func TestAHeldCaseIsReadAnewAtItsPermit(t *testing.T) {
	l := heldCase(t)
	l.reach(2 * minute)
	l.tell(offered())
	l.must(!strings.Contains(l.owes(), "PutMark") && strings.Contains(l.owes(), "Look"), "it looks before it marks")
	l.tell(stillBad().Answer())
	l.must(strings.Contains(l.owes(), "PutMark"), "still bad: it asks")
	l.tell(inForce())
	l.must(l.c.Mark.State == quarantine.MarkInForce && l.c.Mark.HeldSince.IsZero() && l.c.Waiting == quarantine.WaitingForHolder, "it is in force")
	// An offer that comes late or twice changes nothing.
	before := encode(t, l.c)
	l.tell(offered())
	l.must(string(before) == string(encode(t, l.c)), "a second offer changes nothing")
}

// B2 in part. Without an offer it looks and asks again by itself; each time it is held,
// and says so once only.
func TestAHeldCaseAsksAgainByItself(t *testing.T) {
	l := heldCase(t)
	asked := 0
	for l.now.Before(start.Add(3 * hour)) {
		switch owed := l.owes(); {
		case strings.Contains(owed, "PutMark"):
			asked++
			l.tell(noPermit(15 * minute))
		case strings.Contains(owed, "Look"):
			l.tell(stillBad().Answer())
		default:
			next := l.c.NextWake(l.now)
			l.must(!next.IsZero(), "something wakes it")
			l.now = next
			l.tell(woke())
		}
	}
	if asked < 10 || asked > 13 {
		t.Errorf("it asked %d times in three hours", asked)
	}
	l.must(!strings.Contains(l.kinds(), "MarkHeld"), "it is said once")
}

// B2 in part. A device that becomes healthy while its case is held was never marked, and
// the case says so; it isn't marked while it looks well.
func TestAHeldCaseWhoseDeviceRecoversWasNeverMarked(t *testing.T) {
	l := heldCase(t)
	for l.c.Open() && l.now.Before(start.Add(2*hour)) {
		switch owed := l.owes(); {
		case strings.Contains(owed, "PutMark"):
			t.Fatalf("at %s it is marked while it looks well", l.now)
		case strings.Contains(owed, "Look"):
			l.tell(MakeLooked().Lease(l.now.Truncate(10 * sec).Format(time.RFC3339)).Reading(MakeReading("train-0").Healthy().Version("2")).Answer())
		default:
			l.now = l.c.NextWake(l.now)
			l.tell(woke())
			if l.now.Equal(l.c.Mark.RetryAt) {
				l.tell(offered())
			}
		}
	}
	l.must(l.c.End == quarantine.EndNeverMarked, "it ends as never marked")
	for _, r := range l.c.Reports {
		l.must(!r.Ended, "what ended Pods said of it is disproved, and doesn't open its next case")
	}
}

// B2 in part. What is graver comes earlier: a case whose severity rises asks again at once,
// and mode observe waits for nobody's permit.
func TestAHeldCaseFollowsItsSeverityAndTheMode(t *testing.T) {
	l := live(t, gpu, enforce())
	l.run([]step{{0, observed(MakeReading("train-0").Unhealthy(majorFault))}})
	l.tell(noPermit(15 * minute))
	l.reach(minute)
	l.tell(observed(MakeReading("train-0").Unhealthy(fatalFault).Version("2").SeenAt(minute)))
	l.must(strings.Contains(l.owes(), "Look"), "graver: it looks at once")
	l.tell(stillBad().Answer())
	l.must(strings.Contains(l.owes(), "PutMark"), "and asks")
	l.tell(noPermit(15 * minute))
	l.p.Mode = quarantine.ModeObserve
	l.tell(woke())
	l.must(l.c.Mark.State == quarantine.MarkObserved, "observing asks for nothing")
}

// B2 in part. A restricted device waits for a permit like any other, and health that comes
// back ends its case by the short way.
func TestARestrictionWaitsForAPermitToo(t *testing.T) {
	l := live(t, gpu, enforce())
	l.run([]step{{0, lost(MakeReading("train-0").Unknown())}})
	l.follow(hour, stillUnknown)
	l.tell(granted())
	l.tell(noPermit(15 * minute))
	l.must(l.c.Phase == quarantine.PhaseRestricted && l.c.Waiting == quarantine.WaitingForPermit, "held")
	l.follow(l.now.Sub(start)+20*minute, backAgain)
	l.must(l.c.End == quarantine.EndHealthBack, "health is back")
}

// B2 in part. In mode observe a case asks whether its mark would have a permit, and says
// what would have been refused, once; enforcing begins with a clean sheet.
func TestACaseThatObservesSaysWhatWouldBeRefused(t *testing.T) {
	p := enforce()
	observe(&p)
	l := live(t, gpu, p)
	l.run([]step{{0, observed(MakeReading("train-0").Unhealthy(fatalFault))}})
	answer := func(granted bool) event {
		return func(c quarantine.Case, _ time.Time) quarantine.Event {
			a := quarantine.PermitAnswered{Epoch: c.Epoch, Granted: granted}
			if !granted {
				a.Why, a.Again = "2 of the 2 that cluster allows are in force", 15*minute
			}
			return a
		}
	}
	l.must(strings.Contains(l.owes(), "AskPermit") && !strings.Contains(l.owes(), "PutMark"), "it asks and makes nothing")
	l.tell(answer(false))
	l.must(l.c.Mark.State == quarantine.MarkObserved && strings.Contains(l.kinds(), "MarkHeld") && !strings.Contains(l.owes(), "AskPermit"), "it says so")
	l.reach(15 * minute)
	l.must(strings.Contains(l.owes(), "AskPermit"), "it asks again")
	l.tell(answer(false))
	l.must(!strings.Contains(l.kinds(), "MarkHeld"), "and says nothing new")
	l.reach(31 * minute)
	l.tell(answer(true))
	l.must(l.c.Mark.HeldSince.IsZero() && strings.Contains(l.kinds(), "MarkHeld"), "now it would have one")
	l.p.Mode = quarantine.ModeEnforce
	l.tell(woke())
	l.must(l.c.Mark.State == quarantine.MarkWanted && strings.Contains(l.owes(), "PutMark") && !strings.Contains(l.owes(), "AskPermit"), "enforcing it is marked")
}

// A mark that is believed in force and has no permit to be written is gone: its case
// waits for one like any other, and doesn't ask without end.
func TestAMarkThatIsGoneWaitsForAPermit(t *testing.T) {
	l := live(t, gpu, enforce())
	l.run([]step{{0, observed(MakeReading("train-0").Unhealthy(majorFault))}, {sec, inForce()}})
	l.tell(observed(MakeReading("train-0").Unhealthy(fatalFault).Version("2")))
	l.must(strings.Contains(l.owes(), "PutMark"), "the mark is to say what is worse")
	l.tell(noPermit(15 * minute))
	l.must(strings.Contains(l.owes(), "PutMark") && strings.Contains(l.kinds(), "MarkRestored"), "it is to be put back, on record")
	l.tell(noPermit(15 * minute))
	l.must(l.c.Mark.State == quarantine.MarkHeld && l.c.Waiting == quarantine.WaitingForPermit && !strings.Contains(l.owes(), "PutMark"), "it waits in sight")
}
