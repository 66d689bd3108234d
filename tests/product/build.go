// Package product runs Sickbay as it is deployed: its one binary, built from
// this clone, with its services as processes of a stack.
//
// It owns how the binary is built, of this version and of an earlier one, how a
// service is pointed at a stack, and when it counts as started. It must never know
// what a test or a demo wants of Sickbay: policies and windows come from the caller,
// as variables.
package product

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// module is Sickbay's own, which the module under tests/ replaces by the clone.
const module = "github.com/sickbay-dev/sickbay"

// Build builds the binary into a folder and returns its path. It is the one that the
// image has, but for what is stamped into it.
func Build(ctx context.Context, folder string) (string, error) {
	root, err := clone(ctx)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(folder, "sickbay")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build sickbay: %w\n%s", err, output)
	}
	return binary, nil
}

// clone is where this version's source is.
func clone(ctx context.Context) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find the clone that module %s is in: %w; run from inside its tests/", module, err)
	}
	return strings.TrimSpace(string(root)), nil
}

// shared is the binary that all tests of one process run.
var shared struct {
	once   sync.Once
	folder string
	binary string
	err    error
}

// Shared builds the binary at its first call, and returns the same one at every
// later one. A package of tests that calls it has Main as its TestMain.
func Shared() (string, error) {
	shared.once.Do(func() {
		if shared.folder, shared.err = os.MkdirTemp("", "sickbay-bin-"); shared.err == nil {
			shared.binary, shared.err = Build(context.Background(), shared.folder)
		}
	})
	return shared.binary, shared.err
}

// Main is the TestMain of a package whose tests run what Shared built: it runs them
// and removes that, and does what else there is to do at the end.
func Main(m *testing.M, atEnd ...func() error) {
	code := m.Run()
	for _, end := range append(atEnd, func() error { return os.RemoveAll(shared.folder) }) {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}
