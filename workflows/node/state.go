package node

import "github.com/sickbay-dev/sickbay/pkg/isolation"

// StateVersion is the version of State that this code writes. A run that finds a later
// one refuses to go on, so that an old worker can't damage it.
const StateVersion = 1

// State is the workflow's argument and all that it carries on when it continues as new.
type State struct {
	Version   int                 `json:"version"`
	Isolation isolation.Isolation `json:"isolation"`
	// Runs counts how often the workflow continued as new.
	Runs int `json:"runs,omitempty"`
}

// NewState is the state of a node of which nothing was told yet.
func NewState(node string) State {
	return State{Version: StateVersion, Isolation: isolation.Isolation{Node: node}}
}
