package pages

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sickbay-dev/sickbay/tests/checks"
)

// said runs the only command of a page, and tells what it said and whether the
// page shows just that.
func said(t *testing.T, block string) (lines []string, same bool) {
	t.Helper()
	p := Page{Mask: Masked}
	part := checks.ReadPage("text\n```console\n" + block + "\n```\n")[0]
	lines, err := p.execute(t.Context(), part)
	if err != nil {
		t.Fatalf("%s: %v", part.Command, err)
	}
	_, same = compare(p.Mask, part.Shown, lines)
	return lines, same
}

func TestAPageIsHeldToWhatItsCommandsSay(t *testing.T) {
	for what, block := range map[string]string{
		"as it is":                "$ echo one; echo; echo three\none\n\nthree",
		"nothing":                 "$ true",
		"standard error":          "$ echo one; echo two >&2\none\ntwo",
		"an exit code":            "$ echo no; exit 2\nno\n[exit code 2]",
		"over several lines":      "$ echo one \\\n    two\none two",
		"before a remark":         "$ echo one\none\n# in another terminal\n$ echo two",
		"ages and times":          "$ echo 'gpu-0  9m27s  at 2026-11-30 01:03:55 UTC (70s ago)'\ngpu-0    4.2s  at 2025-01-01 00:00:00 UTC (2d3h ago)",
		"a part left out":         "$ seq 9\n1\n2\n…\n8\n9",
		"around what is indented": "$ printf '1\\n  2\\n3\\n\\n4\\n'\n…\n  2\n3\n\n…",
		"the end left out":        "$ seq 9\n1\n…",
		"a line's rest left out":  "$ echo 'Result {\"a\":1}'; echo two\nResult {\"a…\ntwo",
		"one that goes on":        "$ echo one; exec sleep 1000\none\n^C\n[exit code 130]",
		"one that ends cleanly":   "$ trap 'exit 0' INT; echo one; while :; do sleep 0.05; done\none\n^C",
	} {
		if lines, same := said(t, block); !same {
			t.Errorf("%s: said %q, and the page shows\n%s", what, lines, block)
		}
	}
}

func TestAPageThatShowsSomethingElseIsNoticed(t *testing.T) {
	for what, block := range map[string]string{
		"another word":             "$ echo one\ntwo",
		"a line too many":          "$ echo one\none\ntwo",
		"a line too few":           "$ echo one; echo two\none",
		"an answer that isn't":     "$ true\none",
		"an exit code that is 0":   "$ echo no\nno\n[exit code 2]",
		"another exit code":        "$ echo no; exit 3\nno\n[exit code 2]",
		"an exit code not told of": "$ echo no; exit 1\nno",
		"a count":                  "$ echo 4 devices\n5 devices",
		"a name with digits":       "$ echo sickbay-node-1-gpu-0-bbf3617612\nsickbay-node-1-gpu-0-bbf3617613",
		"before a line's rest":     "$ echo 'Result {\"a\":1}'; echo two\nResult {\"b…\ntwo",
		"around what is left out":  "$ seq 9\n1\n3\n…\n9",
		"out of order":             "$ seq 9\n…\n5\n…\n4\n…",
		"the end":                  "$ seq 9\n1\n…\n8",
	} {
		if lines, same := said(t, block); same {
			t.Errorf("%s: said %q, and the page may show\n%s", what, lines, block)
		}
	}
}

func TestAnUpdateWritesTheAnswersAndNothingElse(t *testing.T) {
	root, err := checks.Root()
	if err != nil {
		t.Fatal(err)
	}
	const (
		before = "# Page\n\n```console\n$ echo one \\\n    two\nold\n# remark\n$ echo 5s ago; seq 3; echo 6s ago, and more\n1s ago\n1\n…\n2s ago…\n$ false\n```\n\n$ no command\n\n```\n$ echo end\n```\n"
		after  = "# Page\n\n```console\n$ echo one \\\n    two\none two\n# remark\n$ echo 5s ago; seq 3; echo 6s ago, and more\n5s ago\n1\n…\n2s ago…\n$ false\n[exit code 1]\n```\n\n$ no command\n\n```\n$ echo end\nend\n```\n"
	)
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(root, path)
	if err != nil {
		t.Fatal(err)
	}
	var ran []string
	page := Page{Path: relative, Update: true, Before: func(command string) { ran = append(ran, command) }}
	Run(t, page)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(content) != after {
		t.Errorf("the page is now\n%s\nwant\n%s", content, after)
	}
	if want := []string{"echo one \\\n    two", "echo 5s ago; seq 3; echo 6s ago, and more", "false", "echo end"}; !slices.Equal(ran, want) {
		t.Errorf("ran %q, want %q", ran, want)
	}
	// And then the page is right.
	page.Update = false
	Run(t, page)
}

func TestAProgramThatIsNotThereIsAnAnswer(t *testing.T) {
	if lines, same := said(t, "$ no-such-program\n…\n[exit code 127]"); !same || !strings.Contains(strings.Join(lines, "\n"), "no-such-program") {
		t.Errorf("said %q", lines)
	}
}
