package cmd

// This file says which prerequisites each process looks at, and which the doctor.

import (
	"context"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"

	"github.com/sickbay-dev/sickbay/cmd/doctor"
	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/isolation"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/telemetry"
)

// self is whoever asks.
var self kube.Account

// starterPrerequisites are those that a starter looks at for itself.
func starterPrerequisites(set config.Starter, namespace string, held governing, c cluster, t client.Client, shown *directory.Directory, log *slog.Logger, metrics prometheus.Registerer) *doctor.Self {
	lease := set.LeaderElection.Name
	if !set.LeaderElection.Enabled {
		lease = ""
	}
	server := doctor.Cluster{Kubernetes: c.typed, Dynamic: c.untyped}
	return watchPrerequisites(log, metrics,
		doctor.System{Reach: server.Reach(), Then: []doctor.Check{
			server.ResourceAPI(), server.Rights("starter", "", self, slices.Concat(kube.StarterRights(namespace, lease), kube.PolicyRights(held.namespace), kube.PokeRights(set.WatchNamespace))),
			doctor.KnownPolicy(held.namespace, held.watch),
		}},
		doctor.System{Reach: temporalOf(t, set.Temporal).Reach()},
		redisSystem(shown),
	)
}

// workerPrerequisites are those that a worker looks at for itself. The fence is
// tried where the worker may make rules at all.
func workerPrerequisites(set config.Worker, held governing, c cluster, t client.Client, shown *directory.Directory, log *slog.Logger, metrics prometheus.Registerer) *doctor.Self {
	server := doctor.Cluster{Kubernetes: c.typed, Dynamic: c.untyped}
	rights, fence := server.Rights("worker", "", self, nil), server.Fence(self)
	// Whether marks are made may change while it runs.
	rights.Ask = func(ctx context.Context) ([]doctor.Finding, error) {
		mode := quarantine.ModeObserve
		if held.watch.Current().Enforces() {
			mode = quarantine.ModeEnforce
		}
		wanted := slices.Concat(kube.WorkerRights(mode == quarantine.ModeEnforce), kube.PolicyRights(held.namespace), kube.PokeRights(set.WatchNamespace))
		if mode == quarantine.ModeEnforce {
			wanted = append(wanted, kube.ProbeRights(set.ProbeNamespace)...)
		}
		if whole := held.watch.Current().Isolation(); whole.Way != isolation.Off && whole.Mode == quarantine.ModeEnforce {
			wanted = append(wanted, kube.NodeRights()...)
		}
		return server.Rights("worker", string(mode), self, wanted).Ask(ctx)
	}
	fence.Ask = func(ctx context.Context) ([]doctor.Finding, error) {
		if !held.watch.Current().Enforces() {
			return nil, nil
		}
		return server.Fence(self).Ask(ctx)
	}
	checks := []doctor.Check{server.ResourceAPI(), server.TaintRules(), rights, fence, doctor.KnownPolicy(held.namespace, held.watch)}
	return watchPrerequisites(log, metrics,
		doctor.System{Reach: server.Reach(), Then: checks},
		doctor.System{Reach: temporalOf(t, set.Temporal).Reach()},
		redisSystem(shown),
	)
}

func temporalOf(c client.Client, set config.Temporal) doctor.Temporal {
	return doctor.Temporal{Client: c, Address: set.Address, Namespace: set.Namespace, TaskQueue: set.TaskQueue}
}

func redisSystem(shown *directory.Directory) doctor.System {
	r := doctor.Redis{Directory: shown}
	return doctor.System{Reach: r.Reach(), Then: []doctor.Check{r.Rights()}}
}

// watchPrerequisites shows what is found as a metric too.
func watchPrerequisites(log *slog.Logger, metrics prometheus.Registerer, systems ...doctor.System) *doctor.Self {
	looking := doctor.NewSelf(log, systems...)
	metrics.MustRegister(telemetry.Prerequisites.Read(func(emit func(float64, ...string)) {
		if report := looking.Last(); report != nil {
			for _, f := range report.Findings {
				emit(1, f.Check, string(f.State))
			}
		}
	}))
	return looking
}
