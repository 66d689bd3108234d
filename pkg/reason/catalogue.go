package reason

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// Version is the builtin catalogue's. It changes with every change of a rule, so
// that a recorded decision tells by which table it was made.
const Version = "2026-11"

// Catalogue judges messages. It is immutable and safe for concurrent use.
type Catalogue struct {
	version         string
	enable, disable []Selector
	site, builtin   []compiled
	// defaults are rules without a condition.
	unrecognizedXid, unrecognizedMessage, withoutMessage Rule
}

// Builtin returns the catalogue that Sickbay ships.
func Builtin() *Catalogue {
	rules, err := compile(slices.Concat(nvidiaXids(), driverMessages()))
	if err != nil {
		// The builtin table is data of this package, checked by its tests.
		panic(err)
	}
	return &Catalogue{
		version: Version,
		builtin: rules,
		unrecognizedXid: Rule{
			Name: "default/unrecognized-xid", Code: XidUnrecognized,
			Verdict: Verdict{SeverityMajor, ActionSuspect, ClosesByReset, device.ScopeInstance},
			Meaning: "An Xid that no rule lists. Nothing is known of it, so the device gets the grace window to come back.",
			Source:  "Sickbay",
		},
		unrecognizedMessage: Rule{
			Name: "default/unrecognized-message", Code: UnrecognizedMessage,
			Verdict: Verdict{SeverityMajor, ActionQuarantine, ClosesByGates, device.ScopeInstance},
			Meaning: "A message that no rule matches. The driver itself calls the device Unhealthy, and that is believed.",
			Source:  "Sickbay",
		},
		withoutMessage: Rule{
			Name: "default/without-message", Code: UnhealthyWithoutMessage,
			Verdict: Verdict{SeverityMajor, ActionQuarantine, ClosesByGates, device.ScopeInstance},
			Meaning: "Unhealthy and no more: all that the device-plugin path can say, and DRA drivers that give no message.",
			Source:  "Sickbay; KEP-4680",
		},
	}
}

// Version names the catalogue as it is recorded with every decision: the builtin
// version, and the site's after a plus sign where there is one.
func (c *Catalogue) Version() string { return c.version }

// Rules returns all rules in the order in which they are tried: the site's, the
// builtin ones, the three defaults.
func (c *Catalogue) Rules() []Rule {
	var rules []Rule
	for _, r := range slices.Concat(c.site, c.builtin) {
		rules = append(rules, r.clone())
	}
	return append(rules, c.unrecognizedXid, c.unrecognizedMessage, c.withoutMessage)
}

// Meaning puts a code into words, for people. A code that neither a rule nor
// Sickbay itself gives has none.
func (c *Catalogue) Meaning(code Code) string {
	switch code {
	case HealthUnknown:
		return "The device's health was known and isn't any more."
	case PluginAbsent:
		return "Pods go on saying Healthy of a device plugin's device, and nothing of its resource is allocatable on the node: nobody stands behind it."
	case HealthFlapping:
		return "Its health was lost again and again within a while."
	case DeviceMissing:
		return "A complete pool doesn't list the device any more."
	case HardwareReplaced:
		return "Another card stands behind the device's name, and has proven nothing yet."
	case Adopted:
		return "A mark was found whose case is unknown; what the mark says is kept."
	case ByHand:
		return "An operator quarantined the device by hand, for the reason that they gave."
	}
	meant := func(r Rule) bool { return r.Code == code && r.Meaning != "" }
	for _, rules := range [][]compiled{c.site, c.builtin} {
		for _, r := range rules {
			if meant(r.Rule) {
				return r.Meaning
			}
		}
	}
	for _, r := range []Rule{c.unrecognizedXid, c.unrecognizedMessage, c.withoutMessage} {
		if meant(r) {
			return r.Meaning
		}
	}
	return ""
}

// With lays a site's overrides over the catalogue and returns the result; the
// receiver stays as it was. All errors come at once and wrap ErrOverrides.
func (c *Catalogue) With(o *Overrides) (*Catalogue, error) {
	if o == nil {
		return c, nil
	}
	if strings.Contains(c.version, "+") {
		return nil, fmt.Errorf("%w: version %q: the catalogue %s has a site's overrides already; give all of them in one set", ErrOverrides, o.Version, c.version)
	}
	if err := errors.Join(o.Validate(), c.unknownCodes(o)); err != nil {
		return nil, err
	}
	rules := make([]Rule, len(o.Rules))
	for i, r := range o.Rules {
		rules[i] = r.clone()
		rules[i].Name = "site/" + r.Name
		rules[i].Verdict = r.Verdict.filled()
	}
	site, err := compile(rules)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOverrides, err)
	}
	next := *c
	next.version = c.version + "+" + o.Version
	next.enable, next.disable, next.site = cloneSelectors(o.Enable), cloneSelectors(o.Disable), site
	next.unrecognizedXid = overridden(c.unrecognizedXid, o.Defaults.UnrecognizedXid)
	next.unrecognizedMessage = overridden(c.unrecognizedMessage, o.Defaults.UnrecognizedMessage)
	next.withoutMessage = overridden(c.withoutMessage, o.Defaults.WithoutMessage)
	return &next, nil
}

