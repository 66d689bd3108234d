package stack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// dirPrefix begins the name of every temporary stack directory.
const dirPrefix = "sickbay-"

// stackDir is the directory of one stack, locked as long as the stack lives.
type stackDir struct {
	path string
	keep bool
	lock *lock
}

// newStackDir uses the given directory, or makes a temporary one. Temporary
// ones whose owner was killed are removed on the way: nobody else will.
func newStackDir(given string) (*stackDir, error) {
	if given == "" {
		sweep()
		return newTemporaryDir()
	}
	path, err := filepath.Abs(given)
	if err != nil {
		return nil, err
	}
	held, err := claimDir(path)
	if err != nil {
		return nil, err
	}
	if held == nil {
		return nil, fmt.Errorf("another stack runs in %s: stop it, or give this one a directory of its own", path)
	}
	return &stackDir{path: path, keep: true, lock: held}, nil
}

func newTemporaryDir() (*stackDir, error) {
	for {
		path, err := os.MkdirTemp("", dirPrefix)
		if err != nil {
			return nil, fmt.Errorf("make the stack's directory: %w", err)
		}
		held, err := claimDir(path)
		if err != nil {
			return nil, err
		}
		// Another stack's sweep can win the lock of a directory that is just
		// being made; it then removes it.
		if held != nil {
			return &stackDir{path: path, lock: held}, nil
		}
	}
}

// claimDir makes the directory and its log folder and locks it; nil if it is
// somebody else's.
func claimDir(path string) (*lock, error) {
	if err := os.MkdirAll(filepath.Join(path, "log"), 0o700); err != nil {
		return nil, fmt.Errorf("make the stack's directory: %w", err)
	}
	return tryLock(filepath.Join(path, "lock"))
}

// remove gives the directory up, and deletes it unless it is to be kept.
func (d *stackDir) remove() error {
	defer d.lock.unlock()
	if d.keep {
		// A kept directory of a failed test is no longer a leftover to sweep.
		return os.WriteFile(filepath.Join(d.path, "keep"), nil, 0o600)
	}
	if err := os.RemoveAll(d.path); err != nil {
		return fmt.Errorf("remove the stack's directory: %w", err)
	}
	return nil
}

// sweep removes temporary directories that no living process holds. It is a
// courtesy: what it can't remove stays.
func sweep() {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "keep")); err == nil {
			continue
		}
		// No lock file: not a stack's directory, or one being made right now.
		if _, err := os.Stat(filepath.Join(dir, "lock")); errors.Is(err, os.ErrNotExist) {
			continue
		}
		held, err := tryLock(filepath.Join(dir, "lock"))
		if err != nil || held == nil {
			continue
		}
		os.RemoveAll(dir)
		held.unlock()
	}
}
