package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// findings are everything that a study found.
type findings struct {
	study
	main, floors []result
	variants     []variant
	runs         int
}

// variant is what becomes of the comparison when rates are others.
type variant struct {
	together
	factor  float64
	results []result
}

// make makes all runs of the study.
func (o study) make(ctx context.Context) (findings, error) {
	f := findings{study: o}
	var runs []one
	for _, p := range policies() {
		runs = append(runs, one{o.fleet, ratesTimes(1), p, o.years})
	}
	for _, p := range floors() {
		runs = append(runs, one{o.few, ratesTimes(1), p, o.years * fewFor})
	}
	if o.sensitivityYears > 0 {
		f.variants = o.variants()
	}
	for _, v := range f.variants {
		for _, p := range rivals() {
			runs = append(runs, one{o.some, ratesTimes(v.factor, v.keys...), p, o.sensitivityYears})
		}
	}
	results, err := o.all(ctx, runs)
	if err != nil {
		return f, err
	}
	f.runs = len(runs)
	f.main, results = results[:len(policies())], results[len(policies()):]
	f.floors, results = results[:len(floors())], results[len(floors()):]
	for i := range f.variants {
		f.variants[i].results, results = results[:len(rivals())], results[len(rivals()):]
	}
	return f, nil
}

// variants are the rates that are varied, three times as much and a third.
func (o study) variants() []variant {
	var all []variant
	for _, t := range o.varied {
		all = append(all, variant{together: t, factor: 3}, variant{together: t, factor: 1. / 3})
	}
	return all
}

// Where the page and its pictures go, below the folder of the docs.
const (
	pagePath    = "policy-simulation.md"
	picturePath = "images"
)

// write writes the page and its pictures.
func write(docs, page string, pictures map[string]string) error {
	if err := os.WriteFile(filepath.Join(docs, pagePath), []byte(page), 0o644); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	for name, picture := range pictures {
		if err := os.WriteFile(filepath.Join(docs, picturePath, name), []byte(picture), 0o644); err != nil {
			return fmt.Errorf("write a picture: %w", err)
		}
	}
	return nil
}

// pictures draws what the page shows, by file name.
func (f findings) pictures() map[string]string {
	cost := bars{
		title: "What each policy costs, in device-hours for 1,000 device-days", axis: "less is better; the weights are in the page",
		about: "Stacked bars, one for each policy.",
	}
	for _, w := range weights() {
		cost.parts = append(cost.parts, w.name)
	}
	caution := bars{title: "Sound devices kept out, in device-hours for 1,000 device-days", axis: "less is better", about: "One bar for each policy."}
	worst := bars{title: "Marks in the worst hour", axis: "less is better", about: "Stacked bars, one for each policy.", parts: []string{"of sound devices", "of broken ones"}}
	for _, r := range f.main {
		row := bar{name: r.policy, text: fmt.Sprintf("%.1f", score(r.measures))}
		for _, w := range weights() {
			row.values = append(row.values, w.part(r.measures))
		}
		cost.rows = append(cost.rows, row)
		caution.rows = append(caution.rows, bar{r.policy, []float64{r.thousand(r.Caution)}, fmt.Sprintf("%.0f", r.thousand(r.Caution))})
		worst.rows = append(worst.rows, bar{
			r.policy, []float64{float64(r.WorstWrong), float64(max(r.WorstHour-r.WorstWrong, 0))}, fmt.Sprintf("%d, of which sound %d", r.WorstHour, r.WorstWrong),
		})
	}
	drawn := map[string]string{"sim-cost.svg": cost.svg(), "sim-caution.svg": caution.svg(), "sim-worst-hour.svg": worst.svg()}
	if len(f.variants) > 0 {
		drawn["sim-sensitivity.svg"] = f.sensitivityPicture().svg()
	}
	return drawn
}

