package stack

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// newTestBuilder has a module "temporal" with the given main.go and a cache of
// its own.
func newTestBuilder(t *testing.T, source string) (*builder, *bytes.Buffer) {
	t.Helper()
	progress := &bytes.Buffer{}
	b := &builder{modules: t.TempDir(), cache: t.TempDir(), progress: progress}
	module := filepath.Join(b.modules, "temporal")
	if err := os.Mkdir(module, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(module, "go.mod"), "module example.com/part\n\ngo 1.26.0\n")
	writeFile(t, filepath.Join(module, "main.go"), source)
	return b, progress
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAPartIsBuiltAgainOnlyWhenItsRecipeChanges(t *testing.T) {
	cases := map[string]struct {
		change    func(module string)
		wantOther bool
	}{
		"nothing changed":  {change: func(string) {}},
		"a note was added": {change: func(module string) { writeFile(t, filepath.Join(module, "NOTES.md"), "x") }},
		"a source changed": {
			change: func(module string) {
				writeFile(t, filepath.Join(module, "main.go"), "package main\nfunc main() { println() }\n")
			},
			wantOther: true,
		},
		"a dependency's hash appeared": {
			change:    func(module string) { writeFile(t, filepath.Join(module, "go.sum"), "x\n") },
			wantOther: true,
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			b, _ := newTestBuilder(t, "package main\nfunc main() {}\n")
			before, err := b.binary(PartTemporal)
			if err != nil {
				t.Fatal(err)
			}
			test.change(filepath.Join(b.modules, "temporal"))
			after, err := b.binary(PartTemporal)
			if err != nil {
				t.Fatal(err)
			}
			if (before != after) != test.wantOther {
				t.Errorf("before %s, after %s", before, after)
			}
		})
	}
}

func TestTwoWhoNeedTheSamePartBuildItOnce(t *testing.T) {
	b, progress := newTestBuilder(t, "package main\nfunc main() {}\n")
	binary, err := b.binary(PartTemporal)
	if err != nil {
		t.Fatal(err)
	}
	var (
		wait    sync.WaitGroup
		writing sync.Mutex
	)
	b.progress = writerFunc(func(line []byte) (int, error) {
		writing.Lock()
		defer writing.Unlock()
		return progress.Write(line)
	})
	for range 3 {
		wait.Go(func() {
			if err := b.buildOnce(t.Context(), "[1/1]", PartTemporal, binary); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()

	if got := strings.Count(progress.String(), ": built in"); got != 1 {
		t.Errorf("built %d times, want once:\n%s", got, progress)
	}
	if info, err := os.Stat(binary); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("no program at %s: %v", binary, err)
	}
}

func TestAFailedBuildShowsWhatTheCompilerSaidAndLeavesNothing(t *testing.T) {
	b, _ := newTestBuilder(t, "package main\nfunc main() { undeclaredName() }\n")
	binary, err := b.binary(PartTemporal)
	if err != nil {
		t.Fatal(err)
	}

	err = b.buildOnce(t.Context(), "[1/1]", PartTemporal, binary)

	if err == nil || !strings.Contains(err.Error(), "undefined: undeclaredName") || !strings.Contains(err.Error(), string(PartTemporal)) {
		t.Errorf("the error names neither part nor cause: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(b.cache, "temporal", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range left {
		if filepath.Ext(path) != ".lock" {
			t.Errorf("the failed build left %s", path)
		}
	}
}

func TestAnUnknownVersionIsRefusedWithThoseThatExist(t *testing.T) {
	_, err := ControlPlaneParts("1.35")
	if err == nil || !strings.Contains(err.Error(), `"1.35"`) || !strings.Contains(err.Error(), "1.36 and 1.37") {
		t.Errorf("error %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(line []byte) (int, error) { return f(line) }
