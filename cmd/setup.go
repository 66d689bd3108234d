package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/temporal"
	workflow "github.com/sickbay-dev/sickbay/workflows/device"
)

func newSetup(streams Streams) *cobra.Command {
	command := &cobra.Command{
		Use:     "setup",
		Short:   "Prepares what Sickbay needs and doesn't bring",
		Long:    "Prepares what Sickbay needs and doesn't bring. Each can be run again at any time.\n",
		GroupID: groupPeople,
		Args:    noSubcommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// cobra sets this by itself only where it prints the suggestions.
		SuggestionsMinimumDistance: 2,
	}
	command.AddCommand(newSetupTemporal(streams))
	return command
}

// What a namespace says of itself, where nobody else said it.
const (
	namespaceDescription = "Sickbay's cases: the health of accelerators in a Kubernetes cluster, one workflow for each faulty device"
	namespaceOwner       = "sickbay"
)

// setupFlags are those of `sickbay setup temporal`.
type setupFlags struct {
	retention string
	owner     string
	dryRun    bool
	timeout   time.Duration
	output    string
	// shorten and renamed: the flags were given, and don't just have their defaults.
	shorten, renamed bool
}

func newSetupTemporal(streams Streams) *cobra.Command {
	var flags setupFlags
	command := &cobra.Command{
		Use:   "temporal",
		Short: "Makes the Temporal namespace with its retention and search attributes, or brings it up to date",
		Long: `Makes the Temporal namespace that SICKBAY_TEMPORAL_NAMESPACE names, with a
retention and with the search attributes that Sickbay writes:

` + attributesHelp() + `
or brings it up to date, and waits until it can be used, which takes Temporal's
servers some seconds. A second run finds nothing to do. Nothing is ever removed:
a namespace that keeps closed workflows for longer goes on doing so unless
--retention is given, and a search attribute of the same name and another type is
left as it is and called an error.

It needs the right admin in the namespace, which starter, workers and the other
commands don't; docs/temporal.md tells more, also of Temporal Cloud.
` + environmentHelp(config.Setup{}) + "\n" + exitCodesHelp,
		Example: `  sickbay setup temporal --dry-run
  sickbay setup temporal --retention 90d --owner platform@example.com`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags.shorten, flags.renamed = cmd.Flags().Changed("retention"), cmd.Flags().Changed("owner")
			return runSetupTemporal(cmd.Context(), streams, flags)
		},
	}
	set := command.Flags()
	set.StringVar(&flags.retention, "retention", "30d", "how long closed workflows are kept, like 30d or 720h; given, it also shortens a longer one")
	set.StringVar(&flags.owner, "owner", namespaceOwner, "whose the namespace is, an e-mail address for example; given, it also replaces another one")
	set.BoolVar(&flags.dryRun, "dry-run", false, "say what would be done, and change nothing")
	set.DurationVar(&flags.timeout, "timeout", time.Minute, "how long all of it may take")
	set.StringVarP(&flags.output, "output", "o", "", "json, or nothing for text")
	completeWords(command, "output", "json")
	return command
}

func attributesHelp() string {
	var help strings.Builder
	wanted := workflow.SearchAttributes()
	for _, name := range workflow.MissingAttributes(nil) {
		fmt.Fprintf(&help, "  %s (%s)\n", name, wanted[name])
	}
	return help.String()
}

// Outcomes of a change.
const (
	outcomePlanned = "planned"
	outcomeDone    = "done"
	outcomeFailed  = "failed"
	outcomeLeft    = "left" // not tried, because of another one that failed
)

// setupReport is what was found and done; it is what -o json shows.
type setupReport struct {
	Address   string         `json:"address"`
	Namespace string         `json:"namespace"`
	Server    string         `json:"server,omitempty"`
	DryRun    bool           `json:"dryRun"`
	Changes   []setupOutcome `json:"changes"`
	Notes     []string       `json:"notes,omitempty"`
	// Ready tells whether cases can live in the namespace and be searched now.
	Ready  bool     `json:"ready"`
	Errors []string `json:"errors,omitempty"`
}

