package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/sickbay-dev/sickbay/cmd/doctor"
	"github.com/sickbay-dev/sickbay/cmd/show"
	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

type doctorFlags struct {
	peopleFlags
	namespace      string
	starterAccount string
	workerAccount  string
	probe          bool
	probeIn        string
	strict         bool
	timeout        time.Duration
}

func newDoctor(streams Streams) *cobra.Command {
	var flags doctorFlags
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Finds out whether a site has what Sickbay needs",
		Long: `Looks at everything that Sickbay needs of Kubernetes, Temporal and Redis, and says
for each thing what was found, what is needed, what is lacking without it, and
how to mend it:

  ok        it is as it is needed
  degraded  Sickbay works, and lacks what is said
  unknown   it couldn't be found out, mostly for want of a right of whoever asks
  missing   Sickbay can't do its work, or must not

Kubernetes: version, APIs and feature gates; what starter and worker may do
(SubjectAccessReview for their ServiceAccounts), and whether a worker's right to
make DeviceTaintRules is kept to marks; which drivers report health; devices of
device plugins, which can't be kept out; claims whose tolerations pass a mark.
Temporal: server, namespace, search attributes, workers on the task queue. Redis:
version, persistence, eviction, and what its user may do.

Nothing is changed: what has to be tried is tried as a dry run. --probe goes
further and finds out whether scheduler and controller manager act on
DeviceTaintRules. It makes a ResourceSlice of driver doctor.sickbay.dev, a
DeviceClass, a rule for that device, a ResourceClaim and a Pod that is never bound
to a node, and removes them.

What a worker needs goes by SICKBAY_MODE here: set it as the workers have it.

It runs as whoever calls it: an administrator sees everything. Starter and worker
look at their own part when they start and while they run, and show it at /readyz.
` + environmentHelp(config.Doctor{}) + `
Exit codes:
  0  nothing is missing
  1  something is missing; with --strict, or degraded
  2  wrong arguments or configuration
  3  nothing is missing, but something couldn't be found out
`,
		Example: `  sickbay doctor
  sickbay doctor --strict -o json
  SICKBAY_MODE=enforce sickbay doctor --probe`,
		GroupID: groupPeople,
		Args:    noArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd.Context(), streams, flags) },
	}
	set := command.Flags()
	set.StringVarP(&flags.output, "output", "o", string(show.Table), "table, json or yaml")
	set.StringVar(&flags.colour, "color", "auto", "auto (on a terminal, unless NO_COLOR is set), always or never")
	set.StringVar(&flags.kubeconfig, "kubeconfig", "", "kubeconfig file, instead of SICKBAY_KUBECONFIG")
	set.StringVar(&flags.context, "context", "", "context of the kubeconfig, instead of SICKBAY_KUBE_CONTEXT")
	set.StringVarP(&flags.namespace, "namespace", "n", "sickbay", "namespace in which starter and worker run")
	set.StringVar(&flags.starterAccount, "starter-account", "sickbay-starter", "ServiceAccount of the starter")
	set.StringVar(&flags.workerAccount, "worker-account", "sickbay-worker", "ServiceAccount of the worker")
	set.BoolVar(&flags.probe, "probe", false, "make objects, and remove them, to see whether scheduler and controller manager act on DeviceTaintRules")
	set.StringVar(&flags.probeIn, "probe-namespace", "", "namespace for the claim and the Pod of --probe (default: the kubeconfig's)")
	set.BoolVar(&flags.strict, "strict", false, "end with exit code 1 if something is degraded, too")
	set.DurationVar(&flags.timeout, "timeout", 30*time.Second, "how long each look may take, like 30s; --probe may take a minute")
	completeWords(command, "output", "table", "json", "yaml")
	completeWords(command, "color", "auto", "always", "never")
	return command
}

// errUnhealthy is returned after an answer that names something missing.
var errUnhealthy = errors.New("something is missing")

