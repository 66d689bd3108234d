package main

import "time"

// What a run costs is put together in hours of devices, so that policies can be compared
// by one number. The weights are a judgement; the page states them.
type weight struct {
	name, what string
	hours      float64
	of         func(m measures) float64
}

func weights() []weight {
	return []weight{
		{"caution", "an hour in which a sound device is kept out", 1, func(m measures) float64 { return m.Caution.Hours() }},
		{"open", "an hour in which a broken device, of which its driver says something, can be given out", 4, func(m measures) float64 { return m.Open.Hours() }},
		{"broken Pods", "a Pod that has or is given such a device: what it loses", 4, func(m measures) float64 { return float64(m.PodsOnBroken) }},
		{"wrong Pods", "a Pod whose device is wrongly quarantined: it will have to move", 1, func(m measures) float64 { return float64(m.PodsOnWrong) }},
		{"missed", "a fault that was told and never kept out", 48, func(m measures) float64 { return float64(m.Missed) }},
		{"at once", "n sound devices marked in one hour, n² times: what goes at once is worse than what goes one by one", 0.25, func(m measures) float64 { return float64(m.AtOnce) }},
	}
}

// part is what one weight comes to, in device-hours for 1,000 device-days.
func (w weight) part(m measures) float64 { return w.hours * w.of(m) * 1000 / m.DeviceDays }

// score is all parts together; less is better.
func score(m measures) float64 {
	sum := 0.0
	for _, w := range weights() {
		sum += w.part(m)
	}
	return sum
}

// alike is by how much scores may differ and still be as good as each other: about what
// another seed changes.
const alike = 0.02

// best is the result with the least score.
func best(results []result) result {
	b := results[0]
	for _, r := range results[1:] {
		if score(r.measures) < score(b.measures) {
			b = r
		}
	}
	return b
}

// thousand is a sum of time in hours for 1,000 device-days.
func (m measures) thousand(d time.Duration) float64 { return d.Hours() * 1000 / m.DeviceDays }