// setupOutcome is one change and what came of it.
type setupOutcome struct {
	Change    temporal.Kind `json:"change"`
	Retention string        `json:"retention,omitempty"`
	Before    string        `json:"before,omitempty"`
	Attribute string        `json:"attribute,omitempty"`
	Type      string        `json:"type,omitempty"`
	Outcome   string        `json:"outcome"`
	text      string
}

func outcome(change temporal.Change, namespace, came string) setupOutcome {
	o := setupOutcome{Change: change.Kind, Attribute: change.Attribute, Outcome: came}
	if change.Retention > 0 {
		o.Retention = temporal.FormatRetention(change.Retention)
	}
	if change.Before > 0 {
		o.Before = temporal.FormatRetention(change.Before)
	}
	if change.Attribute != "" {
		o.Type = change.Type.String()
	}
	switch came {
	case outcomeDone:
		o.text = change.Past(namespace)
	case outcomePlanned:
		o.text = "would " + change.Imperative(namespace)
	default:
		o.text = "did not " + change.Imperative(namespace)
	}
	return o
}

func runSetupTemporal(ctx context.Context, streams Streams, flags setupFlags) error {
	if flags.output != "" && flags.output != "json" {
		return &usageError{fmt.Errorf("-o %q: want json, or nothing for text", flags.output)}
	}
	if flags.timeout <= 0 {
		return &usageError{fmt.Errorf("--timeout %s: want more than nothing", flags.timeout)}
	}
	retention, err := temporal.ParseRetention(flags.retention)
	if err != nil {
		return &usageError{fmt.Errorf("--retention %w", err)}
	}
	var set config.Setup
	if err := config.Load(&set); err != nil {
		return err
	}
	service, err := connectTemporal(set.Temporal, identity("setup"), slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return err
	}
	defer service.Close()
	ctx, cancel := context.WithTimeout(ctx, flags.timeout)
	defer cancel()
	s := &setupRun{
		service: service, temporal: set.Temporal, flags: flags,
		want: temporal.Want{
			Retention: retention, Shorten: flags.shorten,
			Description: namespaceDescription, Owner: flags.owner, Renamed: flags.renamed,
			Attributes: workflow.SearchAttributes(),
		},
		report: setupReport{
			Address: set.Temporal.Address, Namespace: set.Temporal.Namespace, DryRun: flags.dryRun, Changes: []setupOutcome{},
		},
	}
	err = s.run(ctx)
	if errors.Is(err, temporal.ErrRetention) {
		err = &usageError{fmt.Errorf("--retention %s: %w", flags.retention, err)}
	}
	return errors.Join(s.print(streams, err), err)
}

// setupRun is one run.
type setupRun struct {
	service  temporal.Service
	temporal config.Temporal
	flags    setupFlags
	want     temporal.Want
	report   setupReport
}

func (s *setupRun) run(ctx context.Context) error {
	var state temporal.State
	err := s.insist(ctx, func(ctx context.Context) (err error) {
		state, err = temporal.Inspect(ctx, s.service, s.temporal.Namespace)
		return err
	})
	s.report.Server = state.Server
	if err != nil {
		return s.elsewhere(err)
	}
	changes, notes, err := temporal.Plan(state, s.want)
	if len(notes) > 0 {
		s.report.Notes = append(notes, "--retention "+s.flags.retention+" shortens it")
	}
	if s.flags.dryRun || err != nil {
		came := outcomePlanned
		if !s.flags.dryRun {
			came = outcomeLeft
		}
		for _, change := range changes {
			s.report.Changes = append(s.report.Changes, outcome(change, s.temporal.Namespace, came))
		}
		s.report.Ready = len(changes) == 0 && err == nil
		return err
	}
	if err := s.apply(ctx, changes); err != nil {
		return err
	}
	if err := temporal.AwaitUsable(ctx, s.service, s.temporal.Namespace, s.want.Attributes); err != nil {
		return fmt.Errorf("after %s: %w", s.flags.timeout, err)
	}
	s.report.Ready = true
	return nil
}

