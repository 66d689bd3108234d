package main

import (
	"fmt"
	"slices"
	"time"
)

// rate is how often something happens, how long it lasts, or what share of something is
// of a kind. All that the simulation assumes is in the table below, which the page shows.
type rate struct {
	key   rateKey
	what  string
	value float64
	unit  unit
	// source is the published figure that it follows from; empty is an assumption.
	source string
	// low and high are what is taken to be plausible.
	low, high float64
}

type rateKey string

// unit is what a rate is counted in.
type unit string

const (
	perDeviceDay unit = "per device and day"
	perNodeDay   unit = "per node and day"
	perRackDay   unit = "per rack and day"
	perDay       unit = "per day"
	perDriverDay unit = "per driver and day"
	shareOf      unit = "share"
	minutes      unit = "min"
	hours        unit = "h"
)

// The keys of the rates.
const (
	faults       rateKey = "faults"
	faultHinted  rateKey = "faultHinted"
	faultHung    rateKey = "faultHung"
	faultSilent  rateKey = "faultSilent"
	faultAccuses rateKey = "faultAccuses"
	faultWhole   rateKey = "faultWhole"
	falseAlarms  rateKey = "falseAlarms"
	falseHinted  rateKey = "falseHinted"
	falseFor     rateKey = "falseFor"
	glitches     rateKey = "glitches"
	glitchFor    rateKey = "glitchFor"
	crashes      rateKey = "crashes"
	crashFor     rateKey = "crashFor"
	flaps        rateKey = "flaps"
	upgrades     rateKey = "upgrades"
	badVersions  rateKey = "badVersions"
	rollback     rateKey = "rollback"
	kubelets     rateKey = "kubelets"
	rackLosses   rateKey = "rackLosses"
	rackFor      rateKey = "rackFor"
	partitions   rateKey = "partitions"
	partitionFor rateKey = "partitionFor"
	apiOutages   rateKey = "apiOutages"
	apiFor       rateKey = "apiFor"
	visit        rateKey = "visit"
	repair       rateKey = "repair"
	foundByUsers rateKey = "foundByUsers"
	holdFor      rateKey = "holdFor"
	freeFor      rateKey = "freeFor"
)