// page writes what was found.
func (f findings) page() string {
	var s strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&s, format+"\n", args...) }
	line("# Policies, simulated")
	line("")
	line("`make sim` writes this page: the decisions of Sickbay (the functions of pkg/quarantine, pkg/incident, pkg/budget, pkg/device and")
	line("pkg/reason themselves) carried through years of a fleet in seconds, from seed %d. The same seed gives the same page. Every policy", f.seed)
	line("meets the same troubles. %d nodes × %d devices, %g years each; policies differ from the defaults in what their names say.", f.fleet.nodes(), f.fleet.perNode, f.years)
	line("")
	line("![What each policy costs](images/sim-cost.svg)")
	line("")
	line("## What came of it")
	line("")
	f.verdict(line)
	line("")
	table(line, f.main)
	line("")
	line("*Wrong* are marks of quarantined devices that were sound, *needless* those of restricted ones. *Missed* are faults of which a driver said something and that")
	line("were never kept out. *To mark* runs from the first sight in a Pod's status. *Open for budget* is how long broken devices could be given out because there was no")
	line("permit. *Caution* is how long sound devices couldn't be, in device-hours for 1,000 device-days, and so is the *cost*.")
	line("")
	line("![Sound devices kept out](images/sim-caution.svg)")
	line("")
	line("![Marks in the worst hour](images/sim-worst-hour.svg)")
	line("")
	line("## Floors, where there are few devices")
	line("")
	line("%d nodes × %d devices, %g years. 10 %% of %d are %d.", f.few.nodes(), f.few.perNode, f.years*fewFor, f.few.devices(), f.few.devices()/10)
	line("")
	table(line, f.floors)
	line("")
	line("## By what is it judged")
	line("")
	line("The cost is a sum of device-hours:")
	line("")
	line("| what | hours |")
	line("| --- | --- |")
	for _, w := range weights() {
		line("| %s | %g |", w.what, w.hours)
	}
	line("")
	line("Costs that differ by less than %.0f %% count as equal. With each of the weights three times as much, and a third:", 100*alike)
	line("")
	f.weightRows(line)
	line("")
	f.sensitivity(line)
	line("## How far it can be trusted")
	line("")
	line("- Weights, several assumed rates and the limit of what counts as equal were set while results of seed 1 were in sight; other seeds were not compared. One")
	line("  event model (all devices of a node break together) was added after tight budgets had won without it.")
	line("- The runs with other rates are short (0.3 years), so that single events decide many of their rows. They show where to look, and choose nothing.")
	line("- Not in it: devices that leave their slices, device plugins, pauses, failures of Temporal. The way back is people who look after a stated time.")
	line("")
	line("## What is assumed")
	line("")
	rateRows(line)
	line("")
	line("Nodes differ: the rate of faults of a node is lognormal with a spread of %g, by which the worst 5 %% of nodes have half of all faults (a few bad nodes make", lemonSpread)
	line("more than half of all exclusions, arXiv 2410.21680). A broken device's Pod fails within %d min, and the next one gets the device %d min later, as long as it can be given out (assumed).", int(crashLoopHeld.Minutes()), int(crashLoopFree.Minutes()))
	line("A driver's silence shows after 30 to 90 s, a fault after 0.5 to 2 s, a recovery after 1 to 10 s.")
	line("")
	line("## What is a model here")
	line("")
	line("- The way back. There are no recovery gates yet: a person looks after each quarantined or restricted device, gives a sound one back and repairs a broken one. Nobody answers what incidents ask.")
	line("- What the starter counts (tests/sim/guard.go, watch.go), and what the device workflow and its activities do (cases.go), in few lines. Temporal doesn't fail.")
	line("- A Pod goes on with a device whose driver is silent, and one that is given such a device waits. All devices are DRA devices. None leaves its slices; Sickbay itself is never away; nobody deletes or edits a mark; nobody pauses an upgraded driver.")
	line("")
	line("In each run it is checked that nothing is quarantined of which nothing but Unknown was said, that nothing is restricted while its node is out or before its window is over, that")
	line("no more permits are in force than the limits allow, and that everything comes to rest when nothing goes wrong any more: no open case, no mark, nobody who waits.")
	return s.String()
}

