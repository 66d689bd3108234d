// Command demo shows Sickbay at work: it starts the development stack with a
// small simulated cluster, runs the real starter and worker on it, lets faults
// happen and shows a live table of the devices, until Ctrl-C.
//
//	go run ./demo
//	go run ./demo --for 3m --expect
//	KUBECONFIG=$HOME/.kube/config go run ./demo
//
// With KUBECONFIG it watches that cluster instead and lets nothing happen. It
// changes nothing there unless SICKBAY_MODE=enforce is set.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/sickbay-dev/sickbay/tests/stack"
)

type flags struct {
	kubernetes string
	nodes      int
	devices    int
	limit      time.Duration
	expect     bool
}

func main() {
	var f flags
	flag.StringVar(&f.kubernetes, "kubernetes", "1.37", "version of the simulated cluster: "+strings.Join(stack.Versions(), " or "))
	flag.IntVar(&f.nodes, "nodes", 3, "simulated nodes, at least 3")
	flag.IntVar(&f.devices, "devices", 4, "devices of each simulated node, at least 4")
	flag.DurationVar(&f.limit, "for", 0, "end after this long; 0 goes on until Ctrl-C")
	flag.BoolVar(&f.expect, "expect", false, "fail if a fault isn't handled as it should be")
	flag.Parse()
	if flag.NArg() > 0 || f.nodes < 3 || f.devices < 4 || f.limit < 0 {
		fmt.Fprintln(os.Stderr, "demo: want no arguments, at least 3 nodes with 4 devices each, and a duration that isn't negative; see --help")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if f.limit > 0 {
		ctx, stop = context.WithTimeoutCause(ctx, f.limit, errLimit)
	}
	defer stop()
	if err := run(ctx, f); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// errLimit is why a demo ends that was given a time.
var errLimit = errors.New("the time given by --for is over")

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func run(ctx context.Context, f flags) error {
	d, err := start(ctx, f)
	if err != nil {
		if errors.Is(context.Cause(ctx), context.Canceled) {
			// Ended while still starting: that is what was asked for.
			return nil
		}
		return err
	}
	failed := d.play(ctx, f)
	say("demo: stopping everything")
	// The one who asked for the end waits for it; a second Ctrl-C kills the demo,
	// and what it started goes with it.
	if err := d.stop(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(failed, fmt.Errorf("stop: %w", err))
	}
	say("demo: everything stopped")
	return failed
}
