package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// State is what came of looking at a prerequisite.
type State string

const (
	// OK: it is as it is needed.
	OK State = "ok"
	// Degraded: Sickbay works, and lacks what Without says.
	Degraded State = "degraded"
	// Unknown: it couldn't be found out; Found says why.
	Unknown State = "unknown"
	// Missing: Sickbay can't do its work, or must not.
	Missing State = "missing"
)

// rank orders states by how much they matter.
func (s State) rank() int { return slices.Index([]State{OK, Degraded, Unknown, Missing}, s) }

// Finding is what was found of one prerequisite.
type Finding struct {
	// Check names what was looked at, as system/thing, and after a second slash of
	// whom: kubernetes/rights/worker.
	Check string `json:"check"`
	State State  `json:"state"`
	// Found and Needed are what is there and what should be.
	Found  string `json:"found"`
	Needed string `json:"needed"`
	// Without says what doesn't work as long as it is so, Remedy how to mend it.
	// Both are empty where it is as needed.
	Without string `json:"without,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
	// stops tells that nothing else of its system can be looked at.
	stops bool
}

// Line is a finding in one line, for a log or a probe's answer.
func (f Finding) Line() string {
	if f.State == OK {
		return string(OK)
	}
	return fmt.Sprintf("%s: %s; %s. %s", f.State, f.Found, f.Without, f.Remedy)
}

// Check looks at one prerequisite, or at several that are found out together. It
// returns when ctx is done.
type Check struct {
	// Name stands for the findings that a check would have had, if it fails.
	Name string
	// Lost says what isn't known if it fails.
	Lost string
	Ask  func(ctx context.Context) ([]Finding, error)
	// Remedy is what to do if it fails, where that isn't to give the right to read.
	Remedy string
	// Limit is how long it may take, where that isn't what all may take.
	Limit time.Duration
}

// unknown is the finding of a check that failed.
func (c Check) unknown(err error) Finding {
	return Finding{
		Check: c.Name, State: Unknown, Found: err.Error(), Needed: "an answer",
		Without: c.Lost + " isn't known", Remedy: cmp.Or(c.Remedy, "Give whoever asks the right to read it, or ask again when it answers."),
	}
}

// System is one of the systems that Sickbay needs. What Then looks at is looked at
// only where Reach finds nothing that stops it.
type System struct {
	Reach Check
	Then  []Check
}

// Report is what all checks found.
type Report struct {
	At       time.Time `json:"at"`
	Findings []Finding `json:"findings"`
}

// Run looks at all systems side by side, each check for at most limit. The findings
// are in the order of the checks.
func Run(ctx context.Context, limit time.Duration, systems ...System) Report {
	found := make([][]Finding, len(systems))
	var looks sync.WaitGroup
	for i, system := range systems {
		looks.Go(func() { found[i] = system.look(ctx, limit) })
	}
	looks.Wait()
	return Report{At: time.Now().UTC(), Findings: slices.Concat(found...)}
}

func (s System) look(ctx context.Context, limit time.Duration) []Finding {
	reached := s.Reach.ask(ctx, limit)
	for _, f := range reached {
		if f.stops {
			return reached
		}
	}
	found := make([][]Finding, len(s.Then))
	var looks sync.WaitGroup
	for i, check := range s.Then {
		looks.Go(func() { found[i] = check.ask(ctx, limit) })
	}
	looks.Wait()
	return append(reached, slices.Concat(found...)...)
}

func (c Check) ask(ctx context.Context, limit time.Duration) []Finding {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.Limit, limit))
	defer cancel()
	findings, err := c.Ask(ctx)
	if err != nil {
		findings = append(findings, c.unknown(err))
	}
	return findings
}

// Worst is the state that matters most.
func (r Report) Worst() State {
	worst := OK
	for _, f := range r.Findings {
		if f.State.rank() > worst.rank() {
			worst = f.State
		}
	}
	return worst
}

// Count is how many findings have a state.
func (r Report) Count(state State) int {
	count := 0
	for _, f := range r.Findings {
		if f.State == state {
			count++
		}
	}
	return count
}

// names joins the first few of many names, and says how many more there are.
func names(all []string) string {
	const shown = 5
	all = unique(all)
	if len(all) <= shown {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:shown], ", "), len(all)-shown)
}

// unique are names in order, each once.
func unique(all []string) []string { return slices.Compact(slices.Sorted(slices.Values(all))) }
