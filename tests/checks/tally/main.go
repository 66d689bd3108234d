// Command tally adds up what `go test -json` wrote into the files that it is
// given, and ends with the line "N passed, N failed". It fails if something
// failed, if a package did not end, or if nothing ran at all.
//
// Every test function and every subtest counts once. A package that fails
// without a failed test (it didn't build, or ended by a panic) counts as one
// failure, and so does each --failed NAME: a step of CI that isn't a test.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
)

// event is one line of go test -json (go doc test2json).
type event struct {
	Action  string
	Package string
	Test    string
}

type tally struct {
	passed, skipped int
	failed          []string
	// open packages began and did not end; faulty had a failed test.
	open, faulty map[string]bool
}

func main() {
	sum := tally{open: map[string]bool{}, faulty: map[string]bool{}}
	flag.Func("failed", "name of a step that failed; may be given several times", func(name string) error {
		sum.failed = append(sum.failed, name)
		return nil
	})
	flag.Parse()
	for _, path := range flag.Args() {
		if err := sum.addFile(path); err != nil {
			fmt.Fprintln(os.Stderr, "tally:", err)
			os.Exit(1)
		}
	}
	os.Exit(sum.report(os.Stdout))
}

func (s *tally) addFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return s.add(file)
}

func (s *tally) add(in io.Reader) error {
	lines := json.NewDecoder(in)
	for {
		var e event
		err := lines.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a line of go test -json: %w", err)
		}
		s.take(e)
	}
}

func (s *tally) take(e event) {
	switch {
	case e.Package == "":
		// What the build says; the package's own end follows.
	case e.Test != "":
		s.takeTest(e)
	case e.Action == "start":
		s.open[e.Package] = true
	case e.Action == "fail":
		delete(s.open, e.Package)
		if !s.faulty[e.Package] {
			s.failed = append(s.failed, e.Package)
		}
	case e.Action == "pass", e.Action == "skip":
		delete(s.open, e.Package)
	}
}

func (s *tally) takeTest(e event) {
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		s.skipped++
	case "fail":
		s.failed = append(s.failed, e.Package+" "+e.Test)
		s.faulty[e.Package] = true
	}
}

func (s *tally) report(out io.Writer) (code int) {
	for pkg := range s.open {
		s.failed = append(s.failed, pkg+" did not end")
	}
	slices.Sort(s.failed)
	for _, name := range s.failed {
		fmt.Fprintln(out, "FAILED", name)
	}
	if s.skipped > 0 {
		fmt.Fprintln(out, s.skipped, "skipped")
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", s.passed, len(s.failed))
	if len(s.failed) > 0 || s.passed == 0 {
		return 1
	}
	return 0
}
