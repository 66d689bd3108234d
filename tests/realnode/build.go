package realnode

// This file builds the programs of this module that run on the node.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

const modulePath = "github.com/sickbay-dev/sickbay/tests"

// buildOwn builds packages of this module and returns their programs by name.
// Go itself keeps what is up to date, and builds them from what it has compiled
// for the tests: no flags. The one that runs in containers imports nothing that
// would need a C library. The caller holds the machine, so no two builds write
// one file.
func buildOwn(ctx context.Context, packages ...string) (map[string]string, error) {
	module, err := findModule()
	if err != nil {
		return nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("no place for the node's programs: %w", err)
	}
	dir := filepath.Join(cache, "sickbay", "realnode")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a place for the node's programs: %w", err)
	}
	programs := map[string]string{}
	args := []string{"build", "-o", dir + "/"}
	for _, pkg := range packages {
		name := path.Base(pkg)
		programs[name] = filepath.Join(dir, name)
		args = append(args, modulePath+"/"+pkg)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = module
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the node's programs: %w\n%s", err, bytes.TrimSpace(out))
	}
	return programs, nil
}

// findModule looks for this module from the working directory upwards: a test
// runs in it, a person above it.
func findModule() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		for _, candidate := range []string{dir, filepath.Join(dir, "tests")} {
			content, err := os.ReadFile(filepath.Join(candidate, "go.mod"))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return "", err
			}
			first, _, _ := strings.Cut(string(content), "\n")
			if strings.TrimSpace(first) == "module "+modulePath {
				return candidate, nil
			}
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no module %s in %s or above: run from inside the repository", modulePath, start)
		}
	}
}
