package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// Format names the form of a Report. What reads it has to know that form; new fields may
// come, and what is there keeps its meaning.
const Format = "sickbay.dev/probe/v1"

// TerminationLog is where a container leaves its last words for the kubelet, which puts
// them into the Pod's status (status.containerStatuses[].state.terminated.message).
const TerminationLog = "/dev/termination-log"

// maxReport is as much of it as a kubelet reads (k8s.io/kubernetes pkg/kubelet/container:
// MaxContainerTerminationMessageLength).
const maxReport = 4096

// Verdict is what came of it.
type Verdict string

const (
	// Passed: every check was ok, each time.
	Passed Verdict = "passed"
	// Failed: at least one wasn't.
	Failed Verdict = "failed"
	// Unchecked: none failed, but not all could be made, or not for long enough.
	Unchecked Verdict = "unchecked"
)

// State is what came of a check.
type State string

const (
	StateOK     State = "ok"
	StateFailed State = "failed"
	// StateUnchecked: it couldn't be made, and says nothing of the device.
	StateUnchecked State = "unchecked"
)

// Check is one check and what came of it.
type Check struct {
	// Name is the kind of the check: device, node, env, mount, identity, expect or run.
	Name string `json:"check"`
	// About is what was looked at: a path, a variable, a command.
	About  string `json:"about,omitempty"`
	State  State  `json:"state"`
	Detail string `json:"detail,omitempty"`
}

// Report is what is left in the termination log, as JSON.
type Report struct {
	Format  string  `json:"format"`
	Verdict Verdict `json:"verdict"`
	// Summary is the verdict in a sentence.
	Summary string    `json:"summary"`
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"`
	// Rounds is how often all checks were made.
	Rounds int `json:"rounds"`
	// Checks are those of the last round, those that aren't ok first.
	Checks []Check `json:"checks"`
	// Left is how many checks that were ok had no room.
	Left int `json:"left,omitempty"`
}

// Text is the report as JSON that fits into a termination log.
func (r Report) Text() []byte {
	checks := r.Checks
	r.Checks = make([]Check, 0, len(checks))
	for _, bad := range []bool{true, false} {
		for _, c := range checks {
			if (c.State != StateOK) == bad {
				r.Checks = append(r.Checks, c)
			}
		}
	}
	for {
		text, err := json.Marshal(r)
		if err != nil {
			// It has nothing but texts, times and numbers.
			panic(err)
		}
		if len(text) <= maxReport || len(r.Checks) == 0 {
			return text
		}
		r.Checks = r.Checks[:len(r.Checks)-1]
		r.Left++
	}
}

// save leaves the report at a path. A termination log that isn't there is none that
// anybody reads.
func (r Report) save(path string) error {
	if path == "" {
		return nil
	}
	if _, err := os.Stat(path); path == TerminationLog && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.WriteFile(path, append(r.Text(), '\n'), 0o644); err != nil {
		return fmt.Errorf("leave the report: %w", err)
	}
	return nil
}

// maxDetail bounds the detail of a check.
const maxDetail = 400

// short is a text of others as it is shown in one line: its end, which is where programs
// say what is wrong.
func short(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return '?'
		}
		return c
	}, text)
	if runes := []rune(text); len(runes) > maxDetail {
		return "…" + string(runes[len(runes)-maxDetail:])
	}
	return text
}
