package quarantine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// granted and held are the answers to the question whether the device may be restricted.
func granted() event {
	return func(c quarantine.Case, _ time.Time) quarantine.Event {
		return quarantine.RestrictionAnswered{Epoch: c.Epoch, Granted: true}
	}
}

func held(again time.Duration) event {
	return func(c quarantine.Case, _ time.Time) quarantine.Event {
		return quarantine.RestrictionAnswered{
			Epoch: c.Epoch, Again: again, Incident: "incident/driver/gpu.example.com", Why: "40 devices of gpu.example.com are Unknown",
		}
	}
}

// follow lets time pass until an offset from the start, or until the case asks whether
// its device may be restricted. Marks are written at once, and looks answered as the
// answer says, from a node that renews its Lease every ten seconds unless told otherwise.
func (l *life) follow(until time.Duration, answer func() *LookedBuilder) {
	l.t.Helper()
	for range 5000 {
		switch owed := l.owes(); {
		case l.c.Asking || !l.c.Open() || strings.Contains(owed, "LiftMark"):
			return
		case strings.Contains(owed, "PutMark"):
			l.tell(inForce())
			continue
		case strings.Contains(owed, "Look"):
			b := answer()
			if b.e.NodeLease == "" {
				b.Lease(l.now.Truncate(10 * sec).Format(time.RFC3339))
			}
			l.tell(b.Answer())
			continue
		}
		next := l.c.NextWake(l.now)
		if next.IsZero() || next.After(start.Add(until)) {
			l.now = start.Add(until)
			return
		}
		l.now = next
		l.tell(woke())
	}
	l.t.Fatalf("no rest before %s; it owes %q\n%s", until, l.owes(), encode(l.t, l.c))
}

func stillUnknown() *LookedBuilder { return MakeLooked().Reading(MakeReading("train-0").Unknown()) }

func backAgain() *LookedBuilder {
	return MakeLooked().Reading(MakeReading("train-0").Healthy().Version("2"))
}

// nobodyThere is a look that finds nobody there and the driver as it says.
func nobodyThere(sign quarantine.DriverSign) func() *LookedBuilder {
	return func() *LookedBuilder {
		b := MakeLooked().Ended("train-0")
		b.e.Driver = sign
		return b
	}
}

// restricted brings a case to where its device is kept out because it stayed Unknown.
func restricted(t *testing.T, p quarantine.Policy) *life {
	t.Helper()
	l := live(t, gpu, p)
	l.run([]step{{0, lost(MakeReading("train-0").Unknown())}})
	l.follow(hour, stillUnknown)
	l.must(l.c.Asking && l.c.Phase == quarantine.PhaseSuspect, "past its window it asks")
	l.tell(granted())
	l.must(l.c.Phase == quarantine.PhaseRestricted, "it is restricted")
	if p.Mode == quarantine.ModeEnforce {
		l.tell(inForce())
	}
	return l
}

// U1, U2: inside its window a device that stays Unknown is looked at, alerted of at
// the beginning and in the middle, and left alone; past it, after a look that finds
// it so and the answer that it may be, it is kept out of new allocations, and its
// holder is left alone.
func TestUnknownThatOutlastsItsWindowRestricts(t *testing.T) {
	l := live(t, gpu, enforce())
	l.tell(lost(MakeReading("train-0").Unknown()))
	l.must(l.kinds() == "CaseOpened", "an alert at the beginning")
	l.follow(5*minute-1, stillUnknown)
	l.must(l.c.Phase == quarantine.PhaseSuspect && l.c.Mark.State == quarantine.MarkNone && !l.c.Asking, "inside the window nothing is done")
	l.must(l.kinds() == "GraceHalf", "an alert in the middle")
	l.follow(6*minute, stillUnknown)
	l.must(l.c.Asking && l.owes() == "AskRestriction", "past the window it asks, and owes %q", l.owes())
	l.must(!l.c.LookedAt.Before(start.Add(5*minute)), "the last look is one past the window")
	l.tell(granted())
	l.check(want{
		phase: quarantine.PhaseRestricted, waiting: quarantine.WaitingForMark, mark: quarantine.MarkWanted,
		severity: reason.SeverityMinor, reason: reason.HealthUnknown, owes: "PutMark", notices: "PhaseChanged",
	})
	put := commandOf[quarantine.PutMark](t, l.owed)
	l.must(put.Restricted && put.Epoch == l.c.Epoch, "its mark says that nothing was found but Unknown")
	l.tell(inForce())
	l.must(l.c.Waiting == quarantine.WaitingForHealth && len(l.c.Holders) == 1, "it waits for its health; its holder has it still")
}

