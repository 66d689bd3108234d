package cmd

// This file has the commands by which an operator speaks to a device's case.

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
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// wordFlags are those of an operator's word on a case.
type wordFlags struct {
	peopleFlags
	actor, reason, ticket string
	lasts                 time.Duration
	epoch                 int64
	force                 bool
}

// word is an operator's word on a case, as a command.
type word struct {
	verb                 quarantine.Verb
	short, long, example string
}

var words = [...]word{
	{
		quarantine.VerbRelease, "Closes a case's reason and lets the device be proven healthy",
		`Closes the reason of a device's case and begins an attempt at recovery as soon as it
can be. It skips no gate: the device comes back when it has passed all of them. In the
middle of an attempt it is refused, unless the reason waits for this word, and so it is
with --force: the answer names the gate that is under way or failed, and what it found.
Of a restricted device that nobody holds it lets one more Pod have it.
`, `  sickbay release gpu.example.com/anvil-07/gpu-3 --reason 'reseated the card'`,
	},
	{
		quarantine.VerbRepaired, "Says that hands were laid on a device",
		`Says that a device was repaired: attempts at recovery start over, also of a device that
was retired. It is given back when it has passed all gates, and never by this word.
`, `  sickbay repaired gpu.example.com/anvil-07/gpu-3 --reason 'new riser' --ticket RMA-1234`,
	},
	{
		quarantine.VerbRetire, "Keeps a device out until it is repaired or replaced",
		`Keeps a device out until somebody says that it is repaired, or other hardware is in its
place. An attempt at recovery that is under way ends, and doesn't count.
`, `  sickbay retire gpu.example.com/anvil-07/gpu-3 --reason 'third time this week'`,
	},
	{
		quarantine.VerbExtend, "Extends the lease of a case's record",
		`Extends the lease of a device's record, by --for or by the usual time (SICKBAY_LEASE).
It never shortens one. The end of a lease frees no device: it has it looked at again.
`, `  sickbay extend gpu.example.com/anvil-07/gpu-3 --for 48h --reason 'waiting for a spare'`,
	},
}

// newWords are the commands for an operator's words on a case.
func newWords(streams Streams) []*cobra.Command {
	var commands []*cobra.Command
	for _, w := range words {
		commands = append(commands, newWord(streams, w))
	}
	return commands
}

func newWord(streams Streams, w word) *cobra.Command {
	var flags wordFlags
	command := &cobra.Command{
		Use:   string(w.verb) + " DEVICE --reason TEXT",
		Short: w.short,
		Long: w.long + `
DEVICE is driver/pool/device, or 'node|resource|ID' for a device plugin's (quoted,
because of the shell). The case answers at once; a refusal says why and what to do, is
shown by "sickbay device" and is on record. It asks Temporal, and needs a worker that
runs; where nobody says --actor, it asks the cluster who the kubeconfig's user is.
` + environmentHelp(config.Client{}) + "\n" + exitCodesHelp,
		Example: w.example,
		GroupID: groupPeople,
		Args:    oneDevice,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return flags.completeDevices(cmd, args, toComplete)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runWord(cmd.Context(), streams, flags, w.verb, args[0])
		},
	}
	set := command.Flags()
	set.StringVar(&flags.reason, "reason", "", "why; it is put on record")
	set.StringVar(&flags.actor, "actor", "", "who says so; the kubeconfig's user where it is left out")
	set.Int64Var(&flags.epoch, "epoch", 0, "the case that is meant, by its epoch; the open one where it is left out")
	switch w.verb {
	case quarantine.VerbRelease:
		set.BoolVar(&flags.force, "force", false, "ask for it past the gates; it is refused, with what they found")
	case quarantine.VerbRepaired:
		set.StringVar(&flags.ticket, "ticket", "", "where the repair is on record; kept with the case")
	case quarantine.VerbExtend:
		set.DurationVar(&flags.lasts, "for", 0, "how long from now, at most 720h; as long as a record's lease where it is left out")
	}
	return command
}

func oneDevice(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 1:
		return nil
	case 0:
		return &usageError{fmt.Errorf("%s what? Name a device as `sickbay devices` does", cmd.Name())}
	}
	return &usageError{fmt.Errorf("%s takes one device, not %q; many at once: docs/operating.md", cmd.CommandPath(), args)}
}

func runWord(ctx context.Context, streams Streams, flags wordFlags, verb quarantine.Verb, name string) error {
	key, err := device.ParseKey(strings.TrimPrefix(name, "device/"))
	switch {
	case err != nil:
		return err
	case strings.TrimSpace(flags.reason) == "":
		return &usageError{fmt.Errorf("%s without a reason: say why with --reason", verb)}
	case flags.lasts < 0:
		return &usageError{fmt.Errorf("--for %s: want a time from now on", flags.lasts)}
	case flags.epoch < 0:
		return &usageError{fmt.Errorf("--epoch %d: want a case's epoch, as `sickbay device %s` shows it", flags.epoch, key)}
	}
	m := quarantine.Message{
		Verb: verb, Actor: flags.actor, Reason: flags.reason, For: flags.lasts, Epoch: flags.epoch, Ticket: flags.ticket, Force: flags.force,
	}
	var set config.Client
	if err := config.Load(&set); err != nil {
		return err
	}
	if m.Actor == "" {
		if m.Actor, err = actorOf(ctx, streams, set.Kubernetes); err != nil {
			return err
		}
	}
	temporal, err := connectTemporal(set.Temporal, "sickbay-"+string(verb), slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return err
	}
	defer temporal.Close()
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	answer, err := devicewf.NewClient(temporal, set.Temporal.TaskQueue).Send(ctx, key, m)
	if errors.Is(err, devicewf.ErrNoCase) {
		return &noCase{fmt.Errorf("%w; `sickbay device %s` tells how it is", err, key)}
	}
	if err != nil {
		return unanswered(err, "sickbay device "+key.String())
	}
	fmt.Fprintln(streams.Out, told(verb, answer))
	return nil
}

// told is the answer to a word that was accepted.
func told(verb quarantine.Verb, answer devicewf.Answer) string {
	text := answer.Text
	if verb == quarantine.VerbExtend && !answer.Until.IsZero() {
		text += ", until " + answer.Until.UTC().Format("2006-01-02 15:04:05 MST")
	}
	return fmt.Sprintf("%s: %s, epoch %d", text, answer.Standing(), answer.Epoch)
}

// noCase is an error about a device that has no open case.
type noCase struct{ error }

func (e *noCase) Unwrap() []error { return []error{e.error, listing.ErrNotFound} }
