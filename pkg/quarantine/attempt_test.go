package quarantine_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// keptOut is a world in which a device has failed, is kept out, and has lost its holder.
func keptOut(t failer, message string) *run {
	p := enforce()
	p.Recover = true
	p.Attempts, p.AttemptPause, p.AttemptPauseMax, p.CanaryWithin = 3, 10*time.Minute, time.Hour, 20*time.Minute
	r := &run{t: t, w: newWorld(gpu, true), c: quarantine.Case{Device: gpu}, p: p, now: start}
	i := r.w.start("train-0", false, device.Unhealthy, message, r.now)
	r.watch = append(r.watch, quarantine.Observed{Node: "anvil-07", Incarnation: oldCard, Readings: []quarantine.Reading{r.w.reading(r.w.pods[i])}})
	r.settle()
	r.w.pods[i].running = false
	r.w.version++
	r.w.pods[i].version = r.w.version
	r.watch = append(r.watch, quarantine.Observed{Node: "anvil-07", Incarnation: oldCard, Readings: []quarantine.Reading{r.w.reading(r.w.pods[i])}})
	r.passes(slipped)
	r.settle()
	return r
}

// slipped is when a look has found nobody that slipped past a new mark.
const slipped = 3 * time.Second

// R1, R5, R7: whatever happens to a device that is kept out and tried, it is given back
// by all gates in one attempt or not at all, and a fair world leads it to its release or
// to a state that says whose turn it is.
func TestADeviceThatIsTriedIsGivenBackByItsGatesAlone(t *testing.T) {
	released := 0
	rapid.Check(t, func(t *rapid.T) {
		d := &drive{run: keptOut(t, majorFault), faults: []string{fatalFault, majorFault, appError, ""}}
		d.p.Forget = 6 * time.Hour
		all := d.actions()
		actions := map[string]func(*rapid.T){}
		d.recoveryActions(actions)
		for _, name := range []string{
			"what is asked of the attempt is answered", "everything settles", "a moment passes", "time passes", "health changes",
			"the watch delivers", "the mark's write runs", "the mark's answer", "the look reads", "the look's answer", "an operator writes",
			"the mark is deleted by hand", "rights come or go", "the node stops or goes", "the device goes missing", "the device is listed", "a Pod starts", "a Pod ends",
		} {
			actions[name] = all[name]
		}
		t.Repeat(actions)
		d.quick = true
		d.fair()
		d.hold(t)
		if d.c.Phase == quarantine.PhaseReleased {
			released++
		}
	})
	if released == 0 {
		t.Error("no device was ever given back")
	}
}