// U2: what keeps a device from being restricted although its window is over.
func TestNothingIsRestrictedByTheClockAlone(t *testing.T) {
	begin := func(t *testing.T) *life {
		l := live(t, gpu, enforce())
		l.tell(lost(MakeReading("train-0").Unknown()))
		return l
	}
	suspect := func(l *life, why string) {
		l.t.Helper()
		l.must(l.c.Phase == quarantine.PhaseSuspect && !l.c.Asking && l.c.Mark.State == quarantine.MarkNone, "%s, so nothing is restricted", why)
	}
	t.Run("looks that find nothing out", func(t *testing.T) {
		l := begin(t)
		for range 50 {
			l.reach(l.c.LookAt.Sub(start))
			l.tell(lookFailed("the API server is away"))
		}
		l.must(l.now.After(start.Add(hour)), "an hour has passed")
		suspect(l, "nothing was found out")
	})
	t.Run("a clock that jumps by an hour", func(t *testing.T) {
		l := begin(t)
		l.now = l.now.Add(hour)
		l.tell(woke())
		real := l.now
		suspect(l, "no look was made")
		for range 2 {
			l.tell(stillUnknown().Answer())
			suspect(l, "only the first looks of a window were made")
			l.now = l.c.LookAt
			l.tell(woke())
		}
		l.follow(2*hour, stillUnknown)
		spent := l.now.Sub(real)
		l.must(l.c.Asking && spent > minute, "it asks after as many looks as its window has, in %s", spent)
	})
	t.Run("health that is back, for less than it takes", func(t *testing.T) {
		l := begin(t)
		l.follow(4*minute+30*sec, stillUnknown)
		l.follow(5*minute+30*sec, backAgain)
		suspect(l, "it is Healthy now")
	})
	t.Run("a node that doesn't renew its Lease", func(t *testing.T) {
		l := begin(t)
		l.follow(10*hour, func() *LookedBuilder { return stillUnknown().Lease("1") })
		suspect(l, "its node is out")
		l.must(l.c.Waiting == quarantine.WaitingForNode && l.c.Outage.Why == device.NodeSilent, "it waits for the node")
	})
	t.Run("a node that has no Lease", func(t *testing.T) {
		l := begin(t)
		for range 60 {
			l.reach(l.c.LookAt.Sub(start))
			e := stillUnknown().e
			e.Asked, e.NodeLease = l.now, ""
			l.tell(always(e))
		}
		suspect(l, "nothing shows that its node lives")
		l.must(l.c.Waiting == quarantine.WaitingForNode, "it waits for the node")
	})
	t.Run("nobody who says that it is Unknown now", func(t *testing.T) {
		l := begin(t)
		l.follow(hour, nobodyThere(quarantine.DriverSilent))
		suspect(l, "nobody holds it")
		l.must(l.c.Waiting == quarantine.WaitingForEvidence, "it waits for evidence")
	})
	t.Run("an incident that it is a part of", func(t *testing.T) {
		l := begin(t)
		l.follow(hour, stillUnknown)
		for range 20 {
			asked := l.now
			l.tell(held(3 * minute))
			suspect(l, "an incident holds it")
			l.must(l.c.Waiting == quarantine.WaitingForIncident && l.c.Refused.Incident == "incident/driver/gpu.example.com", "and it says which")
			l.follow(10*hour, stillUnknown)
			l.must(l.c.Asking && l.now.Sub(asked) >= 3*minute && l.c.LookedAt.After(asked), "it asks again later, after another look")
		}
		l.must(strings.Count(l.kinds(), "RestrictionHeld") == 1, "it is told once")
		l.tell(granted())
		l.must(l.c.Phase == quarantine.PhaseRestricted, "when it may be, it is restricted")
	})
	t.Run("an answer to a question that isn't asked any more", func(t *testing.T) {
		l := begin(t)
		l.follow(hour, stillUnknown)
		l.tell(observed(MakeReading("train-0").Healthy().Version("2")))
		l.tell(backAgain().Answer())
		l.tell(granted())
		suspect(l, "it is Healthy by now")
	})
}

