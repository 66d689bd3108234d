package quarantine_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// fair makes the world one that holds still and answers: from now on nothing
// changes in it, the watch has delivered how it is, the pool is complete, looks
// succeed and each command is answered within moments.
func (d *drive) fair() {
	d.t.Helper()
	w := d.w
	w.complete, w.incident = true, false
	d.sync()
	d.settle()
	// A starter compares levels now and then, whatever edges were lost.
	if w.mark != nil && w.served {
		d.watch = append(d.watch, w.seen(0))
	}
	d.watch = append(d.watch, w.inventory())
	for i, p := range w.pods {
		if p.running {
			d.tellOf(i, true)
		}
	}
	d.settle()
}

// restsAt tells where a case may rest in a world that holds still. Everything
// else has to go on by itself. The empty text means that the case is over.
func (d *drive) restsAt() []quarantine.Waiting {
	w, c := d.w, d.c
	switch c.Phase {
	case quarantine.PhaseSuspect:
		switch {
		case w.out():
			return []quarantine.Waiting{quarantine.WaitingForNode}
		case w.notTheDevice() || w.faulty():
			// Health is back, or its fault outlasted the window.
			return nil
		case !c.Evidence().Live() && !d.driverBack():
			return []quarantine.Waiting{quarantine.WaitingForEvidence}
		}
		// It is restricted, or its driver is back.
		return nil
	case quarantine.PhaseRestricted:
		return d.restsRestricted()
	case quarantine.PhaseRetired:
		return []quarantine.Waiting{quarantine.WaitingForOperator}
	case quarantine.PhaseGone:
		switch {
		case w.listed:
			return nil
		case d.p.Mode == quarantine.ModeObserve && w.mark != nil:
			// Mode observe removes nothing.
			return []quarantine.Waiting{quarantine.WaitingForReturn}
		case w.foreign || w.forbidden || w.mark != nil && (!w.intact || w.mark.Epoch != c.Epoch):
			return []quarantine.Waiting{quarantine.WaitingForOperator}
		}
		return nil
	case quarantine.PhaseQuarantined:
		return d.restsInQuarantine()
	case quarantine.PhaseRecovering:
		return d.restsToTry()
	}
	return nil
}

// driverBack tells whether the driver of a device that nobody holds has shown itself.
func (d *drive) driverBack() bool {
	w := d.w
	return (w.driver == quarantine.DriverSpeaks || w.driver != quarantine.DriverUnknown && d.c.SlicesRead && d.c.Slices != itoa(w.published)) &&
		w.inventory().Listed >= d.c.Listed
}

func (d *drive) restsRestricted() []quarantine.Waiting {
	w, c := d.w, d.c
	refused := w.served && (w.foreign || w.forbidden)
	switch {
	case !w.listed:
		return nil
	case c.Mark.State == quarantine.MarkHeld && !w.notTheDevice() && (c.Evidence().Live() || !d.driverBack()):
		return d.restsHeld()
	case refused && c.Mark.State != quarantine.MarkInForce && !c.Advisory():
		return []quarantine.Waiting{quarantine.WaitingForMark}
	case w.out():
		return []quarantine.Waiting{quarantine.WaitingForNode}
	case w.faulty():
		return nil
	case w.notTheDevice(), !c.Evidence().Live() && d.driverBack():
		if refused {
			return []quarantine.Waiting{quarantine.WaitingForMark}
		}
		if d.p.Mode == quarantine.ModeObserve && c.Mark.State == quarantine.MarkInForce {
			return []quarantine.Waiting{quarantine.WaitingForOperator}
		}
		return nil
	case !c.Evidence().Live():
		return []quarantine.Waiting{quarantine.WaitingForEvidence}
	}
	return []quarantine.Waiting{quarantine.WaitingForHealth}
}

// restsHeld is where a case rests that has no permit: only while there is none.
func (d *drive) restsHeld() []quarantine.Waiting {
	if d.w.full && d.w.mark == nil {
		return []quarantine.Waiting{quarantine.WaitingForPermit}
	}
	return nil
}

