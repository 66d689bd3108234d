package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/cmd/show"
	"github.com/sickbay-dev/sickbay/pkg/config"
)

type podFlags struct {
	peopleFlags
	namespace string
}

func newPod(streams Streams) *cobra.Command {
	var flags podFlags
	command := &cobra.Command{
		Use:   "pod NAMESPACE/NAME",
		Short: "Shows a Pod's devices with their health, which kubectl describe does not",
		Long: `Shows the devices of one Pod. The first line says what is wrong with them, the
last what happens next with each, or whose turn it is. Between them, for each
container and device: what the container's status says of it, and what Sickbay
decided. Devices that the Pod has by a claim and that no container reports on are
listed with "-" as HEALTH; entries of a terminated container are frozen: the
kubelet no longer keeps them.

Health entries that lead to no one device are listed apart, healthy ones too.

NAME alone is a Pod of the namespace of --namespace, or else of the kubeconfig.
` + environmentHelp(config.Client{}) + "\n" + exitCodesHelp,
		Example: `  sickbay pod team-a/train-0
  sickbay pod train-0 -n team-a -o wide`,
		GroupID: groupPeople,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return &usageError{fmt.Errorf("want one Pod, as NAMESPACE/NAME, not %q; see %s --help", args, cmd.CommandPath())}
		},
		ValidArgsFunction: flags.completePods,
		RunE:              func(cmd *cobra.Command, args []string) error { return runPod(cmd.Context(), streams, flags, args[0]) },
	}
	flags.add(command)
	command.Flags().StringVarP(&flags.namespace, "namespace", "n", "", "namespace of a Pod that is given by its name alone")
	return command
}

// podName takes a Pod's namespace and name apart.
func (f *podFlags) podName(text, otherwise string) (namespace, name string, err error) {
	namespace, name, both := strings.Cut(text, "/")
	if !both {
		name = namespace
		namespace = otherwise
		if f.namespace != "" {
			namespace = f.namespace
		}
	}
	switch {
	case namespace == "" || name == "" || strings.Contains(name, "/"):
		return "", "", &usageError{fmt.Errorf("%q isn't a Pod: want NAMESPACE/NAME", text)}
	case both && f.namespace != "" && f.namespace != namespace:
		return "", "", &usageError{fmt.Errorf("%q is in another namespace than --namespace %s; leave one of them out", text, f.namespace)}
	}
	return namespace, name, nil
}

func runPod(ctx context.Context, streams Streams, flags podFlags, text string) error {
	format, colour, err := flags.form(streams.Out)
	if err != nil {
		return err
	}
	from, err := flags.connect()
	if err != nil {
		return err
	}
	defer from.close()
	namespace, name, err := flags.podName(text, from.defaultNamespace)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	looked := from.look(ctx)
	story, err := from.podStory(ctx, namespace, name)
	seen := looked()
	if err != nil {
		return err
	}
	story.Blind = seen.blind
	lacking := warn(streams, story.Blind, story.Problems)
	if err := show.PrintPod(streams.Out, story, format, colour); err != nil {
		return fmt.Errorf("print the Pod's devices: %w", err)
	}
	note(streams, slices.Concat(story.Notes, seen.notes))
	return lacking
}

// podStory asks every source for what it knows of one Pod's devices.
func (s *sources) podStory(ctx context.Context, namespace, name string) (listing.PodStory, error) {
	pod, missing := listing.ReadPod(ctx, s.clients.Kubernetes, namespace, name)
	if missing != nil && !apierrors.IsNotFound(missing) {
		return listing.PodStory{}, fmt.Errorf("read Pod %s/%s: %w", namespace, name, missing)
	}
	cluster, err := listing.Read(ctx, s.clients)
	if err != nil {
		return listing.PodStory{}, err
	}
	if missing != nil {
		return listing.PodStory{}, listing.NoPod(cluster, namespace, name)
	}
	keys, err := listing.PodDevices(cluster, pod)
	if err != nil {
		return listing.PodStory{}, errors.Join(err, lackingError(cluster.Problems))
	}
	from := listing.Sources{Cluster: cluster}
	if len(keys) > 0 {
		from.Cases, from.CasesMissing, from.Problems = s.cases(ctx, listing.Workflows(keys...))
	}
	return listing.TellPod(pod, from, time.Now().UTC()), nil
}
