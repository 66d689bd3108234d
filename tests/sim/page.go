package main

import (
	"context"
	"fmt"
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
		runs = append(runs, one{shape: o.fleet, rates: ratesTimes(1), policy: p, years: o.years})
	}
	for _, p := range floors() {
		runs = append(runs, one{shape: o.few, rates: ratesTimes(1), policy: p, years: o.years * fewFor})
	}
	if o.sensitivityYears > 0 {
		f.variants = o.variants()
	}
	for _, v := range f.variants {
		for _, p := range rivals() {
			runs = append(runs, one{shape: o.fleet, rates: ratesTimes(v.factor, v.keys...), policy: p, years: o.sensitivityYears})
		}
	}
	results, err := o.all(ctx, runs)
	if err != nil {
		return f, err
	}
	f.runs = len(runs) * o.seeds
	f.main, results = results[:len(policies())], results[len(policies()):]
	f.floors, results = results[:len(floors())], results[len(floors()):]
	for i := range f.variants {
		f.variants[i].results, results = results[:len(rivals())], results[len(rivals()):]
	}
	return f, nil
}

// untaken is by how much longer false alarms last in a world in which drivers hardly take
// anything back: hours.
const untaken = 30

// variants are the rates that are varied, three times as much and a third; and, beyond
// what is plausible of it on average, a world whose drivers take nothing back for hours.
func (o study) variants() []variant {
	var all []variant
	for _, t := range o.varied {
		all = append(all, variant{together: t, factor: 3}, variant{together: t, factor: 1. / 3})
	}
	return append(all, variant{together: together{string(falseFor), []rateKey{falseFor}}, factor: untaken})
}

// plausible are the variants that the verdict counts.
func (f findings) plausible() []variant { return f.variants[:max(len(f.variants)-1, 0)] }

// pictures draws what the page shows, by file name.
func (f findings) pictures() map[string]string {
	w := usual()
	cost := bars{
		title: "What each policy costs, in device-hours for 1,000 device-days", axis: "mean of all seeds; less is better",
		about: "Stacked bars, one for each policy.",
	}
	for _, part := range w.weights() {
		cost.parts = append(cost.parts, part.name)
	}
	worst := bars{title: "Marks in the worst hour of all seeds", axis: "less is better", about: "Stacked bars, one for each policy.", parts: []string{"of sound devices", "of broken ones"}}
	points := front{
		title: "What is lost to caution, and what to faults", about: "Device-hours for 1,000 device-days, to caution and to faults.",
		across: "lost to caution: sound devices kept out", up: "lost to faults: broken devices given out",
	}
	for i := range f.main {
		r := &f.main[i]
		row := bar{name: r.name, text: fmt.Sprintf("%.1f", w.cost(&r.all))}
		for _, part := range w.weights() {
			row.values = append(row.values, part.part(&r.all))
		}
		cost.rows = append(cost.rows, row)
		worst.rows = append(worst.rows, bar{
			r.name, []float64{float64(r.all.WorstWrong), float64(max(r.all.WorstHour-r.all.WorstWrong, 0))}, fmt.Sprintf("%d, of which sound %d", r.all.WorstHour, r.all.WorstWrong),
		})
		points.points = append(points.points, point{r.name, w.lost(&r.all, toCaution), w.lost(&r.all, toFaults), !dominated(*r, f.main)})
	}
	drawn := map[string]string{"sim-cost.svg": cost.svg(), "sim-front.svg": points.svg(), "sim-worst-hour.svg": worst.svg()}
	if len(f.variants) > 0 {
		drawn["sim-sensitivity.svg"] = f.sensitivityPicture().svg()
	}
	return drawn
}

type liner = func(format string, args ...any)

func lines(s *strings.Builder) liner {
	return func(format string, args ...any) { fmt.Fprintf(s, format+"\n", args...) }
}

