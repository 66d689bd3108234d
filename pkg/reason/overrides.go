package reason

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Overrides is what a site lays over the builtin catalogue. A message is judged
// by the first of these that knows it: Enable, Disable, Rules, the builtin rules,
// the defaults.
type Overrides struct {
	// Version names this set; it is recorded with every decision.
	Version string `json:"version"`
	// Enable makes what it picks a device fault, whatever anything else says.
	Enable []Selector `json:"enable,omitempty"`
	// Disable takes what it picks for no fault at all: counted, nothing done.
	Disable []Selector `json:"disable,omitempty"`
	// Rules are tried in order, before the builtin ones.
	Rules []Rule `json:"rules,omitempty"`
	// Defaults replaces what happens with messages that no rule knows.
	Defaults Defaults `json:"defaults,omitzero"`
}

// Defaults holds the verdicts for what no rule knows; nil keeps the builtin one.
type Defaults struct {
	// UnrecognizedXid: the message carries an Xid that no rule lists.
	UnrecognizedXid *Verdict `json:"unrecognizedXid,omitempty"`
	// UnrecognizedMessage: there is a message, and no rule matches it.
	UnrecognizedMessage *Verdict `json:"unrecognizedMessage,omitempty"`
	// WithoutMessage: the driver or plugin says Unhealthy and no more.
	WithoutMessage *Verdict `json:"withoutMessage,omitempty"`
}

// ErrOverrides is wrapped by every error about a site's catalogue.
var ErrOverrides = errors.New("site catalogue")

// ownCodes are the codes that Sickbay gives itself; no rule may give them.
func ownCodes() []Code {
	return []Code{
		UnhealthyWithoutMessage, UnrecognizedMessage, XidUnrecognized,
		HealthUnknown, PluginAbsent, HealthFlapping, DeviceMissing, HardwareReplaced, Adopted, ByHand,
	}
}

// Validate reports all that is wrong with the overrides at once, each error
// naming the entry and the remedy. Whether the codes of Enable and Disable exist
// is for With to tell.
func (o *Overrides) Validate() error {
	var found []error
	if !versionForm.MatchString(o.Version) {
		found = append(found, fmt.Errorf("%w: version %q: give this set a name of letters, digits, dots and dashes, at most 32, and change it with the set", ErrOverrides, o.Version))
	}
	at := func(place string, problems []error) {
		for _, problem := range problems {
			found = append(found, fmt.Errorf("%w: %s: %w", ErrOverrides, place, problem))
		}
	}
	for i, s := range o.Enable {
		at(fmt.Sprintf("enable[%d]", i), s.problems())
	}
	for i, s := range o.Disable {
		at(fmt.Sprintf("disable[%d]", i), s.problems())
	}
	for i, r := range o.Rules {
		at(fmt.Sprintf("rules[%d] %q", i, r.Name), append(r.problems(), clashes(r, o.Rules[:i])...))
	}
	for _, d := range []struct {
		name    string
		verdict *Verdict
	}{
		{"unrecognizedXid", o.Defaults.UnrecognizedXid},
		{"unrecognizedMessage", o.Defaults.UnrecognizedMessage},
		{"withoutMessage", o.Defaults.WithoutMessage},
	} {
		if d.verdict != nil {
			at("defaults."+d.name, d.verdict.problems())
		}
	}
	return errors.Join(found...)
}

// clashes reports what a rule has in common with an earlier one, so that one of
// the two could never be told apart or never match.
func clashes(rule Rule, earlier []Rule) []error {
	var found []error
	for _, other := range earlier {
		if other.Name == rule.Name {
			found = append(found, errors.New("the name is taken by an earlier rule; choose another"))
		}
		if other.Code == rule.Code {
			found = append(found, fmt.Errorf("code %s is given by rule %q already; join the two rules or choose another code", rule.Code, other.Name))
		}
		if strings.Join(other.Drivers, " ") != strings.Join(rule.Drivers, " ") || other.Message != rule.Message {
			continue
		}
		if len(rule.Xids) == 0 && len(other.Xids) == 0 {
			found = append(found, fmt.Errorf("message %q is caught by rule %q already; remove one", rule.Message, other.Name))
		}
		for _, xid := range rule.Xids {
			if slices.Contains(other.Xids, xid) {
				found = append(found, fmt.Errorf("xids: %d is caught by rule %q already; remove one", xid, other.Name))
			}
		}
	}
	return found
}
