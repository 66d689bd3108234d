package permits

import "github.com/sickbay-dev/sickbay/pkg/budget"

// StateVersion is the version of State that this code writes. A run that finds a later
// one refuses to go on, so that an old worker can't damage it.
const StateVersion = 1

// State is the workflow's argument and all that it carries on when it continues as new.
type State struct {
	Version int         `json:"version"`
	Book    budget.Book `json:"book,omitzero"`
	// Runs counts how often the workflow continued as new.
	Runs int `json:"runs,omitempty"`
}

// View is what the query answers: the state, and the limits by which it is decided.
type View struct {
	State
	Limits budget.Limits `json:"limits"`
}