// page writes what was found.
func (f findings) page() string {
	var s strings.Builder
	line := lines(&s)
	line("# Policies, simulated")
	line("")
	line("`make sim` writes this page, its pictures and the comparison in [policy.md](policy.md): the decisions of Sickbay (the functions of pkg/quarantine,")
	line("pkg/incident, pkg/budget, pkg/device and pkg/reason themselves) carried through years of a fleet, from %d seeds (%d to %d). The same seeds give the same page;", f.seeds, f.seed, f.seed+uint64(f.seeds)-1)
	line("%s wrote it. Of each seed every policy meets the same troubles, so that what is compared is the difference in each.", f.command())
	line("%d nodes × %d devices, %g years for each seed; policies differ from the defaults in what their names say.", f.fleet.nodes(), f.fleet.perNode, f.years)
	line("")
	line("## What came of it")
	line("")
	s.WriteString(f.brief())
	line("")
	line("![What each policy costs](images/sim-cost.svg)")
	line("")
	line("## Every policy")
	line("")
	f.table(line, f.main)
	line("")
	line("*Against the defaults* is the mean difference in cost, ± what a 95 %% interval over the seeds leaves open; a difference that is smaller than that, or than %.0f %% of the cost, is none. *Even at* is how many hours", 100*alike)
	line("lost to caution an hour lost to faults would have to be worth for both to cost the same. *Wrong* are quarantines of devices that were sound, *needless* their restrictions. *Missed* are faults")
	line("of which a driver said something and that were never kept out. *To mark* runs from the first sight in a Pod's status. *Open for budget* is how long broken devices could be given out because there")
	line("was no permit. A ● stands before those of which no other is better in one of three without being worse in another: lost to caution, lost to faults, sound devices marked in the worst hour.")
	line("")
	line("![Marks in the worst hour](images/sim-worst-hour.svg)")
	line("")
	line("## What it comes of")
	line("")
	f.causes(line)
	line("")
	line("## Floors, where there are few devices")
	line("")
	line("%d nodes × %d devices, %g years for each seed. 10 %% of %d are %d.", f.few.nodes(), f.few.perNode, f.years*fewFor, f.few.devices(), f.few.devices()/10)
	line("")
	f.table(line, f.floors)
	line("")
	line("## By what is it judged")
	line("")
	w := usual()
	line("By device-hours in which no work was done, lost to caution or to faults. Both are the same hours, so that one weighs as much as the other. What has to be assumed: a job has %g devices, all of which", w.jobDevices)
	line("stand still when one does; it takes %.0f min to begin anew; and a Pod on a broken device fails after %.0f min (mean), and is given one again after %.0f.", w.starts.Minutes(), crashLoopHeld.Minutes(), crashLoopFree.Minutes())
	line("")
	weightRows(line)
	line("")
	line("What is lost whatever the policy isn't in it: a Pod that has the device when it breaks, and the broken device itself. Nor are faults that are missed: what they cost are the Pods that are given the")
	line("device until its users find it, and these are counted. How many sound devices go at once isn't in it either: there is no honest price for that, so that it stands beside the cost, and budgets bound it.")
	line("")
	line("With each of these assumptions three times as much, and a third, policies cost more than the defaults by:")
	line("")
	f.worthRows(line)
	line("")
	f.sensitivity(line)
	line("## How far it can be trusted")
	line("")
	line("- Assumed rates were first set while results of seed 1 were in sight, and one event model (all devices of a node break together) was added after tight budgets had won without it. Other seeds")
	line("  were compared later, and changed no rate. The policies that are held against the defaults with each rate are those that had come near them, or past them, with seed 1.")
	line("- The defaults were not chosen by this count: it came after them. Where it shows a cheaper value, that is said above, and the value stays until longer runs, and rates that were measured, say the same.")
	line("- What happens a few times in a year (a bad version of a driver, a rack without power) decides what budgets cost. %d seeds of %g years can't tell budgets of 5 %% and 20 %% apart unless the table says so, and the", f.seeds, f.years)
	line("  shorter runs with other rates (%g years) still less: where no difference can be told there, that doesn't say that there is none. Of a hundred differences that aren't there, about five are shown as one.", f.sensitivityYears)
	line("- A broken device makes its Pod fail here. One that computes wrong results in silence while it is waited for costs more than any hour, and isn't in it.")
	line("- Not in it: devices that leave their slices, device plugins, whole nodes that are isolated, pauses, failures of Temporal. The way back is people who look after a stated time.")
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
	line("- Jobs are taken to move off a device that is quarantined, which Sickbay doesn't do yet: without that, a wrong quarantine costs less than is counted here.")
	line("- A Pod goes on with a device whose driver is silent, and one that is given such a device waits. All devices are DRA devices. None leaves its slices; Sickbay itself is never away; nobody deletes or edits a mark; nobody pauses an upgraded driver.")
	line("")
	line("In each run it is checked that nothing is quarantined of which nothing but Unknown was said, that nothing is restricted while its node is out or before its window is over, that")
	line("no more permits are in force than the limits allow, and that everything comes to rest when nothing goes wrong any more: no open case, no mark, nobody who waits.")
	return s.String()
}

