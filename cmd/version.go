package cmd

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/temporal"

	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/workflows/burst"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
	incidentwf "github.com/sickbay-dev/sickbay/workflows/incident"
	nodewf "github.com/sickbay-dev/sickbay/workflows/node"
	permitswf "github.com/sickbay-dev/sickbay/workflows/permits"
)

// build is what the binary knows of itself.
type build struct {
	Version   string `json:"version"`
	Commit    string `json:"commit,omitempty"`
	Time      string `json:"commitTime,omitempty"`
	Modified  bool   `json:"modified,omitempty"`
	Go        string `json:"go"`
	Catalogue string `json:"catalogue"`
}

// spoken is what the binary speaks with others, and with its own other versions.
type spoken struct {
	Kubernetes spokenKubernetes `json:"kubernetes"`
	Temporal   spokenTemporal   `json:"temporal"`
	Workflows  []spokenWorkflow `json:"workflows"`
	Mark       spokenMark       `json:"mark"`
	Directory  spokenDirectory  `json:"directory"`
}

type spokenKubernetes struct {
	// Client is the version of client-go.
	Client string        `json:"client"`
	APIs   []kube.Spoken `json:"apis"`
}

type spokenTemporal struct {
	API string `json:"api"`
	SDK string `json:"sdk"`
}

type spokenWorkflow struct {
	Type string `json:"type"`
	// State is the version of the state that a run hands to the next one.
	State int `json:"state"`
}

type spokenMark struct {
	Taint  string `json:"taint"`
	Format int    `json:"format"`
}

type spokenDirectory struct {
	Format string `json:"format"`
}

// buildOf reads what the Go toolchain stamped into the binary.
func buildOf() (b build) {
	b = build{Version: "(devel)", Go: runtime.Version(), Catalogue: reason.Version}
	defer b.stamp()
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Commit = setting.Value
		case "vcs.time":
			b.Time = setting.Value
		case "vcs.modified":
			b.Modified = setting.Value == "true"
		}
	}
	return b
}

// spokenOf asks the packages that do the speaking.
func spokenOf() spoken {
	return spoken{
		Kubernetes: spokenKubernetes{Client: moduleVersion("k8s.io/client-go"), APIs: kube.APIs()},
		Temporal:   spokenTemporal{API: moduleVersion("go.temporal.io/api"), SDK: "v" + temporal.SDKVersion},
		Workflows: []spokenWorkflow{
			{Type: burst.WorkflowType, State: burst.StateVersion},
			{Type: devicewf.WorkflowType, State: devicewf.StateVersion},
			{Type: incidentwf.WorkflowType, State: incidentwf.StateVersion},
			{Type: nodewf.WorkflowType, State: nodewf.StateVersion},
			{Type: permitswf.WorkflowType, State: permitswf.StateVersion},
		},
		Mark:      spokenMark{Taint: kube.TaintKey, Format: kube.MarkFormat},
		Directory: spokenDirectory{Format: directory.Format},
	}
}

// moduleVersion is the version of a module that was built in.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, module := range info.Deps {
		if module.Path != path {
			continue
		}
		if module.Replace != nil {
			return module.Replace.Version
		}
		return module.Version
	}
	return "unknown"
}

func newVersion(streams Streams) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "version",
		Short: "Shows what this binary was built from, and what it speaks",
		Long: `Shows what this binary was built from, and the versions of what it speaks: with
Kubernetes, with Temporal, and with other versions of itself, through the states of
its workflows, its marks and its directory. docs/upgrade.md tells what these mean for
an upgrade. It asks nobody; sickbay doctor compares them with a cluster.`,
		GroupID: groupPeople,
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			b, s := buildOf(), spokenOf()
			switch output {
			case "":
				return writeVersion(streams.Out, b, s)
			case "json":
				encoder := json.NewEncoder(streams.Out)
				encoder.SetIndent("", "  ")
				return encoder.Encode(struct {
					build
					Speaks spoken `json:"speaks"`
				}{b, s})
			}
			return &usageError{fmt.Errorf("-o %q: want json, or nothing for text", output)}
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "", "json, or nothing for text")
	return command
}

func writeVersion(out io.Writer, b build, s spoken) error {
	text := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(text, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("sickbay", "%s", b.Version)
	row("commit", "%s", commitText(b))
	row("go", "%s", strings.TrimPrefix(b.Go, "go"))
	row("reason catalogue", "%s", b.Catalogue)
	name := "Kubernetes"
	for _, line := range apiLines(s.Kubernetes.APIs) {
		row(name, "%s", line)
		name = ""
	}
	row("", "client-go %s", s.Kubernetes.Client)
	row("Temporal", "API %s, SDK %s", s.Temporal.API, s.Temporal.SDK)
	name = "workflows"
	for _, w := range s.Workflows {
		row(name, "%s, state %d", w.Type, w.State)
		name = ""
	}
	row("mark", "%s, format %d", s.Mark.Taint, s.Mark.Format)
	row("directory", "format %s", s.Directory.Format)
	return text.Flush()
}

// apiLines puts resources of the same API versions on a line.
func apiLines(apis []kube.Spoken) []string {
	var versions, lines []string
	for _, api := range apis {
		var names []string
		for _, version := range api.Versions {
			names = append(names, strings.TrimPrefix(api.Group+"/"+version, "/"))
		}
		if version := strings.Join(names, " or "); len(versions) == 0 || versions[len(versions)-1] != version {
			versions, lines = append(versions, version), append(lines, version+": "+api.Resource)
		} else {
			lines[len(lines)-1] += ", " + api.Resource
		}
	}
	return lines
}

func commitText(b build) string {
	switch {
	case b.Commit == "":
		return "unknown"
	case b.Modified:
		return b.Commit + ", with changes"
	}
	return b.Commit
}
