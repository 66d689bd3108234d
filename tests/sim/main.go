// Command sim carries the decisions of Sickbay through years of a fleet in seconds, to
// compare policies and to choose the defaults by it. Devices break, drivers fall silent,
// lie and are upgraded, nodes and racks go dark, the API server is away; pkg/quarantine,
// pkg/incident, pkg/budget, pkg/device and pkg/reason decide, the very functions that the
// workflows and the starter call. What stands between them and a cluster is modelled
// here, each event by itself, from a seed: the same seed gives the same bytes.
//
//	go run ./sim [--seed 1] [--years 2] [--docs ../docs] [--help]
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
	// Cases are many small values that live for a moment.
	debug.SetGCPercent(400)
	o := whole()
	docs := flag.String("docs", "", "write the page and its pictures into this folder; default is to print the page")
	flag.Uint64Var(&o.seed, "seed", o.seed, "what all chance follows from")
	flag.Float64Var(&o.years, "years", o.years, "how long each policy runs, in years of the fleet")
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
	}
	began := time.Now()
	found, err := o.make(ctx)
	if err != nil {
		return err
	}
	page, pictures := found.page(), found.pictures()
	if docs == "" {
		_, err := os.Stdout.WriteString(page)
		return err
	}
	if err := write(docs, page, pictures); err != nil {
		return err
	}
	fmt.Printf("%s and %d pictures written; %d runs took %s\n", pagePath, len(pictures), found.runs, time.Since(began).Round(time.Second))
	return nil
}
