package checks

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestNoPageShowsACommandThatNothingRuns(t *testing.T) {
	root, _, tests, _ := read(t)
	wrong, err := Unrun(root, tests)
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range wrong {
		t.Error(what)
	}
}

// What the check above rests on: a clone of a few files, in which a page gets a
// command that nothing runs.
func TestACommandThatNothingRunsIsFound(t *testing.T) {
	const (
		test = "package some\n\nfunc TestDemo(t *testing.T) {\n\tt.Run(\"page\", func(t *testing.T) {\n\t\tpages.Run(t, pages.Page{Path: \"docs/run.md\"})\n\t})\n}\n"
		demo = "package demo\n\nfunc TestTheDemoHandlesItsFaultsAndLeavesNothingRunningAfterCtrlC(t *testing.T) {}\n"
	)
	clone := map[string]string{
		"Makefile":                "demo:\ntest: tools\nhelp:\n",
		".ci/run":                 "step \"make test\" 30m make test\n",
		"README.md":               "```console\n$ make demo     # see it\n$ make test\n```\n",
		"CONTRIBUTING.md":         "`make help`\n",
		"docs/run.md":             "```console\n$ echo run\nrun\n```\n",
		"docs/silent.md":          "$ not in a block\n",
		"tests/some/some_test.go": test, "tests/demo/demo_test.go": demo,
	}
	for what, change := range map[string]struct{ path, content, wrong string }{
		"all is run":                     {},
		"a new page with a command":      {"docs/new.md", "```console\n$ echo new\n```\n", "docs/new.md:2: nothing runs `$ echo new`"},
		"a command in another language":  {"docs/run.md", "```sh\n$ echo run\n```\n", "docs/run.md:2: the block with `$ echo run` isn't marked as console"},
		"a page that isn't run any more": {"tests/some/some_test.go", "package some\n", "docs/run.md:2: nothing runs `$ echo run`"},
		"a command that went":            {"README.md", "```console\n$ make demo\n```\n", "no page shows `$ make test` any more"},
		"a target that went":             {"Makefile", "demo:\ntest:\n", "CONTRIBUTING.md: the Makefile has no target help"},
		"a test that went":               {"tests/demo/demo_test.go", "package demo\n", "there is no test ./tests/demo "},
		"a CI step that went":            {".ci/run", "true\n", `.ci/run has no step that ends with "make test"`},
		"a path that isn't written out":  {"tests/some/some_test.go", strings.Replace(test, `"docs/run.md"`, "page", 1), "want pages.Run in a test function"},
		"a run outside a test":           {"tests/some/some_test.go", strings.Replace(test, "TestDemo", "demo", 1), "want pages.Run in a test function"},
		"a run of what is no page":       {"tests/some/some_test.go", strings.Replace(test, "docs/run.md", "docs/ran.md", 1), "runs docs/ran.md, which is none of the pages"},
	} {
		t.Run(what, func(t *testing.T) {
			root := t.TempDir()
			for path, content := range clone {
				if path == change.path {
					continue
				}
				put(t, root, path, content)
			}
			if change.path != "" {
				put(t, root, change.path, change.content)
			}
			tests, err := FindTests(root)
			if err != nil {
				t.Fatal(err)
			}
			wrong, err := Unrun(root, tests)
			if err != nil {
				wrong = append(wrong, err.Error())
			}
			found := slices.ContainsFunc(wrong, func(w string) bool { return strings.Contains(w, change.wrong) })
			if (change.wrong == "") != (len(wrong) == 0) || change.wrong != "" && !found {
				t.Errorf("found %q, want %q", wrong, change.wrong)
			}
		})
	}
}

func put(t *testing.T, root, path, content string) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
