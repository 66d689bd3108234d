package cmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"

	"github.com/sickbay-dev/sickbay/cmd/doctor"
	"github.com/sickbay-dev/sickbay/cmd/show"
	"github.com/sickbay-dev/sickbay/cmd/watchpods"
	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/kube"
)

func newWatch(streams Streams) *cobra.Command {
	command := &cobra.Command{
		Use:   "watch",
		Short: "Waits, in a Pod by which devices are seen that nobody holds",
		Long: `Waits until it is told to end, and does nothing: it is what a watch Pod runs.

Kubelets report the health of the devices that Pods have, and of no others. A
watch Pod has a claim with admin access for all devices of one driver on its node:
it shares them without using them up, and so the kubelet reports on those too that
no tenant holds. It is an option; docs/watch.md tells what it gives, what it
costs, and where it must not be.

"sickbay watch manifests" writes what is needed for one driver and refuses where
it would cost tenants something; "sickbay watch check" says what a running set-up
covers.

` + exitCodesHelp,
		GroupID: groupServices,
		Args:    noSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintln(streams.Err, "Waiting until told to end, as the process of a watch Pod; see sickbay watch --help.")
			// What starting took is given back: there is one such process on each node.
			debug.FreeOSMemory()
			<-cmd.Context().Done()
			return nil
		},
		// cobra sets this by itself only where it prints the suggestions.
		SuggestionsMinimumDistance: 2,
	}
	command.AddCommand(newWatchManifests(streams), newWatchCheck(streams))
	return command
}

// watchFlags are those that both commands have.
type watchFlags struct {
	peopleFlags
	driver    string
	namespace string
	timeout   time.Duration
}

func (f *watchFlags) add(command *cobra.Command) {
	command.Flags().StringVar(&f.driver, "driver", "", "DRA driver, as ResourceSlices name it (required)")
	command.Flags().StringVarP(&f.namespace, "namespace", "n", "", "namespace of the watch Pods, instead of SICKBAY_WATCH_NAMESPACE (default sickbay-watch)")
	command.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file, instead of SICKBAY_KUBECONFIG")
	command.Flags().StringVar(&f.context, "context", "", "context of the kubeconfig, instead of SICKBAY_KUBE_CONTEXT")
	command.Flags().DurationVar(&f.timeout, "timeout", 30*time.Second, "how long reading the cluster may take")
}

// connect sets the way to the cluster up.
func (f *watchFlags) connect() (cluster, error) {
	if f.driver == "" {
		return cluster{}, &usageError{errors.New("--driver is missing: name the DRA driver, as kubectl get resourceslices shows it")}
	}
	if f.timeout <= 0 {
		return cluster{}, &usageError{fmt.Errorf("--timeout %s: want more than nothing", f.timeout)}
	}
	var set config.WatchPods
	if err := config.Load(&set); err != nil {
		return cluster{}, err
	}
	if f.kubeconfig != "" {
		set.Kubeconfig = f.kubeconfig
	}
	if f.context != "" {
		set.KubeContext = f.context
	}
	if f.namespace == "" {
		f.namespace = set.WatchNamespace
	}
	if f.namespace == "" {
		f.namespace = watchpods.Namespace
	}
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	return connectKubernetes(set.Kubernetes, "sickbay-watch", nil)
}

func newWatchManifests(streams Streams) *cobra.Command {
	var flags watchFlags
	set := watchpods.Set{}
	command := &cobra.Command{
		Use:   "manifests",
		Short: "Writes the manifests of watch Pods for one driver, or says why there must be none",
		Long: `Looks at what a DRA driver publishes and writes to standard output what watch Pods
for it take: namespace, PriorityClass, ResourceClaimTemplate and DaemonSet.

It refuses, and names device, slice and remedy, where watch Pods would cost
tenants something or wait for ever: devices with node allocatable mappings (of
1.36 or 1.37), with shared counters, that are parts of a chip, or that can be
allocated several times over; more than 32 on a node; nodes without any.

Whether the driver prepares one device for two claims can't be seen beforehand.
One that doesn't keeps tenants from every device that is watched: try it on a
node that nobody uses first, with "sickbay watch check".

A driver whose CDI IDs name the claim and not the device needs one request for
each device, --request-per-device, with as many as each node has. A set is for
nodes that all have the same number then; make more with --node-selector and
--name. What it writes then can't be applied by the server (kubectl apply
--server-side): that takes the requests that a container names for repetitions.
` + environmentHelp(config.WatchPods{}) + "\n" + exitCodesHelp,
		Example: `  sickbay watch manifests --driver gpu.example.com | kubectl apply -f -
  sickbay watch manifests --driver gpu.example.com --request-per-device 8 --node-selector example.com/gpus=8`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("request-per-device") && set.PerDevice == 0 {
				return &usageError{fmt.Errorf("--request-per-device 0: want 1 to %d, or leave it out for one request for all", watchpods.MaxDevices)}
			}
			return writeWatchManifests(cmd.Context(), streams, flags, set)
		},
	}
	flags.add(command)
	command.Flags().StringVar(&set.Class, "class", "", "DeviceClass to ask for (default: the driver's name)")
	command.Flags().IntVar(&set.PerDevice, "request-per-device", 0, "one request for each of this many devices, instead of one for all")
	command.Flags().StringToStringVar(&set.Nodes, "node-selector", nil, "labels of the nodes to run on, like example.com/gpu=true")
	command.Flags().StringVar(&set.Name, "name", "", "name of DaemonSet and ResourceClaimTemplate (default: watch- and the driver's)")
	command.Flags().StringVar(&set.Image, "image", "ghcr.io/sickbay-dev/sickbay:dev", "image of Sickbay")
	return command
}