func overridden(rule Rule, verdict *Verdict) Rule {
	if verdict == nil {
		return rule
	}
	rule.Name = "site/" + rule.Name
	rule.Verdict = verdict.filled()
	rule.Source = "the site's overrides"
	return rule
}

// unknownCodes finds the codes that a site enables or disables and that no rule
// gives: a typing error would otherwise leave a device in service, or out of it.
func (c *Catalogue) unknownCodes(o *Overrides) error {
	known := map[Code]bool{}
	for _, r := range slices.Concat(c.Rules(), o.Rules) {
		known[r.Code] = true
	}
	var found []error
	check := func(list string, selectors []Selector) {
		for i, s := range selectors {
			for _, code := range s.Codes {
				if !known[code] {
					found = append(found, fmt.Errorf("%w: %s[%d]: no rule gives the code %q; correct it (docs/reasons.md lists them)", ErrOverrides, list, i, code))
				}
			}
		}
	}
	check("enable", o.Enable)
	check("disable", o.Disable)
	return errors.Join(found...)
}

// Match judges what a driver (or, on the device-plugin path, a resource's plugin)
// says of a device that it calls Unhealthy. It always has an answer. Of several
// statements and several Xids the one with the strongest action counts, then the
// one with the highest severity: a mild one never hides another.
func (c *Catalogue) Match(driver, message string) Match {
	said := statements(message)
	if len(said) == 0 {
		return c.judge(driver, 0, c.withoutMessage)
	}
	var worst Match
	for i, statement := range said {
		for j, m := range c.candidates(driver, statement) {
			if i == 0 && j == 0 || m.stronger(worst) {
				worst = m
			}
		}
	}
	return worst
}

// candidates gives at least one match for one statement. A site's own words for
// a text come before anything that the builtin table reads out of it.
func (c *Catalogue) candidates(driver, statement string) []Match {
	if r, ok := find(c.site, driver, 0, statement); ok {
		return []Match{c.judge(driver, 0, r)}
	}
	var matches []Match
	text, known := find(c.builtin, driver, 0, statement)
	if known {
		matches = append(matches, c.judge(driver, 0, text))
	}
	for _, xid := range Xids(statement) {
		r, ok := find(c.site, driver, xid, statement)
		if !ok {
			r, ok = find(c.builtin, driver, xid, statement)
		}
		switch {
		case ok:
			matches = append(matches, c.judge(driver, xid, r))
		case !known:
			matches = append(matches, c.judge(driver, xid, c.unrecognizedXid))
		}
	}
	if len(matches) == 0 {
		matches = append(matches, c.judge(driver, 0, c.unrecognizedMessage))
	}
	return matches
}

// find returns the first rule for an Xid, or for xid 0 the first that goes by
// the text alone.
func find(rules []compiled, driver string, xid int, statement string) (Rule, bool) {
	for _, r := range rules {
		concerned := xid == 0 && len(r.Xids) == 0 || xid > 0 && slices.Contains(r.Xids, xid)
		if concerned && matchesDriver(r.Drivers, driver) && r.matchesText(statement) {
			return r.Rule, true
		}
	}
	return Rule{}, false
}

// judge makes a match of a rule, with the site's enable and disable lists above
// it. An explicit enable beats a disable.
func (c *Catalogue) judge(driver string, xid int, r Rule) Match {
	m := Match{
		Code: r.Code, Severity: r.Severity, Action: r.Action, Closes: r.Closes, Scope: r.Scope,
		Rule: r.Name, Catalogue: c.version,
	}
	picked := func(s Selector) bool { return s.picks(driver, xid, r.Code) }
	switch {
	case slices.ContainsFunc(c.enable, picked):
		m.Rule = "site/enable(" + r.Name + ")"
		if !m.DeviceFault() {
			m.Action = ActionQuarantine
			m.Severity = max(m.Severity, SeverityMajor)
		}
	case slices.ContainsFunc(c.disable, picked):
		m.Rule = "site/disable(" + r.Name + ")"
		m.Action, m.Severity, m.Closes = ActionIgnore, SeverityNote, ClosesByGates
	}
	return m
}

// stronger orders matches: by action, severity, what closes them, how far they
// reach, and last by the rule's name, so that the order of the text never matters.
func (m Match) stronger(other Match) bool {
	for _, difference := range []int{
		slices.Index(actions, m.Action) - slices.Index(actions, other.Action),
		int(m.Severity) - int(other.Severity),
		slices.Index(closers, m.Closes) - slices.Index(closers, other.Closes),
		slices.Index(scopes, other.Scope) - slices.Index(scopes, m.Scope),
		strings.Compare(other.Rule, m.Rule),
	} {
		if difference != 0 {
			return difference > 0
		}
	}
	return false
}
