// Command breaks proves that the tests would notice: it applies each patch of
// tests/breaks in a scratch worktree of HEAD, one after the other, and wants the
// tests that the patch names to fail.
//
//	go run ./checks/breaks            all of them
//	go run ./checks/breaks --no-stack those whose tests need no stack
//	go run ./checks/breaks O3 Q7      those of these requirements
//
// A patch that no longer applies, that doesn't build, or that a test doesn't
// notice is an error. The clone itself is left as it is.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sickbay-dev/sickbay/tests/checks"
)

func main() {
	noStack := flag.Bool("no-stack", false, "leave out breaks whose tests are in the module under tests/, which may need the stack")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *noStack, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "breaks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, noStack bool, numbers []string) error {
	root, err := checks.Root()
	if err != nil {
		return err
	}
	patches, err := chosen(root, noStack, numbers)
	if err != nil {
		return err
	}
	tree, remove, err := scratch(ctx, root)
	if err != nil {
		return err
	}
	defer remove()
	failed := 0
	for _, patch := range patches {
		began := time.Now()
		if err := try(ctx, tree, patch); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			failed++
			fmt.Printf("FAILED   %-12s %s\n         %v\n", patch.Name, patch.Why, err)
			continue
		}
		fmt.Printf("noticed  %-12s %s (%.1f s)\n", patch.Name, patch.Why, time.Since(began).Seconds())
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d breaks went unnoticed or can't be tried", failed, len(patches))
	}
	fmt.Printf("%d breaks, all noticed\n", len(patches))
	return nil
}

func chosen(root string, noStack bool, numbers []string) ([]checks.Patch, error) {
	patches, err := checks.ReadPatches(root)
	if err != nil {
		return nil, err
	}
	for _, number := range numbers {
		if !slices.ContainsFunc(patches, func(p checks.Patch) bool { return p.Number == number }) {
			return nil, fmt.Errorf("there is no %s/%s.patch", checks.BreaksDir, number)
		}
	}
	return slices.DeleteFunc(patches, func(p checks.Patch) bool {
		return len(numbers) > 0 && !slices.Contains(numbers, p.Number) || noStack && p.NeedsStack()
	}), nil
}

// scratch makes a worktree of HEAD and returns how to remove it.
func scratch(ctx context.Context, root string) (tree string, remove func(), err error) {
	parent, err := os.MkdirTemp("", "sickbay-breaks-")
	if err != nil {
		return "", nil, err
	}
	tree = filepath.Join(parent, "tree")
	if err := git(ctx, root, "worktree", "add", "--quiet", "--detach", tree, "HEAD"); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(parent))
	}
	return tree, func() {
		// The end has to come even when the command was told to end.
		ctx := context.WithoutCancel(ctx)
		if err := errors.Join(git(ctx, root, "worktree", "remove", "--force", tree), os.RemoveAll(parent)); err != nil {
			fmt.Fprintln(os.Stderr, "breaks: remove the scratch worktree:", err)
		}
	}, nil
}

// try applies a patch, wants its tests to fail, and takes it back.
func try(ctx context.Context, tree string, patch checks.Patch) (err error) {
	defer func() {
		err = errors.Join(err, git(context.WithoutCancel(ctx), tree, "reset", "--quiet", "--hard"),
			git(context.WithoutCancel(ctx), tree, "clean", "--quiet", "-fd"))
	}()
	if err := git(ctx, tree, "apply", "--3way", "--whitespace=nowarn", patch.Path); err != nil {
		return fmt.Errorf("the patch doesn't apply; make it anew: %w", err)
	}
	for _, test := range patch.Tests {
		if err := wantFailure(ctx, tree, test); err != nil {
			return err
		}
	}
	return nil
}

// wantFailure runs one test and wants it, and not only its package, to fail: a
// patch that doesn't compile proves nothing.
func wantFailure(ctx context.Context, tree string, test checks.Test) error {
	module, pkg := tree, test.Package
	if test.NeedsStack() {
		module, pkg = filepath.Join(tree, "tests"), "."+strings.TrimPrefix(pkg, "./tests")
	}
	command := exec.CommandContext(ctx, "go", "test", "-count=1", "-json", "-run", "^"+test.Name+"$", pkg)
	command.Dir = module
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 30 * time.Second
	var failed bytes.Buffer
	command.Stderr = &failed
	// Its exit code says no more than that something failed.
	output, runErr := command.Output()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ran := false
	for line := range bytes.Lines(output) {
		var event struct{ Action, Test string }
		if json.Unmarshal(line, &event) != nil || event.Test != test.Name {
			continue
		}
		ran = true
		if event.Action == "fail" {
			return nil
		}
	}
	if !ran {
		return fmt.Errorf("%s did not run (%v): %s", test, runErr, says(output, failed.Bytes()))
	}
	return fmt.Errorf("%s does not notice", test)
}

// says is what the go command said to people, out of its JSON.
func says(output, stderr []byte) string {
	var text strings.Builder
	for line := range bytes.Lines(output) {
		var event struct{ Output string }
		if json.Unmarshal(line, &event) == nil {
			text.WriteString(event.Output)
		}
	}
	text.Write(stderr)
	return strings.TrimSpace(text.String())
}

func git(ctx context.Context, dir string, args ...string) error {
	command := exec.CommandContext(ctx, "git", args...)
	command.Dir = dir
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(string(output)))
	}
	return nil
}
