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

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// handFlags are those of `sickbay quarantine`.
type handFlags struct {
	actor, reason, until string
	lasts                time.Duration
}

func newQuarantine(streams Streams) *cobra.Command {
	var flags handFlags
	command := &cobra.Command{
		Use:   "quarantine DEVICE|pool/DRIVER/POOL|node/NAME --reason TEXT",
		Short: "Takes a device, a pool or a node's devices out by hand",
		Long: `Opens a case for each device that is named, whatever its health says, as if it had
a fault: a mark where the mode is enforce, the budgets, the gates on its way back. A
device that is only suspected or restricted gets its case turned into that; one that
is quarantined already is left as it is, and said.

A device has to be one that the cluster lists, holds or marks, or that has a case. A
node's devices are taken one by one: Pods that need none of them still go there.
Nobody is evicted. Until the time that is given, nothing that looks healthy ends the
case; after it, its gates decide.
` + environmentHelp(config.Client{}) + "\n" + exitCodesHelp,
		Example: `  sickbay quarantine gpu.example.com/anvil-07/gpu-3 --for 48h --reason 'it runs hot'
  sickbay quarantine node/anvil-07 --until 2026-12-24T08:00:00Z --reason 'coolant leak'`,
		GroupID: groupPeople,
		Args:    oneTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runQuarantine(cmd.Context(), streams, flags, args[0])
		},
	}
	set := command.Flags()
	set.StringVar(&flags.reason, "reason", "", "why; it is put on record")
	set.StringVar(&flags.actor, "actor", "", "who says so; the kubeconfig's user where it is left out")
	set.DurationVar(&flags.lasts, "for", 0, "how long, at most 720h; as long as a record's lease (SICKBAY_LEASE) where neither is given")
	set.StringVar(&flags.until, "until", "", "until when, as RFC 3339: 2026-12-24T08:00:00Z; at most 720h from now")
	return command
}

func oneTarget(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 1:
		return nil
	case 0:
		return &usageError{errors.New("quarantine what? Name a device as `sickbay devices` does, pool/DRIVER/POOL or node/NAME")}
	}
	return &usageError{fmt.Errorf("%s takes one device, pool or node, not %q", cmd.CommandPath(), args)}
}

// lasting is how long a quarantine by hand is to last, from what was typed.
func (f handFlags) lasting(now time.Time) (time.Duration, error) {
	if f.until != "" && f.lasts != 0 {
		return 0, &usageError{fmt.Errorf("--for %s and --until %s: want one of them", f.lasts, f.until)}
	}
	if f.until == "" {
		if f.lasts < 0 {
			return 0, &usageError{fmt.Errorf("--for %s: want a time from now on", f.lasts)}
		}
		return f.lasts, nil
	}
	until, err := time.Parse(time.RFC3339, f.until)
	if err != nil {
		return 0, &usageError{fmt.Errorf("--until %q: want a time like 2026-12-24T08:00:00Z", f.until)}
	}
	if !until.After(now) {
		return 0, &usageError{fmt.Errorf("--until %s is over: it is %s now; want a time to come", f.until, now.UTC().Format(time.RFC3339))}
	}
	return until.Sub(now), nil
}

func runQuarantine(ctx context.Context, streams Streams, flags handFlags, target string) error {
	if strings.TrimSpace(flags.reason) == "" {
		return &usageError{errors.New("quarantine without a reason: say why with --reason")}
	}
	lasts, err := flags.lasting(time.Now())
	if err != nil {
		return err
	}
	m := quarantine.Message{Verb: quarantine.VerbQuarantine, Actor: flags.actor, Reason: flags.reason, For: lasts}
	var set config.Client
	if err := config.Load(&set); err != nil {
		return err
	}
	if m.Actor == "" {
		if m.Actor, err = actorOf(ctx, streams, set.Kubernetes); err != nil {
			return err
		}
	}
	temporal, err := connectTemporal(set.Temporal, "sickbay-quarantine", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return err
	}
	defer temporal.Close()
	cases := devicewf.NewClient(temporal, set.Temporal.TaskQueue)
	meant, err := namedBy(ctx, set, target, cases.Running)
	if err != nil {
		return err
	}
	var refused []string
	for _, key := range meant.keys {
		call, cancel := context.WithTimeout(ctx, readLimit)
		answer, err := cases.Begin(call, key, m)
		cancel()
		if err != nil {
			refused = append(refused, unanswered(err, "sickbay device "+key.String()).Error())
			continue
		}
		text := answer.Text
		if lasts > 0 {
			text += ", until " + time.Now().Add(lasts).UTC().Format("2006-01-02 15:04:05 MST")
		}
		fmt.Fprintln(streams.Out, text)
	}
	note(streams, meant.notes)
	switch {
	case len(refused) == len(meant.keys):
		return errors.New(strings.Join(refused, "\n"))
	case len(refused) > 0:
		return warn(streams, nil, refused)
	}
	return nil
}

