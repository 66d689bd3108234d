package cmd

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// shown matches a command line of ours in a page.
var shown = regexp.MustCompile("(?m)^\\$ (?:kubectl )?sickbay (.*)$|`(?:kubectl )?sickbay ([a-z][^`]*)`")

// quoted matches what the shell takes for one word.
var quoted = regexp.MustCompile(`'[^']*'`)

func TestEveryCommandThatThePagesShowIsOneThatThereIs(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("pages %v, %v", pages, err)
	}
	found := 0
	for _, page := range append(pages, "../README.md") {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range shown.FindAllStringSubmatch(string(content), -1) {
			found++
			line, _, _ := strings.Cut(match[1]+match[2], " | ")
			line = quoted.ReplaceAllStringFunc(line, func(text string) string { return strings.ReplaceAll(text, " ", "-") })
			args := strings.Fields(strings.NewReplacer("'", "", "…", "").Replace(line))
			command, rest, err := newRoot(Streams{}).Find(args)
			if err == nil && command.HasParent() {
				err = command.ParseFlags(rest)
			} else if err == nil {
				err = noSubcommand(command, args)
			}
			if err == nil && strings.HasPrefix(match[0], "$") {
				err = validArgs(command)
			}
			if err != nil {
				t.Errorf("%s shows sickbay %s: %v", page, line, err)
			}
		}
	}
	if found < 20 {
		t.Errorf("%d commands found; the pages show more", found)
	}
}

// validArgs checks the arguments that were left when flags were parsed.
func validArgs(command *cobra.Command) error { return command.ValidateArgs(command.Flags().Args()) }
