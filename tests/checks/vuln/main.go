// Command vuln looks for known vulnerabilities in what Sickbay is made of: in the
// source of its module, and in a binary that is built from it.
//
//	go run ./checks/vuln                        by the database whose version stands in database.go
//	go run ./checks/vuln -db latest             by the newest that the module proxy has
//	go run ./checks/vuln -db https://vuln.go.dev
//
// It fails on what the product reaches. What is only in a module or a package that it
// has, and is never called, is told and passes.
//
// The source is judged by the toolchain that go.mod names, which is the oldest that
// the product may be shipped from. The binary is that of the Go at hand, which may be
// older where GOTOOLCHAIN=local: then only what is in modules counts of it, and that
// its Go has known vulnerabilities is told.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/version"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/sickbay-dev/sickbay/tests/checks"
	"github.com/sickbay-dev/sickbay/tests/product"
)

func main() {
	database := flag.String("db", "", "the database: latest, a URL as govulncheck takes it, or nothing for the version that is pinned")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *database); err != nil {
		fmt.Fprintln(os.Stderr, "vuln:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, named string) error {
	root, err := checks.Root()
	if err != nil {
		return err
	}
	db, err := find(ctx, named)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "vuln: %s\n", db.text(time.Now()))
	ships, err := toolchain(ctx, root)
	if err != nil {
		return err
	}
	s := scanner{root: root, database: db.URL}
	source, err := s.source(ctx, root, ships, "./...")
	if err != nil {
		return err
	}
	failed := tell(out, "source, as "+ships+" builds it", source)

	folder, err := os.MkdirTemp("", "sickbay-vuln-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	path, err := product.Build(ctx, folder)
	if err != nil {
		return err
	}
	binary, err := s.binary(ctx, path)
	if err != nil {
		return err
	}
	here := runtime.Version()
	if version.Compare(here, ships) < 0 {
		var old []finding
		binary, old = withoutStandardLibrary(binary)
		if n := len(reached(old)); n > 0 {
			fmt.Fprintf(out, "vuln: %s, which builds here, has %d known vulnerabilities in what the product reaches; ship what %s or newer builds\n", here, n, ships)
		}
	}
	failed += tell(out, "binary, as "+here+" builds it", binary)
	if failed > 0 {
		return fmt.Errorf("%d known vulnerabilities are reached; update the modules that have them, or the toolchain in go.mod", failed)
	}
	return nil
}

// toolchain is the one that go.mod asks for.
func toolchain(ctx context.Context, module string) (string, error) {
	edit := exec.CommandContext(ctx, "go", "mod", "edit", "-json")
	edit.Dir = module
	said, err := edit.Output()
	if err != nil {
		return "", fmt.Errorf("read go.mod of %s: %w", module, err)
	}
	var file struct{ Go, Toolchain string }
	if err := json.Unmarshal(said, &file); err != nil {
		return "", fmt.Errorf("read go.mod of %s: %w", module, err)
	}
	if file.Toolchain == "" {
		return "go" + file.Go, nil
	}
	return file.Toolchain, nil
}

// tell says what was found, and returns how much of it is reached.
func tell(out io.Writer, where string, all []finding) int {
	var bad, rest []finding
	for _, f := range all {
		if f.Reached {
			bad = append(bad, f)
		} else {
			rest = append(rest, f)
		}
	}
	fmt.Fprintf(out, "vuln: %s: %d known vulnerabilities are reached\n", where, len(bad))
	for _, f := range bad {
		fmt.Fprintf(out, "  %s\n", f)
	}
	if len(rest) > 0 {
		var names []string
		for _, f := range rest {
			names = append(names, f.ID+" of "+f.Module)
		}
		fmt.Fprintf(out, "  not reached: %s\n", strings.Join(names, ", "))
	}
	return len(bad)
}

// said adds to an error what a command said on its standard error.
func said(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}
