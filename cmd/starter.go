package cmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/telemetry"
	"github.com/sickbay-dev/sickbay/starter"
	"github.com/sickbay-dev/sickbay/workflows/burst"
	workflow "github.com/sickbay-dev/sickbay/workflows/device"
	incidentwf "github.com/sickbay-dev/sickbay/workflows/incident"
	nodewf "github.com/sickbay-dev/sickbay/workflows/node"
	permitswf "github.com/sickbay-dev/sickbay/workflows/permits"
)

func newStarter(streams Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "starter",
		Short: "Watches the cluster and opens cases",
		Long: `Watches Pods, ResourceClaims, ResourceSlices, Nodes and marks, and tells the
workflow of each device what it saw of it; the first fault starts that workflow.
A healthy device costs nothing. It writes nothing into the cluster but the Lease
by which one of several starters is the active one, and a ConfigMap beside it that
says which drivers ever reported health; and not even these with
SICKBAY_LEADER_ELECTION_ENABLED=false.

SIGTERM and SIGINT let it send what is queued, within SICKBAY_DRAIN, and give
the Lease up. What is lost is no worse than late: the next starter compares
everything anew.
` + environmentHelp(config.Starter{}) + "\n" + exitCodesHelp,
		GroupID: groupServices,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runStarter(cmd.Context(), streams)
		},
	}
}

func runStarter(ctx context.Context, streams Streams) error {
	var set config.Starter
	if err := config.Load(&set); err != nil {
		return err
	}
	catalogue, err := set.Reasons.Catalogue()
	if err != nil {
		return err
	}
	logger := newLogger(streams.Err, set.Log, "starter")
	told, err := startTelemetry(ctx, set.Telemetry, telemetry.Starter, logger)
	if err != nil {
		return err
	}
	cluster, err := connectKubernetes(set.Kubernetes, "sickbay-starter", told.Kubernetes)
	if err != nil {
		return err
	}
	temporal, err := connectTemporal(set.Temporal, identity("starter"), logger, told.Temporal())
	if err != nil {
		return err
	}
	defer temporal.Close()
	namespace := set.LeaderElection.Namespace
	if namespace == "" {
		namespace = cluster.namespace
	}
	shown, closeDirectory, err := connectDirectory(set.Redis, "sickbay-starter", logger)
	if err != nil {
		return err
	}
	defer closeDirectory()
	base := policy.DefaultBase()
	base.Delays = set.ReportingDelay
	held, err := watchPolicy(set.PolicyPlace, base, cluster, false, logger, told.Registry)
	if err != nil {
		return err
	}
	cases := workflow.NewClient(temporal, set.Temporal.TaskQueue)
	permits := permitswf.NewClient(temporal, set.Temporal.TaskQueue)
	observer, err := starter.New(starter.Options{
		Kubernetes: cluster.typed,
		Dynamic:    cluster.untyped,
		Cases:      cases,
		Counter:    cases,
		Overview:   cases,
		Incidents:  incidentwf.NewClient(temporal, set.Temporal.TaskQueue),
		Budgets:    permits,
		Upgrades:   permits,
		Ahead:      burst.NewClient(temporal, set.Temporal.TaskQueue),
		Isolations: nodewf.NewClient(temporal, set.Temporal.TaskQueue),
		NodePolicy: func() isolation.Policy { return held.watch.Current().Isolation() },
		Storm:      starter.Storm{Thresholds: set.Thresholds(), Gather: set.StormGather},
		Answers:    starter.Answers{NoCase: workflow.ErrNoCase, Retryable: workflow.Retryable},
		Catalogue:  catalogue,
		Log:        logger,
		Registerer: told.Registry,
		Tracer:     told.Tracer,
		Directory:  shown,
		Poker:      kube.NewPoker(cluster.typed, set.WatchNamespace),
		Ours:       device.Ours(set.ProbeNamespace),
		Identity:   identity("starter"),
		Namespace:  namespace,
		LeaseName:  set.LeaderElection.Name,
		Alone:      !set.LeaderElection.Enabled,
		Workers:    set.SignalWorkers,
		Drivers:    driverPolicies(set),
		Delay:      func(driver string) time.Duration { return held.watch.Current().Delay(driver) },
		Governed:   held,
		Timing: starter.Timing{
			Quiet:       set.SettleQuiet,
			SettleLimit: set.SettleLimit,
			PluginAway:  set.PluginAway,
			DriverAway:  set.DriverAway,
			NodeReturn:  set.NodeReturn,
			Recheck:     set.MarkCheck,
			Poke:        set.WatchPoke,
			Drain:       set.Drain,

			HeartbeatLimit: set.HeartbeatLimit.Of(""),
		},
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
				{"watches", func(context.Context) error { return observer.Ready() }},
			},
			prerequisites: starterPrerequisites(set, namespace, held, cluster, temporal, shown, logger, told.Registry),
		},
		run:       held.during(observer.Run, false),
		stopLimit: set.Drain + stopMargin,
	}.serve(ctx)
}

// driverPolicies puts together what is said of each driver.
func driverPolicies(set config.Starter) map[string]starter.DriverPolicy {
	policies := map[string]starter.DriverPolicy{}
	for driver, unknown := range set.UnknownPolicy {
		policies[driver] = starter.DriverPolicy{Unknown: starter.UnknownPolicy(unknown)}
	}
	for driver, limit := range set.HeartbeatLimit {
		policy := policies[driver]
		policy.HeartbeatLimit = limit
		policies[driver] = policy
	}
	for _, driver := range set.HidesAllocated {
		policy := policies[driver]
		policy.HidesAllocated = true
		policies[driver] = policy
	}
	return policies
}
