package cmd

// This file tells what is in force: `sickbay policy show` and `sickbay policy explain`.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/cmd/show"
	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/policywatch"
	"github.com/sickbay-dev/sickbay/pkg/reading"
)

// policyFlags are those of the commands about what is in force.
type policyFlags struct {
	output     string
	kubeconfig string
	context    string
	classes    []string
}

func (f *policyFlags) add(command *cobra.Command) {
	command.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file, instead of SICKBAY_KUBECONFIG")
	command.Flags().StringVar(&f.context, "context", "", "context of the kubeconfig, instead of SICKBAY_KUBE_CONTEXT")
}

func newPolicyShow(streams Streams) *cobra.Command {
	var flags policyFlags
	command := &cobra.Command{
		Use:   "show",
		Short: "Shows the policy that is in the cluster",
		Long: `Shows the policy that is in the ConfigMap ` + policy.ConfigMapName + `, and whether it can be in
force: a wrong one isn't, and all that is wrong in it is said.
` + environmentHelp(config.Governed{}) + "\n" + exitCodesHelp,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runPolicyShow(cmd.Context(), streams, flags)
		},
	}
	flags.add(command)
	return command
}

func newPolicyExplain(streams Streams) *cobra.Command {
	var flags policyFlags
	command := &cobra.Command{
		Use:   "explain DEVICE",
		Short: "Tells what holds for a device, and who said so",
		Long: `Tells what the policy in the cluster comes to for one device: each value, and where
it comes from. DEVICE is driver/pool/device, or 'node|resource|ID' for a device
plugin's.

Its classes are those by which it is claimed, as cases go by them; --class says them
without asking. What the policy says nothing of comes from the workers' environment, which can't be seen from here:
what is shown is this command's own. It is the workers' where it runs in their Pod.
` + environmentHelp(config.Governed{}) + "\n" + exitCodesHelp,
		Example: `  sickbay policy explain gpu.example.com/node-0/gpu-0
  sickbay policy explain gpu.example.com/node-0/gpu-0 --class a100 -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return &usageError{fmt.Errorf("%s wants one device, not %q; `sickbay devices -o name` lists all", cmd.CommandPath(), args)}
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPolicyExplain(cmd.Context(), streams, flags, args[0])
		},
	}
	flags.add(command)
	command.Flags().StringSliceVar(&flags.classes, "class", nil, "the device's classes, instead of those by which it is claimed")
	command.Flags().StringVarP(&flags.output, "output", "o", string(show.Table), "table, json or yaml")
	completeWords(command, "output", "table", "json", "yaml")
	return command
}

// governed is what the commands ask.
type governed struct {
	set     config.Governed
	cluster cluster
	// namespaces are where the policy may be: a person's kubeconfig has another one than
	// the services have.
	namespaces []string
}

func (f *policyFlags) connect() (governed, error) {
	var set config.Governed
	if err := config.Load(&set); err != nil {
		return governed{}, err
	}
	set.Kubeconfig, set.KubeContext = cmp.Or(f.kubeconfig, set.Kubeconfig), cmp.Or(f.context, set.KubeContext)
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	c, err := connectKubernetes(set.Kubernetes, "sickbay-policy", nil)
	if err != nil {
		return governed{}, err
	}
	namespaces := []string{set.PolicyNamespace}
	if set.PolicyNamespace == "" {
		namespaces = slices.Compact([]string{c.namespace, shippedNamespace})
	}
	return governed{set, c, namespaces}, nil
}

// read asks for the policy. object is nil where there is none.
func (g governed) read(ctx context.Context) (object *corev1.ConfigMap, document *policy.Document, err error) {
	var failed error
	for _, namespace := range g.namespaces {
		object, err := g.cluster.typed.CoreV1().ConfigMaps(namespace).Get(ctx, policy.ConfigMapName, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			// Who is let into one namespace needn't be into another.
			failed = cmp.Or(failed, fmt.Errorf("read ConfigMap %s: %w", policyIn(namespace), err))
			continue
		}
		document, err := policywatch.Parse(object)
		if err != nil {
			return object, nil, inFile("ConfigMap "+policyIn(namespace), err)
		}
		return object, document, nil
	}
	return nil, nil, failed
}

func policyIn(namespace string) string { return namespace + "/" + policy.ConfigMapName }

// none says that there is no policy.
func (g governed) none() string {
	var names []string
	for _, namespace := range g.namespaces {
		names = append(names, policyIn(namespace))
	}
	return "there is no ConfigMap " + strings.Join(names, " and no ") + "; the environment of starter and workers holds"
}

func runPolicyShow(ctx context.Context, streams Streams, flags policyFlags) error {
	from, err := flags.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	object, document, err := from.read(ctx)
	if err != nil {
		return err
	}
	if object == nil {
		fmt.Fprintln(streams.Out, from.none())
		return nil
	}
	text, err := document.Text()
	if err != nil {
		return fmt.Errorf("write the policy: %w", err)
	}
	fmt.Fprintf(streams.Out, "# ConfigMap %s, version %s: %s\n%s", policyIn(object.Namespace), object.ResourceVersion, aboutPolicy(document), text)
	return nil
}

func runPolicyExplain(ctx context.Context, streams Streams, flags policyFlags, name string) error {
	format, err := show.ParseFormat(flags.output)
	if err != nil || !slices.Contains([]show.Format{show.Table, show.JSON, show.YAML}, format) {
		return &usageError{fmt.Errorf("-o %q: want table, json or yaml", flags.output)}
	}
	from, err := flags.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	key, classes, err := from.device(ctx, name, flags.classes)
	if err != nil {
		return err
	}
	object, document, err := from.read(ctx)
	if err != nil {
		return fmt.Errorf("%w\nprocesses that read an earlier one go by that; `sickbay policy check` tells what is wrong before it is applied", err)
	}
	held := policy.New(from.set.Base(from.set.Reporting), document)
	if object == nil && format == show.Table {
		note(streams, []string{from.none()})
	}
	answer := show.Held{Device: key.String(), Classes: classes, Values: held.Explain(reading.DriverOf(key), classes)}
	if err := show.PrintHeld(streams.Out, answer, format); err != nil {
		return fmt.Errorf("print what holds: %w", err)
	}
	return nil
}

// device finds the device that is meant, and the classes by which it is claimed.
func (g governed) device(ctx context.Context, name string, classes []string) (device.Key, []string, error) {
	if len(classes) > 0 {
		key, err := device.ParseKey(name)
		return key, classes, err
	}
	read, err := listing.Read(ctx, listing.Clients{
		Kubernetes: g.cluster.typed, Dynamic: g.cluster.untyped, Discovery: g.cluster.typed.Discovery(), Delays: g.set.ReportingDelay.Of, Ours: oursIn(g.set.ProbePlace),
	})
	if err != nil {
		return device.Key{}, nil, err
	}
	survey := listing.NewSurvey(read)
	key, err := survey.Resolve(name)
	if err != nil {
		return device.Key{}, nil, err
	}
	if _, listed := survey.Device(key); !listed {
		return device.Key{}, nil, errors.Join(survey.Unknown(key, false), errors.New("--class tells its classes without asking"))
	}
	return key, claimedBy(key, read.Claims), nil
}

// claimedBy are the classes by which a device is claimed: a policy goes by what somebody
// asked for, and not by what a class would admit.
func claimedBy(key device.Key, claims []device.Claim) []string {
	if key.Path() == device.PathPlugin {
		return []string{key.Resource}
	}
	var classes []string
	for _, claim := range claims {
		for _, result := range claim.Results {
			if result.Device == key && result.Holds() && result.Class != "" {
				classes = append(classes, result.Class)
			}
		}
	}
	slices.Sort(classes)
	return slices.Compact(classes)
}
