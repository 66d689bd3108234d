package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sickbay-dev/sickbay/cmd/probe"
)

// probeFlags are those of `sickbay probe`.
type probeFlags struct {
	nodes, env, mounts, expect, run []string
	schedule                        probe.Schedule
	report                          string
}

const probeExitCodes = `Exit codes:
  0  passed: every check was ok, each time
  1  failed: a check wasn't
  2  wrong arguments
  3  not checked: no check failed, but one couldn't be made, or SIGTERM or SIGINT
     came before it was done
`

func newProbe(streams Streams) *cobra.Command {
	var flags probeFlags
	command := &cobra.Command{
		Use:   "probe",
		Short: "Checks, in a container that was given a device, what it can see of it",
		Long: `Checks what a container can see of the one device that it was given. It is what
Sickbay runs on a device before it gives it back, where the policy names no other
program (docs/recovery.md); it asks nobody and reads no variables of Sickbay's.

Without flags it looks for all that a driver may give a container, and every
container hasn't got anyway:
  node      a device node below /dev: it can be opened. Nothing is written to it
  env       a variable whose name or value names a device: it says something
  mount     a file or directory that was mounted: it can be read
  identity  where DEVICE_UUID says which device is meant, and a variable of the
            driver's has a UUID of that kind: it is the same one
Nothing of all that is a failed check, too (device). What it was given may say
nothing of whether the device computes: for that name a vendor's check with --run,
or a vendor's image in the policy.

With --for it does so again and again, stops at the first failure, and what was
there the first time has to be there each time. It goes on checking, and is no
load.

A report is left in /dev/termination-log, from where it gets into the Pod's status:
JSON of at most 4096 bytes with format (` + probe.Format + `), verdict (passed,
failed or unchecked), summary, began, ended, rounds, checks (each with check,
about, state and detail; those that aren't ok first) and left, the number of those
that had no room.

` + probeExitCodes,
		Example: `  sickbay probe
  sickbay probe --for 5m --every 10s
  sickbay probe --device-node /dev/nvidia0 --expect uuid=GPU-0a671a0b-deed-4727-8000-1a0bdeedb727
  sickbay probe --run 'nvidia-smi -L'`,
		GroupID: groupServices,
		Args:    noSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runProbe(cmd.Context(), streams, flags)
		},
		// cobra sets this by itself only where it prints the suggestions.
		SuggestionsMinimumDistance: 2,
	}
	set := command.Flags()
	set.StringArrayVar(&flags.nodes, "device-node", nil, "device node that has to be there, and can be opened; instead of whichever there are. Several times for several")
	set.StringArrayVar(&flags.env, "env", nil, "variable that has to be set; instead of whichever there are. Several times for several")
	set.StringArrayVar(&flags.mounts, "mount", nil, "file or directory that has to be there, and can be read; instead of whatever was mounted. Several times for several")
	set.StringArrayVar(&flags.expect, "expect", nil, "NAME=VALUE: the value has to be in a variable, the name of a node or mount, or a mounted file, like uuid=GPU-…")
	set.StringArrayVar(&flags.run, "run", nil, "command that has to end with exit code 0, in words that spaces separate; there is no shell. Several times for several")
	set.DurationVar(&flags.schedule.For, "for", 0, "check again and again for this long, like 5m (default: once)")
	set.DurationVar(&flags.schedule.Every, "every", 10*time.Second, "how far apart checks begin with --for")
	set.DurationVar(&flags.schedule.Timeout, "timeout", 10*time.Minute, "how long all checks may take, each time; one that takes longer has failed")
	set.StringVar(&flags.report, "report", probe.TerminationLog, "file to leave the report in; empty: none")
	command.AddCommand(newProbeHold(streams))
	return command
}

func newProbeHold(streams Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "hold",
		Short: "Waits, in a Pod that has a device while it is proven healthy",
		Long: `Waits until it is told to end by SIGTERM or SIGINT, and does nothing: it is what the
Pod runs that has a device through a whole attempt at recovery, so that nobody else
gets it and the kubelet goes on saying how it is (docs/recovery.md).

` + exitCodesHelp,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintln(streams.Err, "Waiting until told to end, as the process of a Pod that has a device; see sickbay probe hold --help.")
			probe.Hold(cmd.Context())
			return nil
		},
	}
}

// options reads what is to be checked.
func (f probeFlags) options() (probe.Options, error) {
	options := probe.Options{Nodes: f.nodes, Env: f.env, Mounts: f.mounts}
	var errs []error
	for _, path := range f.nodes {
		if !strings.HasPrefix(path, "/") {
			errs = append(errs, fmt.Errorf("--device-node %q: want a whole path, such as /dev/nvidia0", path))
		}
	}
	for _, path := range f.mounts {
		if !strings.HasPrefix(path, "/") {
			errs = append(errs, fmt.Errorf("--mount %q: want a whole path, such as /usr/lib/libvendor.so", path))
		}
	}
	for _, name := range f.env {
		if name == "" || strings.Contains(name, "=") {
			errs = append(errs, fmt.Errorf("--env %q: want the name of a variable, such as NVIDIA_VISIBLE_DEVICES; what it says is for --expect", name))
		}
	}
	for _, text := range f.expect {
		wanted, err := probe.ParseExpectation(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--expect %w", err))
		}
		options.Expect = append(options.Expect, wanted)
	}
	for _, text := range f.run {
		words := strings.Fields(text)
		if len(words) == 0 {
			errs = append(errs, fmt.Errorf("--run %q: want a command, such as 'nvidia-smi -L'", text))
		}
		options.Run = append(options.Run, words)
	}
	switch s := f.schedule; {
	case s.For < 0:
		errs = append(errs, fmt.Errorf("--for %s: want a duration such as 5m", s.For))
	case s.Every <= 0:
		errs = append(errs, fmt.Errorf("--every %s: want more than nothing", s.Every))
	case s.Timeout <= 0:
		errs = append(errs, fmt.Errorf("--timeout %s: want more than nothing", s.Timeout))
	}
	if len(errs) > 0 {
		return options, &usageError{errors.Join(errs...)}
	}
	return options, nil
}

func runProbe(ctx context.Context, streams Streams, flags probeFlags) error {
	options, err := flags.options()
	if err != nil {
		return err
	}
	report, err := probe.Run(ctx, streams.Out, probe.Here(), options, flags.schedule, flags.report)
	if err != nil {
		fmt.Fprintln(streams.Err, "sickbay:", err)
	}
	switch report.Verdict {
	case probe.Failed:
		return errUnhealthy
	case probe.Unchecked:
		return errPartial
	}
	return nil
}