// command is what made these findings.
func (f findings) command() string {
	w := whole()
	if f.seed == w.seed && f.seeds == w.seeds && f.years == w.years && f.sensitivityYears == w.sensitivityYears {
		return "`make sim`, with its own numbers of seeds and years,"
	}
	return fmt.Sprintf("`make sim SIM=\"--seed %d --seeds %d --years %g --sensitivity-years %g\"`", f.seed, f.seeds, f.years, f.sensitivityYears)
}

// brief is what policy.md shows of it, too.
func (f findings) brief() string {
	var s strings.Builder
	line := lines(&s)
	f.verdict(line)
	line("")
	w, d := usual(), f.main[0]
	line("| policy | cost | against the defaults | lost to caution | lost to faults | wrong quarantines | missed | to mark p50 / p99 | Pods moved for nothing | Pods given a broken device |")
	line("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for i := range f.main {
		r := &f.main[i]
		if !slices.ContainsFunc(rivals(), func(p policy) bool { return p.name == r.name }) && r.name != unguarded {
			continue
		}
		m := &r.all
		line("| %s | %.1f | %s | %.1f | %.1f | %s | %d of %d | %s / %s | %d | %d |", r.name, w.cost(m), w.againstText(d, *r), w.lost(m, toCaution), w.lost(m, toFaults), of(m.Wrong, m.Quarantines),
			m.Missed, m.Reportable, short(quantile(m.Took, 0.5)), short(quantile(m.Took, 0.99)), m.PodsOnWrong, m.PodsGiven)
	}
	line("")
	line("![What is lost to caution, and what to faults](images/sim-front.svg)")
	if len(f.variants) > 0 {
		line("")
		f.sensitivityVerdict(line)
		line("")
		line("![What other policies cost more or less than the defaults when rates are others](images/sim-sensitivity.svg)")
	}
	return s.String()
}

// verdict says who won.
func (f findings) verdict(line liner) {
	w, d := usual(), f.main[0]
	cost := w.cost(&d.all)
	var cheaper []string
	prompt := 0
	for _, r := range f.main[1:] {
		if r.late {
			continue
		}
		prompt++
		if e := w.against(d, r); e.less() {
			cheaper = append(cheaper, fmt.Sprintf("%s (%.1f ± %.1f less, %.0f %%; %d of %d faults missed in place of %d)", r.name, -e.mean, e.within, -100*e.mean/cost, r.all.Missed, r.all.Reportable, d.all.Missed))
		}
	}
	line("The defaults cost %.1f device-hours for 1,000 device-days: hours in which no work is done because sound devices are kept out, or broken ones given out.", cost)
	if len(cheaper) == 0 {
		line("**None of the %d other policies that mark a confirmed fault at once costs less.**", prompt)
	} else {
		line("**The defaults aren't the cheapest.** Of the %d other policies that mark a confirmed fault at once, these cost less: %s.", prompt, strings.Join(cheaper, ", "))
	}
	for _, r := range f.main[1:] {
		if !r.late {
			continue
		}
		switch e := w.against(d, r); {
		case e.less():
			line("To wait out whatever a driver calls Unhealthy, as it is done with Unknown (*%s*), costs %.1f ± %.1f less (%.0f %%). It isn't the default: it marks a fault minutes late instead of", r.name, -e.mean, e.within, -100*e.mean/cost)
			line("within a second, in which a Pod may be given a device that computes wrong results, and there is no price for that in the cost; and it gains only where drivers take back within minutes what they")
			line("called Unhealthy, which is assumed. A site whose drivers do has it by an override ([reasons.md](reasons.md)).")
		case e.more():
			line("To wait out whatever a driver calls Unhealthy, as it is done with Unknown (*%s*), costs %.1f ± %.1f more.", r.name, e.mean, e.within)
		default:
			line("To wait out whatever a driver calls Unhealthy, as it is done with Unknown (*%s*), makes no difference that could be told.", r.name)
		}
	}
}