// verdict says who won.
func (f findings) verdict(line func(string, ...any)) {
	b, d := best(f.main), f.main[0]
	if score(b.measures) >= (1-alike)*score(d.measures) {
		line("No policy costs less than the defaults by more than %.0f %%: %.1f device-hours for 1,000 device-days; the next best are", 100*alike, score(d.measures))
	} else {
		line("**The defaults don't win**: they cost %.1f device-hours for 1,000 device-days, and %s %.1f. The best are", score(d.measures), b.policy, score(b.measures))
	}
	sorted := slices.Clone(f.main[1:])
	slices.SortStableFunc(sorted, func(a, b result) int {
		switch x, y := score(a.measures), score(b.measures); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	var names []string
	for _, r := range sorted[:min(4, len(sorted))] {
		names = append(names, fmt.Sprintf("%s (%.1f)", r.policy, score(r.measures)))
	}
	line("%s.", strings.Join(names, ", "))
}

// table shows results, one to a row.
func table(line func(string, ...any), results []result) {
	line("| policy | wrong quarantines | needless restrictions | missed | to mark p50 / p99 | open for budget | caution | Pods on wrong quarantines | Pods on broken | worst hour (wrong) | most out | cost |")
	line("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, r := range results {
		line("| %s | %s | %s | %d of %d | %s / %s | %.0f h | %.0f | %d | %d | %d (%d) | %d | %.1f |", r.policy, of(r.Wrong, r.Quarantines), of(r.Needless, r.Restrictions),
			r.Missed, r.Reportable, brief(quantile(r.Took, 0.5)), brief(quantile(r.Took, 0.99)), r.ForBudget.Hours(), r.thousand(r.Caution),
			r.PodsOnWrong, r.PodsOnBroken, r.WorstHour, r.WorstWrong, r.MostOut, score(r.measures))
	}
}

func of(n, all int) string {
	if all == 0 {
		return "0"
	}
	return fmt.Sprintf("%d of %d (%.0f %%)", n, all, 100*float64(n)/float64(all))
}

func brief(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%.1f min", d.Minutes())
	}
	return fmt.Sprintf("%.1f h", d.Hours())
}

// weightRows shows what wins by other weights.
func (f findings) weightRows(line func(string, ...any)) {
	line("| weight | × | defaults | best other | it costs | |")
	line("| --- | --- | --- | --- | --- | --- |")
	for i, w := range weights() {
		for _, factor := range []float64{3, 1. / 3} {
			by := weightsTimes(i, factor)
			compared(line, w.name, times(factor), f.main, by)
		}
	}
}

// compared holds the defaults, which come first, against the best of the others.
func compared(line func(string, ...any), name, factor string, results []result, by []weight) {
	other := bestBy(results[1:], by)
	x, y := weigh(results[0].measures, by), weigh(other.measures, by)
	says := "defaults win"
	switch {
	case y < (1-alike)*x:
		says = fmt.Sprintf("**%.0f %% less**", 100*(1-y/x))
	case y < x/(1-alike):
		says = "equal"
	}
	line("| %s | %s | %.1f | %s | %.1f | %s |", name, factor, x, other.policy, y, says)
}

// sensitivity shows whether the defaults still win when rates are others.
func (f findings) sensitivity(line func(string, ...any)) {
	if len(f.variants) == 0 {
		return
	}
	won := 0
	for _, v := range f.variants {
		if v.holds() {
			won++
		}
	}
	line("## With each rate × 3 and ÷ 3")
	line("")
	line("One rate after the other is three times as much, and a third; the defaults are held against %d other policies, on %d nodes × %d devices for %g years each. They cost no more than the",
		len(rivals())-1, f.some.nodes(), f.some.perNode, f.sensitivityYears)
	line("best of these, to within %.0f %%, in %d of %d cases.", 100*alike, won, len(f.variants))
	line("")
	line("![What the defaults cost, in percent of the best other policy](images/sim-sensitivity.svg)")
	line("")
	line("| rate | × | defaults | best other | it costs | |")
	line("| --- | --- | --- | --- | --- | --- |")
	for _, v := range f.variants {
		compared(line, v.name, times(v.factor), v.results, weights())
	}
	line("")
}

func (f findings) sensitivityPicture() bars {
	b := bars{
		title: "What the defaults cost, in percent of the best other policy", axis: "100 % is as good as the best other; less is better",
		about: "One bar for each rate that is three times as much, or a third.",
	}
	for _, v := range f.variants {
		other := best(v.results[1:])
		part := 100 * score(v.results[0].measures) / score(other.measures)
		b.rows = append(b.rows, bar{v.name + " × " + times(v.factor), []float64{part}, fmt.Sprintf("%.0f %% of %s", part, other.policy)})
	}
	return b
}

// times is a factor as people read it.
func times(factor float64) string {
	if factor < 1 {
		return "1/3"
	}
	return "3"
}

// holds tells whether no rival is better than the defaults.
func (v variant) holds() bool {
	return score(best(v.results[1:]).measures) >= (1-alike)*score(v.results[0].measures)
}

func rateRows(line func(string, ...any)) {
	line("| | what | how often, how long, what share | source | plausible |")
	line("| --- | --- | --- | --- | --- |")
	for _, r := range rateTable() {
		source, low, high := r.source, r, r
		if source == "" {
			source = "assumed"
		}
		low.value, high.value = r.low, r.high
		line("| `%s` | %s | %s | %s | %s to %s |", r.key, r.what, r.text(), source, strings.TrimSuffix(low.text(), " "+string(r.unit)), strings.TrimSuffix(high.text(), " "+string(r.unit)))
	}
}
