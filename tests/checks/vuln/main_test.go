package main

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/sickbay-dev/sickbay/tests/checks"
)

// A module with one dependency, at a version whose NewV4 gives UUIDs that can be
// guessed.
const (
	vulnerableMod = `module example.com/tiny

go 1.26.0

require github.com/satori/go.uuid v1.2.1-0.20180103161547-0ef6afb2f6cd
`
	vulnerableSum = `github.com/satori/go.uuid v1.2.1-0.20180103161547-0ef6afb2f6cd h1:QNikPl7uUF3ELZsqT3cotUi6zEhiPdAjdtQQJdhw0+o=
github.com/satori/go.uuid v1.2.1-0.20180103161547-0ef6afb2f6cd/go.mod h1:dA0hQrYB0VpLJoorglMZABFdXlWrHn1NEOzdhQKdks0=
`
	vulnerability = "GO-2022-0244"
)

func TestAKnownVulnerabilityFailsWhereItIsReached(t *testing.T) {
	root := clone(t)
	db, err := find(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		call    string
		reached int
	}{
		"what is vulnerable is called":   {`uuid.NewV4()`, 1},
		"something else of it is called": {`uuid.FromString("")`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			module := t.TempDir()
			for file, content := range map[string]string{
				"go.mod": vulnerableMod, "go.sum": vulnerableSum,
				"main.go": "package main\n\nimport uuid \"github.com/satori/go.uuid\"\n\nfunc main() { " + tc.call + " }\n",
			} {
				if err := os.WriteFile(filepath.Join(module, file), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			all, err := scanner{root: root, database: db.URL}.source(t.Context(), module, runtime.Version(), "./...")
			if err != nil {
				t.Fatal(err)
			}
			// Those of this machine's Go are another matter.
			modules, _ := withoutStandardLibrary(all)
			if len(modules) != 1 || modules[0].ID != vulnerability || modules[0].Fixed == "" || modules[0].Summary == "" {
				t.Fatalf("found %v, want %s", modules, vulnerability)
			}
			if got := tell(io.Discard, name, modules); got != tc.reached {
				t.Errorf("%d reached, want %d: %v", got, tc.reached, modules)
			}
		})
	}
}

func TestADatabaseThatThereIsntIsRefused(t *testing.T) {
	if _, err := find(t.Context(), "newest"); err == nil {
		t.Error("a database called newest was taken")
	}
	root := clone(t)
	nowhere := scanner{root: root, database: "file://" + t.TempDir() + "/nowhere"}
	if _, err := nowhere.source(t.Context(), root, runtime.Version(), "./pkg/spelling"); err == nil {
		t.Error("a scan without a database found nothing wrong")
	}
}

func clone(t *testing.T) string {
	t.Helper()
	root, err := checks.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}
