package main

import "time"

// What a run costs is counted in device-hours that did no work because of a device's
// health, of two kinds: lost to caution (sound devices kept out) and lost to faults
// (broken ones given out). Both are the same hours, so that one weighs as much as the
// other; the page shows by how much that may be wrong before another policy wins.

// worth is what has to be assumed to count in hours.
type worth struct {
	// jobDevices are the devices of a job: all of them stand still when one does.
	jobDevices float64
	// starts is how long a job takes to begin anew.
	starts time.Duration
	// faults is what an hour lost to faults is worth in hours lost to caution.
	faults float64
}

// usual is what the page counts by: a job has a node's devices.
func usual() worth { return worth{jobDevices: 8, starts: 10 * time.Minute, faults: 1} }

// side is what hours are lost to.
type side int

const (
	toCaution side = iota
	toFaults
)

type weight struct {
	name, what string
	side       side
	hours      float64
	of         func(m *measures) float64
}

// weights are the parts of the cost. What is lost whatever Sickbay does isn't in it: what
// a Pod loses that has the device when it breaks, and devices that are broken.
func (w worth) weights() []weight {
	start := w.jobDevices * w.starts.Hours()
	return []weight{
		{"kept out", "an hour in which a sound device is kept out and nobody works with it", toCaution, 1, func(m *measures) float64 { return m.Idle.Hours() }},
		{"moved", "a Pod whose sound device is quarantined: it goes on from a checkpoint elsewhere, and its job starts again", toCaution, start, func(m *measures) float64 { return float64(m.PodsOnWrong) }},
		{"given", "a Pod that is given a broken device, of which its driver says something: its job does nothing until it fails, and until it is given another one", toFaults, w.jobDevices * (crashLoopHeld + crashLoopFree).Hours(), func(m *measures) float64 { return float64(m.PodsGiven) }},
		{"stuck", "an hour that a Pod waits which was given a device whose driver is silent: its job waits with it", toFaults, w.jobDevices, func(m *measures) float64 { return m.Stuck.Hours() }},
	}
}

// part is what one weight comes to, in device-hours for 1,000 device-days.
func (w weight) part(m *measures) float64 { return w.hours * w.of(m) * 1000 / m.DeviceDays }

// lost is what comes of one side, in device-hours for 1,000 device-days.
func (w worth) lost(m *measures, to side) float64 {
	sum := 0.0
	for _, part := range w.weights() {
		if part.side == to {
			sum += part.part(m)
		}
	}
	return sum
}

// cost is both sides together; less is better.
func (w worth) cost(m *measures) float64 {
	return w.lost(m, toCaution) + w.faults*w.lost(m, toFaults)
}

// against is what a policy costs more than the defaults, with its spread over the seeds.
// Each seed is one world that both met, so that only the difference is compared.
func (w worth) against(defaults, r result) estimate {
	var more []float64
	for i := range r.seeds {
		more = append(more, w.cost(&r.seeds[i])-w.cost(&defaults.seeds[i]))
	}
	e := estimated(more)
	e.alike = alike * w.cost(&defaults.all)
	return e
}

// alike is what part of the cost decides nothing, however sure it is.
const alike = 0.01

// evenAt is how much an hour lost to faults would have to be worth for a policy to cost as
// much as the defaults; false where neither loses more to faults and less to caution.
func evenAt(defaults, r result) (float64, bool) {
	w := usual()
	caution := w.lost(&r.all, toCaution) - w.lost(&defaults.all, toCaution)
	faults := w.lost(&r.all, toFaults) - w.lost(&defaults.all, toFaults)
	if caution*faults >= 0 {
		return 0, false
	}
	return -caution / faults, true
}

// dominated tells whether another policy loses no more to caution and to faults, has no
// more sound devices out at once, and is better in one of them.
func dominated(r result, among []result) bool {
	for i := range among {
		b, a := &among[i].all, &r.all
		w := usual()
		x, y := [3]float64{w.lost(a, toCaution), w.lost(a, toFaults), float64(a.WorstWrong)}, [3]float64{w.lost(b, toCaution), w.lost(b, toFaults), float64(b.WorstWrong)}
		if y != x && y[0] <= x[0] && y[1] <= x[1] && y[2] <= x[2] {
			return true
		}
	}
	return false
}
