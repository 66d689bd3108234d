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

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/cmd/show"
	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/incident"
	incidentwf "github.com/sickbay-dev/sickbay/workflows/incident"
)

// incidentFlags are those of the commands about incidents: they ask Temporal, and where
// there is a way to the cluster, what Sickbay can't see.
type incidentFlags struct {
	peopleFlags
	actor  string
	reason string
	lasts  string
}

func newIncidents(streams Streams) *cobra.Command {
	var flags incidentFlags
	command := &cobra.Command{
		Use:   "incidents",
		Short: "Lists what concerns many devices at once, and what waits for it",
		Long: `Lists the open incidents: many devices of a driver, a node or the whole cluster
that became Unknown (a storm) or Unhealthy (a crowd) together.

  INCIDENT  its scope; "sickbay incident SCOPE" tells its story
  PHASE     Holding: its devices wait, until its maximum. Pacing: they are let
            through one by one, and somebody has to say whether that is right.
            Admitted: an operator let all through. Noted: it holds nothing
  DEVICES   how many it is about now, and how many at most
  HELD      how many of them wait without a case
  NEXT      what happens next, and when; and how old the figures are, where they
            are older than they should be

It asks Temporal, and needs a worker that runs. What Sickbay itself can't see now (no
starter leads, or one that can't watch; nodes are out) is said on standard error,
above the answer: no incident is found there. That takes a way to the cluster.
` + environmentHelp(config.Client{}) + "\n" + exitCodesHelp,
		Example: `  sickbay incidents
  sickbay incidents -o name`,
		GroupID: groupPeople,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runIncidents(cmd.Context(), streams, flags)
		},
	}
	flags.add(command)
	return command
}

func newIncident(streams Streams) *cobra.Command {
	var flags incidentFlags
	command := &cobra.Command{
		Use:   "incident SCOPE",
		Short: "Tells one incident's story, and takes an operator's word on it",
		Long: `Tells all that is known of one incident, open or the last one of its scope: what
happened where, since when, what waits for it, what happens next, and what was
decided. SCOPE is cluster, driver/NAME, node/NAME, crowd/driver/NAME[@VERSION] or
crowd/node/NAME.

Its subcommands say what an operator decides:

  wait   hold its devices longer
  admit  let all its devices through now
  close  end it; nothing is left of it
` + environmentHelp(config.Client{}) + "\n" + exitCodesHelp,
		Example: `  sickbay incident driver/gpu.example.com
  sickbay incident wait driver/gpu.example.com --for 4h --reason 'upgrading the driver'
  sickbay incident admit crowd/driver/gpu.example.com --reason 'the cards are broken'`,
		GroupID: groupPeople,
		Args:    oneScope,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runIncident(cmd.Context(), streams, flags, args[0])
		},
	}
	flags.add(command)
	for verb, short := range map[incident.Verb]string{
		incident.VerbWait:  "Holds an incident's devices longer",
		incident.VerbAdmit: "Lets all devices of an incident through now",
		incident.VerbClose: "Ends an incident that nothing is left of",
	} {
		command.AddCommand(newIncidentWord(streams, verb, short))
	}
	return command
}

func newIncidentWord(streams Streams, verb incident.Verb, short string) *cobra.Command {
	var flags incidentFlags
	command := &cobra.Command{
		Use:   string(verb) + " SCOPE --reason TEXT",
		Short: short,
		Long: short + `. Who says so, and why, is on record; what makes no sense
is refused with its reason.
` + environmentHelp(config.Setup{}) + "\n" + exitCodesHelp,
		Args: oneScope,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runIncidentWord(cmd.Context(), streams, flags, verb, args[0])
		},
	}
	set := command.Flags()
	set.StringVar(&flags.reason, "reason", "", "why; it is put on record")
	set.StringVar(&flags.actor, "actor", "", "who says so; the user's name where it is left out")
	if verb == incident.VerbWait {
		set.StringVar(&flags.lasts, "for", "", "how much longer, 1m to 24h; as long as its maximum where it is left out")
	}
	return command
}

func oneScope(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 1:
		_, err := incident.ParseScope(args[0])
		if err != nil {
			return &usageError{err}
		}
		return nil
	case 0:
		return &usageError{errors.New("which incident? `sickbay incidents` lists those that are open")}
	}
	return &usageError{fmt.Errorf("%s takes one scope, not %q", cmd.CommandPath(), args)}
}

// incidentSources are what the commands that show incidents ask.
type incidentSources struct {
	*sources
	incidents *incidentwf.Client
	// unseen is why there is no way to the cluster; empty where there is one.
	unseen string
}

// connectIncidents sets up the way to the incident workflows, and to what tells what
// Sickbay can't see. Without a way to the cluster the incidents are told all the same.
func (f *incidentFlags) connectIncidents() (*incidentSources, error) {
	var set config.Client
	if err := config.Load(&set); err != nil {
		return nil, err
	}
	from, err := f.connect()
	if err == nil {
		return &incidentSources{sources: from, incidents: incidentwf.NewClient(from.temporal, set.Temporal.TaskQueue)}, nil
	}
	if f.kubeconfig != "" || f.context != "" || set.Kubeconfig != "" || set.KubeContext != "" {
		return nil, err // one was named
	}
	temporal, other := connectTemporal(set.Temporal, "sickbay-incidents", slog.New(slog.DiscardHandler), nil)
	if other != nil {
		return nil, other
	}
	alone := &sources{temporal: temporal, namespace: set.Temporal.Namespace, end: func() {}}
	return &incidentSources{sources: alone, incidents: incidentwf.NewClient(temporal, set.Temporal.TaskQueue), unseen: err.Error()}, nil
}

