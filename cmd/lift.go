package cmd

// This file has the command by which an operator has an isolated node given back.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/isolation"
	nodewf "github.com/sickbay-dev/sickbay/workflows/node"
)

// liftFlags are those of that command.
type liftFlags struct {
	actor, reason string
	lasts         time.Duration
}

func newLift(streams Streams) *cobra.Command {
	var flags liftFlags
	command := &cobra.Command{
		Use:   "lift NODE --reason TEXT",
		Short: "Gives a node back that Sickbay isolated, and leaves it alone",
		Long: `Gives a whole node back that Sickbay isolated by its policy, although what isolated it
still holds. The node is left alone for as long as --for says, or until nothing justifies
its isolation any more; what comes after that isolates it anew. Its devices' own marks
stay, and so does a cordon of somebody else's.

The node's workflow answers at once. It asks Temporal, and needs a worker that runs; where
nobody says --actor, it asks the cluster who the kubeconfig's user is.
` + environmentHelp(config.Client{}) + "\n" + exitCodesHelp,
		Example: `  sickbay lift anvil-07 --reason 'the riser is swapped' --for 4h`,
		GroupID: groupPeople,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &usageError{fmt.Errorf("%s takes one node, as `sickbay devices` names those that are isolated; not %q", cmd.CommandPath(), args)}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runLift(cmd.Context(), streams, flags, strings.TrimPrefix(args[0], "node/"))
		},
	}
	set := command.Flags()
	set.StringVar(&flags.reason, "reason", "", "why; it is put on record")
	set.StringVar(&flags.actor, "actor", "", "who says so; the kubeconfig's user where it is left out")
	set.DurationVar(&flags.lasts, "for", 0, "how long, from 1m to 720h; until nothing justifies the isolation where it is left out")
	return command
}

func runLift(ctx context.Context, streams Streams, flags liftFlags, node string) error {
	if strings.TrimSpace(flags.reason) == "" {
		return &usageError{fmt.Errorf("%s without a reason: say why with --reason", isolation.VerbLift)}
	}
	m := isolation.Message{Verb: isolation.VerbLift, Actor: flags.actor, Reason: flags.reason, For: flags.lasts}
	var set config.Client
	err := config.Load(&set)
	if err != nil {
		return err
	}
	if m.Actor == "" {
		if m.Actor, err = actorOf(ctx, streams, set.Kubernetes); err != nil {
			return err
		}
	}
	temporal, err := connectTemporal(set.Temporal, "sickbay-lift", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return err
	}
	defer temporal.Close()
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	answer, err := nodewf.NewClient(temporal, set.Temporal.TaskQueue).Send(ctx, node, m)
	if errors.Is(err, nodewf.ErrNone) {
		return fmt.Errorf("%w; `sickbay devices` names those that are isolated: %w", err, listing.ErrNotFound)
	}
	if err != nil {
		return unanswered(err, "sickbay devices --node "+node)
	}
	until := "until nothing justifies its isolation"
	if !answer.Until.IsZero() {
		until = "until " + answer.Until.UTC().Format("2006-01-02 15:04:05 MST")
	}
	fmt.Fprintf(streams.Out, "%s; it is left alone %s\n", answer.Text, until)
	return nil
}
