package main

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// study is what is compared, over which time, from which seeds.
type study struct {
	// seed is the first of so many.
	seed  uint64
	seeds int
	// years are for each policy and seed; sensitivityYears the same where one rate after
	// the other is changed.
	years, sensitivityYears float64
	// fleet is where policies are compared, few where floors matter: a percentage of few
	// devices is next to nothing.
	fleet, few shape
	// varied are the rates that are changed, some of them together.
	varied []together
	// tells is told how many runs of all are over.
	tells func(done, all int)
}

// together are rates that are changed at once.
type together struct {
	name string
	keys []rateKey
}

// whole is the study that the page shows. The fleet is about as large as that of which
// false alarms were published (504 devices).
func whole() study {
	return study{
		seed: 1, seeds: 8, years: 0.5, sensitivityYears: 0.1,
		fleet: shape{racks: 8, nodesPerRack: 8, perNode: 8, second: 2}, few: shape{racks: 1, nodesPerRack: 2, perNode: 8},
		varied: varied(), tells: func(int, int) {},
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
const fewFor = 10

// quiet is how long nothing goes wrong any more after the end of what is measured, so
// that it shows whether everything comes to rest.
const quiet = 180 * day

// result is what came of a policy: of each seed, and of all together.
type result struct {
	policy
	seeds []measures
	all   measures
}

// one is a run that is to be made.
type one struct {
	shape  shape
	rates  rates
	policy policy
	years  float64
	seed   uint64
}

// simulate makes one run, and wants it to come to rest.
func simulate(ctx context.Context, r one) (measures, error) {
	lasts := time.Duration(r.years * float64(year))
	w := newWorld(r.shape, r.seed, r.rates, r.policy, lasts)
	if err := w.run(ctx, lasts+quiet); err != nil {
		return measures{}, err
	}
	return w.got, w.got.checkEnd(w)
}

// all makes runs, each from every seed, as many at a time as there are processors, and
// returns their results in the order of the runs.
func (o study) all(ctx context.Context, runs []one) ([]result, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	results := make([]result, len(runs))
	for i, r := range runs {
		results[i] = result{policy: r.policy, seeds: make([]measures, o.seeds)}
	}
	var (
		next = make(chan int)
		work sync.WaitGroup
		told sync.Mutex
		done int
	)
	count := len(runs) * o.seeds
	for range runtime.GOMAXPROCS(0) {
		work.Go(func() {
			for i := range next {
				r := runs[i/o.seeds]
				r.seed = o.seed + uint64(i%o.seeds)
				got, err := simulate(ctx, r)
				if err != nil {
					stop(err)
				}
				results[i/o.seeds].seeds[i%o.seeds] = got
				told.Lock()
				done++
				o.tells(done, count)
				told.Unlock()
			}
		})
	}
	for i := range count {
		next <- i
	}
	close(next)
	work.Wait()
	for i := range results {
		for _, got := range results[i].seeds {
			results[i].all.add(got)
		}
	}
	return results, context.Cause(ctx)
}
