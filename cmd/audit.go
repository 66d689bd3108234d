package cmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sickbay-dev/sickbay/activities"
	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/cmd/show"
	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/spelling"
)

// followEvery is how often the directory is asked for what is new.
const followEvery = 500 * time.Millisecond

type auditFlags struct {
	peopleFlags
	filter  listing.TrailFilter
	devices []string
	since   string
	follow  bool
}

func newAudit(streams Streams) *cobra.Command {
	var flags auditFlags
	command := &cobra.Command{
		Use:   "audit",
		Short: "Shows what was decided: what was seen, why, and by whom",
		Long: `Shows the audit trail, the oldest decision first:

  DECISION  what kind of decision it is: ` + kindsHelp() + `
  BY        sickbay, or the operator whose word led to it, as it claimed to be
  SEEN      what was seen that led to it: a report, or an operator's reason
  WHAT      what was decided, and why

It is read from the device directory, where SICKBAY_REDIS_ADDRESSES is set and as
far back as that reaches (an hour and more), and otherwise from Temporal: from the
histories of the cases that were open since then, as long as its namespace retains
them. The answer is the same, and Temporal's takes longer. No cluster and no worker
is needed.

Filters take several values, by commas or by repetition, of which any lets a
decision through; different filters all have to. In nodes, drivers, kinds and
actors * stands for any letters and ? for one.

--follow goes on showing what is decided, until SIGINT. It needs the directory.
` + environmentHelp(config.Audit{}) + "\n" + exitCodesHelp,
		Example: `  sickbay audit --since 1h
  sickbay audit --since 7d --actor '*@example.com' -o wide
  sickbay audit --device gpu.example.com/node-1/gpu-0 -o json
  sickbay audit --kind CaseOpened,MarkInForce --node 'rack7-*'
  sickbay audit --follow`,
		GroupID: groupPeople,
		Args:    noArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runAudit(cmd.Context(), streams, flags) },
	}
	set := command.Flags()
	set.StringVarP(&flags.output, "output", "o", string(show.Table), "table, wide, json, yaml or name")
	set.StringVar(&flags.colour, "color", "auto", "auto (on a terminal, unless NO_COLOR is set), always or never")
	set.StringVar(&flags.since, "since", "24h", "how long ago it begins, like 90m, 24h or 7d, or a time or day (UTC)")
	set.BoolVarP(&flags.follow, "follow", "f", false, "go on showing what is decided, until SIGINT")
	set.StringSliceVar(&flags.devices, "device", nil, "only decisions about these devices")
	set.StringSliceVar(&flags.filter.Nodes, "node", nil, "only about devices on these nodes")
	set.StringSliceVar(&flags.filter.Drivers, "driver", nil, "only about devices of these DRA drivers or device-plugin resources")
	set.StringSliceVar(&flags.filter.Kinds, "kind", nil, "only decisions of these kinds")
	set.StringSliceVar(&flags.filter.Actors, "actor", nil, "only decisions by these actors")
	completeWords(command, "output", "table", "wide", "json", "yaml", "name")
	completeWords(command, "color", "auto", "always", "never")
	completeFlag(command, "kind", completeList(func(context.Context) []string { return activities.Kinds() }))
	return command
}

// kindsHelp breaks the kinds into lines of the help.
func kindsHelp() string {
	const indent = "            "
	lines, line := []string{}, indent
	for i, kind := range activities.Kinds() {
		if i > 0 {
			line += ", "
		}
		if len(line)+len(kind) > 78 {
			lines, line = append(lines, strings.TrimRight(line, " ")), indent
		}
		line += kind
	}
	return "\n" + strings.Join(append(lines, line), "\n")
}

// check reads the filter, and names what doesn't fit together.
func (f *auditFlags) check(format show.Format) error {
	if f.follow && (format == show.YAML || format == show.Name) {
		return fmt.Errorf("--follow shows table, wide or json, not %s", format)
	}
	for _, name := range f.devices {
		key, err := device.ParseKey(name)
		if err != nil {
			return fmt.Errorf("--device: %w", err)
		}
		f.filter.Devices = append(f.filter.Devices, key)
	}
	if err := f.filter.Check(); err != nil {
		return err
	}
	kinds := activities.Kinds()
	for i, wanted := range f.filter.Kinds {
		at := slices.IndexFunc(kinds, func(k string) bool {
			matched, err := path.Match(wanted, k)
			return strings.EqualFold(k, wanted) || matched && err == nil
		})
		if at < 0 {
			want := "want one of " + strings.Join(kinds, ", ")
			if near := spelling.Nearest(wanted, kinds); near != "" {
				want = "did you mean " + near + "?"
			}
			return fmt.Errorf("--kind %q: there is no such decision; %s", wanted, want)
		}
		if strings.EqualFold(kinds[at], wanted) {
			f.filter.Kinds[i] = kinds[at]
		}
	}
	return nil
}