// sensitivityVerdict counts in how many worlds each rival costs less or more.
func (f findings) sensitivityVerdict(line liner) {
	all := f.plausible()
	line("With each assumed rate three times as much, and a third, one after the other (%d worlds):", len(all))
	line("")
	line("| policy | costs less than the defaults in | no difference can be told in | costs more in | most it saves |")
	line("| --- | --- | --- | --- | --- |")
	for i, p := range rivals() {
		if i == 0 {
			continue
		}
		less, more, most := 0, 0, "–"
		saves := 0.0
		for _, v := range all {
			e := v.percent(i)
			switch {
			case e.less():
				less++
				if -e.mean > saves {
					saves, most = -e.mean, fmt.Sprintf("%.0f %% (%s × %s)", -e.mean, v.name, times(v.factor))
				}
			case e.more():
				more++
			}
		}
		line("| %s | %d | %d | %d | %s |", p.name, less, len(all)-less-more, more, most)
	}
}

// percent is what a rival costs more than the defaults, in percent of what they cost.
func (v variant) percent(rival int) estimate {
	w, d := usual(), v.results[0]
	e, cost := w.against(d, v.results[rival]), w.cost(&d.all)
	return estimate{100 * e.mean / cost, 100 * e.within / cost, 100 * alike}
}

// table shows results, one to a row; the first are the defaults.
func (f findings) table(line liner, results []result) {
	w, d := usual(), results[0]
	line("| policy | cost | against the defaults | even at | lost to caution | lost to faults | wrong quarantines | needless restrictions | missed | to mark p50 / p99 | Pods moved for nothing | Pods given a broken device | open for budget | worst hour (sound) | most out |")
	line("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for i := range results {
		r := &results[i]
		m, even, name := &r.all, "–", r.name
		if at, crosses := evenAt(d, *r); crosses {
			even = fmt.Sprintf("%.1f", at)
		}
		if !dominated(*r, results) {
			name = "● " + name
		}
		line("| %s | %.1f | %s | %s | %.1f | %.1f | %s | %s | %d of %d | %s / %s | %d | %d | %.0f h | %d (%d) | %d |", name, w.cost(m), w.againstText(d, *r), even,
			w.lost(m, toCaution), w.lost(m, toFaults), of(m.Wrong, m.Quarantines), of(m.Needless, m.Restrictions),
			m.Missed, m.Reportable, short(quantile(m.Took, 0.5)), short(quantile(m.Took, 0.99)),
			m.PodsOnWrong, m.PodsGiven, m.ForBudget.Hours(), m.WorstHour, m.WorstWrong, m.MostOut)
	}
}

func (w worth) againstText(d, r result) string {
	if d.name == r.name {
		return "–"
	}
	return w.against(d, r).asDifference()
}

// causes shows what wrong quarantines, needless restrictions and missed faults came of.
func (f findings) causes(line liner) {
	var of []*measures
	head, rule := "| |", "| --- |"
	for i := range f.main {
		r := &f.main[i]
		if slices.ContainsFunc(rivals(), func(p policy) bool { return p.name == r.name }) {
			of = append(of, &r.all)
			head, rule = head+" "+r.name+" |", rule+" --- |"
		}
	}
	line("%s", head)
	line("%s", rule)
	row := func(name string, value func(m *measures) int) {
		text, any := "| "+name+" |", false
		for _, m := range of {
			text += fmt.Sprintf(" %d |", value(m))
			any = any || value(m) > 0
		}
		if any {
			line("%s", text)
		}
	}
	for c := range causes {
		row("wrongly quarantined: "+c.String(), func(m *measures) int { return m.WrongBy[c] })
	}
	for c := range causes {
		row("needlessly restricted: "+c.String(), func(m *measures) int { return m.NeedlessBy[c] })
	}
	for c := range misses {
		row("missed: "+c.String(), func(m *measures) int { return m.MissedBy[c] })
	}
}