// U1: a window in which Unknown and faults that only raise suspicion take turns
// ends when it would have.
func TestReasonsThatTakeTurnsRestartNoWindow(t *testing.T) {
	l := live(t, gpu, enforce())
	l.tell(lost(MakeReading("train-0").Unknown()))
	until := l.c.GraceUntil
	for s := 1; s < 300; s++ {
		r := MakeReading("train-0").Unknown()
		if s%2 == 1 {
			r = MakeReading("train-0").Unhealthy(suspectFault)
		}
		l.reach(time.Duration(s) * sec)
		l.tell(lost(r.Version(device.Version(itoa(s + 1))).SeenAt(time.Duration(s) * sec)))
		l.must(l.c.Phase == quarantine.PhaseSuspect && l.c.GraceUntil.Equal(until), "the window ends at %s as before", until)
	}
}

// U1: how old a reading is says the clock that dated it, and what time it is the
// case's own: a starter whose clock is wrong by an hour moves no window.
func TestAWrongClockMovesNoWindow(t *testing.T) {
	for name, wrong := range map[string]time.Duration{"an hour behind": -hour, "right": 0, "an hour ahead": hour} {
		t.Run(name, func(t *testing.T) {
			l := live(t, gpu, enforce())
			l.now = start.Add(20 * sec)
			seen := start.Add(5 * sec).Add(wrong)
			reading := MakeReading("train-0").Unknown().Obj()
			reading.Observed = seen
			l.tell(always(quarantine.Observed{
				Node: "anvil-07", Lost: true, Readings: []quarantine.Reading{reading}, Sent: start.Add(20 * sec).Add(wrong),
			}))
			if want := start.Add(5 * sec); !l.c.FirstNotGood.Equal(want) || !l.c.GraceUntil.Equal(want.Add(5*minute)) {
				t.Errorf("first not good at %s with grace until %s, want %s", l.c.FirstNotGood, l.c.GraceUntil, want)
			}
		})
	}
}

