// Package product runs Sickbay as it is deployed: its one binary, built from
// this clone, with its services as processes of a stack.
//
// It owns how the binary is built, how a service is pointed at a stack, and when
// it counts as started. It must never know what a test or a demo wants of
// Sickbay: policies and windows come from the caller, as variables.
package product

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// module is Sickbay's own, which the module under tests/ replaces by the clone.
const module = "github.com/sickbay-dev/sickbay"

// Build builds the binary into a folder and returns its path.
func Build(ctx context.Context, folder string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find the clone that module %s is in: %w; run from inside its tests/", module, err)
	}
	binary := filepath.Join(folder, "sickbay")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, ".")
	build.Dir = strings.TrimSpace(string(root))
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build sickbay: %w\n%s", err, output)
	}
	return binary, nil
}

// shared is the binary that all tests of one process run.
var shared = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "sickbay-bin-")
	if err != nil {
		return "", err
	}
	return Build(context.Background(), folder)
})

// Shared builds the binary at its first call, and returns the same one at every
// later one. A package of tests that calls it ends with Clean in its TestMain.
func Shared() (string, error) { return shared() }

// Clean removes what Shared built.
func Clean() error {
	binary, err := shared()
	if err != nil {
		return nil // there is none; whoever wanted it was told why
	}
	return os.RemoveAll(filepath.Dir(binary))
}