// rateTable is everything that is assumed of the world.
func rateTable() []rate {
	const (
		meta     = "MTTF 1.8 h at 16,384 GPUs (arXiv 2410.21680), of which 58.7 % by GPUs (arXiv 2407.21783): between the 419 × 58.7 % in 54 days on 16,384 of the latter (2.8e-4) and 8 h at 1,024 GPUs (1.7e-3)"
		false504 = "0.84 a day on 504 B200 (arXiv 2605.09370)"
	)
	return []rate{
		{faults, "A device breaks. Nodes differ (see below)", 1 / (1.8 * 16384) * 24 * 0.587, perDeviceDay, meta, 1.6e-4, 1.7e-3},
		{faultHinted, "… and its driver says what alone only raises suspicion (Xid 171)", 0.15, shareOf, "", 0.05, 0.45},
		{faultHung, "… and its health is Unknown from then on", 0.10, shareOf, "", 0.03, 0.3},
		{faultSilent, "… and its driver goes on saying Healthy", 0.10, shareOf, "", 0.03, 0.3},
		{faultAccuses, "… and its driver calls all devices of the node Unhealthy for it (\"GPU is lost\")", 0.05, shareOf, "", 0.015, 0.15},
		{faultWhole, "… and all devices of its node with it (a switch or a board that they share)", 0.05, shareOf, "", 0.015, 0.15},
		{falseAlarms, "A driver calls a good device Unhealthy", 0.84 / 504, perDeviceDay, false504, 5.6e-4, 5e-3},
		{falseHinted, "… with what alone only raises suspicion", 0.30, shareOf, "", 0.1, 0.9},
		{falseFor, "… until it takes that back: median, spread 1.5", 10, minutes, "", 3, 30},
		{glitches, "A good device's health is Unknown for a while", 0.005, perDeviceDay, "", 0.0017, 0.015},
		{glitchFor, "… median, spread 1.2", 3, minutes, "", 1, 9},
		{crashes, "A driver falls silent on a node", 1. / 60, perNodeDay, "", 0.0056, 0.05},
		{crashFor, "… median, spread 1.5: one of 20 for longer than 24 min", 2, minutes, "", 0.7, 6},
		{flaps, "A driver restarts on a node again and again, for 4 h: silent 1 to 3 min every 5 to 20 min", 1. / 365, perNodeDay, "", 0.00091, 0.0082},
		{upgrades, "A driver is upgraded, half of the times node by node and half 10 % of its nodes at once; silent 2 to 6 min on each node", 1. / 60, perDriverDay, "", 0.0056, 0.05},
		{badVersions, "… and the new version calls every device Unhealthy", 0.1, shareOf, "", 0.03, 0.3},
		{rollback, "… until people see it, stop the upgrade and take it back: median, spread 0.5", 45, minutes, "", 15, 135},
		{kubelets, "A kubelet restarts: slices are wiped, health is Unknown for 1 to 3 min", 1. / 60, perNodeDay, "", 0.0056, 0.05},
		{rackLosses, "A rack loses its power", 1. / 730, perRackDay, "", 0.00046, 0.0041},
		{rackFor, "… median, spread 0.7", 3, hours, "", 1, 9},
		{partitions, "A rack is cut off the API server: Leases stop, devices work on", 1. / 90, perRackDay, "", 0.0037, 0.033},
		{partitionFor, "… median, spread 1", 5, minutes, "", 1.7, 15},
		{apiOutages, "The API server is away", 1. / 30, perDay, "", 0.011, 0.1},
		{apiFor, "… median, spread 1", 3, minutes, "", 1, 9},
		{visit, "A person looks after a device that is kept out, or should be: median, spread 0.7", 4, hours, "", 1.3, 12},
		{repair, "… and repairs it if it is broken: median, spread 0.7", 24, hours, "", 8, 72},
		{foundByUsers, "A broken device that nothing points at is found by its users: mean", 72, hours, "", 24, 216},
		{holdFor, "A Pod holds a good device: mean", 12, hours, "", 4, 36},
		{freeFor, "… and then nobody does: mean (4 of 5 are held; arXiv 2410.21680 has 80 % and more)", 3, hours, "", 1, 9},
	}
}

// lemonSpread makes nodes differ: the rate of faults of a node is lognormal, with this
// deviation of its logarithm. At the normal distribution's 95 % point the worst 5 % of
// the nodes have half of all faults ("a few bad nodes make more than half of all
// exclusions", arXiv 2410.21680).
const lemonSpread = 1.645

// rates are the values in force: those of the table, some of them changed.
type rates struct {
	of map[rateKey]float64
	// lasts are those of them that are times.
	lasts map[rateKey]time.Duration
}

// ratesTimes gives the table's values with the rates of those keys multiplied.
func ratesTimes(factor float64, keys ...rateKey) rates {
	r := rates{of: map[rateKey]float64{}, lasts: map[rateKey]time.Duration{}}
	for _, row := range rateTable() {
		value := row.value
		if slices.Contains(keys, row.key) {
			value *= factor
		}
		if row.unit == shareOf {
			value = min(value, 0.9)
		}
		r.of[row.key] = value
		switch row.unit {
		case minutes:
			r.lasts[row.key] = time.Duration(value * float64(time.Minute))
		case hours:
			r.lasts[row.key] = time.Duration(value * float64(time.Hour))
		}
	}
	return r
}

// every is the mean time between two of what happens at a rate to so many.
func (r rates) every(key rateKey, to float64) time.Duration {
	return bounded(float64(day) / (r.of[key] * to))
}

// text is the rate as the page shows it.
func (r rate) text() string {
	switch {
	case r.unit == shareOf:
		return fmt.Sprintf("%.3g %%", 100*r.value)
	case r.unit == minutes || r.unit == hours:
		return fmt.Sprintf("%.3g %s", r.value, r.unit)
	}
	return fmt.Sprintf("%.2g %s", r.value, r.unit)
}