// U3: what ends a restriction, and what doesn't.
func TestARestrictedDeviceComesBackByTheShortWay(t *testing.T) {
	lifted := func(l *life) {
		l.t.Helper()
		l.must(l.c.Mark.State == quarantine.MarkLifting && strings.Contains(l.owes(), "LiftMark"), "its mark is taken away, owes %q", l.owes())
		l.tell(func(c quarantine.Case, _ time.Time) quarantine.Event {
			return quarantine.MarkReported{Outcome: quarantine.OutcomeLifted, Epoch: c.Epoch, Name: "sickbay-gpu-3"}
		})
		l.must(l.c.Phase == quarantine.PhaseClosed && l.c.End == quarantine.EndHealthBack, "and the case is over")
	}
	t.Run("its holders say Healthy for as long as hysteresis asks", func(t *testing.T) {
		l := restricted(t, enforce())
		back := l.now
		l.tell(observed(MakeReading("train-0").Healthy().Version("2")))
		l.follow(l.now.Sub(start)+hour, backAgain)
		took := l.now.Sub(back)
		l.must(took >= 2*minute && took < 4*minute, "after %s", took)
		lifted(l)
	})
	t.Run("it is Unknown again while its mark is taken away", func(t *testing.T) {
		l := restricted(t, enforce())
		l.tell(observed(MakeReading("train-0").Healthy().Version("2")))
		l.follow(2*hour, backAgain)
		l.must(l.c.Mark.State == quarantine.MarkLifting, "its mark is taken away")
		l.tell(lost(MakeReading("train-0").Unknown().Version("3")))
		l.must(l.c.Phase == quarantine.PhaseRestricted && strings.Contains(l.owes(), "PutMark"), "it is kept out after all, owes %q", l.owes())
		l.tell(func(c quarantine.Case, _ time.Time) quarantine.Event {
			return quarantine.MarkReported{Outcome: quarantine.OutcomeLifted, Epoch: c.Epoch, Name: "sickbay-gpu-3"}
		})
		l.must(l.c.Open() && strings.Contains(l.owes(), "PutMark"), "also where it was gone already")
	})
	t.Run("a fault makes it a quarantine of the same epoch under the same mark", func(t *testing.T) {
		l := restricted(t, enforce())
		epoch, mark := l.c.Epoch, l.c.Mark.Name
		l.tell(observed(MakeReading("train-0").Unhealthy(fatalFault).Version("2")))
		put := commandOf[quarantine.PutMark](t, l.owed)
		l.must(l.c.Phase == quarantine.PhaseQuarantined && l.c.Epoch == epoch && l.c.Mark.Name == mark && !put.Restricted, "it is quarantined, and the mark says so")
		l.tell(inForce())
		l.follow(12*hour, backAgain)
		l.must(l.c.Phase == quarantine.PhaseQuarantined && l.c.Mark.State == quarantine.MarkInForce, "and health alone doesn't free it any more")
	})
	t.Run("the kubelet, asked for it, says Healthy before its holders' entries do", func(t *testing.T) {
		l := restricted(t, enforce())
		watched := func() *LookedBuilder {
			b := stillUnknown()
			r := MakeReading("watch-anvil-07").Healthy().Monitor().Obj()
			r.Acknowledged = true
			b.e.Readings = append(b.e.Readings, r)
			return b
		}
		l.follow(3*hour, watched)
		lifted(l)
	})
	t.Run("without being asked, a watch Pod's Healthy outweighs no Unknown", func(t *testing.T) {
		l := restricted(t, enforce())
		l.follow(3*hour, func() *LookedBuilder {
			return stillUnknown().Reading(MakeReading("watch-anvil-07").Healthy().Monitor())
		})
		l.must(l.c.Phase == quarantine.PhaseRestricted && l.c.Mark.State == quarantine.MarkInForce, "it stays out")
	})
	t.Run("nobody holds it and its driver speaks of others", func(t *testing.T) {
		l := restricted(t, enforce())
		l.follow(3*hour, nobodyThere(quarantine.DriverSpeaks))
		lifted(l)
	})
	published := func(sign quarantine.DriverSign) func() *LookedBuilder {
		return func() *LookedBuilder {
			b := nobodyThere(sign)()
			b.e.Slices = "made anew"
			return b
		}
	}
	t.Run("nobody holds it and its driver has published it anew", func(t *testing.T) {
		l := restricted(t, enforce())
		l.follow(3*hour, published(quarantine.DriverSilent))
		lifted(l)
	})
	t.Run("nobody holds it and its driver is silent of others", func(t *testing.T) {
		l := restricted(t, enforce())
		l.follow(3*hour, published(quarantine.DriverUnknown))
		l.must(l.c.Phase == quarantine.PhaseRestricted && l.c.Waiting == quarantine.WaitingForEvidence, "it stays out")
	})
	t.Run("nobody holds it and nothing is seen of its driver", func(t *testing.T) {
		l := restricted(t, enforce())
		l.follow(3*hour, nobodyThere(quarantine.DriverSilent))
		l.must(l.c.Phase == quarantine.PhaseRestricted && l.c.Waiting == quarantine.WaitingForEvidence, "it stays out and says what it waits for")
		l.tell(says(quarantine.VerbRelease))
		l.tell(func(c quarantine.Case, _ time.Time) quarantine.Event {
			return quarantine.MarkReported{Outcome: quarantine.OutcomeLifted, Epoch: c.Epoch, Name: "sickbay-gpu-3"}
		})
		l.must(l.c.Phase == quarantine.PhaseSuspect && l.c.Open(), "an operator's release lets it have one more holder")
		l.tell(lost(MakeReading("train-1").Unknown()))
		l.follow(l.now.Sub(start)+hour, func() *LookedBuilder { return MakeLooked().Reading(MakeReading("train-1").Unknown()) })
		l.must(l.c.Asking, "whose Unknown restricts it again, without another window")
	})
	t.Run("a release is refused while somebody holds it", func(t *testing.T) {
		l := restricted(t, enforce())
		err := quarantine.Refuse(l.c, quarantine.Message{Verb: quarantine.VerbRelease, Actor: "oncall@example.com", Reason: "looks fine"})
		l.must(err != nil && strings.Contains(err.Error(), "bring the driver back"), "refused: %v", err)
	})
	t.Run("mode observe takes nothing away, and looks seldom", func(t *testing.T) {
		l := restricted(t, enforce())
		l.tell(says(quarantine.VerbExtend))
		l.p.Mode = quarantine.ModeObserve
		looks := 0
		l.follow(3*hour, func() *LookedBuilder { looks++; return backAgain() })
		l.must(looks < 30, "%d looks in three hours", looks)
		l.must(l.c.Phase == quarantine.PhaseRestricted && l.c.Mark.State == quarantine.MarkInForce && l.c.Waiting == quarantine.WaitingForOperator, "the mark stays")
		l.p.Mode = quarantine.ModeEnforce
		l.tell(woke())
		lifted(l)
	})
	t.Run("in mode observe nothing was made, so nothing is taken away", func(t *testing.T) {
		p := enforce()
		p.Mode = quarantine.ModeObserve
		l := restricted(t, p)
		l.must(l.c.Mark.State == quarantine.MarkObserved, "no mark")
		l.follow(3*hour, backAgain)
		l.must(l.c.End == quarantine.EndHealthBack, "the case is over")
	})
}