func runAudit(ctx context.Context, streams Streams, flags auditFlags) error {
	format, colour, err := flags.form(streams.Out)
	if err != nil {
		return err
	}
	if err := flags.check(format); err != nil {
		return &usageError{err}
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
	if flags.follow && !set.Redis.Configured() {
		return &usageError{errors.New("--follow needs the device directory: set SICKBAY_REDIS_ADDRESSES, or ask again with --since")}
	}
	from, end, err := connectTrail(set, "sickbay-audit")
	if err != nil {
		return err
	}
	defer end()
	if flags.follow {
		return followTrail(ctx, streams, flags, from, since, show.NewTrailWriter(streams.Out, format, colour))
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	trail := from.ReadTrail(ctx, since, now, flags.filter)
	lacking := warn(streams, nil, trail.Problems)
	if err := show.PrintTrail(streams.Out, trail, format, colour); err != nil {
		return fmt.Errorf("print the trail: %w", err)
	}
	note(streams, trail.Notes)
	return lacking
}

// connectTrail sets up the way to the audit trail, until end is called.
func connectTrail(set config.Audit, name string) (from listing.TrailSources, end func(), err error) {
	// What the clients log would break the answer; their errors are shown.
	silent := slog.New(slog.DiscardHandler)
	temporal, err := connectTemporal(set.Temporal, name, silent, nil)
	if err != nil {
		return from, nil, err
	}
	shown, closeDirectory, err := connectDirectory(set.Redis, name, silent)
	if err != nil {
		temporal.Close()
		return from, nil, err
	}
	end = func() {
		closeDirectory()
		temporal.Close()
	}
	return listing.TrailSources{Directory: shown, Temporal: temporal, Namespace: set.Temporal.Namespace}, end, nil
}

// followTrail shows the trail, and then what is decided. It goes on where it was
// after the directory was away, and reads again what it may have missed.
func followTrail(ctx context.Context, streams Streams, flags auditFlags, from listing.TrailSources, since time.Time, out *show.TrailWriter) error {
	shown := map[string]bool{}
	fresh := func(all []listing.Decision) []listing.Decision {
		return slices.DeleteFunc(all, func(d listing.Decision) bool {
			id := d.Name + " " + d.ID()
			was := shown[id]
			shown[id] = true
			return was
		})
	}
	pause := time.Second
	say := func(what string, err error) {
		fmt.Fprintf(streams.Err, "sickbay: %s: %v\n", what, err)
	}
	var position directory.Position
	for ctx.Err() == nil {
		var err error
		if position == nil {
			if position, err = from.Directory.Now(ctx); err == nil {
				reading, cancel := context.WithTimeout(ctx, readLimit)
				trail := from.ReadTrail(reading, since, time.Now().UTC(), flags.filter)
				cancel()
				for _, problem := range slices.Concat(trail.Problems, trail.Notes) {
					fmt.Fprintln(streams.Err, "sickbay:", problem)
				}
				if err := out.Write(fresh(trail.Decisions)); err != nil {
					return fmt.Errorf("print the trail: %w", err)
				}
			}
		}
		if err == nil {
			position, err = from.Directory.Follow(ctx, position, followEvery, func(t directory.Transition) error {
				pause = time.Second
				if t.Decision == nil {
					return nil
				}
				if err := out.Write(fresh(flags.filter.Narrow([]directory.Decision{*t.Decision}))); err != nil {
					return &printError{err}
				}
				return nil
			})
		}
		var print *printError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &print):
			return fmt.Errorf("print the trail: %w", err)
		case errors.Is(err, directory.ErrGap):
			say("the directory began anew; what was decided meanwhile is read again", err)
			position = nil
		case err != nil:
			say("the directory is away; it is asked again", err)
		}
		timer := time.NewTimer(pause)
		pause = min(2*pause, 10*time.Second)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// printError is one of the output, and not of the directory.
type printError struct{ error }

func (e *printError) Unwrap() error { return e.error }
