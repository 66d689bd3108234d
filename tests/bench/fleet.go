package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// placers is how many holders are placed at once.
const placers = 16

// measureFleet measures what a healthy fleet on the real control plane costs: each
// node's devices are held by one Pod, and nodes beat as kubelets do.
func measureFleet(ctx context.Context, binary, kubernetes string, s sizes) (r report, err error) {
	st, err := stack.Run(ctx, stack.Options{
		Kubernetes: kubernetes, Temporal: true, Redis: true, SearchAttributes: product.SearchAttributes(), Logf: progress,
	})
	if err != nil {
		return r, err
	}
	defer stopStack(st)
	return measureFleetOn(ctx, st, binary, s)
}

func measureFleetOn(ctx context.Context, st *stack.Stack, binary string, s sizes) (r report, err error) {
	nodes, err := simnode.Run(ctx, st.SimulatorConfig(), simnode.Options{})
	if err != nil {
		return r, err
	}
	defer nodes.Stop()
	if err := nodes.Add(ctx, simnode.MakeNodes("node", s.fleetNodes, s.perNode)...); err != nil {
		return r, err
	}
	progress("placing %d Pods with %d devices each", s.fleetNodes, s.perNode)
	if err := holdAll(ctx, nodes, s); err != nil {
		return r, err
	}
	fleet, err := newSite(ctx, st, binary, s.fleetNodes*s.perNode)
	if err != nil {
		return r, err
	}
	defer fleet.close()
	progress("filled after %s; watching it for %s", fleet.settled.Round(time.Second), s.window)
	r.title = fmt.Sprintf("A healthy fleet: %d nodes × %d devices, Kubernetes %s", s.fleetNodes, s.perNode, st.KubernetesVersion())
	return r, fleet.describe(ctx, &r, s.window)
}

// holdAll gives each node a Pod that has all its devices.
func holdAll(ctx context.Context, nodes *simnode.Cluster, s sizes) error {
	devices := make([]string, s.perNode)
	for i := range devices {
		devices[i] = fmt.Sprintf("gpu-%d", i)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var placing sync.WaitGroup
	for range placers {
		placing.Go(func() {
			for n := range next {
				if _, err := nodes.Place(ctx, "default", fmt.Sprintf("job-%d", n), fmt.Sprintf("node-%d", n), devices...); err != nil {
					cancel(err)
				}
			}
		})
	}
	for n := 0; n < s.fleetNodes && ctx.Err() == nil; n++ {
		next <- n
	}
	close(next)
	placing.Wait()
	return context.Cause(ctx)
}

func stopStack(st *stack.Stack) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := st.Stop(ctx); err != nil && !errors.Is(err, context.Canceled) {
		progress("stop: %v", err)
	}
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