// U2, U3: the mark of a restricted device, found without its case, gives a restricted
// device's case, which needs no gates.
func TestTheMarkOfARestrictedDeviceIsAdoptedAsSuch(t *testing.T) {
	found := oldMark()
	found.Restricted, found.Reason, found.Severity, found.Closes = true, reason.HealthUnknown, reason.SeverityMinor, reason.ClosesByGates
	found.FirstNotGood = found.Since - 20_000
	l := live(t, gpu, enforce())
	l.tell(markSeen(found))
	l.must(l.c.Phase == quarantine.PhaseRestricted && !l.c.Confirmed && l.c.Epoch == found.Epoch, "adopted as restricted")
	l.must(l.c.FirstNotGood.UnixMilli() == found.FirstNotGood && l.c.Since.UnixMilli() == found.Since, "since when it was")
	l.follow(3*hour, func() *LookedBuilder { return stillUnknown().Mark(found, true) })
	l.must(l.c.Phase == quarantine.PhaseRestricted && l.c.Mark.State == quarantine.MarkInForce, "kept while it is Unknown")
	l.follow(l.now.Sub(start)+3*hour, func() *LookedBuilder { return backAgain().Mark(found, true) })
	l.must(l.c.Mark.State == quarantine.MarkLifting, "and taken away when its health is back")

	// The mark of a fault stays what it is, also where it is found by a restriction.
	l = restricted(t, enforce())
	fault := oldMark()
	fault.Epoch = l.c.Epoch + 1000
	l.tell(markSeen(fault))
	l.must(l.c.Phase == quarantine.PhaseRestricted && l.c.Mark.State == quarantine.MarkAdopted && l.c.Epoch > fault.Epoch, "a look has to find it first")
	l.tell(stillUnknown().Mark(fault, true).Answer())
	l.must(l.c.Phase == quarantine.PhaseQuarantined && l.c.Epoch > fault.Epoch, "a fault's mark isn't taken for a restriction's")
}