// apply makes the changes. A refused one doesn't keep the others from being made,
// unless there is no namespace for them.
func (s *setupRun) apply(ctx context.Context, changes []temporal.Change) error {
	var failed []error
	for i, change := range changes {
		err := s.insist(ctx, func(ctx context.Context) error {
			return temporal.Apply(ctx, s.service, s.temporal.Namespace, change)
		})
		came := outcomeDone
		if err != nil {
			came = outcomeFailed
			failed = append(failed, s.elsewhere(err))
		}
		s.report.Changes = append(s.report.Changes, outcome(change, s.temporal.Namespace, came))
		if err != nil && (change.Kind == temporal.CreateNamespace || ctx.Err() != nil) {
			for _, left := range changes[i+1:] {
				s.report.Changes = append(s.report.Changes, outcome(left, s.temporal.Namespace, outcomeLeft))
			}
			break
		}
	}
	return errors.Join(failed...)
}

// callLimit bounds one question to Temporal, so that one that hangs is asked again.
const callLimit = 10 * time.Second

// insist tries something again while it may work a moment later, until the time
// that all may take is over. The error says what was wrong the last time.
func (s *setupRun) insist(ctx context.Context, try func(context.Context) error) error {
	pause := 250 * time.Millisecond
	var last error
	for {
		call, cancel := context.WithTimeout(ctx, callLimit)
		err := try(call)
		cancel()
		if err == nil || !temporal.Transient(err) || remediable(err) {
			return err
		}
		// What a call was told is worth more than that its time was over.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("given up on Temporal at %s after %s: %w", s.temporal.Address, s.flags.timeout, last)
		case <-timer.C:
		}
		pause = min(2*pause, 2*time.Second)
	}
}

// elsewhere adds to a refusal how it is done where it isn't done through this API.
func (s *setupRun) elsewhere(err error) error {
	denied, ok := errors.AsType[*temporal.DeniedError](err)
	if !ok || denied.Right != temporal.RightAdmin {
		return err
	}
	cloud := fmt.Sprintf("in Temporal Cloud: tcld namespace create --retention-days %d, tcld namespace retention set, tcld namespace search-attributes add, or its web UI; see docs/temporal.md",
		int(s.want.Retention.Hours()+23)/24)
	host := strings.Split(s.temporal.Address, ":")[0]
	if strings.HasSuffix(host, ".tmprl.cloud") || strings.HasSuffix(host, ".api.temporal.io") {
		return fmt.Errorf("%w; namespaces and search attributes are made elsewhere %s", err, cloud)
	}
	return fmt.Errorf("%w; let somebody run this who has it, or make it elsewhere if this server doesn't take it from anybody (%s)", err, cloud)
}

// print says what was found and done; failure is said by whoever called.
func (s *setupRun) print(streams Streams, failure error) error {
	if failure != nil {
		s.report.Errors = strings.Split(failure.Error(), "\n")
	}
	if s.flags.output == "json" {
		encoder := json.NewEncoder(streams.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(s.report)
	}
	var lines []string
	for _, change := range s.report.Changes {
		lines = append(lines, change.text)
	}
	lines = append(lines, s.report.Notes...)
	switch {
	case s.report.Ready && len(s.report.Changes) == 0:
		lines = append(lines, fmt.Sprintf("nothing to do: namespace %s has all that Sickbay needs", s.report.Namespace))
	case s.report.Ready:
		lines = append(lines, fmt.Sprintf("namespace %s is ready", s.report.Namespace))
	case failure == nil:
		lines = append(lines, "nothing was changed: --dry-run")
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(streams.Out, line); err != nil {
			return err
		}
	}
	return nil
}
