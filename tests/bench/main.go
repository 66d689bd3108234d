// Command bench measures what operators will ask first, with the real binaries, and
// prints Markdown tables with the machine:
//
//   - marks: how long it takes from a Pod's status to a mark in force, one fault at a
//     time and many at once, and how many signals a flood of repeated status writes
//     costs, on the real control plane with simulated nodes
//   - fleet: what a healthy fleet on the real control plane costs: memory, CPU,
//     requests, workflows, Redis
//   - generated: the same for a fleet that is too large for that, served by a
//     generated API server; what one fault in it takes; what `sickbay devices` takes
//     and needs to list all of it
//   - storm: what it costs when all devices of a fleet go Unknown at once, and what
//     becomes of them: one incident, no case, no mark
//   - burst: what many faults at once cost within the budgets, for each of them, and how
//     long it takes until the last one is marked, on the real control plane
//   - leases: what it costs to list the Leases of all nodes every so often, and to watch
//     them, on the real API server
//   - watchpod: what the process of a watch Pod has in memory
//
// Counts are gates: where one is past its bound, the bench says so and fails. Seconds
// and megabytes are reported.
//
//	go run ./bench [--parts marks,fleet,generated,storm,burst,leases,watchpod] [--help]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sickbay-dev/sickbay/tests/product"
)

// sizes are how much is measured.
type sizes struct {
	faults  int
	burst   int
	faulty  int
	repeats int

	fleetNodes     int
	generatedNodes int
	perNode        int
	generatedFault int
	window         time.Duration
	storm          storming
	burstOf        bursting
	leaseNodes     []int
}

func main() {
	if renewing() {
		return
	}
	var s sizes
	parts := flag.String("parts", strings.Join(partNames(), ","), "what to measure")
	leaseNodes := flag.String("lease-nodes", "1000,10000", "how many nodes' Leases are read, one number after the other")
	binary := flag.String("binary", "", "sickbay to measure; default is to build this clone's")
	kubernetes := flag.String("kubernetes", "1.37", "version of the control plane: 1.36 or 1.37")
	flag.IntVar(&s.faults, "faults", 200, "faults, one at a time")
	flag.IntVar(&s.burst, "burst", 100, "faults at once")
	flag.IntVar(&s.faulty, "faulty", 50, "faulty devices whose status is written again and again")
	flag.IntVar(&s.repeats, "repeats", 100_000, "status writes that repeat what was said")
	flag.IntVar(&s.fleetNodes, "fleet-nodes", 1000, "nodes of the healthy fleet on the real control plane")
	flag.IntVar(&s.generatedNodes, "generated-nodes", 10_000, "nodes of the generated fleet")
	flag.IntVar(&s.perNode, "fleet-devices", 8, "devices of each node, in both fleets")
	flag.IntVar(&s.generatedFault, "generated-faults", 20, "faults in the generated fleet, one at a time")
	flag.DurationVar(&s.window, "window", time.Minute, "how long a fleet is watched while nothing happens")
	flag.IntVar(&s.storm.nodes, "storm-nodes", 1250, "nodes whose devices all go Unknown at once")
	flag.DurationVar(&s.storm.watch, "storm-watch", 3*time.Minute, "how long the storm is watched")
	flag.DurationVar(&s.storm.grace, "storm-grace", time.Minute, "the cases' window, which is to be over by then")
	flag.IntVar(&s.burstOf.nodes, "burst-nodes", 1000, "nodes of the fleet in which many devices fail at once")
	flag.IntVar(&s.burstOf.faults, "burst-faults", 1000, "how many devices of it fail at once")
	flag.DurationVar(&s.burstOf.quiet, "burst-quiet", 10*time.Second, "how long nothing is asked until the cases of a burst count as at rest")
	flag.Parse()
	for text := range strings.SplitSeq(*leaseNodes, ",") {
		count, err := strconv.Atoi(text)
		if err != nil || count < 1 {
			fmt.Fprintf(os.Stderr, "bench: --lease-nodes %q: want numbers of nodes, like 1000,10000\n", *leaseNodes)
			os.Exit(2)
		}
		s.leaseNodes = append(s.leaseNodes, count)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *binary, *kubernetes, strings.Split(*parts, ","), s); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// part is one of the parts of the bench.
type part struct {
	name    string
	measure func(context.Context, string, string, sizes) (report, error)
}

func known() []part {
	return []part{
		{"marks", measureMarks}, {"fleet", measureFleet}, {"generated", measureGenerated}, {"storm", measureStorm},
		{"burst", measureBurst}, {"leases", measureLeases}, {"watchpod", measureWatchPod},
	}
}

func partNames() []string {
	var names []string
	for _, p := range known() {
		names = append(names, p.name)
	}
	return names
}

func run(ctx context.Context, binary, kubernetes string, parts []string, s sizes) error {
	for _, name := range parts {
		if !slices.Contains(partNames(), name) {
			return fmt.Errorf("--parts %q: want some of %s", name, strings.Join(partNames(), ", "))
		}
	}
	if binary == "" {
		folder, err := os.MkdirTemp("", "sickbay-bench-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(folder) }() // what stays behind is in the temporary folder
		if binary, err = product.Build(ctx, folder); err != nil {
			return err
		}
	}
	fmt.Println(machine())
	var broken []error
	for _, part := range known() {
		if !slices.Contains(parts, part.name) {
			continue
		}
		found, err := part.measure(ctx, binary, kubernetes, s)
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		fmt.Printf("\n%s", found.text())
		broken = append(broken, found.broken()...)
	}
	return errors.Join(broken...)
}

// measureMarks measures faults and what comes of them.
func measureMarks(ctx context.Context, binary, kubernetes string, s sizes) (report, error) {
	b, err := begin(ctx, binary, kubernetes, s)
	if err != nil {
		return report{}, err
	}
	defer b.end()

	single, err := b.oneAtATime(ctx, s.faults)
	if err != nil {
		return report{}, fmt.Errorf("one fault at a time: %w", err)
	}
	burst, err := b.atOnce(ctx, s.burst)
	if err != nil {
		return report{}, fmt.Errorf("faults at once: %w", err)
	}
	flood, err := b.flood(ctx, s.faulty, s.repeats)
	if err != nil {
		return report{}, fmt.Errorf("repeated status writes: %w", err)
	}
	r := report{title: "Faults and their marks, Kubernetes " + b.stack.KubernetesVersion()}
	r.table("what", "count", "p50", "p99", "max")
	r.row("Pod status write sent → mark seen on a watch, one fault at a time", single.cells()...)
	r.row("the same, all faults at once", burst.cells()...)
	r.table("what", "status writes", "signals sent", "writes per second")
	r.row(fmt.Sprintf("repeated status writes of %d faulty devices", s.faulty),
		fmt.Sprint(flood.writes), fmt.Sprint(flood.signals), fmt.Sprintf("%.0f", float64(flood.writes)/flood.took.Seconds()))
	r.most("signals about repeated status writes", float64(flood.signals), float64(s.faulty))
	return r, nil
}

// durations are latencies.
type durations []time.Duration

func (d durations) cells() []string {
	return []string{fmt.Sprint(len(d)), d.quantile(0.50).String(), d.quantile(0.99).String(), d.quantile(1).String()}
}