// U2, Q4: a fault's mark that the watch shows of a device of which nothing was found but
// that its health isn't known proves nothing before a look finds it: one that is gone by
// then leaves no trace, and a restriction's mark makes no fault of anything.
func TestAStrayMarkProvesNothing(t *testing.T) {
	later := func(l *life) quarantine.MarkFound {
		m := oldMark()
		m.Epoch = l.c.Epoch + 1000
		return m
	}
	unproven := func(l *life, phase, former quarantine.Phase, state quarantine.MarkState) {
		l.t.Helper()
		l.must(l.c.Phase == phase && l.c.Former == former && l.c.Mark.State == state && !l.c.Confirmed &&
			l.c.Reason.Code == reason.HealthUnknown && l.c.Severity == reason.SeverityMinor, "want %s, formerly %q, its mark %q, and no fault", phase, former, state)
	}
	goneSuspect := func(t *testing.T) *life {
		l := live(t, gpu, enforce())
		l.run([]step{{0, lost(MakeReading("train-0").Unknown())}, {sec, missing(device.NodeDeleted)},
			{61 * sec, MakeLooked().Missing(device.NodeDeleted).Answer()}})
		l.must(l.c.Phase == quarantine.PhaseGone && l.c.Former == quarantine.PhaseSuspect, "a suspect whose node is gone")
		return l
	}
	stillGone := func() *LookedBuilder { return MakeLooked().Missing(device.NodeDeleted) }
	t.Run("of a restricted device", func(t *testing.T) {
		l := restricted(t, enforce())
		l.tell(markSeen(later(l)))
		unproven(l, quarantine.PhaseRestricted, quarantine.PhaseRestricted, quarantine.MarkAdopted)
		l.tell(stillUnknown().NoMark())
		unproven(l, quarantine.PhaseRestricted, quarantine.PhaseNone, quarantine.MarkWanted)
	})
	t.Run("in mode observe", func(t *testing.T) {
		p := enforce()
		p.Mode = quarantine.ModeObserve
		l := restricted(t, p)
		l.tell(markSeen(oldMark()))
		unproven(l, quarantine.PhaseRestricted, quarantine.PhaseRestricted, quarantine.MarkAdopted)
		l.tell(stillUnknown().NoMark())
		unproven(l, quarantine.PhaseRestricted, quarantine.PhaseNone, quarantine.MarkObserved)
	})
	t.Run("of a gone suspect", func(t *testing.T) {
		for _, mark := range []func(*life) quarantine.MarkFound{func(*life) quarantine.MarkFound { return oldMark() }, later} {
			l := goneSuspect(t)
			l.tell(markSeen(mark(l)))
			unproven(l, quarantine.PhaseGone, quarantine.PhaseSuspect, quarantine.MarkAdopted)
			l.tell(stillGone().NoMark())
			unproven(l, quarantine.PhaseGone, quarantine.PhaseSuspect, quarantine.MarkNone)
		}
	})
	t.Run("of a gone suspect, and found", func(t *testing.T) {
		l := goneSuspect(t)
		fault := later(l)
		l.tell(markSeen(fault))
		l.tell(stillGone().Mark(fault, true).Answer())
		l.must(l.c.Former == quarantine.PhaseQuarantined && l.c.Confirmed && l.c.Mark.State == quarantine.MarkInForce, "a fault's mark that is there is one")
	})
	t.Run("a restriction's mark of a gone suspect", func(t *testing.T) {
		for name, find := range map[string]func(*life, quarantine.MarkFound){
			"seen, and found": func(l *life, m quarantine.MarkFound) {
				l.tell(markSeen(m))
				l.tell(stillGone().Mark(m, true).Answer())
			},
			"in the way of this case's own": func(l *life, m quarantine.MarkFound) {
				m.Epoch = l.c.Epoch - 1000
				l.tell(markSeen(m))
				l.tell(stillGone().Mark(m, true).Answer())
				m.Epoch = l.c.Epoch + 1000
				l.tell(func(c quarantine.Case, _ time.Time) quarantine.Event {
					return quarantine.MarkReported{Outcome: quarantine.OutcomeSuperseded, Epoch: c.Epoch, Revision: c.Mark.Revision, Name: m.Name, Before: &m}
				})
			},
		} {
			t.Run(name, func(t *testing.T) {
				l := goneSuspect(t)
				mark := later(l)
				mark.Restricted, mark.Reason, mark.Severity, mark.Closes = true, reason.HealthUnknown, reason.SeverityMinor, reason.ClosesByGates
				find(l, mark)
				unproven(l, quarantine.PhaseGone, quarantine.PhaseRestricted, quarantine.MarkInForce)
			})
		}
	})
	t.Run("a run that goes by earlier rules does as it did", func(t *testing.T) {
		p := enforce()
		p.Rules = 1
		l := restricted(t, p)
		l.tell(markSeen(later(l)))
		l.must(l.c.Phase == quarantine.PhaseQuarantined, "quarantined at once")
	})
}

