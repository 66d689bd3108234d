package stack

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheNextStackSweepsTheDataOfAKilledOneButNotWhatWasKeptOrIsInUse(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	killed, kept, used := newDir(t), newDir(t), newDir(t)
	killed.lock.unlock() // what the kernel does when a process dies
	kept.keep = true
	if err := kept.remove(); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(os.TempDir(), dirPrefix+"not-a-stack")
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}

	newDir(t)

	if _, err := os.Stat(killed.path); !os.IsNotExist(err) {
		t.Errorf("the killed stack's data is still there: %v", err)
	}
	for what, path := range map[string]string{"kept": kept.path, "in use": used.path, "somebody else's": foreign} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("the directory that is %s was removed: %v", what, err)
		}
	}
}

func newDir(t *testing.T) *stackDir {
	t.Helper()
	dir, err := newStackDir("")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
