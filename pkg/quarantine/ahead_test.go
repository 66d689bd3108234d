package quarantine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// madeAhead is a fault whose mark was made, at an epoch, two seconds later.
func madeAhead(epoch time.Time, r *ReadingBuilder) event {
	return func(c quarantine.Case, now time.Time) quarantine.Event {
		e := observed(r)(c, now).(quarantine.Observed)
		e.Made = quarantine.Made{Epoch: epoch.UnixMilli(), Name: "sickbay-anvil-07-gpu-3", Version: "77", At: epoch.Add(2 * time.Second)}
		return e
	}
}

// A case that opens after its mark was made takes its epoch and the mark, asks for none,
// looks at the device soon, and tells how long the mark took and not how long it itself did.
func TestACaseTakesOverTheMarkThatWasMadeAheadOfIt(t *testing.T) {
	l := live(t, gpu, enforce())
	l.reach(30 * sec)
	epoch := start.Add(4 * time.Second)
	l.tell(madeAhead(epoch, MakeReading("train-0").Unhealthy(fatalFault)))
	l.must(l.c.Epoch == epoch.UnixMilli() && l.c.Phase == quarantine.PhaseQuarantined, "it has the mark's epoch")
	l.must(l.c.Mark.State == quarantine.MarkInForce && l.c.Mark.Name == "sickbay-anvil-07-gpu-3" && l.c.Mark.Version == device.Version("77"), "it has the mark")
	l.must(l.c.Waiting == quarantine.WaitingForHolder, "it waits as if it had made it")
	l.must(!strings.Contains(l.owes(), "PutMark") && !l.c.LookAt.IsZero() && l.c.LookAt.Sub(l.now) <= 5*time.Second, "it makes none, and looks soon")
	last := l.heard[len(l.heard)-1]
	l.must(last.Kind == quarantine.NoticeMarkInForce && last.Took == 6*time.Second, "it tells how long the mark took")
}

// The mark is left to the watch and to a look where the case isn't the one that it was
// made ahead of.
func TestAMarkMadeAheadIsNotTakenOver(t *testing.T) {
	fault := MakeReading("train-0").Unhealthy(fatalFault)
	for name, tc := range map[string]struct {
		policy quarantine.Policy
		before []step
		epoch  time.Time
		event  *ReadingBuilder
		state  quarantine.MarkState
	}{
		"by a case that has one":        {enforce(), []step{{0, observed(fault)}}, start.Add(time.Hour), MakeReading("train-1").Unhealthy(fatalFault), quarantine.MarkWanted},
		"by one that only observes":     {watching(), nil, start, fault, quarantine.MarkObserved},
		"with an epoch of another time": {enforce(), nil, start.Add(-time.Hour), fault, quarantine.MarkWanted},
		"by a suspect":                  {enforce(), nil, start, MakeReading("train-0").Unhealthy(suspectFault), quarantine.MarkNone},
	} {
		t.Run(name, func(t *testing.T) {
			l := live(t, gpu, tc.policy)
			l.run(tc.before)
			before := l.c.Epoch
			l.tell(madeAhead(tc.epoch, tc.event))
			if l.c.Mark.State != tc.state {
				t.Errorf("the mark is %s, want %s", l.c.Mark.State, tc.state)
			}
			if before != 0 && l.c.Epoch != before {
				t.Errorf("the epoch went from %d to %d", before, l.c.Epoch)
			}
		})
	}
}

func watching() quarantine.Policy {
	p := enforce()
	observe(&p)
	return p
}
