package cmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/cmd/show"
	"github.com/sickbay-dev/sickbay/pkg/config"
)

// reportLimit bounds the reading of a long span's histories.
const reportLimit = 5 * time.Minute

type reportFlags struct {
	peopleFlags
	since string
}

func newReport(streams Streams) *cobra.Command {
	var flags reportFlags
	command := &cobra.Command{
		Use:   "report",
		Short: "Sums up what was kept out, or in mode observe would have been, and whether that was right",
		Long: `Sums up the cases since a time, by driver and reason: what to look at after a week
of observing, before Sickbay enforces anything.

  CASES         those that were open at some time in the span
  PASSED        came to nothing: the device was only suspected
  OUT           devices that were kept out by a mark
  WOULD BE OUT  devices that would have been, in mode enforce, or can't be
  REFUSED       had no permit at first, or would have had none: see "sickbay budgets"
  TIME OUT      for how long devices were, or would have been, kept out, added up
  RIGHT         how much of that time they weren't known to be healthy again

It is read from where "sickbay audit" reads. -o wide lists the cases, too.
` + environmentHelp(config.Audit{}) + "\n" + exitCodesHelp,
		Example: `  sickbay report --since 7d
  sickbay report --since 2026-11-01 -o wide`,
		GroupID: groupPeople,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runReport(cmd.Context(), streams, flags)
		},
	}
	set := command.Flags()
	set.StringVar(&flags.since, "since", "7d", "how long ago, like 90m, 24h or 7d, or a time or day (UTC)")
	set.StringVarP(&flags.output, "output", "o", string(show.Table), "table, wide, json, yaml or name")
	set.StringVar(&flags.colour, "color", "auto", "auto (on a terminal, unless NO_COLOR is set), always or never")
	completeWords(command, "output", "table", "wide", "json", "yaml", "name")
	completeWords(command, "color", "auto", "always", "never")
	return command
}

func runReport(ctx context.Context, streams Streams, flags reportFlags) error {
	format, colour, err := flags.form(streams.Out)
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	since, err := listing.ParseSince(flags.since, now)
	if err != nil {
		return &usageError{err}
	}
	var set config.Audit
	if err := config.Load(&set); err != nil {
		return err
	}
	from, end, err := connectTrail(set, "sickbay-report")
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, reportLimit)
	defer cancel()
	trail := from.ReadTrail(ctx, since, now, listing.TrailFilter{})
	lacking := warn(streams, nil, trail.Problems)
	if err := show.PrintOutcome(streams.Out, listing.ReportOf(trail), format, colour); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	note(streams, trail.Notes)
	return lacking
}