// U2, Q10: the mark of a device that was restricted, or retired, and whose node is gone
// now says so still when somebody has it written anew: whoever adopts it finds no fault
// in it that nobody found, and forgets no operator's word.
func TestAGoneDevicesMarkSaysWhatTheDeviceWasBefore(t *testing.T) {
	for name, tc := range map[string]struct {
		word                quarantine.Verb
		restricted, retired bool
	}{
		"restricted": {restricted: true},
		"retired":    {word: quarantine.VerbRetire, retired: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := restricted(t, enforce())
			if tc.word != "" {
				l.tell(says(tc.word))
				l.tell(inForce())
			}
			l.tell(missing(device.NodeDeleted))
			l.now = l.now.Add(2 * minute)
			l.tell(woke())
			l.tell(MakeLooked().Missing(device.NodeDeleted).Answer())
			l.must(l.c.Phase == quarantine.PhaseGone, "it is gone")
			l.tell(markDeleted())
			put := commandOf[quarantine.PutMark](t, l.owed)
			l.must(put.Restricted == tc.restricted && put.Retired == tc.retired, "its mark says restricted %t, retired %t", put.Restricted, put.Retired)
		})
	}
}

// U2: that the mark of an earlier restriction is told of late, when it is long removed
// and the device gone, makes nothing of a device that was only suspected.
func TestAMarkThatIsToldOfTooLateRestrictsNothing(t *testing.T) {
	l := live(t, gpu, enforce())
	l.tell(lost(MakeReading("train-0").Unknown()))
	l.tell(missing(device.NodeDeleted))
	l.now = l.now.Add(2 * minute)
	l.tell(woke())
	l.tell(MakeLooked().Missing(device.NodeDeleted).Answer())
	l.must(l.c.Phase == quarantine.PhaseGone && l.c.Former == quarantine.PhaseSuspect, "it is gone")
	late := oldMark()
	late.Restricted, late.Reason, late.Severity = true, reason.HealthUnknown, reason.SeverityMinor
	l.tell(markSeen(late))
	l.now = l.now.Add(sec)
	l.tell(MakeLooked().Missing(device.NodeDeleted).Answer())
	l.must(l.c.Phase == quarantine.PhaseGone && l.c.Former == quarantine.PhaseSuspect && l.c.Mark.State == quarantine.MarkNone, "it is as before, and owes %q", l.owes())
	l.must(!strings.Contains(l.owes(), "PutMark"), "it owes %q", l.owes())
}

