package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sickbay-dev/sickbay/pkg/config"
)

// Streams are where a command writes.
type Streams struct {
	Out io.Writer
	Err io.Writer
}

// Run runs the command line and returns the exit code. Cancelling ctx asks
// whatever runs for a clean end.
func Run(ctx context.Context, args []string, streams Streams) int {
	return RunAs(ctx, "sickbay", args, streams)
}

// RunAs is Run of a binary that was called by this name, os.Args[0]: as a plugin
// of kubectl it says of itself what its user typed.
func RunAs(ctx context.Context, called string, args []string, streams Streams) int {
	program, args := programOf(called, args)
	root := newRoot(streams)
	program.rename(root)
	root.SetArgs(args)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	err := root.ExecuteContext(ctx)
	if err != nil && !errors.Is(err, errPartial) && !errors.Is(err, errUnhealthy) {
		fmt.Fprintln(streams.Err, "sickbay:", strings.ReplaceAll(program.inText(err.Error()), "\n", "\nsickbay: "))
	}
	return exitCode(err)
}

func newRoot(streams Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "sickbay",
		Short: "Governs the health of accelerators in a Kubernetes cluster",
		Long: `Sickbay governs the health of accelerators (GPUs and other devices) in a
multi-tenant Kubernetes cluster, 1.36 and 1.37.

Kubernetes reports the health of allocated devices in the status of Pods. The
starter reads it there. Each device with a fault gets one durable Temporal
workflow, its case, run by the workers: it waits out what is only unknown, keeps
a faulty device out of new allocations by a mark that the scheduler obeys, and
keeps it out until it is proven healthy again. Nothing is ever deleted because
of an Unknown.

Both services change nothing in the cluster unless SICKBAY_MODE=enforce is set
for the workers. All settings are environment variables; each command's --help
shows those that it reads.

` + exitCodesHelp,
		Args:          noSubcommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
		// cobra sets this by itself only where it prints the suggestions.
		SuggestionsMinimumDistance: 2,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	})
	root.AddGroup(
		&cobra.Group{ID: groupServices, Title: "Services, deployed beside the cluster:"},
		&cobra.Group{ID: groupPeople, Title: "Commands for people:"},
	)
	root.AddCommand(newStarter(streams), newWorker(streams), newWatch(streams), newProbe(streams), newDevices(streams), newDevice(streams), newPod(streams),
		newIncidents(streams), newIncident(streams), newBudgets(streams), newPause(streams), newResume(streams), newQuarantine(streams), newLift(streams),
		newAudit(streams), newReport(streams), newPolicy(streams), newDoctor(streams), newRebuild(streams), newSetup(streams), newVersion(streams))
	root.AddCommand(newWords(streams)...)
	return root
}

const (
	groupServices = "services"
	groupPeople   = "people"
)

// noSubcommand refuses a word that is no subcommand; cobra by itself would show
// the help and succeed.
func noSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("there is no command %q; see %s --help", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text = fmt.Sprintf("there is no command %q; did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return &usageError{errors.New(text)}
}

// noArguments refuses arguments where a command takes none.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return &usageError{fmt.Errorf("%s takes no arguments, not %q; see %s --help", cmd.CommandPath(), args, cmd.CommandPath())}
}

// environmentHelp is the part of a command's help about the variables it reads.
func environmentHelp(spec any) string {
	var help strings.Builder
	help.WriteString("\nEnvironment:\n")
	if err := config.WriteHelp(&help, spec); err != nil {
		// A strings.Builder never fails.
		panic(err)
	}
	return help.String()
}
