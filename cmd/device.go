package cmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/cmd/show"
	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/device"
)

// decisionsShown is how many decisions a story shows where nobody asks for more.
const decisionsShown = 15

type deviceFlags struct {
	peopleFlags
	timeline int
}

func newDevice(streams Streams) *cobra.Command {
	var flags deviceFlags
	command := &cobra.Command{
		Use:   "device DEVICE",
		Short: "Tells one device's story: how it is, why, since when, and what happens next",
		Long: `Tells all that is known of one device. The first line says how it is, the last
what happens next and when, or whose turn it is. Between them:

  Signals    allocation, device health, container readiness and business
             objective, each on its own: none of them stands in for another
  Case       phase, reason, who opened it and when, its record and lease, its mark
             and whether it is in force, operators' words, its workflow
  Evidence   what each Pod says of the device: since when (AGE), and the status
             version, the Pod's resourceVersion at which it first said so. Without
             a case nobody keeps that: "≤" is then before the Pod's present one.
             The line below says how old all of it may be
  On the same chip
             its parent, its children, and other parts of its chip
  Timeline   what was decided, when and by whom, as Temporal keeps it; cases that
             are over too, as long as its namespace retains them

DEVICE is driver/pool/device, 'node|resource|ID' for a device plugin's (quoted,
because of the shell), or the ID of its workflow.

Without Temporal the answer comes from the marks and says so. Decisions come from
Temporal alone and need no worker; what a case waits for, and what it does next,
is known where a worker runs.
` + environmentHelp(config.Client{}) + "\n" + exitCodesHelp,
		Example: `  sickbay device gpu.example.com/node-1/gpu-0
  sickbay device 'node-1|example.com/gpu|GPU-7d1a' -o wide
  sickbay device gpu.example.com/node-1/gpu-0 -o json`,
		GroupID: groupPeople,
		Args: func(cmd *cobra.Command, args []string) error {
			switch len(args) {
			case 1:
				return nil
			case 0:
				return &usageError{errors.New("which device? Want driver/pool/device; `sickbay devices --faulty -o name` lists those that something is wrong with")}
			}
			return &usageError{fmt.Errorf("%s tells of one device at a time, not of %d; `sickbay devices DEVICE...` lists several", cmd.CommandPath(), len(args))}
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return flags.completeDevices(cmd, args, toComplete)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runDevice(cmd.Context(), streams, flags, args[0])
		},
	}
	flags.add(command)
	command.Flags().IntVar(&flags.timeline, "timeline", decisionsShown, "decisions to show, the latest ones; 0 shows all. JSON and YAML always have all")
	return command
}

func runDevice(ctx context.Context, streams Streams, flags deviceFlags, name string) error {
	format, colour, err := flags.form(streams.Out)
	if err != nil {
		return err
	}
	if flags.timeline < 0 {
		return &usageError{fmt.Errorf("--timeline %d: want a number of decisions, or 0 for all", flags.timeline)}
	}
	from, err := flags.connect()
	if err != nil {
		return err
	}
	defer from.close()
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	looked := from.look(ctx)
	story, err := from.story(ctx, name)
	seen := looked()
	if err != nil {
		return err
	}
	story.Blind = seen.blind
	lacking := warn(streams, story.Blind, story.Problems)
	if err := show.PrintStory(streams.Out, story, format, colour, flags.timeline); err != nil {
		return fmt.Errorf("print the story: %w", err)
	}
	note(streams, slices.Concat(story.Notes, seen.notes))
	return lacking
}

// story asks every source for what it knows of one device.
func (s *sources) story(ctx context.Context, name string) (listing.Story, error) {
	cluster, err := listing.Read(ctx, s.clients)
	if err != nil {
		return listing.Story{}, err
	}
	survey := listing.NewSurvey(cluster)
	key, err := survey.Resolve(name)
	if err != nil {
		return listing.Story{}, err
	}
	asked := append([]device.Key{key}, slices.SortedFunc(maps.Keys(survey.Relatives(key)), device.Key.Compare)...)
	from := listing.Sources{Cluster: cluster}
	from.Cases, from.CasesMissing, from.Problems = s.cases(ctx, listing.Workflows(asked...))
	own := listing.Workflows(key)[0]
	if !from.CasesMissing {
		var problem string
		if from.Timeline, problem = listing.ReadTimeline(ctx, s.temporal, s.namespace, own); problem != "" {
			from.Problems = append(from.Problems, problem)
		}
	}
	known, listed := survey.Device(key)
	if !listed && len(from.Timeline) == 0 && !slices.ContainsFunc(from.Cases, func(c listing.Case) bool { return c.Workflow == own }) {
		return listing.Story{}, errors.Join(survey.Unknown(key, from.CasesMissing), lackingError(from.Problems))
	}
	var problems []string
	from.Pods, problems = listing.ReadPods(ctx, s.clients.Kubernetes, known.Holders)
	from.Problems = append(from.Problems, problems...)
	story := listing.Tell(key, from, time.Now().UTC())
	if story.Device.Workflow == "" && len(from.Timeline) > 0 {
		// The case is over; its workflow still tells what it did.
		story.UI = s.link(own, "")
	}
	for _, c := range from.Cases {
		if c.Workflow == own {
			story.UI = s.link(own, c.Run)
		}
	}
	return story, nil
}

// lackingError says beside another error what could not be read.
func lackingError(problems []string) error {
	var errs []error
	for _, p := range problems {
		errs = append(errs, errors.New(p))
	}
	return errors.Join(errs...)
}
