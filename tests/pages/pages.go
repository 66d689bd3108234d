// Package pages holds a page of documentation to its word: every command that it
// shows is run as it stands there, and has to say what the page shows.
//
// It owns how commands are found in a page, run, compared and written anew. It must
// never know what a page is about: what differs from run to run is for the caller
// to mask.
package pages

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Page is a page and how its commands are run.
type Page struct {
	// Path is the Markdown file. A command is a line that begins with "$ "; what
	// it says follows, up to the next command or the end of the block.
	Path string
	// Env is the environment of the commands, beside the test's own.
	Env []string
	// Mask makes alike what differs from run to run.
	Mask func(string) string
	// Update writes what the commands say into the page instead of comparing.
	Update bool
}

// Run runs all commands of the page. One that fails, or says something else than
// the page shows, fails the test.
func Run(t *testing.T, p Page) {
	t.Helper()
	text, err := os.ReadFile(p.Path)
	if err != nil {
		t.Fatal(err)
	}
	var written []string
	lines, commands := strings.Split(string(text), "\n"), 0
	for i := 0; i < len(lines); i++ {
		written = append(written, lines[i])
		command, isCommand := strings.CutPrefix(lines[i], "$ ")
		if !isCommand {
			continue
		}
		commands++
		var shown []string
		for i+1 < len(lines) && !strings.HasPrefix(lines[i+1], "$ ") && !strings.HasPrefix(lines[i+1], "```") {
			i++
			shown = append(shown, lines[i])
		}
		run := exec.CommandContext(t.Context(), "bash", "-c", command)
		run.Env = slices.Concat(os.Environ(), p.Env)
		said, err := run.CombinedOutput()
		if err != nil {
			t.Fatalf("$ %s: %v\n%s", command, err, said)
		}
		if got, want := p.Mask(string(said)), p.Mask(strings.Join(shown, "\n")); got != want && !p.Update {
			t.Errorf("$ %s says\n%s\n%s shows\n%s\nwrite it anew with: go test -run %s -update", command, said, p.Path, strings.Join(shown, "\n"), t.Name())
		}
		written = append(written, strings.TrimSpace(string(said)))
	}
	if commands == 0 {
		t.Errorf("%s has no commands", p.Path)
	}
	if p.Update {
		if err := os.WriteFile(p.Path, []byte(strings.Join(written, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
