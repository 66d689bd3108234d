package isolation

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// Way is how a node is kept out.
type Way string

const (
	// Off: no node is isolated. This is the default.
	Off Way = "off"
	// Taint: a taint of Sickbay's with effect NoSchedule. What tolerates it is scheduled.
	Taint Way = "taint"
	// Cordon: the node is unschedulable, as kubectl cordon makes it.
	Cordon Way = "cordon"
)

// Policy is the operator's choice. It is an input of every decision.
type Policy struct {
	// Mode observe isolates nothing and lifts nothing, and shows what would be done.
	Mode quarantine.Mode `json:"mode"`
	Way  Way             `json:"way"`
	// Devices and Percent are how many of a node's devices have to be faulty: at least so
	// many, and at least so many percent of them.
	Devices int     `json:"devices"`
	Percent float64 `json:"percent"`
	// Conditions are the types of node conditions that isolate it by themselves.
	Conditions []string `json:"conditions,omitempty"`
	// WithoutMarks isolates a node for one faulty device where nothing can keep a single
	// device out.
	WithoutMarks bool `json:"withoutMarks,omitempty"`
	// Calm is how long nothing may justify it before it is lifted.
	Calm time.Duration `json:"calm"`
}

// DefaultPolicy isolates no node. Where only a way is said, it takes half of the devices
// and two at least: one faulty device has a mark of its own.
func DefaultPolicy() Policy {
	return Policy{Mode: quarantine.ModeObserve, Way: Off, Devices: 2, Percent: 50, Calm: 10 * time.Minute}
}

// NeverCondition is the condition that isolates no node: a node that is out isn't faulty.
const NeverCondition = "Ready"

// Validate names everything that is wrong, all at once.
func (p Policy) Validate() error {
	var errs []error
	if !slices.Contains([]Way{Off, Taint, Cordon}, p.Way) {
		errs = append(errs, fmt.Errorf("isolate %q: want %s, %s or %s", p.Way, Off, Taint, Cordon))
	}
	if p.Devices < 1 {
		errs = append(errs, fmt.Errorf("devices %d: want one at least", p.Devices))
	}
	if !(p.Percent > 0 && p.Percent <= 100) {
		errs = append(errs, fmt.Errorf("percent %v: want more than 0, and 100 at most", p.Percent))
	}
	if slices.Contains(p.Conditions, NeverCondition) {
		errs = append(errs, fmt.Errorf("conditions: %s isn't allowed: a node that is out isn't faulty", NeverCondition))
	}
	if p.Calm <= 0 {
		errs = append(errs, fmt.Errorf("calm %s: want more than zero", p.Calm))
	}
	return errors.Join(errs...)
}

// isolates tells whether it isolates nodes at all.
func (p Policy) isolates() bool { return p.Way == Taint || p.Way == Cordon }

// enforces tells whether anything is changed.
func (p Policy) enforces() bool { return p.Mode == quarantine.ModeEnforce }
