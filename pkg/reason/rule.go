package reason

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// Verdict is what a reason means for the device.
type Verdict struct {
	Severity Severity     `json:"severity"`
	Action   Action       `json:"action"`
	Closes   Closes       `json:"closes,omitempty"`
	Scope    device.Scope `json:"scope,omitempty"`
}

// Rule is one line of the catalogue: which messages it is about, and the verdict.
// Xids and Message are both conditions; a rule has at least one of them.
type Rule struct {
	// Name is unique in its catalogue: "nvidia/xid-79", "site/amd-ecc".
	Name string `json:"name"`
	// Drivers are shell patterns (path.Match) for the driver's name, or for the
	// resource's name on the device-plugin path. Empty means every driver.
	Drivers []string `json:"drivers,omitempty"`
	// Xids are the numbers that the message may carry.
	Xids []int `json:"xids,omitempty"`
	// Message is a regular expression (RE2, unanchored).
	Message string `json:"message,omitempty"`
	Code    Code   `json:"code"`
	Verdict
	// Meaning and Source are for people: what it is, and who says so.
	Meaning string `json:"meaning,omitempty"`
	Source  string `json:"source,omitempty"`
}

// clone keeps a rule apart from whoever gave or gets it.
func (r Rule) clone() Rule {
	r.Drivers, r.Xids = slices.Clone(r.Drivers), slices.Clone(r.Xids)
	return r
}

// compiled is a rule with its expression ready to use.
type compiled struct {
	Rule
	message *regexp.Regexp
}

// compile prepares rules that were validated before.
func compile(rules []Rule) ([]compiled, error) {
	ready := make([]compiled, len(rules))
	for i, r := range rules {
		ready[i] = compiled{Rule: r}
		if r.Message == "" {
			continue
		}
		expression, err := regexp.Compile(r.Message)
		if err != nil {
			return nil, fmt.Errorf("rule %q: message: %w", r.Name, err)
		}
		ready[i].message = expression
	}
	return ready, nil
}

// matchesText tells whether a rule that asks for a text finds it; one that asks
// for none is content with any.
func (r compiled) matchesText(statement string) bool {
	return r.message == nil || r.message.MatchString(statement)
}

// Selector picks messages for a site's enable and disable lists.
type Selector struct {
	Drivers []string `json:"drivers,omitempty"`
	Xids    []int    `json:"xids,omitempty"`
	Codes   []Code   `json:"codes,omitempty"`
	// All picks every message of the drivers. It has to be said: a selector
	// with nothing in it is refused instead of picking everything.
	All bool `json:"all,omitempty"`
}

func cloneSelectors(selectors []Selector) []Selector {
	cloned := make([]Selector, len(selectors))
	for i, s := range selectors {
		cloned[i] = Selector{Drivers: slices.Clone(s.Drivers), Xids: slices.Clone(s.Xids), Codes: slices.Clone(s.Codes), All: s.All}
	}
	return cloned
}

func (s Selector) picks(driver string, xid int, code Code) bool {
	if !matchesDriver(s.Drivers, driver) {
		return false
	}
	return s.All || xid > 0 && slices.Contains(s.Xids, xid) || slices.Contains(s.Codes, code)
}

func matchesDriver(patterns []string, driver string) bool {
	if len(patterns) == 0 {
		return true
	}
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, driver)
		return err == nil && ok
	})
}

var (
	codeForm     = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)
	ruleNameForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$`)
	versionForm  = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9._]{0,30}[A-Za-z0-9])?$`)
)

// maxXid bounds Xid numbers. NVIDIA's catalogue ends below 200; what is beyond
// this is something else, or a typing error.
const maxXid = 65535

// maxExpression bounds a site's regular expressions, in bytes.
const maxExpression = 1024

var (
	actions = []Action{ActionIgnore, ActionBlameWorkload, ActionWatch, ActionSuspect, ActionQuarantine}
	closers = []Closes{ClosesByGates, ClosesByReset, ClosesByOperator, ClosesByRepair}
	scopes  = []device.Scope{device.ScopeChip, device.ScopeInstance}
)

// names lists values for an error text: "a, b or c".
func names[T ~string](values []T) string {
	text := make([]string, len(values))
	for i, v := range values {
		text[i] = string(v)
	}
	last := len(text) - 1
	return strings.Join(text[:last], ", ") + " or " + text[last]
}