// R4: an operator who retires a device that is just being given back has the last word:
// its mark stays, or is put back.
func TestADeviceThatIsRetiredWhileItsMarkGoesIsKeptOut(t *testing.T) {
	for name, removed := range map[string]bool{"before the mark is gone": false, "when it is gone already": true} {
		t.Run(name, func(t *testing.T) {
			l := restricted(t, enforce())
			l.follow(l.now.Sub(start)+hour, nobodyThere(quarantine.DriverSilent))
			l.tell(says(quarantine.VerbRelease))
			l.must(l.c.Mark.State == quarantine.MarkLifting, "its mark is removed, and it owes %q", l.owes())
			l.tell(says(quarantine.VerbRetire))
			if removed {
				l.tell(reported(quarantine.OutcomeLifted, ""))
			}
			put := commandOf[quarantine.PutMark](t, l.owed)
			l.must(l.c.Phase == quarantine.PhaseRetired && put.Retired, "it is %s, its mark %s", l.c.Phase, l.c.Mark.State)
		})
	}
}

// R4: a restricted device that an operator releases in mode observe isn't marked later,
// when the mode is enforce and the device gone.
func TestAReleaseInModeObserveHoldsInModeEnforce(t *testing.T) {
	p := enforce()
	p.Mode = quarantine.ModeObserve
	l := restricted(t, p)
	l.follow(l.now.Sub(start)+hour, nobodyThere(quarantine.DriverSilent))
	l.tell(says(quarantine.VerbRelease))
	l.must(l.c.Phase == quarantine.PhaseSuspect && l.c.Mark.State == quarantine.MarkNone, "it is %s, its mark %s", l.c.Phase, l.c.Mark.State)
	l.tell(missing(device.NodeDeleted))
	l.now = l.now.Add(2 * minute)
	l.tell(woke())
	l.tell(MakeLooked().Missing(device.NodeDeleted).Answer())
	l.p.Mode = quarantine.ModeEnforce
	l.tell(woke())
	l.must(l.c.Phase == quarantine.PhaseGone && !strings.Contains(l.owes(), "PutMark"), "it is %s and owes %q", l.c.Phase, l.owes())
}

// U3, R7: what a Pod said last, before it ended, was Healthy already: a driver that is
// back ends such a case no later than one whose last word was Unknown.
func TestADriverThatIsBackEndsTheCaseWhateverAPodThatEndedSaid(t *testing.T) {
	for name, last := range map[string]*ReadingBuilder{
		"Unknown": MakeReading("train-0").Unknown(), "Healthy": MakeReading("train-0").Healthy().Version("2"),
	} {
		t.Run(name, func(t *testing.T) {
			l := live(t, gpu, enforce())
			l.tell(lost(MakeReading("train-0").Unknown()))
			l.now = l.now.Add(10 * sec)
			l.tell(MakeLooked().Reading(last).Answer())
			l.follow(l.now.Sub(start)+hour, nobodyThere(quarantine.DriverSpeaks))
			l.must(!l.c.Open() && l.c.End == quarantine.EndHealthBack, "it is %s %s, waiting for %s", l.c.Phase, l.c.End, l.c.Waiting)
		})
	}
}

// U3, R7: a mark whose removal is refused is removed once it can be.
func TestARefusedRemovalIsTriedAgain(t *testing.T) {
	l := restricted(t, enforce())
	l.follow(l.now.Sub(start)+hour, backAgain)
	l.must(strings.Contains(l.owes(), "LiftMark"), "its health is back, and it owes %q", l.owes())
	for range 3 {
		l.tell(func(c quarantine.Case, _ time.Time) quarantine.Event {
			return quarantine.MarkReported{Outcome: quarantine.OutcomeRefused, Epoch: c.Epoch, Name: "sickbay-gpu-3", Detail: "forbidden"}
		})
		l.must(!strings.Contains(l.owes(), "LiftMark") && l.c.Waiting == quarantine.WaitingForMark, "it waits for %s and owes %q", l.c.Waiting, l.owes())
		l.now = l.c.Mark.RetryAt
		l.tell(woke())
		l.must(strings.Contains(l.owes(), "LiftMark"), "it owes %q", l.owes())
	}
}
