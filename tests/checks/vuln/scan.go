package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// scanner runs govulncheck, at the version of tests/tools.
type scanner struct {
	// root is the clone's, database a URL.
	root, database string
}

// finding is one known vulnerability of one module.
type finding struct {
	ID, Summary string
	// Module is "stdlib" for the standard library.
	Module, Found, Fixed string
	// Reached tells that something vulnerable is called, and Trace an example of how.
	Reached bool
	Trace   string
}

const standardLibrary = "stdlib"

func (f finding) String() string {
	text := fmt.Sprintf("%s: %s\n    in %s %s, fixed in %s", f.ID, f.Summary, f.Module, f.Found, cmp.Or(f.Fixed, "no version yet"))
	if f.Trace != "" {
		text += "\n    " + f.Trace
	}
	return text
}

func reached(all []finding) []finding {
	return slices.DeleteFunc(slices.Clone(all), func(f finding) bool { return !f.Reached })
}

// withoutStandardLibrary parts what is in modules from what came with the toolchain.
func withoutStandardLibrary(all []finding) (modules, standard []finding) {
	for _, f := range all {
		if f.Module == standardLibrary {
			standard = append(standard, f)
		} else {
			modules = append(modules, f)
		}
	}
	return modules, standard
}

// source scans packages of a module, as if this Go had built them.
func (s scanner) source(ctx context.Context, module, goVersion string, packages ...string) ([]finding, error) {
	return s.scan(ctx, goVersion, append([]string{"-C", module}, packages...)...)
}

// binary scans what a binary says of itself: its modules, its symbols and its Go.
func (s scanner) binary(ctx context.Context, path string) ([]finding, error) {
	return s.scan(ctx, "", "-mode", "binary", path)
}

func (s scanner) scan(ctx context.Context, goVersion string, args ...string) ([]finding, error) {
	command := exec.CommandContext(ctx, "go", append([]string{
		"-C", filepath.Join(s.root, "tests", "tools"), "tool", "govulncheck", "-db", s.database, "-format", "json",
	}, args...)...)
	command.Env = append(os.Environ(), "GOWORK=off")
	if goVersion != "" {
		// govulncheck takes it for the version of the standard library.
		command.Env = append(command.Env, "GOVERSION="+goVersion)
	}
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("govulncheck %v: %w", args, said(err))
	}
	findings, err := read(output)
	if err != nil {
		return nil, fmt.Errorf("govulncheck %v: %w", args, err)
	}
	return findings, nil
}

// message is one of govulncheck's, as far as it is read here
// (golang.org/x/vuln/internal/govulncheck).
type message struct {
	Config *struct {
		ScannerName string `json:"scanner_name"`
	}
	OSV     *struct{ ID, Summary string }
	Finding *struct {
		OSV   string
		Fixed string `json:"fixed_version"`
		// Trace begins with what is vulnerable and ends with what the product calls.
		Trace []struct{ Module, Version, Package, Function string }
	}
}

// read gathers the findings of one scan, one for each vulnerability and module.
func read(output []byte) ([]finding, error) {
	summaries, found := map[string]string{}, map[string]finding{}
	ran := false
	decoder := json.NewDecoder(bytes.NewReader(output))
	for {
		var m message
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read what it found: %w", err)
		}
		ran = ran || m.Config != nil
		if m.OSV != nil {
			summaries[m.OSV.ID] = m.OSV.Summary
		}
		if m.Finding == nil || len(m.Finding.Trace) == 0 {
			continue
		}
		at := m.Finding.Trace[0]
		key := m.Finding.OSV + " " + at.Module
		f := found[key]
		if f.Reached {
			continue
		}
		f.ID, f.Module, f.Found, f.Fixed = m.Finding.OSV, at.Module, at.Version, m.Finding.Fixed
		if at.Function != "" {
			f.Reached = true
			f.Trace = at.Package + "." + at.Function
			if from := m.Finding.Trace[len(m.Finding.Trace)-1]; len(m.Finding.Trace) > 1 {
				f.Trace = from.Package + "." + from.Function + " comes to " + f.Trace
			}
		}
		found[key] = f
	}
	if !ran {
		return nil, errors.New("it scanned nothing")
	}
	var all []finding
	for _, key := range slices.Sorted(maps.Keys(found)) {
		f := found[key]
		f.Summary = summaries[f.ID]
		all = append(all, f)
	}
	return all, nil
}