func (d *drive) restsInQuarantine() []quarantine.Waiting {
	w, c := d.w, d.c
	switch {
	case !w.listed:
		return nil
	case c.Advisory():
		if w.healthy() {
			return nil
		}
		return []quarantine.Waiting{quarantine.WaitingForHealth}
	case c.Mark.State == quarantine.MarkHeld:
		if w.healthy() {
			return nil
		}
		return d.restsHeld()
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
	return d.restsToTry()
}

// R7: from every state that anything can lead to, on each path, a fair
// environment leads to the end of the case or to a waiting state whose name says
// whose turn it is, within the time after which a gone device is forgotten and a
// few leases more.
func TestAFairWorldLeadsEveryCaseToItsEndOrToANamedWait(t *testing.T) {
	for name, path := range paths {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				d := newDrive(t, path.key, path.served)
				d.quick = true
				t.Repeat(d.actions())
				d.fair()
				d.hold(t)
			})
		})
	}
}

// hold lets the world hold still and checks that the case comes to rest.
func (d *drive) hold(t *rapid.T) {
	t.Helper()
	d.writes, d.looks = 0, 0
	limit := d.p.Forget + 5*d.p.Lease
	for spent := time.Duration(0); d.c.Open() && spent < limit; spent += 10 * time.Minute {
		d.passesFairly(10 * time.Minute)
	}
	// At most: the backoff's first looks, then one each twenty minutes, or one a
	// lease and one after each mark; a refused mark is tried once a minute.
	if most := 40 + 4*int(limit/time.Hour); d.looks > most {
		t.Errorf("%d looks in %s of a world that holds still, want at most %d\n%s", d.looks, limit, most, encode(t, d.c))
	}
	if most := 20 + int(limit/d.p.MarkRetry); d.writes > most {
		t.Errorf("%d mark commands in %s of a world that holds still, want at most %d", d.writes, limit, most)
	}
	if !d.c.Open() {
		d.endsAsItMay(t)
		return
	}
	if rests := d.restsAt(); !slices.Contains(rests, d.c.Waiting) || d.c.Waiting == quarantine.WaitingForNothing {
		t.Fatalf("after %s the case is %s %q and may only rest at %q\nworld %+v\nmark %+v\n%s",
			limit, d.c.Phase, d.c.Waiting, rests, *d.w, d.w.mark, encode(t, d.c))
	}
	if mode := d.p.Mode; mode == quarantine.ModeEnforce && d.c.Mark.State == quarantine.MarkInForce &&
		(d.w.mark == nil || d.w.mark.Epoch != d.c.Epoch || !d.w.intact) && !d.w.forbidden && !d.w.foreign {
		t.Fatalf("the case believes in a mark that isn't so\nworld %+v\n%s", d.w.mark, encode(t, d.c))
	}
}

// endsAsItMay checks that a case is over only where the world allows it to be.
func (d *drive) endsAsItMay(t *rapid.T) {
	t.Helper()
	w, c := d.w, d.c
	if w.mark != nil && w.served && !w.foreign {
		t.Fatalf("the case is over and a mark stays behind: %+v\n%s", w.mark, encode(t, c))
	}
	if w.faulty() && w.listed && slices.ContainsFunc(c.Reports, func(r device.Report) bool { return r.Fault && !r.Ended }) {
		t.Fatalf("the case is over and the device is faulty\nworld %+v\n%s", *w, encode(t, c))
	}
}

// passesFairly moves the clock on as passes does, with every command answered
// fifty milliseconds after it was owed.
func (d *drive) passesFairly(by time.Duration) {
	d.t.Helper()
	end := d.now.Add(by)
	for range 2000 {
		if d.mark != nil || d.look != nil || d.ask != nil || d.permit != nil || d.tends() || len(d.watch) > 0 {
			d.now = d.now.Add(50 * time.Millisecond)
			d.settleOnce()
			continue
		}
		next := d.c.NextWake(d.now)
		if next.IsZero() || next.After(end) {
			if end.After(d.now) {
				d.now = end
			}
			return
		}
		d.now = next
		d.tell(quarantine.Woke{})
	}
	d.t.Fatalf("no rest within %s; the case owes %q\n%s", by, owes(d.owed), encode(d.t, d.c))
}

func (d *drive) settleOnce() {
	d.askAnswers()
	d.tendAnswers()
	d.markRuns()
	d.markAnswers()
	d.lookReads()
	d.lookAnswers()
	d.delivers()
}
