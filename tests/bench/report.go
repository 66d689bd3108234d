package main

import (
	"fmt"
	"strings"
)

// report is what a part of the bench found: tables, and the counts that are gates.
type report struct {
	title string
	lines []string
	gates []gate
}

// gate is a count that may not be past a bound. The bounds carry a margin over what
// was measured: what they are for is a count that grows with the fleet, or one that
// should be zero.
type gate struct {
	what       string
	got, bound float64
}

func (r *report) table(headers ...string) {
	r.lines = append(r.lines, "", "| "+strings.Join(headers, " | ")+" |", strings.Repeat("| --- ", len(headers))+"|")
}

func (r *report) row(first string, cells ...string) {
	r.lines = append(r.lines, "| "+strings.Join(append([]string{first}, cells...), " | ")+" |")
}

// most says that a count may be that much at most.
func (r *report) most(what string, got, bound float64) {
	r.gates = append(r.gates, gate{what, got, bound})
}

func (r *report) text() string { return "## " + r.title + "\n" + strings.Join(r.lines, "\n") + "\n" }

// broken are the gates that don't hold.
func (r *report) broken() []error {
	var errs []error
	for _, g := range r.gates {
		if g.got > g.bound {
			errs = append(errs, fmt.Errorf("%s: %s: %.6g, want at most %.6g", r.title, g.what, g.got, g.bound))
		}
	}
	return errs
}

// size writes bytes for people.
func size(bytes int64) string {
	if bytes < 1<<20 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20))
}