func writeWatchManifests(ctx context.Context, streams Streams, flags watchFlags, set watchpods.Set) error {
	c, err := flags.connect()
	if err != nil {
		return err
	}
	set.Driver, set.Namespace = flags.driver, flags.namespace
	if set.Class == "" {
		set.Class = set.Driver
	}
	if set.Name == "" {
		set.Name = watchpods.DefaultName(set.Driver)
	}
	if err := set.Validate(); err != nil {
		return &usageError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, flags.timeout)
	defer cancel()
	class, err := c.typed.ResourceV1().DeviceClasses().Get(ctx, set.Class, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no DeviceClass %s; name one that selects the driver's devices with --class, or make one", set.Class)
	}
	if err != nil {
		return fmt.Errorf("get DeviceClass %s: %w", set.Class, err)
	}
	offered, problems, err := watchpods.ReadOffered(ctx, c.untyped, set.Driver)
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		return fmt.Errorf("%s; ask again when they are", strings.Join(problems, "\n"))
	}
	nodes, err := nodeLabels(ctx, c)
	if err != nil {
		return err
	}
	judged := watchpods.Judge(watchpods.Wanted{
		Driver: set.Driver, Class: kube.ClassView(class), Nodes: set.Selector(), PerDevice: set.PerDevice,
	}, offered, nodes)
	for _, note := range judged.Notes {
		fmt.Fprintln(streams.Err, "sickbay:", note)
	}
	if err := refused(judged.Refusals); err != nil {
		return err
	}
	return set.Write(streams.Out)
}

// refused is an error that names the first of many refusals; nil where there are none.
func refused(all []watchpods.Refusal) error {
	const shown = 8
	if len(all) == 0 {
		return nil
	}
	lines := []string{"there must be no watch Pods like that:"}
	for i, r := range all {
		if i == shown {
			lines = append(lines, fmt.Sprintf("  and %d more", len(all)-shown))
			break
		}
		lines = append(lines, "  "+r.String())
	}
	return errors.New(strings.Join(lines, "\n"))
}

// nodeLabels are the labels of all nodes.
func nodeLabels(ctx context.Context, c cluster) (map[string]labels.Set, error) {
	nodes := map[string]labels.Set{}
	err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.typed.CoreV1().Nodes().List(ctx, o)
	}).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		if node, ok := o.(*corev1.Node); ok {
			nodes[node.Name] = node.Labels
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	return nodes, nil
}

func newWatchCheck(streams Streams) *cobra.Command {
	var flags watchFlags
	command := &cobra.Command{
		Use:   "check",
		Short: "Says which devices the watch Pods of a driver cover, which not, and why",
		Long: `Looks at the watch Pods of one driver: on which nodes there is one, which devices it
reports on, and which not and why. A claim's devices are those that were published
when it was allocated: where slices changed since, the Pods have to be rolled.

It also says whether the driver prepares a device for two claims, as far as that
shows: from its refusals, or because a device is held and watched at once. A
driver that doesn't keeps tenants from every device that is watched. Try it on a
node that nobody uses first.
` + environmentHelp(config.WatchPods{}) + `
Exit codes:
  0  every device is covered, and no tenant pays for it
  1  something isn't as it should be
  2  wrong arguments or configuration
  3  something couldn't be found out
`,
		Example: `  sickbay watch check --driver gpu.example.com`,
		Args:    noArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return checkWatch(cmd.Context(), streams, flags) },
	}
	flags.add(command)
	command.Flags().StringVarP(&flags.output, "output", "o", string(show.Table), "table, json or yaml")
	command.Flags().StringVar(&flags.colour, "color", "auto", "auto (on a terminal, unless NO_COLOR is set), always or never")
	completeWords(command, "output", "table", "json", "yaml")
	completeWords(command, "color", "auto", "always", "never")
	return command
}

func checkWatch(ctx context.Context, streams Streams, flags watchFlags) error {
	format, colour, err := flags.form(streams.Out)
	if err != nil {
		return err
	}
	if format == show.Name || format == show.Wide {
		return &usageError{fmt.Errorf("-o %s: want table, json or yaml", format)}
	}
	c, err := flags.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, flags.timeout)
	defer cancel()
	running, err := watchpods.Read(ctx, c.typed, c.untyped, flags.namespace, flags.driver)
	if err != nil {
		return err
	}
	report := doctor.Report{At: time.Now().UTC(), Findings: running.Findings()}
	if err := show.PrintReport(streams.Out, report, format, colour); err != nil {
		return err
	}
	switch {
	case report.Count(doctor.Missing)+report.Count(doctor.Degraded) > 0:
		return errUnhealthy
	case report.Count(doctor.Unknown) > 0:
		return errPartial
	}
	return nil
}
