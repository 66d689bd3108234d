package pages

import (
	"os"
	"path/filepath"
	"testing"
)

// Terminal makes a terminal that has these programs, given by their paths, in the
// PATH before the machine's own, and a home of its own whose .local/bin is in the
// PATH too. It returns the environment.
func Terminal(t testing.TB, programs ...string) []string {
	t.Helper()
	folder, home := t.TempDir(), t.TempDir()
	for _, program := range programs {
		if err := os.Symlink(program, filepath.Join(folder, filepath.Base(program))); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"HOME=" + home, "PATH=" + folder + ":" + filepath.Join(home, ".local", "bin") + ":" + os.Getenv("PATH")}
}