// look begins to find out what Sickbay can't see. On nodes that are out no incident is
// found.
func (s *incidentSources) look(ctx context.Context) func() sight {
	if s.unseen != "" {
		return func() sight {
			return sight{notes: []string{"whether a starter leads, and nodes are up, isn't known: " + s.unseen}}
		}
	}
	looked := s.sources.look(ctx)
	out := make(chan string, 1)
	go func() { out <- listing.OutNodes(ctx, s.clients.Kubernetes) }()
	return func() sight {
		found := looked()
		if nodes := <-out; nodes != "" {
			found.blind = append(found.blind, nodes)
		}
		return found
	}
}

// connectWords sets up the way to the incident workflows alone.
func connectWords() (*incidentwf.Client, client.Client, error) {
	var set config.Setup
	if err := config.Load(&set); err != nil {
		return nil, nil, err
	}
	temporal, err := connectTemporal(set.Temporal, "sickbay-incidents", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return nil, nil, err
	}
	return incidentwf.NewClient(temporal, set.Temporal.TaskQueue), temporal, nil
}

func runIncidents(ctx context.Context, streams Streams, flags incidentFlags) error {
	format, colour, err := flags.form(streams.Out)
	if err != nil {
		return err
	}
	from, err := flags.connectIncidents()
	if err != nil {
		return err
	}
	defer from.close()
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	looked := from.look(ctx)
	incidents := from.incidents
	scopes, err := incidents.Open(ctx)
	seen := looked()
	if err != nil {
		return err
	}
	slices.SortFunc(scopes, func(a, b incident.Scope) int { return strings.Compare(a.String(), b.String()) })
	list := show.Incidents{At: time.Now().UTC(), Blind: seen.blind}
	for _, scope := range scopes {
		state, err := incidents.State(ctx, scope)
		switch {
		case errors.Is(err, incidentwf.ErrNoIncident):
			continue // it is over since it was listed
		case err != nil:
			list.Incidents = append(list.Incidents, show.Incident{Name: scope.String()})
			list.Problems = append(list.Problems, fmt.Sprintf("incident %s doesn't say how it is: %v; does a worker run?", scope, err))
		case state.Incident.Open():
			list.Incidents = append(list.Incidents, show.IncidentOf(state.Incident, list.At))
		}
	}
	lacking := warn(streams, list.Blind, list.Problems)
	if err := show.PrintIncidents(streams.Out, list, format, colour); err != nil {
		return fmt.Errorf("print the incidents: %w", err)
	}
	note(streams, seen.notes)
	return lacking
}

func runIncident(ctx context.Context, streams Streams, flags incidentFlags, name string) error {
	format, colour, err := flags.form(streams.Out)
	if err != nil {
		return err
	}
	scope, err := incident.ParseScope(name)
	if err != nil {
		return &usageError{err}
	}
	from, err := flags.connectIncidents()
	if err != nil {
		return err
	}
	defer from.close()
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	looked := from.look(ctx)
	state, err := from.incidents.State(ctx, scope)
	seen := looked()
	if err != nil {
		return noSuchIncident(err)
	}
	if err := warn(streams, seen.blind, nil); err != nil {
		return err
	}
	now := time.Now().UTC()
	if err := show.PrintIncident(streams.Out, show.IncidentOf(state.Incident, now), now, format, colour); err != nil {
		return fmt.Errorf("print the incident: %w", err)
	}
	note(streams, seen.notes)
	return nil
}

// noSuchIncident gives an incident that isn't there the exit code of what isn't.
func noSuchIncident(err error) error {
	if errors.Is(err, incidentwf.ErrNoIncident) {
		return &incidentNotFound{fmt.Errorf("%w; `sickbay incidents` lists those that are open", err)}
	}
	return err
}

// incidentNotFound is an error about an incident that isn't there.
type incidentNotFound struct{ error }

func (e *incidentNotFound) Unwrap() []error { return []error{e.error, listing.ErrNotFound} }

// parseWait reads how much longer an incident is to hold; zero where nothing is said.
func parseWait(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	by, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("--for %q: want a duration like 90m or 4h, 1m to 24h", text)
	}
	if err := incident.CheckWait(by); err != nil {
		return 0, fmt.Errorf("--for %w", err)
	}
	return by, nil
}

func runIncidentWord(ctx context.Context, streams Streams, flags incidentFlags, verb incident.Verb, name string) error {
	scope, err := incident.ParseScope(name)
	if err != nil {
		return &usageError{err}
	}
	if strings.TrimSpace(flags.reason) == "" {
		return &usageError{fmt.Errorf("%s without a reason: say why with --reason", verb)}
	}
	lasts, err := parseWait(flags.lasts)
	if err != nil {
		return &usageError{err}
	}
	if flags.actor == "" {
		if flags.actor, err = userName(); err != nil {
			return err
		}
	}
	incidents, temporal, err := connectWords()
	if err != nil {
		return err
	}
	defer temporal.Close()
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	accepted, err := incidents.Send(ctx, scope, incident.Message{Verb: verb, Actor: flags.actor, Reason: flags.reason, For: lasts})
	if err != nil {
		return unanswered(noSuchIncident(err), "sickbay incident "+scope.String())
	}
	text := accepted.Text
	if !accepted.Until.IsZero() {
		text += ", which holds until " + accepted.Until.UTC().Format("2006-01-02 15:04:05 MST")
	}
	fmt.Fprintln(streams.Out, text)
	return nil
}
