package cmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/sickbay-dev/sickbay/cmd/show"
	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/config"
	permitswf "github.com/sickbay-dev/sickbay/workflows/permits"
)

// budgetFlags are those of the commands about budgets and pauses: they ask Temporal
// alone.
type budgetFlags struct {
	peopleFlags
	actor, reason string
	lasts         time.Duration
	upgrade       bool
}

func newBudgets(streams Streams) *cobra.Command {
	var flags budgetFlags
	command := &cobra.Command{
		Use:   "budgets",
		Short: "Shows how many devices are kept out of how many that may be, and who waits",
		Long: `Shows the budgets: how many devices of each scope are kept out, and how many may
be at once. A new mark beyond that waits; a device is given back all the same.

  SCOPE    cluster, class/NAME, tenant/NAMESPACE or node/NAME
  OUT      how many of its devices are kept out, or have a permit to be
  LIMIT    how many may be, from ALLOWS and OF; full when it is reached
  OF       how many devices it has, as far as starters count them
  WAITING  how many wait for this scope

Below it stand what operators have paused, and who waits, by whose turn it is: the
gravest first, then the one that has been bad for longest. Devices that are proven
healthy come back a few at a time: who does, and who waits for that, stands there, too.

It asks Temporal, and needs a worker that runs.
` + environmentHelp(config.Setup{}) + "\n" + exitCodesHelp,
		Example: `  sickbay budgets
  sickbay budgets -o json`,
		GroupID: groupPeople,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runBudgets(cmd.Context(), streams, flags)
		},
	}
	set := command.Flags()
	set.StringVarP(&flags.output, "output", "o", string(show.Table), "table, wide, json, yaml or name")
	set.StringVar(&flags.colour, "color", "auto", "auto (on a terminal, unless NO_COLOR is set), always or never")
	completeWords(command, "output", "table", "wide", "json", "yaml", "name")
	completeWords(command, "color", "auto", "always", "never")
	return command
}

const scopesHelp = `SCOPE is cluster, driver/NAME, class/NAME, tenant/NAMESPACE, pool/DRIVER/POOL,
node/NAME, or device/ and a device as "sickbay devices" names it.
`

func newPause(streams Streams) *cobra.Command {
	var flags budgetFlags
	command := &cobra.Command{
		Use:   "pause SCOPE --for DURATION --reason TEXT",
		Short: "Keeps no more devices out in a scope, for a time",
		Long: `Makes no new marks in a scope until the time is over. Evidence is still gathered:
cases are opened, go on and wait in sight, and what is kept out already stays out.
When the pause ends, each that waits is read anew before it is marked, one by one.
A pause ends by itself; "sickbay resume" ends it earlier.

` + scopesHelp + `
With --upgrade it announces that the driver of the scope is being upgraded. Unknown is
expected there then: it opens no case, makes no incident and restricts nothing. What is
still Unknown when the time is over counts from that moment on.
` + environmentHelp(config.Setup{}) + "\n" + exitCodesHelp,
		Example: `  sickbay pause node/anvil-07 --for 2h --reason 'swapping the riser'
  sickbay pause driver/gpu.example.com --for 30m --upgrade --reason 'driver 580.95'`,
		GroupID: groupPeople,
		Args:    oneBudgetScope,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runBudgetWord(cmd.Context(), streams, flags, budget.VerbPause, args[0])
		},
	}
	flags.addWord(command)
	command.Flags().DurationVar(&flags.lasts, "for", 0, "how long, at most 168h")
	command.Flags().BoolVar(&flags.upgrade, "upgrade", false, "the scope's driver is being upgraded, so that Unknown is expected; for a driver, pool or node")
	return command
}

func newResume(streams Streams) *cobra.Command {
	var flags budgetFlags
	command := &cobra.Command{
		Use:   "resume SCOPE --reason TEXT",
		Short: "Ends a scope's pauses",
		Long: `Ends all pauses of a scope, whoever began them; whose they were is on record. What
waited is read anew and, if it is still bad, kept out one by one.

` + scopesHelp + environmentHelp(config.Setup{}) + "\n" + exitCodesHelp,
		Example: `  sickbay resume node/anvil-07 --reason 'the riser is in'`,
		GroupID: groupPeople,
		Args:    oneBudgetScope,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runBudgetWord(cmd.Context(), streams, flags, budget.VerbResume, args[0])
		},
	}
	flags.addWord(command)
	return command
}

