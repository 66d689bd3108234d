package product

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// EarliestUpgradable is the commit of the oldest version from which an upgrade, and
// to which a way back, is promised: the first whose cases were meant to last. It
// moves with a release only, to the release before it at most, and the notes of that
// release name it as where to upgrade from; docs/upgrade.md says so to operators.
// Until the first release it stays.
//
// The histories that it recorded are testdata/<its first seven digits> of
// workflows/device.
const EarliestUpgradable = "8cec8e2c2dab431f63e9e4e72ab9ee81b97a66a7"

// ErrNoHistory is returned where the clone doesn't have the commit, because it is a
// shallow one or no clone at all.
var ErrNoHistory = errors.New("the clone doesn't have the commit; get it with: git fetch --unshallow")

// BuildEarlier builds the binary of a commit, once, into the user's cache, and returns its path.
func BuildEarlier(ctx context.Context, commit string) (string, error) {
	root, err := clone(ctx)
	if err != nil {
		return "", err
	}
	known := exec.CommandContext(ctx, "git", "cat-file", "-e", commit+"^{commit}")
	known.Dir = root
	if err := known.Run(); err != nil {
		return "", fmt.Errorf("find commit %s: %w (%w)", commit, ErrNoHistory, err)
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for the binary of commit %s: %w", commit, err)
	}
	parent := filepath.Join(user, "sickbay", "product")
	folder := filepath.Join(parent, fmt.Sprintf("%s-%s-%s", commit[:12], runtime.Version(), runtime.GOARCH))
	binary := filepath.Join(folder, "sickbay")
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("make a place for the binary of commit %s: %w", commit, err)
	}
	work, err := os.MkdirTemp(parent, ".building-")
	if err != nil {
		return "", fmt.Errorf("make a place for the binary of commit %s: %w", commit, err)
	}
	defer os.RemoveAll(work)
	source, built := filepath.Join(work, "source"), filepath.Join(work, "built")
	if err := checkOut(ctx, root, commit, source); err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", filepath.Join(built, "sickbay"), ".")
	build.Dir = source
	build.Env = append(os.Environ(), "GOWORK=off")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build sickbay of commit %s: %w\n%s", commit, err, output)
	}
	// Of several at once the first one's stays.
	if err := os.Rename(built, folder); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("put the binary of commit %s into the cache: %w", commit, err)
	}
	return binary, nil
}

// checkOut writes the files of a commit into a folder, and leaves the clone alone.
func checkOut(ctx context.Context, root, commit, folder string) error {
	if err := os.Mkdir(folder, 0o755); err != nil {
		return fmt.Errorf("check out commit %s: %w", commit, err)
	}
	archive := exec.CommandContext(ctx, "git", "archive", "--format=tar", commit)
	archive.Dir = root
	var failed bytes.Buffer
	archive.Stderr = &failed
	files, err := archive.Output()
	if err != nil {
		return fmt.Errorf("check out commit %s: %w: %s", commit, err, strings.TrimSpace(failed.String()))
	}
	unpack := exec.CommandContext(ctx, "tar", "-x", "-C", folder)
	unpack.Stdin = bytes.NewReader(files)
	if output, err := unpack.CombinedOutput(); err != nil {
		return fmt.Errorf("check out commit %s: %w: %s", commit, err, output)
	}
	return nil
}
