// Command sim carries the decisions of Sickbay through years of a fleet in seconds, to
// compare policies and to choose the defaults by it. Devices break, drivers fall silent,
// lie and are upgraded, nodes and racks go dark, the API server is away; pkg/quarantine,
// pkg/incident, pkg/budget, pkg/device and pkg/reason decide, the very functions that the
// workflows and the starter call. What stands between them and a cluster is modelled
// here, each event by itself, from a seed: the same seed gives the same bytes.
//
//	go run ./sim [--seed 1] [--seeds 8] [--years 0.5] [--docs ../docs] [--help]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"
)

func main() {
	// Cases are many small values that live for a moment, and little stays.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(400 << 20)
	o := whole()
	docs := flag.String("docs", "", "write the page and its pictures into this folder; default is to print the page")
	flag.Uint64Var(&o.seed, "seed", o.seed, "what all chance follows from: the first of the seeds, which follow one another")
	flag.IntVar(&o.seeds, "seeds", o.seeds, "how many seeds; differences are told by how they spread over them")
	flag.Float64Var(&o.years, "years", o.years, "how long each policy runs with each seed, in years of the fleet")
	flag.Float64Var(&o.sensitivityYears, "sensitivity-years", o.sensitivityYears, "the same where one rate after the other is changed; 0 leaves that out")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, *docs); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o study, docs string) error {
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("%q: want no arguments; --help lists the flags", flag.Arg(0))
	case o.years <= 0 || o.years > 100 || o.sensitivityYears < 0 || o.sensitivityYears > 100:
		return errors.New("years: want more than 0 and at most 100")
	case o.seeds < fewestSeeds || o.seeds > mostSeeds:
		return fmt.Errorf("--seeds %d: want %d to %d", o.seeds, fewestSeeds, mostSeeds)
	}
	began := time.Now()
	o.tells = func(done, all int) {
		if 20*done/all > 20*(done-1)/all {
			fmt.Fprintf(os.Stderr, "%d of %d runs\n", done, all)
		}
	}
	found, err := o.make(ctx)
	if err != nil {
		return err
	}
	if docs == "" {
		_, err := os.Stdout.WriteString(found.page())
		return err
	}
	if err := write(docs, found); err != nil {
		return err
	}
	fmt.Printf("%s, its pictures and the comparison in %s written; %d runs took %s\n", pagePath, policyPath, found.runs, time.Since(began).Round(time.Second))
	return nil
}