func (f *budgetFlags) addWord(command *cobra.Command) {
	set := command.Flags()
	set.StringVar(&f.reason, "reason", "", "why; it is put on record")
	set.StringVar(&f.actor, "actor", "", "who says so; the user's name where it is left out")
}

func oneBudgetScope(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 1:
		if _, err := budget.ParseScope(args[0]); err != nil {
			return &usageError{err}
		}
		return nil
	case 0:
		return &usageError{fmt.Errorf("%s of what? Name a scope; see %s --help", cmd.Name(), cmd.CommandPath())}
	}
	return &usageError{fmt.Errorf("%s takes one scope, not %q", cmd.CommandPath(), args)}
}

// connectPermits sets up the way to the permits workflow.
func connectPermits() (*permitswf.Client, client.Client, error) {
	var set config.Setup
	if err := config.Load(&set); err != nil {
		return nil, nil, err
	}
	temporal, err := connectTemporal(set.Temporal, "sickbay-budgets", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return nil, nil, err
	}
	return permitswf.NewClient(temporal, set.Temporal.TaskQueue), temporal, nil
}

func runBudgets(ctx context.Context, streams Streams, flags budgetFlags) error {
	format, colour, err := flags.form(streams.Out)
	if err != nil {
		return err
	}
	permits, temporal, err := connectPermits()
	if err != nil {
		return err
	}
	defer temporal.Close()
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	view, err := permits.View(ctx)
	if errors.Is(err, permitswf.ErrEnded) {
		return warn(streams, nil, []string{"workflow " + permitswf.ID + " was ended, and what it knew is lost; it begins anew by itself, within a minute where a starter runs. Pauses are no more: say again what is still to be paused"})
	}
	if errors.Is(err, permitswf.ErrNone) {
		if format == show.Table || format == show.Wide {
			fmt.Fprintln(streams.Out, "No budget is in use: nothing was to be kept out yet.")
			return nil
		}
		err = nil
	}
	if err != nil {
		return err
	}
	if err := show.PrintBudgets(streams.Out, show.BudgetsOf(view, time.Now().UTC()), format, colour); err != nil {
		return fmt.Errorf("print the budgets: %w", err)
	}
	return nil
}

func runBudgetWord(ctx context.Context, streams Streams, flags budgetFlags, verb budget.Verb, name string) error {
	scope, err := budget.ParseScope(name)
	if err != nil {
		return &usageError{err}
	}
	switch {
	case strings.TrimSpace(flags.reason) == "":
		return &usageError{fmt.Errorf("%s without a reason: say why with --reason", verb)}
	case verb == budget.VerbPause && flags.lasts == 0:
		return &usageError{errors.New("pause for how long? Say it with --for; a pause ends by itself")}
	}
	m := budget.Message{Verb: verb, Scope: scope, For: flags.lasts, Upgrade: flags.upgrade, Actor: flags.actor, Reason: flags.reason}
	if m.Actor == "" {
		if m.Actor, err = userName(); err != nil {
			return err
		}
	}
	permits, temporal, err := connectPermits()
	if err != nil {
		return err
	}
	defer temporal.Close()
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	accepted, err := permits.Send(ctx, m)
	if err != nil {
		return unanswered(err, "sickbay budgets")
	}
	text := accepted.Text
	if !accepted.Until.IsZero() {
		text += ", until " + accepted.Until.UTC().Format("2006-01-02 15:04:05 MST")
	}
	fmt.Fprintln(streams.Out, text)
	if view, err := permits.View(ctx); err == nil && verb == budget.VerbPause {
		note(streams, uncounted(scope, view.Book.Sizes))
	}
	return nil
}

// uncounted says that starters count no device of the driver or class that was named: it
// is paused, and most likely another one was meant. Of other scopes nobody knows here.
func uncounted(scope budget.Scope, sizes []budget.Size) []string {
	name := scope.Name
	switch scope.Kind {
	case budget.Driver, budget.Class:
	case budget.Pool:
		name, _, _ = strings.Cut(name, "/")
	default:
		return nil
	}
	var counted []string
	for _, size := range sizes {
		if size.Scope.Kind == budget.Class {
			counted = append(counted, size.Scope.Name)
		}
	}
	if len(counted) == 0 || slices.Contains(counted, name) {
		return nil
	}
	return []string{fmt.Sprintf("no device of %s is known; those of %s are. See that the name is right, or end it: sickbay resume %s --reason TEXT", name, strings.Join(counted, ", "), scope)}
}
