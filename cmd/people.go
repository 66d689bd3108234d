package cmd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/cmd/show"
	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/directory"
)

// readLimit bounds one reading of the cluster.
const readLimit = 60 * time.Second

// peopleFlags are those that all commands for people have.
type peopleFlags struct {
	output     string
	colour     string
	kubeconfig string
	context    string
}

func (f *peopleFlags) add(command *cobra.Command) {
	command.Flags().StringVarP(&f.output, "output", "o", string(show.Table), "table, wide, json, yaml or name")
	command.Flags().StringVar(&f.colour, "color", "auto", "auto (on a terminal, unless NO_COLOR is set), always or never")
	command.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file, instead of SICKBAY_KUBECONFIG")
	command.Flags().StringVar(&f.context, "context", "", "context of the kubeconfig, instead of SICKBAY_KUBE_CONTEXT")
	completeWords(command, "output", "table", "wide", "json", "yaml", "name")
	completeWords(command, "color", "auto", "always", "never")
}

// completeWords lets the shell complete a flag's value.
func completeWords(command *cobra.Command, flag string, words ...string) {
	completeFlag(command, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

func completeFlag(command *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := command.RegisterFlagCompletionFunc(flag, complete); err != nil {
		// Only a flag that isn't there is refused.
		panic(err)
	}
}

// form reads how to answer.
func (f *peopleFlags) form(out io.Writer) (format show.Format, colour bool, err error) {
	format, err = show.ParseFormat(f.output)
	if err != nil {
		return "", false, &usageError{err}
	}
	switch f.colour {
	case "always":
		return format, true, nil
	case "never":
		return format, false, nil
	case "auto":
		return format, terminalSize(out) != nil && os.Getenv("NO_COLOR") == "", nil
	}
	return "", false, &usageError{fmt.Errorf("--color %q: want auto, always or never", f.colour)}
}

// sources are what the commands for people ask.
type sources struct {
	clients   listing.Clients
	temporal  client.Client
	namespace string // Temporal's
	// defaultNamespace is the kubeconfig's.
	defaultNamespace string
	ui               string
	// directory is nil where none is configured.
	directory *directory.Directory
	// election is where to see whether a starter leads; nil where none has to.
	election *listing.Election
	end      func()
}

// connect sets the sources up. It talks to none of them.
func (f *peopleFlags) connect() (*sources, error) {
	var set config.Client
	if err := config.Load(&set); err != nil {
		return nil, err
	}
	if f.kubeconfig != "" {
		set.Kubeconfig = f.kubeconfig
	}
	if f.context != "" {
		set.KubeContext = f.context
	}
	// What the clients log would break the answer; their errors are shown.
	silent := slog.New(slog.DiscardHandler)
	klog.SetSlogLogger(silent)
	cluster, err := connectKubernetes(set.Kubernetes, "sickbay-devices", nil)
	if err != nil {
		return nil, err
	}
	temporal, err := connectTemporal(set.Temporal, "sickbay-devices", silent, nil)
	if err != nil {
		return nil, err
	}
	shown, end, err := connectDirectory(set.Redis, "sickbay-devices", silent)
	if err != nil {
		return nil, err
	}
	starters := election(set.LeaderElection, cluster.namespace)
	return &sources{
		directory: shown, end: end, election: starters,
		clients: listing.Clients{
			Kubernetes: cluster.typed, Dynamic: cluster.untyped, Discovery: cluster.typed.Discovery(), Delays: set.ReportingDelay.Of,
			Starters: starters, Ours: oursIn(set.ProbePlace),
		},
		temporal: temporal, namespace: set.Temporal.Namespace, defaultNamespace: cluster.namespace, ui: set.TemporalUI,
	}, nil
}

func (s *sources) close() {
	s.end()
	s.temporal.Close()
}

// cases asks Temporal for the open cases of these devices' workflows, or for all.
// missing tells that it didn't say which there are.
func (s *sources) cases(ctx context.Context, workflows []string) (cases []listing.Case, missing bool, problems []string) {
	reader := listing.NewCaseReader(s.temporal, s.namespace, 0)
	if workflows != nil {
		reader.Only(workflows...)
	}
	return reader.Read(ctx)
}

// link is where Temporal's UI, if that is configured, has the words of a workflow's
// run; or all that it has of the workflow.
func (s *sources) link(workflow, run string) string {
	if s.ui == "" || workflow == "" {
		return ""
	}
	address := strings.TrimSuffix(s.ui, "/") + "/namespaces/" + url.PathEscape(s.namespace) + "/workflows/" + url.PathEscape(workflow)
	if run != "" {
		address += "/" + url.PathEscape(run) + "/user-metadata"
	}
	return address
}

// terminalSize returns how to ask for a terminal's size, or nil if out is none.
func terminalSize(out io.Writer) func() (columns, lines int, err error) {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	return func() (int, int, error) { return term.GetSize(int(file.Fd())) }
}
