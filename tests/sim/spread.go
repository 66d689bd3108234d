package main

import (
	"fmt"
	"math"
)

// estimate is the mean of a difference over seeds, and how far the true one may be from it.
type estimate struct {
	mean, within float64
	// alike is too little to matter.
	alike float64
}

// student is Student's t for an interval that holds in 95 of 100 cases, by the number of
// seeds.
var student = []float64{2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26, 11: 2.23, 12: 2.20}

// The number of seeds that can be told from.
const fewestSeeds, mostSeeds = 2, 12

func estimated(values []float64) estimate {
	n, mean, squares := float64(len(values)), 0.0, 0.0
	for _, v := range values {
		mean += v / n
	}
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	return estimate{mean: mean, within: student[len(values)] * math.Sqrt(squares/(n-1)/n)}
}

// less and more tell of a difference that is larger than its spread, and matters.
func (e estimate) less() bool { return -e.mean > max(e.within, e.alike) }
func (e estimate) more() bool { return e.mean > max(e.within, e.alike) }

func (e estimate) String() string { return fmt.Sprintf("%.1f ± %.1f", e.mean, e.within) }

// asDifference is a difference as people read it: what is smaller than its spread is none.
func (e estimate) asDifference() string {
	switch {
	case e.less():
		return fmt.Sprintf("**−%.1f** ± %.1f", -e.mean, e.within)
	case e.more():
		return fmt.Sprintf("+%.1f ± %.1f", e.mean, e.within)
	case e.mean == 0 && e.within == 0:
		return "none"
	}
	return fmt.Sprintf("none (%+.1f ± %.1f)", e.mean, e.within)
}