// named are the devices that a target names.
type named struct {
	keys []device.Key
	// notes are what whoever named them may not have thought of.
	notes []string
}

// namedBy finds the devices that a target names. One that the cluster doesn't know may
// still have a case; what neither knows is a slip of the hand, and a mark for it would
// wait for the day on which a device gets that name.
func namedBy(ctx context.Context, set config.Client, target string, hasCase func(context.Context, device.Key) (bool, error)) (named, error) {
	cluster, err := connectKubernetes(set.Kubernetes, "sickbay-quarantine", nil)
	if err != nil {
		return named{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	read, err := listing.Read(ctx, listing.Clients{Kubernetes: cluster.typed, Dynamic: cluster.untyped, Discovery: cluster.typed.Discovery(), Ours: oursIn(set.ProbePlace)})
	if err != nil {
		return named{}, err
	}
	if kind, name, _ := strings.Cut(target, "/"); kind == "pool" || kind == "node" {
		return manyNamed(read, kind, name)
	}
	survey := listing.NewSurvey(read)
	key, err := survey.Resolve(target)
	if err != nil {
		return named{}, err
	}
	if _, there := survey.Device(key); !there {
		open, err := hasCase(ctx, key)
		if err != nil || !open {
			return named{}, errors.Join(survey.Unknown(key, err != nil), lackingError(read.Problems))
		}
	}
	return named{[]device.Key{key}, sameHardware(survey, key)}, nil
}

// manyNamed are the devices of a pool or on a node.
func manyNamed(read listing.Cluster, kind, name string) (named, error) {
	var keys []device.Key
	for _, d := range listing.Join(read, nil, time.Now()).Devices {
		inPool := kind == "pool" && d.Key.Path() == device.PathDRA && d.Key.Driver+"/"+d.Key.Pool == name
		if inPool || kind == "node" && d.Node == name {
			keys = append(keys, d.Key)
		}
	}
	slices.SortFunc(keys, device.Key.Compare)
	if len(read.Problems) > 0 {
		// Some of its devices may be missing; half of a pool isn't what was asked for.
		return named{}, fmt.Errorf("not all devices of %s/%s may be known, and none was taken out: %w; try again, or name them one by one",
			kind, name, lackingError(read.Problems))
	}
	if len(keys) == 0 {
		return named{}, &noDevices{fmt.Errorf("%s/%s has no devices that anybody lists or holds; `sickbay devices` shows all", kind, name)}
	}
	return named{keys: keys}, nil
}

// sameHardware says which other entries there are of the hardware that is taken out:
// they have marks of their own, and stay as they are.
func sameHardware(survey *listing.Survey, key device.Key) []string {
	var notes []string
	for other, relation := range survey.Relatives(key) {
		what := map[listing.Relation]string{
			listing.Twin: "is another entry for the same hardware", listing.Parent: "is the chip that it is a part of",
			listing.Child: "is a part of it", listing.Replica: "is another share of the same device",
		}[relation]
		if what != "" {
			notes = append(notes, fmt.Sprintf("%s %s, and isn't taken out by this: name it as well if it is meant", other, what))
		}
	}
	slices.Sort(notes)
	return notes
}

// noDevices is an error about a pool or node that has none.
type noDevices struct{ error }

func (e *noDevices) Unwrap() []error { return []error{e.error, listing.ErrNotFound} }
