package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// readyLimit is how long starter and worker may take until they are ready.
const readyLimit = time.Minute

// demo is everything that runs.
type demo struct {
	stack *stack.Stack
	// nodes is nil when an existing cluster is watched.
	nodes    *simnode.Cluster
	clients  listing.Clients
	temporal client.Client
	story    *story
	mode     string
	binary   string
}

// start brings everything up, or leaves nothing running.
func start(ctx context.Context, f flags) (d *demo, err error) {
	watched := os.Getenv("KUBECONFIG") != ""
	options := stack.Options{
		Temporal: true, Logf: say,
		SearchAttributes: product.SearchAttributes(),
	}
	if !watched {
		options.Kubernetes = f.kubernetes
	}
	d = &demo{story: newStory()}
	started := d
	if d.stack, err = stack.Run(ctx, options); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, started.stop(context.WithoutCancel(ctx)))
		}
	}()
	if watched {
		err = d.watchCluster()
	} else {
		err = d.simulateCluster(ctx, f)
	}
	if err != nil {
		return nil, err
	}
	d.temporal, err = client.NewLazyClient(client.Options{
		HostPort: d.stack.TemporalAddress(), Namespace: d.stack.TemporalNamespace(),
		Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		return nil, fmt.Errorf("connect to Temporal: %w", err)
	}
	if err := d.startSickbay(ctx, watched); err != nil {
		return nil, err
	}
	if err := d.writeEnvironment(watched); err != nil {
		return nil, err
	}
	return d, nil
}

// environmentFile is what a shell sources to ask the demo.
func (d *demo) environmentFile() string { return filepath.Join(d.stack.Dir(), "environment") }

// writeEnvironment writes what a shell needs so that sickbay, kubectl and temporal
// speak to what runs here.
func (d *demo) writeEnvironment(watched bool) error {
	set := [][2]string{
		{"SICKBAY_TEMPORAL_ADDRESS", d.stack.TemporalAddress()},
		{"SICKBAY_TEMPORAL_NAMESPACE", d.stack.TemporalNamespace()},
		{"SICKBAY_TEMPORAL_UI", d.stack.TemporalUI()},
		{"TEMPORAL_ADDRESS", d.stack.TemporalAddress()},
		{"TEMPORAL_NAMESPACE", d.stack.TemporalNamespace()},
		{"PATH", filepath.Dir(d.binary) + ":$PATH"},
	}
	if !watched {
		set = append(set, [2]string{"KUBECONFIG", d.stack.Kubeconfig()})
	}
	var lines strings.Builder
	for _, variable := range set {
		fmt.Fprintf(&lines, "export %s=\"%s\"\n", variable[0], variable[1])
	}
	if err := os.WriteFile(d.environmentFile(), []byte(lines.String()), 0o644); err != nil {
		return fmt.Errorf("write what a shell sources: %w", err)
	}
	return nil
}

// watchCluster sets the clients up for the cluster of KUBECONFIG.
func (d *demo) watchCluster() error {
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil)
	config, err := loader.ClientConfig()
	if err != nil {
		return fmt.Errorf("read KUBECONFIG=%q: %w", os.Getenv("KUBECONFIG"), err)
	}
	d.mode = "observe"
	if os.Getenv("SICKBAY_MODE") == "enforce" {
		d.mode = "enforce"
	}
	say("demo: watching the cluster at %s; mode %s", config.Host, d.mode)
	return d.connect(config)
}

// simulateCluster adds nodes and Pods to the stack's own cluster.
func (d *demo) simulateCluster(ctx context.Context, f flags) (err error) {
	d.mode = "enforce"
	if err := d.connect(d.stack.RESTConfig()); err != nil {
		return err
	}
	d.nodes, err = simnode.Run(ctx, d.stack.SimulatorConfig(), simnode.Options{HeartbeatEvery: time.Second})
	if err != nil {
		return fmt.Errorf("simulate nodes: %w", err)
	}
	if err := d.nodes.Add(ctx, simnode.MakeNodes("node", f.nodes, f.devices)...); err != nil {
		return fmt.Errorf("simulate nodes: %w", err)
	}
	return d.fill(ctx)
}

func (d *demo) connect(config *rest.Config) error {
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("set up the client for %s: %w", config.Host, err)
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("set up the client for %s: %w", config.Host, err)
	}
	d.clients = listing.Clients{Kubernetes: typed, Dynamic: untyped, Discovery: typed.Discovery()}
	return nil
}

// startSickbay builds the binary and runs a starter and a worker, as they would
// be deployed.
func (d *demo) startSickbay(ctx context.Context, watched bool) error {
	say("demo: building sickbay")
	var err error
	if d.binary, err = product.Build(ctx, d.stack.Dir()); err != nil {
		return err
	}
	for _, service := range []string{"starter", "worker"} {
		ready, cancel := context.WithTimeoutCause(ctx, readyLimit, fmt.Errorf("not ready within %s", readyLimit))
		_, err := product.Start(ready, d.stack, product.Service{Binary: d.binary, Command: service, Env: d.environment(watched)})
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// environment is how the binary is set up. The windows of the simulated cluster
// are seconds where a real one has minutes; a watched cluster gets the defaults
// and what the caller's own variables say.
func (d *demo) environment(watched bool) []string {
	set := []string{"SICKBAY_STOP_TIMEOUT=10s"}
	if watched {
		// Without an election nothing is written into the cluster.
		return append(set, "SICKBAY_LEADER_ELECTION_ENABLED=false", "SICKBAY_MODE="+d.mode)
	}
	return append(set,
		"SICKBAY_MODE="+d.mode,
		"SICKBAY_GRACE=20s", "SICKBAY_RECHECK_FIRST=1s", "SICKBAY_RECHECK_MAX=3s",
		"SICKBAY_HYSTERESIS=5s", "SICKBAY_COOL_DOWN=5s", "SICKBAY_MARK_RETRY=2s",
		// Two silent nodes of a fleet of three would be a storm.
		"SICKBAY_STORM_GATHER=1s", "SICKBAY_STORM_PERCENT=100",
	)
}

// stop ends what runs, the latest first.
func (d *demo) stop(ctx context.Context) error {
	if d.temporal != nil {
		d.temporal.Close()
	}
	var failures []error
	for _, service := range []string{"starter", "worker"} {
		if d.stack.PID(service) != 0 {
			failures = append(failures, d.stack.StopPart(ctx, service))
		}
	}
	if d.nodes != nil {
		d.nodes.Stop()
	}
	return errors.Join(append(failures, d.stack.Stop(ctx))...)
}
