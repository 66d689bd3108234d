package cmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/telemetry"
	"github.com/sickbay-dev/sickbay/workers"
)

// stopMargin is what a service may take to end beyond the time that its own work
// is given.
const stopMargin = 5 * time.Second

func newWorker(streams Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "worker",
		Short: "Runs the cases: decides, waits, and makes marks",
		Long: `Runs the workflows of cases and the activities that act on the cluster. Any
number of workers may run; each case is carried on by whichever is there.

With SICKBAY_MODE=observe, the default, a worker changes nothing in the cluster,
and cases show what would have been done. SIGTERM and SIGINT let the activities
under way end within SICKBAY_STOP_TIMEOUT; what isn't done by then is done again
by another worker.
` + environmentHelp(config.Worker{}) + "\n" + exitCodesHelp,
		GroupID: groupServices,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runWorker(cmd.Context(), streams)
		},
	}
}

func runWorker(ctx context.Context, streams Streams) error {
	var set config.Worker
	if err := config.Load(&set); err != nil {
		return err
	}
	catalogue, err := set.Reasons.Catalogue()
	if err != nil {
		return err
	}
	logger := newLogger(streams.Err, set.Log, "worker")
	told, err := startTelemetry(ctx, set.Telemetry, telemetry.Worker, logger)
	if err != nil {
		return err
	}
	cluster, err := connectKubernetes(set.Kubernetes, "sickbay-worker", told.Kubernetes)
	if err != nil {
		return err
	}
	temporal, err := connectTemporal(set.Temporal, identity("worker"), logger, told.Temporal())
	if err != nil {
		return err
	}
	defer temporal.Close()
	shown, closeDirectory, err := connectDirectory(set.Redis, "sickbay-worker", logger)
	if err != nil {
		return err
	}
	defer closeDirectory()
	held, err := watchPolicy(set.PolicyPlace, set.Base(set.Reporting), cluster, true, logger, told.Registry)
	if err != nil {
		return err
	}
	worker, err := workers.New(workers.Options{
		Temporal:       temporal,
		Namespace:      set.Temporal.Namespace,
		TaskQueue:      set.Temporal.TaskQueue,
		Kubernetes:     cluster.typed,
		Dynamic:        cluster.untyped,
		Discovery:      cluster.typed.Discovery(),
		Policy:         held.watch.Current,
		Catalogue:      catalogue,
		Logger:         logger,
		Registerer:     told.Registry,
		Tracer:         told.Tracer,
		Directory:      shown,
		ProbeNamespace: set.ProbeNamespace,
		Poker:          kube.NewPoker(cluster.typed, set.WatchNamespace),
		StopTimeout:    set.StopTimeout,
	})
	if err != nil {
		return err
	}
	return service{
		log:     logger,
		told:    told,
		address: set.HTTP.Address,
		ready: readiness{
			conditions: []condition{
				kubernetesReachable(cluster.typed.Discovery()),
				temporalReachable(temporal, set.Temporal.Namespace),
				held.known(),
			},
			prerequisites: workerPrerequisites(set, held, cluster, temporal, shown, logger, told.Registry),
		},
		run:       held.during(worker.Run, true),
		stopLimit: set.StopTimeout + stopMargin,
	}.serve(ctx)
}
