// Command bench measures what operators will ask first: how long it takes from a
// Pod's status to a mark in force, one fault at a time and many at once, and how
// many signals a flood of repeated status writes costs. It runs the real
// binaries on the real control plane with simulated nodes, and prints a Markdown
// table with the machine.
//
//	go run ./bench [--faults 200] [--burst 100] [--repeats 100000]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sizes are how much is measured.
type sizes struct {
	faults  int
	burst   int
	faulty  int
	repeats int
}

func main() {
	var s sizes
	kubernetes := flag.String("kubernetes", "1.37", "version of the control plane: 1.36 or 1.37")
	flag.IntVar(&s.faults, "faults", 200, "faults, one at a time")
	flag.IntVar(&s.burst, "burst", 100, "faults at once")
	flag.IntVar(&s.faulty, "faulty", 50, "faulty devices whose status is written again and again")
	flag.IntVar(&s.repeats, "repeats", 100_000, "status writes that repeat what was said")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubernetes, s); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubernetes string, s sizes) error {
	b, err := begin(ctx, kubernetes, s)
	if err != nil {
		return err
	}
	defer b.end()

	single, err := b.oneAtATime(ctx, s.faults)
	if err != nil {
		return fmt.Errorf("one fault at a time: %w", err)
	}
	burst, err := b.atOnce(ctx, s.burst)
	if err != nil {
		return fmt.Errorf("faults at once: %w", err)
	}
	flood, err := b.flood(ctx, s.faulty, s.repeats)
	if err != nil {
		return fmt.Errorf("repeated status writes: %w", err)
	}
	fmt.Printf("Kubernetes %s, %s\n\n", b.stack.KubernetesVersion(), machine())
	fmt.Println("| what | count | p50 | p99 | max |")
	fmt.Println("| --- | --- | --- | --- | --- |")
	single.row("Pod status write sent → mark seen on a watch, one fault at a time")
	burst.row("the same, all faults at once")
	fmt.Println()
	fmt.Println("| what | status writes | signals sent | writes per second |")
	fmt.Println("| --- | --- | --- | --- |")
	fmt.Printf("| repeated status writes of %d faulty devices | %d | %d | %.0f |\n",
		s.faulty, flood.writes, flood.signals, float64(flood.writes)/flood.took.Seconds())
	return nil
}

// durations are latencies.
type durations []time.Duration

func (d durations) row(what string) {
	fmt.Printf("| %s | %d | %s | %s | %s |\n", what, len(d), d.quantile(0.50), d.quantile(0.99), d.quantile(1))
}
