package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/tests/bench/apiserver"
	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
	workflow "github.com/sickbay-dev/sickbay/workflows/device"
)

// measureGenerated measures a fleet that no control plane on one machine can hold: a
// generated API server stands in for that, and for the kubelets.
func measureGenerated(ctx context.Context, binary, _ string, s sizes) (r report, err error) {
	server, err := apiserver.Start(apiserver.Fleet{Nodes: s.generatedNodes, DevicesPerNode: s.perNode})
	if err != nil {
		return r, err
	}
	defer func() { _ = server.Stop() }() // its clients are gone by then
	progress("%d nodes are generated", s.generatedNodes)
	st, err := stack.Run(ctx, stack.Options{
		Temporal: true, Redis: true, SearchAttributes: product.SearchAttributes(), Logf: progress,
	})
	if err != nil {
		return r, err
	}
	defer stopStack(st)
	kubeconfig := filepath.Join(st.Dir(), "generated.kubeconfig")
	if err := server.WriteKubeconfig(kubeconfig); err != nil {
		return r, err
	}
	fleet, err := newSite(ctx, st, binary, server.Fleet().Devices(), "SICKBAY_KUBECONFIG="+kubeconfig)
	if err != nil {
		return r, err
	}
	defer fleet.close()
	progress("filled after %s; watching it for %s", fleet.settled.Round(time.Second), s.window)
	r.title = fmt.Sprintf("A healthy fleet: %d nodes × %d devices, generated", s.generatedNodes, s.perNode)
	if err := fleet.describe(ctx, &r, s.window); err != nil {
		return r, err
	}
	r.row("status writes of nodes and Pods, which say nothing new", fmt.Sprintf("%.1f/s", server.Fleet().Rate()))
	if err := measureListings(ctx, &r, fleet, server); err != nil {
		return r, err
	}
	took, err := faults(ctx, fleet, server, s.generatedFault)
	if err != nil {
		return r, err
	}
	r.table("what", "count", "p50", "p99", "max")
	r.row("Pod status event → its signal accepted by Temporal", took.cells()...)
	return r, nil
}

// faults breaks one device after the other, each on a node of its own, and tells how
// long it takes until Temporal has its case.
func faults(ctx context.Context, fleet *site, server *apiserver.Server, count int) (durations, error) {
	var took durations
	nodes := server.Fleet().Nodes
	for i := range count {
		nth := i * nodes / count
		sent, err := server.Break(nth, "gpu-0", fault)
		if err != nil {
			return nil, err
		}
		key, err := device.NewDRA(simnode.DefaultDriver, apiserver.NodeName(nth), "gpu-0")
		if err != nil {
			return nil, err
		}
		at, err := accepted(ctx, fleet, workflow.ID(key))
		if err != nil {
			return nil, fmt.Errorf("the case of %s: %w\n%s", key, err, fleet.logs())
		}
		took = append(took, at.Sub(sent))
	}
	return took, nil
}

// accepted waits until Temporal knows a workflow, and says when it was first seen to.
func accepted(ctx context.Context, fleet *site, id string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := fleet.temporal.WorkflowService().DescribeWorkflowExecution(ctx, describing(fleet.stack.TemporalNamespace(), id))
		if err == nil {
			return time.Now(), nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("not there after %s: %w", patience, err)
		case <-ticker.C:
		}
	}
}

func describing(namespace, id string) *workflowservice.DescribeWorkflowExecutionRequest {
	return &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: namespace, Execution: &common.WorkflowExecution{WorkflowId: id},
	}
}
