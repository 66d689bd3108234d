package main

import "time"

// What a run costs is put together in hours of devices, so that policies can be compared
// by one number. The weights are a judgement; the page states them.
type weight struct {
	name, what string
	hours      float64
	of         func(m measures) float64
}

// A job of one node of 8 devices that loses one of them loses what it did since its last
// checkpoint and its start, together about an hour of all 8; one that is asked to move
// loses a quarter of that. Larger jobs lose more, which the page shows by other weights.
func weights() []weight {
	return []weight{
		{"caution", "an hour in which a sound device is kept out", 1, func(m measures) float64 { return m.Caution.Hours() }},
		{"open", "an hour in which a broken device, of which its driver says something, can be given out", 1, func(m measures) float64 { return m.Open.Hours() }},
		{"broken Pods", "a Pod that has or is given such a device: its job begins anew", 8, func(m measures) float64 { return float64(m.PodsOnBroken) }},
		{"stuck Pods", "an hour that a Pod waits for a device whose driver is silent: its job waits with it", 8, func(m measures) float64 { return m.Stuck.Hours() }},
		{"wrong Pods", "a Pod whose device is wrongly quarantined: its job will have to move", 2, func(m measures) float64 { return float64(m.PodsOnWrong) }},
		{"missed", "a fault that was told and never kept out", 24, func(m measures) float64 { return float64(m.Missed) }},
		{"at once", "n sound devices marked in one hour, n² times: what goes at once is worse than what goes one by one", 0.25, func(m measures) float64 { return float64(m.AtOnce) }},
	}
}

// part is what one weight comes to, in device-hours for 1,000 device-days.
func (w weight) part(m measures) float64 { return w.hours * w.of(m) * 1000 / m.DeviceDays }

// score is all parts together; less is better.
func score(m measures) float64 { return weigh(m, weights()) }

func weigh(m measures, by []weight) float64 {
	sum := 0.0
	for _, w := range by {
		sum += w.part(m)
	}
	return sum
}

// weightsTimes are the weights with one of them multiplied.
func weightsTimes(i int, factor float64) []weight {
	by := weights()
	by[i].hours *= factor
	return by
}

// alike is by how much scores may differ and still count as equal: less than another seed
// may change.
const alike = 0.05

// best is the result with the least score.
func best(results []result) result { return bestBy(results, weights()) }

func bestBy(results []result, by []weight) result {
	b := results[0]
	for _, r := range results[1:] {
		if weigh(r.measures, by) < weigh(b.measures, by) {
			b = r
		}
	}
	return b
}

// thousand is a sum of time in hours for 1,000 device-days.
func (m measures) thousand(d time.Duration) float64 { return d.Hours() * 1000 / m.DeviceDays }
