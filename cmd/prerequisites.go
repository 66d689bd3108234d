package cmd

// This file says which prerequisites each process looks at, and which the doctor.

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"

	"github.com/sickbay-dev/sickbay/cmd/doctor"
	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/telemetry"
)

// self is whoever asks.
var self kube.Account

// starterPrerequisites are those that a starter looks at for itself.
func starterPrerequisites(set config.Starter, namespace string, c cluster, t client.Client, shown *directory.Directory, log *slog.Logger, metrics prometheus.Registerer) *doctor.Self {
	lease := set.LeaderElection.Name
	if !set.LeaderElection.Enabled {
		lease = ""
	}
	server := doctor.Cluster{Kubernetes: c.typed, Dynamic: c.untyped}
	return watchPrerequisites(log, metrics,
		doctor.System{Reach: server.Reach(), Then: []doctor.Check{
			server.ResourceAPI(), server.Rights("starter", "", self, append(kube.StarterRights(namespace, lease), kube.PokeRights(set.WatchNamespace)...)),
		}},
		doctor.System{Reach: temporalOf(t, set.Temporal).Reach()},
		redisSystem(shown),
	)
}

// workerPrerequisites are those that a worker looks at for itself. The fence is
// tried where the worker may make rules at all.
func workerPrerequisites(set config.Worker, c cluster, t client.Client, shown *directory.Directory, log *slog.Logger, metrics prometheus.Registerer) *doctor.Self {
	marks := set.Mode == string(quarantine.ModeEnforce)
	server := doctor.Cluster{Kubernetes: c.typed, Dynamic: c.untyped}
	checks := []doctor.Check{server.ResourceAPI(), server.TaintRules(), server.Rights("worker", set.Mode, self, append(kube.WorkerRights(marks), kube.PokeRights(set.WatchNamespace)...))}
	if marks {
		checks = append(checks, server.Fence(self))
	}
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
