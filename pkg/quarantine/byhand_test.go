package quarantine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

func byHand(lasts time.Duration) event {
	return always(quarantine.Message{Verb: quarantine.VerbQuarantine, Actor: "oncall@example.com", Reason: "it runs hot", For: lasts})
}

// Q9 in part. An operator takes a device out that nobody complains of: a case like any
// other, with its record and its mark, whose actor, reason and end are the operator's.
func TestAnOperatorQuarantinesByHand(t *testing.T) {
	l := live(t, gpu, enforce())
	l.tell(byHand(48 * hour))
	l.must(l.c.Phase == quarantine.PhaseQuarantined && l.c.Reason.Code == reason.ByHand && l.c.Actor == "oncall@example.com", "it is quarantined")
	put := commandOf[quarantine.PutMark](t, l.owed)
	l.must(put.Actor == "oncall@example.com" && put.Message == "it runs hot" && put.Until.Equal(start.Add(48*hour)) && !put.Restricted, "the mark says so")
	l.tell(inForce())
	l.must(strings.Contains(l.owes(), "Look") || !l.c.LookAt.IsZero(), "it is looked at, for its holders")
	l.tell(MakeLooked().Answer())
	l.must(l.c.Waiting == quarantine.WaitingForOperator, "nobody holds it: it waits for the operator's time")
	l.reach(48*hour + minute)
	l.must(l.c.Phase == quarantine.PhaseQuarantined && l.c.Waiting != quarantine.WaitingForOperator && l.c.Mark.State == quarantine.MarkInForce,
		"the time is over: it goes on to its gates, and nothing gave it back")
}

// Q9. Health that looks well ends nothing before the time is over, where the device
// is only observed; after it the case ends as any observed one does.
func TestWhatIsQuarantinedByHandStaysSoUntilItsTime(t *testing.T) {
	p := enforce()
	observe(&p)
	l := live(t, gpu, p)
	l.tell(byHand(hour))
	for l.c.Open() && l.now.Before(start.Add(3*hour)) {
		if strings.Contains(l.owes(), "Look") {
			l.tell(MakeLooked().Lease(l.now.Truncate(10 * sec).Format(time.RFC3339)).Reading(MakeReading("train-0").Healthy()).Answer())
			continue
		}
		l.now = l.c.NextWake(l.now)
		l.tell(woke())
	}
	if l.c.End != quarantine.EndAdvisory || l.now.Before(start.Add(hour)) {
		t.Errorf("it ended as %q at %s", l.c.End, l.now)
	}
}

// Q9. A suspect becomes quarantined by hand at once; what is quarantined already is
// refused with what to send instead.
func TestWhoMayBeQuarantinedByHand(t *testing.T) {
	l := live(t, gpu, enforce())
	l.tell(lost(MakeReading("train-0").Unknown()))
	epoch := l.c.Epoch
	l.tell(byHand(0))
	l.must(l.c.Phase == quarantine.PhaseQuarantined && l.c.Epoch == epoch && l.c.Reason.Code == reason.ByHand, "the same case, quarantined")
	for want, m := range map[string]quarantine.Message{
		"it is Quarantined already; send extend": {Verb: quarantine.VerbQuarantine, Actor: "a", Reason: "b"},
		"say who you are":                        {Verb: quarantine.VerbQuarantine, Reason: "b"},
	} {
		if err := quarantine.Refuse(l.c, m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := quarantine.Refuse(quarantine.Case{Device: gpu}, quarantine.Message{Verb: quarantine.VerbQuarantine, Actor: "a", Reason: "b", For: 31 * 24 * hour}); err == nil || !strings.Contains(err.Error(), "at most 720h") {
		t.Errorf("for a month and a day: %v", err)
	}
}
