package cmd

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// A kubectl plugin is a binary on the PATH whose name begins with kubectl-, and
// what completes its words is one whose name begins with kubectl_complete-.
// Both may be links to this binary. (k8s.io/kubectl pkg/cmd/plugin.)
const (
	pluginName     = "kubectl-sickbay"
	completionName = "kubectl_complete-sickbay"
	pluginCommand  = "kubectl sickbay"
)

// program is what the user calls this binary.
type program string

// programOf tells by the name that the binary was called by what its user typed,
// and which arguments that makes.
func programOf(called string, args []string) (program, []string) {
	switch strings.TrimSuffix(filepath.Base(called), ".exe") {
	case pluginName:
		return pluginCommand, args
	case completionName:
		return pluginCommand, append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	return "sickbay", args
}

// rename lets a command's help and usage say what the user has to type.
func (p program) rename(root *cobra.Command) {
	if p == "sickbay" {
		return
	}
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: string(p)}
	for _, command := range root.Commands() {
		command.Long, command.Example = p.inText(command.Long), p.inText(command.Example)
	}
}

// inText writes the commands that a text shows as the user has to type them: they
// are indented, or stand in backquotes.
func (p program) inText(text string) string {
	if p == "sickbay" {
		return text
	}
	return strings.NewReplacer("  sickbay ", "  "+string(p)+" ", "`sickbay ", "`"+string(p)+" ").Replace(text)
}
