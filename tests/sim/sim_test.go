package main

import (
	"context"
	"encoding/xml"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// tiny is a study that takes a moment.
func tiny(seed uint64) study {
	fleet := shape{racks: 4, nodesPerRack: 2, perNode: 8, second: 1}
	return study{seed: seed, seeds: 2, tells: func(int, int) {}, years: 0.02, sensitivityYears: 0.01, varied: []together{{"glitches", []rateKey{glitches}}}, fleet: fleet, few: shape{racks: 1, nodesPerRack: 1, perNode: 8}}
}

func TestTheSameSeedGivesTheSamePageAndPictures(t *testing.T) {
	render := func(seed uint64) string {
		found, err := tiny(seed).make(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text := found.page()
		pictures := found.pictures()
		for _, name := range []string{"sim-cost.svg", "sim-front.svg", "sim-worst-hour.svg", "sim-sensitivity.svg"} {
			if err := xml.Unmarshal([]byte(pictures[name]), new(struct{})); err != nil || !strings.Contains(text, "images/"+name) {
				t.Errorf("%s: %v, or the page doesn't show it", name, err)
			}
			text += pictures[name]
		}
		return text
	}
	first := render(7)
	if again := render(7); again != first {
		t.Error("the same seed gives another page")
	}
	if render(8) == first {
		t.Error("another seed gives the same page: nothing follows from it")
	}
}

// B1, U2 and R7 in part. Each run checks itself: nothing is quarantined by Unknown alone,
// no budget is exceeded, no case is stuck, and everything comes to rest when all is well.
func TestNoPolicyBreaksAPromiseHoweverBadTheWorldIs(t *testing.T) {
	var all []rateKey
	for _, row := range rateTable() {
		if row.unit != minutes && row.unit != hours {
			all = append(all, row.key)
		}
	}
	o := tiny(3)
	for _, p := range append(policies(), floors()...) {
		t.Run(p.name, func(t *testing.T) {
			r, err := simulate(t.Context(), one{o.fleet, ratesTimes(3, all...), p, 0.04, o.seed})
			if err != nil {
				t.Fatal(err)
			}
			if r.Quarantines == 0 || r.Restrictions == 0 {
				t.Errorf("%d quarantines and %d restrictions: nothing was tried", r.Quarantines, r.Restrictions)
			}
		})
	}
}

// U4 in part.
func TestWithoutTheStormGuardMoreIsRestrictedForNothing(t *testing.T) {
	o, needless := tiny(5), map[bool]int{}
	for _, guarded := range []bool{true, false} {
		p := but("", func(p *policy) { p.storms = guarded })
		r, err := simulate(t.Context(), one{o.fleet, ratesTimes(3, crashes, upgrades, kubelets), p, 0.15, o.seed})
		if err != nil {
			t.Fatal(err)
		}
		needless[guarded] = r.Needless
	}
	if needless[false] <= needless[true] {
		t.Errorf("%d needless restrictions without the guard, %d with it: want more", needless[false], needless[true])
	}
}

// worldOf is a fleet to which nothing happens but what a test does.
func worldOf(t *testing.T, p policy) *world {
	t.Helper()
	r := ratesTimes(1)
	for _, key := range []rateKey{faults, falseAlarms, glitches, crashes, flaps, upgrades, kubelets, rackLosses, partitions, apiOutages} {
		r.of[key] = 1e-12
	}
	return newWorld(whole().fleet, 1, r, p, year)
}

// runs goes on for a while.
func (w *world) runs(t *testing.T, d time.Duration) {
	t.Helper()
	if err := w.run(context.Background(), w.now+d); err != nil {
		t.Fatal(err)
	}
}

func TestWithoutTheCrowdGuardALibraryThatErrsMarksMoreSoundDevices(t *testing.T) {
	wrong := map[bool]int{}
	for _, guarded := range []bool{true, false} {
		w := worldOf(t, but("", func(p *policy) {
			p.crowds = guarded
			p.limits.Cluster, p.limits.Class = budget.Limit{None: true}, budget.Limit{None: true}
		}))
		for _, n := range w.nodes {
			for _, u := range n.units[:3] {
				w.at(time.Minute, func() { w.falseAlarm(u, saysNewBad, 3*time.Minute) })
			}
		}
		w.runs(t, time.Hour)
		wrong[guarded] = w.got.Wrong
	}
	if wrong[true] == 0 || wrong[false] < 2*wrong[true] {
		t.Errorf("%d sound devices quarantined without the guard, %d with it: want more than twice as many", wrong[false], wrong[true])
	}
}

// B1 in part. A new version that calls every device Unhealthy comes node by node: what
// bounds it is the budget.
func TestABudgetBoundsWhatABadDriverVersionCosts(t *testing.T) {
	out := map[bool]int{}
	for _, bounded := range []bool{true, false} {
		w := worldOf(t, but("", func(p *policy) {
			if !bounded {
				p.limits.Cluster, p.limits.Class = budget.Limit{None: true}, budget.Limit{None: true}
			}
		}))
		for i, n := range nodesOf(w.nodes, driverOne)[:24] {
			w.at(time.Duration(i)*3*time.Minute, func() { w.upgraded(n, 2, true, 2*time.Minute) })
		}
		w.runs(t, 90*time.Minute)
		out[bounded] = w.got.MostOut
	}
	if most := budget.DefaultLimits().Class.Of(384); out[true] != most || out[false] < 4*most {
		t.Errorf("at most %d of 384 devices out with the budget, %d without: want %d, and far more", out[true], out[false], most)
	}
}

func TestARackWithoutPowerCostsNoDevice(t *testing.T) {
	w := worldOf(t, defaults())
	w.at(time.Hour, func() { w.rackLost(2, 5*time.Hour) })
	w.at(2*time.Hour, func() { w.rackCut(3, time.Hour) })
	w.runs(t, 12*time.Hour)
	if w.got.Quarantines+w.got.Restrictions != 0 {
		t.Errorf("%d quarantines and %d restrictions, for no more than nodes that were out", w.got.Quarantines, w.got.Restrictions)
	}
}

func TestABrokenDeviceIsKeptOutUntilItIsRepaired(t *testing.T) {
	w := worldOf(t, defaults())
	u := w.units[0]
	w.at(time.Hour, func() { w.breaks(u, told, saysFatal[0], false) })
	w.runs(t, 3*time.Hour)
	if u.mark == nil || u.c.Phase != quarantine.PhaseQuarantined || u.c.Mark.State != quarantine.MarkInForce {
		t.Fatalf("two hours after it broke: %s", u)
	}
	if u.held() {
		t.Errorf("%s holds a device that is kept out", u.pod)
	}
	w.runs(t, 90*day)
	if err := w.got.checkEnd(w); err != nil || u.defect != sound {
		t.Errorf("months later: %s, %v", u, err)
	}
}

// What the checks of each run rest on.
func TestARunFindsWhatMustNotBe(t *testing.T) {
	for what, test := range map[string]struct {
		do   func(w *world)
		want string
	}{
		"a quarantine by Unknown alone": {func(w *world) {
			u := w.units[0]
			before := quarantine.Case{Device: u.key, Phase: quarantine.PhaseSuspect}
			after := before
			after.Phase, after.Reason = quarantine.PhaseQuarantined, reason.Match{Code: reason.HealthUnknown}
			w.got.check(w, u, before, after)
		}, "nothing but Unknown"},
		"a mark without a permit": {func(w *world) {
			w.units[0].mark = &quarantine.MarkFound{Name: "mark"}
			w.got.checkBudget(w)
		}, "1 marks, and 0 permits"},
		"a permit too many": {func(w *world) {
			for _, u := range w.units {
				w.permits.book.Marks.Grants = append(w.permits.book.Marks.Grants, budget.Grant{Device: u.name})
			}
			w.got.checkBudget(w)
		}, "512 permits are in force in cluster, which allows 51"},
		"a case without a deadline": {func(w *world) {
			u := w.units[0]
			w.got.check(w, u, u.c, quarantine.Case{Device: u.key, Phase: quarantine.PhaseSuspect})
		}, "stuck in silence"},
		"a mark that is left": {func(w *world) {
			w.units[9].mark = &quarantine.MarkFound{Name: "mark"}
			w.got.broken = w.got.checkEnd(w)
		}, "is marked and has no case"},
		"a status that is left": {func(w *world) {
			for _, u := range w.units {
				u.api = saying{health: device.Unknown}
			}
			w.got.broken = w.got.checkEnd(w)
		}, "is called Unknown although all is well"},
	} {
		t.Run(what, func(t *testing.T) {
			w := worldOf(t, defaults())
			test.do(w)
			if w.got.broken == nil || !strings.Contains(w.got.broken.Error(), test.want) {
				t.Errorf("found %v, want %q", w.got.broken, test.want)
			}
		})
	}
}

func TestEachRateIsWithinWhatIsPlausible(t *testing.T) {
	seen := map[rateKey]bool{}
	for _, r := range rateTable() {
		if r.value <= r.low || r.value >= r.high || r.low <= 0 || r.unit == shareOf && r.high > 0.9 {
			t.Errorf("%s: %g, and %g to %g are plausible", r.what, r.value, r.low, r.high)
		}
		if seen[r.key] {
			t.Errorf("%s stands twice in the table", r.key)
		}
		seen[r.key] = true
	}
}

func TestAFewNodesHaveHalfOfAllFaults(t *testing.T) {
	nodes, _ := newFleet(shape{racks: 1, nodesPerRack: 20_000, perNode: 1}, 1)
	worst, all := 0.0, 0.0
	for _, n := range nodes {
		all += n.lemon
		if n.lemon > 5.16 { // exp(spread × 1.645 − spread²/2) of a mean of 1
			worst += n.lemon
		}
	}
	if all < 19_999 || all > 20_001 || worst/all < 0.3 || worst/all > 0.6 {
		t.Errorf("the worst nodes have %.2f of all faults, and nodes have %.2f on average", worst/all, all/20_000)
	}
}

// What the page says is assumed is what is simulated.
func TestThePageShowsTheRatesAndWeightsThatAreInForce(t *testing.T) {
	page, err := os.ReadFile("../../docs/" + pagePath)
	if err != nil {
		t.Fatal(err)
	}
	want := func(format string, args ...any) {
		if row := fmt.Sprintf(format, args...); !strings.Contains(string(page), row+"\n") {
			t.Errorf("docs/%s doesn't say %q; run `make sim`", pagePath, row)
		}
	}
	rateRows(want)
	weightRows(want)
	for _, p := range policies() {
		if !strings.Contains(string(page), "| "+p.name+" | ") && !strings.Contains(string(page), "| ● "+p.name+" | ") {
			t.Errorf("docs/%s doesn't show %s; run `make sim`", pagePath, p.name)
		}
	}
}

// Numbers in the page of the policy are the command's, too.
func TestThePolicysPageShowsWhatTheSimulationSays(t *testing.T) {
	policies, err := os.ReadFile("../../docs/" + policyPath)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/" + pagePath)
	if err != nil {
		t.Fatal(err)
	}
	_, brief, err := cut(string(policies))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(brief, "| defaults | ") || !strings.Contains(string(page), brief) {
		t.Errorf("docs/%s says something else than docs/%s; run `make sim`", policyPath, pagePath)
	}
}