func runDoctor(ctx context.Context, streams Streams, flags doctorFlags) error {
	format, colour, err := flags.form(streams.Out)
	if err != nil {
		return err
	}
	if !slices.Contains([]show.Format{show.Table, show.JSON, show.YAML}, format) {
		return &usageError{fmt.Errorf("-o %s: want table, json or yaml", format)}
	}
	if flags.timeout <= 0 {
		return &usageError{fmt.Errorf("--timeout %s: want more than nothing", flags.timeout)}
	}
	for _, name := range []struct{ flag, value string }{
		{"namespace", flags.namespace}, {"starter-account", flags.starterAccount}, {"worker-account", flags.workerAccount},
	} {
		if name.value == "" {
			return &usageError{fmt.Errorf("--%s is empty: want a name", name.flag)}
		}
	}
	if flags.probeIn != "" && !flags.probe {
		return &usageError{errors.New("--probe-namespace says where --probe makes its objects; want both, or neither")}
	}
	systems, end, err := flags.systems()
	if err != nil {
		return err
	}
	defer end()
	report := doctor.Run(ctx, flags.timeout, systems...)
	if ctx.Err() != nil {
		// What a probe couldn't remove has to be known all the same.
		for _, f := range report.Findings {
			if f.Check == doctor.ProbeCheck && f.State == doctor.Unknown {
				fmt.Fprintln(streams.Err, "sickbay:", f.Found)
			}
		}
		return ctx.Err()
	}
	if err := show.PrintReport(streams.Out, report, format, colour); err != nil {
		return err
	}
	switch report.Worst() {
	case doctor.Missing:
		return errUnhealthy
	case doctor.Unknown:
		if flags.strict && report.Count(doctor.Degraded) > 0 {
			return errUnhealthy
		}
		return errPartial
	case doctor.Degraded:
		if flags.strict {
			return errUnhealthy
		}
	}
	return nil
}

// systems are what the doctor looks at, for whoever called it.
func (f *doctorFlags) systems() (all []doctor.System, end func(), err error) {
	var set config.Doctor
	if err := config.Load(&set); err != nil {
		return nil, nil, err
	}
	if f.kubeconfig != "" {
		set.Kubeconfig = f.kubeconfig
	}
	if f.context != "" {
		set.KubeContext = f.context
	}
	// What the clients log would break the answer; their errors are shown.
	silent := slog.New(slog.DiscardHandler)
	klog.SetSlogLogger(silent)
	c, err := connectKubernetes(set.Kubernetes, "sickbay-doctor", nil)
	if err != nil {
		return nil, nil, err
	}
	t, err := connectTemporal(set.Temporal, "sickbay-doctor", silent, nil)
	if err != nil {
		return nil, nil, err
	}
	shown, endDirectory, err := connectDirectory(set.Redis, "sickbay-doctor", silent)
	if err != nil {
		t.Close()
		return nil, nil, err
	}
	server := doctor.Cluster{Kubernetes: c.typed, Dynamic: c.untyped}
	starter := kube.Account{Namespace: f.namespace, Name: f.starterAccount}
	worker := kube.Account{Namespace: f.namespace, Name: f.workerAccount}
	lease, leaseNamespace := set.LeaderElection.Name, set.LeaderElection.Namespace
	if !set.LeaderElection.Enabled {
		lease = ""
	}
	if leaseNamespace == "" {
		leaseNamespace = f.namespace
	}
	policyNamespace := cmp.Or(set.PolicyNamespace, f.namespace)
	wanted := slices.Concat(kube.WorkerRights(set.Mode == string(quarantine.ModeEnforce)), kube.PolicyRights(policyNamespace), kube.PokeRights(set.WatchNamespace))
	if set.Mode == string(quarantine.ModeEnforce) {
		wanted = append(wanted, kube.ProbeRights(set.ProbeNamespace)...)
	}
	checks := []doctor.Check{
		server.ResourceAPI(), server.TaintRules(), server.Gates(), server.NodeAllocatable(),
		server.Rights("starter", "", starter, slices.Concat(kube.StarterRights(leaseNamespace, lease), kube.PolicyRights(policyNamespace), kube.PokeRights(set.WatchNamespace))),
		server.WorkerRights(policyNamespace, set.Mode, worker, wanted),
		server.Fence(worker), server.Policy(policyNamespace),
		server.Drivers(), server.Plugins(), server.Tolerations(),
	}
	if f.probe {
		namespace := f.probeIn
		if namespace == "" {
			namespace = c.namespace
		}
		checks = append(checks, server.Probe(namespace))
	}
	service := temporalOf(t, set.Temporal)
	return []doctor.System{
			{Reach: server.Reach(), Then: checks},
			{Reach: service.Reach(), Then: []doctor.Check{service.Workers()}},
			redisSystem(shown),
		}, func() {
			endDirectory()
			t.Close()
		}, nil
}