// problems reports everything that is wrong with a verdict.
func (v Verdict) problems() []error {
	var found []error
	if v.Severity < SeverityNote || v.Severity > SeverityFatal {
		found = append(found, errors.New("severity is missing; give note, minor, major or fatal"))
	}
	if !slices.Contains(actions, v.Action) {
		found = append(found, fmt.Errorf("action %q: want %s", v.Action, names(actions)))
	}
	if v.Closes != "" && !slices.Contains(closers, v.Closes) {
		found = append(found, fmt.Errorf("closes %q: want %s", v.Closes, names(closers)))
	}
	if v.Scope != "" && !slices.Contains(scopes, v.Scope) {
		found = append(found, fmt.Errorf("scope %q: want %s", v.Scope, names(scopes)))
	}
	if !v.deviceFault() {
		return found
	}
	if v.Closes == "" {
		found = append(found, fmt.Errorf("closes is missing; action %s takes a device out, so say what brings it back: %s", v.Action, names(closers)))
	}
	if v.Scope == "" {
		found = append(found, fmt.Errorf("scope is missing; action %s takes a device out, so say how far it reaches: %s", v.Action, names(scopes)))
	}
	if v.Severity == SeverityNote {
		found = append(found, fmt.Errorf("severity note says that the device is well, action %s takes it out; raise the severity or choose another action", v.Action))
	}
	return found
}

func (v Verdict) deviceFault() bool { return v.Action == ActionSuspect || v.Action == ActionQuarantine }

// filled gives closes and scope their harmless values where the action makes
// them optional.
func (v Verdict) filled() Verdict {
	if v.Closes == "" {
		v.Closes = ClosesByGates
	}
	if v.Scope == "" {
		v.Scope = device.ScopeInstance
	}
	return v
}

// problems reports everything that is wrong with a rule taken by itself.
func (r Rule) problems() []error {
	var found []error
	if !ruleNameForm.MatchString(r.Name) {
		found = append(found, fmt.Errorf("name %q: want lower-case letters, digits and dashes, at most 40", r.Name))
	}
	if !codeForm.MatchString(string(r.Code)) {
		found = append(found, fmt.Errorf("code %q: want CamelCase letters and digits, at most 63, like AmdUncorrectableEcc", r.Code))
	}
	if slices.Contains(ownCodes(), r.Code) {
		found = append(found, fmt.Errorf("code %s is Sickbay's own; choose another, or change what it means under defaults", r.Code))
	}
	if len(r.Xids) == 0 && r.Message == "" {
		found = append(found, errors.New("xids and message are both missing; say which messages the rule is about"))
	}
	found = append(found, driverProblems(r.Drivers)...)
	found = append(found, xidProblems(r.Xids)...)
	found = append(found, expressionProblems(r.Message)...)
	return append(found, r.Verdict.problems()...)
}

func expressionProblems(text string) []error {
	if text == "" {
		return nil
	}
	if len(text) > maxExpression {
		return []error{fmt.Errorf("message is %d bytes long; shorten it to %d", len(text), maxExpression)}
	}
	expression, err := regexp.Compile(text)
	switch {
	case err != nil:
		return []error{fmt.Errorf("message is no regular expression (RE2): %w; correct it", err)}
	case expression.MatchString(""):
		return []error{fmt.Errorf("message %q matches every text; narrow it, or set defaults.unrecognizedMessage", text)}
	}
	return nil
}

func driverProblems(patterns []string) []error {
	var found []error
	for _, pattern := range patterns {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			found = append(found, fmt.Errorf("drivers: %q is no pattern; write a driver's name, with * for any part", pattern))
		}
	}
	return found
}

func xidProblems(xids []int) []error {
	var found []error
	for i, xid := range xids {
		if xid < 1 || xid > maxXid {
			found = append(found, fmt.Errorf("xids: %d is no Xid; give numbers from 1 to %d", xid, maxXid))
		}
		if slices.Contains(xids[:i], xid) {
			found = append(found, fmt.Errorf("xids: %d is listed twice; remove one", xid))
		}
	}
	return found
}

// problems reports everything that is wrong with a selector taken by itself.
func (s Selector) problems() []error {
	var found []error
	if len(s.Xids) == 0 && len(s.Codes) == 0 && !s.All {
		found = append(found, errors.New("picks nothing; give xids, codes or all: true"))
	}
	found = append(found, driverProblems(s.Drivers)...)
	found = append(found, xidProblems(s.Xids)...)
	for i, code := range s.Codes {
		if slices.Contains(s.Codes[:i], code) {
			found = append(found, fmt.Errorf("codes: %s is listed twice; remove one", code))
		}
	}
	return found
}
