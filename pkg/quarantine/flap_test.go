package quarantine_test

import (
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// U3: a device that goes Unknown again and again never outlasts its window; the third
// time within an hour it is a case of its own kind, that asks for a long good time and
// is restricted on the next looks that find it Unknown past its window.
func TestADeviceThatFlapsIsACaseOfItsOwnKind(t *testing.T) {
	l := live(t, gpu, enforce())
	version := 1
	lose := func() {
		version++
		l.tell(lost(MakeReading("train-0").Unknown().Version(device.Version(itoa(version))).SeenAt(l.now.Sub(start))))
	}
	recover := func() *LookedBuilder {
		return MakeLooked().Reading(MakeReading("train-0").Healthy().Version(device.Version(itoa(version + 1))))
	}
	comeBack := func() time.Duration {
		since := l.now
		version++
		l.follow(since.Add(hour).Sub(start), recover)
		l.must(l.c.End == quarantine.EndHealthBack, "its health is back")
		return l.now.Sub(since)
	}
	for range 2 {
		lose()
		l.must(l.c.Reason.Code == reason.HealthUnknown && !l.c.Flapping, "an episode like any other")
		comeBack()
		l.must(l.c.Lives() && !l.c.Open(), "it is remembered")
		l.reach(l.now.Add(minute).Sub(start))
	}
	lose()
	l.must(l.c.Reason.Code == reason.HealthFlapping && l.c.Flapping && l.c.Phase == quarantine.PhaseSuspect, "the third within an hour is flapping")
	took := comeBack()
	l.must(took >= 15*minute, "its health has to stay good for 15 minutes, not %s", took)
	l.reach(l.now.Add(minute).Sub(start))
	lose()
	l.follow(l.now.Add(hour).Sub(start), func() *LookedBuilder {
		return MakeLooked().Reading(MakeReading("train-0").Unknown().Version(device.Version(itoa(version))))
	})
	l.must(l.c.Asking, "a flapping device that stays Unknown is restricted past its window")
	l.tell(granted())
	l.must(l.c.Phase == quarantine.PhaseRestricted, "restricted")

	// What is long past doesn't count, and its workflow ends.
	l = live(t, gpu, enforce())
	lose()
	comeBack()
	l.reach(l.now.Add(hour).Sub(start))
	l.must(!l.c.Lives(), "after an hour it is forgotten")
}