func of(n, all int) string {
	if all == 0 {
		return "0"
	}
	return fmt.Sprintf("%d of %d (%.0f %%)", n, all, 100*float64(n)/float64(all))
}

func short(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%.1f min", d.Minutes())
	}
	return fmt.Sprintf("%.1f h", d.Hours())
}

func weightRows(line liner) {
	line("| what | lost to | device-hours |")
	line("| --- | --- | --- |")
	for _, w := range usual().weights() {
		to := "caution"
		if w.side == toFaults {
			to = "faults"
		}
		line("| %s | %s | %.2g |", w.what, to, w.hours)
	}
}

// rivalHead is the head of a table with a column for each rival.
func rivalHead(line liner, first string) {
	head, rule := "| "+first+" | × | defaults |", "| --- | --- | --- |"
	for _, p := range rivals()[1:] {
		head, rule = head+" "+p.name+" |", rule+" --- |"
	}
	line("%s", head)
	line("%s", rule)
}

// rivalRow shows what each rival costs more than the defaults, which come first.
func rivalRow(line liner, name, factor string, w worth, results []result) {
	row := fmt.Sprintf("| %s | %s | %.1f |", name, factor, w.cost(&results[0].all))
	for _, r := range results[1:] {
		row += " " + w.against(results[0], r).asDifference() + " |"
	}
	line("%s", row)
}

// worthRows shows what wins if hours are counted by other assumptions.
func (f findings) worthRows(line liner) {
	var of []result
	for _, p := range rivals() {
		i := slices.IndexFunc(f.main, func(r result) bool { return r.name == p.name })
		of = append(of, f.main[i])
	}
	rivalHead(line, "assumption")
	for _, other := range []struct {
		name   string
		change func(w *worth, by float64)
	}{
		{"devices of a job", func(w *worth, by float64) { w.jobDevices *= by }},
		{"time in which a job begins anew", func(w *worth, by float64) { w.starts = bounded(by * float64(w.starts)) }},
		{"an hour lost to faults", func(w *worth, by float64) { w.faults *= by }},
	} {
		for _, by := range []float64{3, 1. / 3} {
			w := usual()
			other.change(&w, by)
			rivalRow(line, other.name, times(by), w, of)
		}
	}
}

// sensitivity shows whether the defaults still win when rates are others.
func (f findings) sensitivity(line liner) {
	if len(f.variants) == 0 {
		return
	}
	line("## With each rate × 3 and ÷ 3")
	line("")
	line("One rate after the other is three times as much, and a third, for %g years of each seed: what policies cost more than the defaults. The last row is beyond what is plausible of an average driver: one that takes", f.sensitivityYears)
	line("back what it called Unhealthy after %.0f h only, half of the times (the NVIDIA device plugin doesn't before it is restarted).", ratesTimes(untaken, falseFor).lasts[falseFor].Hours())
	line("")
	rivalHead(line, "rate")
	for _, v := range f.variants {
		rivalRow(line, v.name, times(v.factor), usual(), v.results)
	}
	line("")
}

func (f findings) sensitivityPicture() ranges {
	r := ranges{
		title: "What other policies cost more than the defaults, in percent", axis: "left of the middle: the policy costs less than the defaults; lines are 95 % intervals over the seeds",
		about: "One row for each rate that is three times as much, or a third.",
	}
	for _, p := range rivals()[1:] {
		r.parts = append(r.parts, p.name)
	}
	for _, v := range f.variants {
		row := spread{name: v.name + " × " + times(v.factor)}
		for i := range rivals()[1:] {
			row.of = append(row.of, v.percent(i+1))
		}
		r.rows = append(r.rows, row)
	}
	return r
}

// times is a factor as people read it.
func times(factor float64) string {
	if factor < 1 {
		return "1/3"
	}
	return fmt.Sprintf("%g", factor)
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
