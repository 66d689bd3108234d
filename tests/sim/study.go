package main

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// study is what is compared, over which time, from which seed.
type study struct {
	seed                    uint64
	years, sensitivityYears float64
	// fleet is where policies are compared, few where floors matter: a percentage of few
	// devices is next to nothing. some is where one rate after the other is changed.
	fleet, few, some shape
	// varied are the rates that are changed, some of them together.
	varied []together
}

// together are rates that are changed at once.
type together struct {
	name string
	keys []rateKey
}

// whole is the study that the page shows. The fleet is about as large as that of which
// false alarms were published (504 devices).
func whole() study {
	fleet := shape{racks: 8, nodesPerRack: 8, perNode: 8, second: 2}
	return study{
		seed: 1, years: 2, sensitivityYears: 0.3,
		fleet: fleet, some: fleet, few: shape{racks: 1, nodesPerRack: 2, perNode: 8},
		varied: varied(),
	}
}

// varied are all rates but how busy the fleet is, which changes how much is seen, for all
// policies alike. What hardly any policy has to do with is changed together.
func varied() []together {
	groups := []together{
		{"silences (crashes, flaps, kubelets)", []rateKey{crashes, flaps, kubelets}},
		{"outages (rack…, partition…, api…)", []rateKey{rackLosses, rackFor, partitions, partitionFor, apiOutages, apiFor}},
	}
	var all []together
	for _, row := range rateTable() {
		grouped := slices.ContainsFunc(groups, func(g together) bool { return slices.Contains(g.keys, row.key) })
		if !grouped && row.key != holdFor && row.key != freeFor {
			all = append(all, together{string(row.key), []rateKey{row.key}})
		}
	}
	var frequencies []rateKey
	for _, row := range rateTable() {
		if row.unit != minutes && row.unit != hours && row.unit != shareOf {
			frequencies = append(frequencies, row.key)
		}
	}
	return append(append(all, groups...), together{"all frequencies", frequencies})
}

// fewFor is how many times longer the fleet of few devices runs.
const fewFor = 20

// quiet is how long nothing goes wrong any more after the end of what is measured, so
// that it shows whether everything comes to rest.
const quiet = 180 * day

// result is what came of a run.
type result struct {
	policy string
	measures
}

// one is a run that is to be made.
type one struct {
	shape  shape
	rates  rates
	policy policy
	years  float64
}

// simulate makes one run, and wants it to come to rest.
func (o study) simulate(ctx context.Context, r one) (result, error) {
	lasts := time.Duration(r.years * float64(year))
	w := newWorld(r.shape, o.seed, r.rates, r.policy, lasts)
	if err := w.run(ctx, lasts+quiet); err != nil {
		return result{}, err
	}
	return result{r.policy.name, w.got}, w.got.checkEnd(w)
}

// all makes runs, as many at a time as there are processors, and returns their results in
// the order of the runs.
func (o study) all(ctx context.Context, runs []one) ([]result, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	results := make([]result, len(runs))
	next := make(chan int)
	var done sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		done.Go(func() {
			for i := range next {
				r, err := o.simulate(ctx, runs[i])
				if err != nil {
					stop(err)
				}
				results[i] = r
			}
		})
	}
	for i := range runs {
		next <- i
	}
	close(next)
	done.Wait()
	return results, context.Cause(ctx)
}
