// Command stack starts the dev stack by hand: a Kubernetes control plane with
// simulated nodes, Temporal with its UI, Redis, and a receiver of
// OpenTelemetry's traces. It prints what to export
// and runs until Ctrl-C or SIGTERM, then stops everything and leaves nothing.
//
//	go run ./stack/cmd/stack --kubernetes 1.36 --nodes 3 --devices 8
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// flags of the command line.
type flags struct {
	kubernetes string
	oneVersion bool // --kubernetes was given
	nodes      int
	devices    int
	dir        string
	buildOnly  bool
	node       bool
}

func main() {
	var f flags
	flag.StringVar(&f.kubernetes, "kubernetes", "1.36", "version of the control plane: "+strings.Join(stack.Versions(), " or "))
	flag.IntVar(&f.nodes, "nodes", 3, "simulated nodes")
	flag.IntVar(&f.devices, "devices", 8, "devices of each simulated node")
	flag.StringVar(&f.dir, "dir", "", "keep data and logs in this folder, and go on with what is in it (default: a temporary one)")
	flag.BoolVar(&f.buildOnly, "build-only", false, "build what is missing and end; every version, unless --kubernetes names one")
	flag.BoolVar(&f.node, "node", false, "with --build-only: also kubelet and containerd")
	flag.Parse()
	flag.Visit(func(set *flag.Flag) { f.oneVersion = f.oneVersion || set.Name == "kubernetes" })
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "stack: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	followGoRun()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, f)
	// Ended while still starting: that is what was asked for.
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "stack: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, f flags) error {
	if f.buildOnly {
		return build(ctx, f)
	}
	say := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	s, err := stack.Run(ctx, stack.Options{
		Kubernetes: f.kubernetes, Temporal: true, Redis: true, Collector: true,
		SearchAttributes: product.SearchAttributes(), Dir: f.dir, Logf: say,
	})
	if err != nil {
		return err
	}
	defer func() {
		say("stack: stopping")
		if err := s.Stop(context.Background()); err != nil {
			say("stack: %v", err)
		}
	}()
	if f.nodes > 0 {
		cluster, err := simnode.Run(ctx, s.SimulatorConfig(), simnode.Options{})
		if err != nil {
			return err
		}
		defer cluster.Stop()
		if err := cluster.Add(ctx, simnode.MakeNodes("node", f.nodes, f.devices)...); err != nil {
			return err
		}
		say("stack: %d simulated nodes with %d devices each of DeviceClass %s", f.nodes, f.devices, simnode.DefaultDriver)
	}
	announce(os.Stdout, s)
	say("stack: running Kubernetes %s; logs in %s/log; Ctrl-C ends it", s.KubernetesVersion(), s.Dir())
	select {
	case <-ctx.Done():
		return nil
	case crash := <-s.Crashed():
		return crash
	}
}

// announce prints the addresses in a form that a shell can read.
func announce(out io.Writer, s *stack.Stack) {
	for _, line := range [][2]string{
		{"KUBECONFIG", s.Kubeconfig()},
		{"TEMPORAL_ADDRESS", s.TemporalAddress()},
		{"TEMPORAL_NAMESPACE", s.TemporalNamespace()},
		{"TEMPORAL_UI", s.TemporalUI()},
		{"REDIS_ADDRESS", s.RedisAddress()},
		{"OTLP_ENDPOINT", s.OTLPEndpoint()},
	} {
		fmt.Fprintf(out, "export %s=%s\n", line[0], line[1])
	}
}

func build(ctx context.Context, f flags) error {
	versions := stack.Versions()
	if f.oneVersion {
		versions = []string{f.kubernetes}
	}
	parts := []stack.Part{stack.PartTemporal, stack.PartCollector}
	for _, version := range versions {
		controlPlane, err := stack.ControlPlaneParts(version)
		if err != nil {
			return err
		}
		parts = append(parts, controlPlane...)
		if f.node {
			node, err := stack.NodeParts(version)
			if err != nil {
				return err
			}
			parts = append(parts, node...)
		}
	}
	commands, err := stack.CommandParts()
	if err != nil {
		return err
	}
	parts = append(parts, commands...)
	binaries, err := stack.Build(ctx, os.Stderr, parts...)
	if err != nil {
		return err
	}
	for _, part := range slices.Sorted(maps.Keys(binaries)) {
		fmt.Printf("%s\t%s\n", part, binaries[part])
	}
	return nil
}

// followGoRun makes SIGTERM to `go run` end this process too. The go command
// does not pass the signal on, and the stack would run for ever.
func followGoRun() {
	parent, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", os.Getppid()))
	if err != nil || strings.TrimSpace(string(parent)) != "go" {
		return
	}
	const setParentDeathSignal = 1 // PR_SET_PDEATHSIG, linux/prctl.h
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setParentDeathSignal, uintptr(syscall.SIGTERM), 0)
}
