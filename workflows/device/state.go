package device

import (
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// StateVersion is the version of State that this code writes. A run that finds
// a later one refuses to go on, so that an old worker can't damage it.
const StateVersion = 1

// State is the workflow's argument and all that it carries on when it continues
// as new. It stays well under 64 KiB.
type State struct {
	Version int             `json:"version"`
	Case    quarantine.Case `json:"case"`
	// TraceParent belongs to the epoch: it came with the event that opened the case,
	// at TraceBegan.
	TraceParent string    `json:"traceparent,omitempty"`
	TraceBegan  time.Time `json:"traceBegan,omitzero"`
	// Runs counts how often the workflow continued as new.
	Runs int `json:"runs,omitempty"`
}

// NewState is the state of a device without a case.
func NewState(key device.Key) State {
	return State{Version: StateVersion, Case: quarantine.Case{Device: key}}
}
