package temporal

import (
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
)

// Want is what a namespace is to be like.
type Want struct {
	// Retention is how long it keeps the histories of closed workflows.
	Retention time.Duration
	// Shorten cuts a longer retention down to that. Without it, a longer one stays.
	Shorten bool
	// Description and Owner say whose it is. They are written where neither is there
	// yet; what somebody else wrote stays, but for the owner if it is Renamed.
	Description string
	Owner       string
	Renamed     bool
	Attributes  Attributes
}

// Kind is what a change does.
type Kind string

// The kinds of changes.
const (
	CreateNamespace    Kind = "CreateNamespace"
	SetRetention       Kind = "SetRetention"
	SetOwner           Kind = "SetOwner"
	AddSearchAttribute Kind = "AddSearchAttribute"
)

// Change is one change of a namespace.
type Change struct {
	Kind Kind
	// Retention belongs to CreateNamespace and SetRetention, Before to SetRetention.
	Retention, Before time.Duration
	// Description and Owner belong to CreateNamespace and SetOwner.
	Description, Owner string
	// Attribute and Type belong to AddSearchAttribute.
	Attribute string
	Type      enumspb.IndexedValueType
}

// ErrNamespace is wrapped by what Plan returns for a namespace that can't be made
// fit by any change.
var ErrNamespace = errors.New("the namespace isn't fit for Sickbay")

// Plan says which changes make a namespace what it is to be; none if it is. The
// notes say what differs and stays. The error says what no change would help.
func Plan(state State, want Want) (changes []Change, notes []string, err error) {
	if !state.Exists {
		changes = append(changes, Change{Kind: CreateNamespace, Retention: want.Retention, Description: want.Description, Owner: want.Owner})
	} else {
		if state.Status != enumspb.NAMESPACE_STATE_REGISTERED {
			return nil, nil, fmt.Errorf("%w: namespace %s is %s; wait until it is gone, or name another one", ErrNamespace, state.Namespace, state.Status)
		}
		switch {
		case state.Retention < want.Retention, state.Retention > want.Retention && want.Shorten:
			changes = append(changes, Change{Kind: SetRetention, Retention: want.Retention, Before: state.Retention})
		case state.Retention > want.Retention:
			notes = append(notes, fmt.Sprintf("namespace %s keeps closed workflows for %s; that is longer than %s, and stays",
				state.Namespace, FormatRetention(state.Retention), FormatRetention(want.Retention)))
		}
		if owned := ownership(state, want); owned != (Change{}) {
			changes = append(changes, owned)
		}
	}
	var mistyped error
	for _, wrong := range state.Mistyped(want.Attributes) {
		mistyped = errors.Join(mistyped, fmt.Errorf("%w: namespace %s: %s", ErrNamespace, state.Namespace, wrong))
	}
	for _, name := range state.Missing(want.Attributes) {
		changes = append(changes, Change{Kind: AddSearchAttribute, Attribute: name, Type: want.Attributes[name]})
	}
	return changes, notes, mistyped
}

// ownership is the change that says whose the namespace is, or the zero value.
func ownership(state State, want Want) Change {
	change := Change{Kind: SetOwner}
	if state.Description == "" && state.Owner == "" {
		change.Description = want.Description
	}
	if state.Owner != want.Owner && (state.Owner == "" && state.Description == "" || want.Renamed) {
		change.Owner = want.Owner
	}
	if change == (Change{Kind: SetOwner}) {
		return Change{}
	}
	return change
}

// Imperative says what the change would do, "create namespace …".
func (c Change) Imperative(namespace string) string {
	return c.text(namespace, "create", "keep", "note", "add")
}

// Past says what the change did, "created namespace …".
func (c Change) Past(namespace string) string {
	return c.text(namespace, "created", "kept", "noted", "added")
}

func (c Change) text(namespace, create, keep, note, add string) string {
	switch c.Kind {
	case CreateNamespace:
		return fmt.Sprintf("%s namespace %s, which keeps closed workflows for %s", create, namespace, FormatRetention(c.Retention))
	case SetRetention:
		return fmt.Sprintf("%s closed workflows of namespace %s for %s instead of %s", keep, namespace, FormatRetention(c.Retention), FormatRetention(c.Before))
	case SetOwner:
		return fmt.Sprintf("%s in namespace %s whose it is", note, namespace)
	case AddSearchAttribute:
		return fmt.Sprintf("%s search attribute %s of type %s to namespace %s", add, c.Attribute, c.Type, namespace)
	}
	return string(c.Kind)
}
