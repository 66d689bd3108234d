package cmd

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sickbay-dev/sickbay/pkg/policy"
)

func newPolicy(streams Streams) *cobra.Command {
	command := &cobra.Command{
		Use:   "policy",
		Short: "Checks a policy, and tells what holds for a device",
		Long: `A policy says, in one object, whether Sickbay only observes, how long it waits for
what, and how many devices may be out at once; for all devices, for those of a driver
and for those of a class. docs/policy.md has every field.
`,
		GroupID: groupPeople,
		Args:    noSubcommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// cobra sets this by itself only where it prints the suggestions.
		SuggestionsMinimumDistance: 2,
	}
	command.AddCommand(newPolicyCheck(streams), newPolicyShow(streams), newPolicyExplain(streams))
	return command
}

func newPolicyCheck(streams Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Tells whether a file is a policy, and all that is wrong in it",
		Long: `Tells whether a file is a policy, and all that is wrong in it: each with its line,
its field, what is there and what is allowed. FILE is what the key ` + policy.ConfigMapKey + ` of the
ConfigMap ` + policy.ConfigMapName + ` gets; - is standard input. It asks nobody, and reads no
variables.

Exit codes:
  0  it is a policy
  1  the file can't be read
  2  it is none
`,
		Example: `  sickbay policy check policy.yaml
  kubectl -n sickbay get configmap sickbay-policy -o 'jsonpath={.data.policy\.yaml}' | sickbay policy check -`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return &usageError{fmt.Errorf("%s wants one file, or - for standard input, not %q", cmd.CommandPath(), args)}
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPolicyCheck(cmd.InOrStdin(), streams, args[0])
		},
	}
}

func runPolicyCheck(in io.Reader, streams Streams, path string) error {
	text, err := readPolicy(in, path)
	if err != nil {
		return err
	}
	document, err := policy.Parse(text)
	if err != nil {
		return inFile(path, err)
	}
	fmt.Fprintln(streams.Out, path+": "+aboutPolicy(document))
	return nil
}

func readPolicy(in io.Reader, path string) ([]byte, error) {
	if path == "-" {
		text, err := io.ReadAll(in)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return text, nil
	}
	return os.ReadFile(path)
}

// inFile puts the file's name before each of several errors.
func inFile(path string, err error) error {
	texts := strings.Split(err.Error(), "\n")
	for i, text := range texts {
		texts[i] = path + ": " + text
	}
	return &policyError{strings.Join(texts, "\n"), err}
}

// policyError is what is wrong in a policy, with the file that it is in.
type policyError struct {
	text string
	err  error
}

func (e *policyError) Error() string { return e.text }

func (e *policyError) Unwrap() error { return e.err }

// aboutPolicy says in a line what a policy is about.
func aboutPolicy(d *policy.Document) string {
	mode := "no mode, so that SICKBAY_MODE holds"
	if d.Mode != nil {
		mode = "mode " + string(*d.Mode)
	}
	return fmt.Sprintf("a policy with %s; it names %s and %s", mode, count(len(d.Drivers), "driver", "drivers"), count(len(d.Classes), "class", "classes"))
}

func count(n int, one, many string) string {
	switch n {
	case 0:
		return "no " + many
	case 1:
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
