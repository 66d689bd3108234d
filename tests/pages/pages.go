// Package pages holds a page of documentation to its word: every command that it
// shows is run as it stands there, and has to say what the page shows.
//
// It owns how commands are found in a page, run at a terminal, compared and written
// anew. It must never know what a page is about: what differs from run to run is for
// the caller to mask, and what a page's text tells of between two commands is for the
// caller to do.
package pages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sickbay-dev/sickbay/tests/checks"
)

// Page is a page and how its commands are run.
type Page struct {
	// Path is the Markdown file, below the root of the clone.
	Path string
	// Dir is where the commands are run. Empty is where the test is.
	Dir string
	// Env is the environment of the commands, beside the test's own.
	Env []string
	// Mask makes alike what differs from run to run, line by line. Default is Masked.
	Mask func(string) string
	// Before, if set, is called before each command: what the page's text says, or
	// takes for granted, has to have happened by then.
	Before func(command string)
	// Update writes what the commands say into the page instead of comparing. What
	// the page leaves out of an answer stays left out while the rest is right.
	Update bool
}

// Run runs all commands of the page. One that fails where the page doesn't show
// that it does, or says something else than the page shows, fails the test.
func Run(t *testing.T, p Page) {
	t.Helper()
	root, err := checks.Root()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, p.Path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if p.Mask == nil {
		p.Mask = Masked
	}
	var written []string
	commands := 0
	for _, part := range checks.ReadPage(string(text)) {
		written = append(written, part.Lines...)
		if part.Command == "" {
			continue
		}
		commands++
		if p.Before != nil {
			p.Before(part.Command)
		}
		said, err := p.execute(t.Context(), part)
		if err != nil {
			t.Fatalf("$ %s: %v\n%s", part.Command, err, strings.Join(said, "\n"))
		}
		shows, same := compare(p.Mask, part.Shown, said)
		if !same && !p.Update {
			t.Errorf("$ %s says\n%s\n%s shows\n%s\nmake pages writes it anew",
				part.Command, strings.Join(said, "\n"), p.Path, strings.Join(part.Shown, "\n"))
		}
		written = append(written, shows...)
	}
	if commands == 0 {
		t.Errorf("%s has no commands", p.Path)
	}
	if p.Update {
		if err := os.WriteFile(path, []byte(strings.Join(written, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
