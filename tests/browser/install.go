package browser

// This file finds the programs, and installs what drives Chromium.

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// The script and what it needs, which is pinned by its lock file.
var (
	//go:embed open.cjs
	script []byte
	//go:embed package.json
	manifest []byte
	//go:embed package-lock.json
	lock []byte
)

// programs are the paths of what has to be on the machine.
type programs struct{ chromium, node, npm string }

// find finds them, or says all that is missing and how to get it.
func find() (programs, error) {
	var p programs
	var missing []error
	for _, wanted := range []struct {
		path *string
		name string
		how  string
	}{
		{&p.chromium, "chromium", "apt-get install chromium"},
		{&p.node, "node", "apt-get install nodejs, at least version 18"},
		{&p.npm, "npm", "apt-get install npm"},
	} {
		path, err := exec.LookPath(wanted.name)
		if err != nil {
			missing = append(missing, fmt.Errorf("%s is missing: %s", wanted.name, wanted.how))
		}
		*wanted.path = path
	}
	return p, errors.Join(missing...)
}

// install puts the script and what it needs into the user's cache, once for each
// version of them, and returns the script's path.
func install(ctx context.Context, npm string) (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for what drives Chromium: %w", err)
	}
	files := []struct {
		name    string
		content []byte
	}{{"open.cjs", script}, {"package.json", manifest}, {"package-lock.json", lock}}
	key := sha256.New()
	for _, f := range files {
		fmt.Fprintf(key, "%s %x\n", f.name, sha256.Sum256(f.content))
	}
	parent := filepath.Join(user, "sickbay", "browser")
	folder := filepath.Join(parent, hex.EncodeToString(key.Sum(nil))[:16])
	if _, err := os.Stat(folder); err == nil {
		return filepath.Join(folder, files[0].name), nil
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("make a place for what drives Chromium: %w", err)
	}
	work, err := os.MkdirTemp(parent, ".installing-")
	if err != nil {
		return "", fmt.Errorf("make a place for what drives Chromium: %w", err)
	}
	defer os.RemoveAll(work)
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(work, f.name), f.content, 0o644); err != nil {
			return "", fmt.Errorf("make a place for what drives Chromium: %w", err)
		}
	}
	command := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	command.Dir = work
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("install what drives Chromium: npm ci: %w\n%s", err, output)
	}
	// Of several at once the first one's stays.
	if err := os.Rename(work, folder); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("put what drives Chromium into the cache: %w", err)
	}
	return filepath.Join(folder, files[0].name), nil
}
