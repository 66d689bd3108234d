package cmd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"golang.org/x/term"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/cmd/live"
	"github.com/sickbay-dev/sickbay/cmd/show"
	"github.com/sickbay-dev/sickbay/pkg/config"
)

// readLimit bounds one reading of the cluster.
const readLimit = 60 * time.Second

type devicesFlags struct {
	filter listing.Filter
	output string
	colour string
	watch  bool
}

func newDevices(streams Streams) *cobra.Command {
	var flags devicesFlags
	command := &cobra.Command{
		Use:   "devices [DEVICE...]",
		Short: "Lists devices: what is reported, what was decided, what keeps them out",
		Long: `Lists the devices of the cluster, healthy ones too:

  DEVICE   driver/pool/device, or node|resource|ID for a device plugin's
  HEALTH   the worst that Pods report now; "-" where no Pod reports on it,
           NotListed where neither a slice nor a Pod names it
  PHASE    where its case stands; "-" without a case
  WAITING  what the case waits for
  REASON   the reason code of the case
  MARK     what keeps it out of new allocations: InForce, Observed (mode observe,
           nothing is made), Advisory (nothing to mark it with), Refused, Changed …
  HOLDERS  the Pods that have it allocated
  SINCE    the age of the case

Health entries that can't be attributed to one device follow in a table of their
own, as long as they aren't Healthy.

The command reads ResourceSlices, ResourceClaims, Pods and DeviceTaintRules, and
asks Temporal for the open cases. Without Temporal it answers from the marks and
says so; what it could not read is said on standard error.
` + environmentHelp(config.Client{}) + "\n" + exitCodesHelp,
		Example: `  sickbay devices --faulty
  sickbay devices --watch
  sickbay devices gpu.example.com/node-1/gpu-0 -o yaml`,
		GroupID: groupPeople,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, names []string) error {
			flags.filter.Names = names
			return runDevices(cmd.Context(), streams, flags)
		},
	}
	command.Flags().StringVarP(&flags.output, "output", "o", string(show.Table), "table, wide, json, yaml or name")
	command.Flags().BoolVarP(&flags.watch, "watch", "w", false, "go on showing what changes, until SIGINT")
	command.Flags().BoolVar(&flags.filter.Faulty, "faulty", false, "only devices with a case, a mark, or a report that isn't Healthy")
	command.Flags().StringVar(&flags.filter.Node, "node", "", "only devices on this node")
	command.Flags().StringVar(&flags.filter.Driver, "driver", "", "only devices of this DRA driver or device-plugin resource")
	command.Flags().StringVar(&flags.colour, "color", "auto", "auto (on a terminal, unless NO_COLOR is set), always or never")
	completeWords(command, "output", "table", "wide", "json", "yaml", "name")
	completeWords(command, "color", "auto", "always", "never")
	return command
}

// completeWords lets the shell complete a flag's value.
func completeWords(command *cobra.Command, flag string, words ...string) {
	if err := command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		// Only a flag that isn't there is refused.
		panic(err)
	}
}

func runDevices(ctx context.Context, streams Streams, flags devicesFlags) error {
	format, colour, err := flags.form(streams.Out)
	if err != nil {
		return &usageError{err}
	}
	var set config.Client
	if err := config.Load(&set); err != nil {
		return err
	}
	// What the clients log would break the table; their errors are shown.
	silent := slog.New(slog.DiscardHandler)
	klog.SetSlogLogger(silent)
	clients, err := readClients(set.Kubernetes)
	if err != nil {
		return err
	}
	temporal, err := connectTemporal(set.Temporal, "sickbay-devices", silent)
	if err != nil {
		return err
	}
	defer temporal.Close()
	if flags.watch {
		return live.Run(ctx, live.Options{
			Clients: clients, Temporal: temporal, Namespace: set.Temporal.Namespace, Filter: flags.filter,
			Screen: show.NewScreen(streams.Out, format, colour, terminalSize(streams.Out)),
		})
	}
	return listDevices(ctx, streams, flags.filter, format, colour, clients, temporal, set.Temporal.Namespace)
}

func (f devicesFlags) form(out io.Writer) (format show.Format, colour bool, err error) {
	format, err = show.ParseFormat(f.output)
	if err != nil {
		return "", false, err
	}
	if f.watch && format != show.Table && format != show.Wide {
		return "", false, fmt.Errorf("--watch shows table or wide, not %s", format)
	}
	switch f.colour {
	case "always":
		return format, true, nil
	case "never":
		return format, false, nil
	case "auto":
		return format, terminalSize(out) != nil && os.Getenv("NO_COLOR") == "", nil
	}
	return "", false, fmt.Errorf("--color %q: want auto, always or never", f.colour)
}

func readClients(set config.Kubernetes) (listing.Clients, error) {
	cluster, err := connectKubernetes(set, "sickbay-devices")
	if err != nil {
		return listing.Clients{}, err
	}
	typed, err := kubernetes.NewForConfig(cluster.rest)
	if err != nil {
		return listing.Clients{}, &configurationError{fmt.Errorf("set up the client for %s: %w", cluster.rest.Host, err)}
	}
	untyped, err := dynamic.NewForConfig(cluster.rest)
	if err != nil {
		return listing.Clients{}, &configurationError{fmt.Errorf("set up the client for %s: %w", cluster.rest.Host, err)}
	}
	return listing.Clients{Kubernetes: typed, Dynamic: untyped, Discovery: typed.Discovery()}, nil
}

// listDevices answers once.
func listDevices(ctx context.Context, streams Streams, filter listing.Filter, format show.Format, colour bool,
	clients listing.Clients, temporal client.Client, namespace string,
) error {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	cluster, err := listing.Read(ctx, clients)
	if err != nil {
		return err
	}
	cases, problems := listing.NewCaseReader(temporal, namespace, 0).Read(ctx)
	cluster.Problems = append(cluster.Problems, problems...)
	narrowed, missing := listing.Join(cluster, cases, time.Now().UTC()).Narrow(filter)
	if err := show.Print(streams.Out, narrowed, format, colour); err != nil {
		return fmt.Errorf("print the listing: %w", err)
	}
	for _, said := range slices.Concat(narrowed.Problems, narrowed.Notes) {
		fmt.Fprintln(streams.Err, "sickbay:", said)
	}
	if len(missing) > 0 {
		return fmt.Errorf("no device called %s", strings.Join(missing, ", "))
	}
	if len(narrowed.Problems) > 0 {
		return errPartial
	}
	return nil
}

// terminalSize returns how to ask for a terminal's size, or nil if out is none.
func terminalSize(out io.Writer) func() (columns, lines int, err error) {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	return func() (int, int, error) { return term.GetSize(int(file.Fd())) }
}
