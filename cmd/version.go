package cmd

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sickbay-dev/sickbay/pkg/reason"
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

func newVersion(streams Streams) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:     "version",
		Short:   "Shows what this binary was built from",
		GroupID: groupPeople,
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			b := buildOf()
			switch output {
			case "":
				_, err := fmt.Fprintf(streams.Out, "sickbay %s\ncommit %s\n%s\nreason catalogue %s\n", b.Version, commitText(b), b.Go, b.Catalogue)
				return err
			case "json":
				encoder := json.NewEncoder(streams.Out)
				encoder.SetIndent("", "  ")
				return encoder.Encode(b)
			}
			return &usageError{fmt.Errorf("-o %q: want json, or nothing for text", output)}
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "", "json, or nothing for text")
	return command
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
