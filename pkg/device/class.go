package device

import (
	"regexp"
	"strings"
)

// Class is a DeviceClass: what its selectors demand of a device. All of them
// have to hold.
type Class struct {
	Name string
	// Selectors are CEL expressions, as the object has them.
	Selectors []string
}

// Membership says whether a device belongs to a class.
type Membership string

const (
	Member    Membership = "Member"
	NotMember Membership = "NotMember"
	// Undecided: the class demands something that can't be judged here.
	Undecided Membership = "Undecided"
)

// conjunct is one comparison of the kind that drivers' own classes are made of.
// Strings with escapes aren't read.
var conjunct = regexp.MustCompile(
	`^device\.(?:driver|attributes\[(?:"([^"\\]*)"|'([^'\\]*)')\]\.([A-Za-z_][A-Za-z0-9_]*))\s*==\s*(?:"([^"\\]*)"|'([^'\\]*)')$`)

// Admits tells whether a driver's device belongs to the class, held or not. CEL
// itself isn't evaluated: read are comparisons of device.driver and of string
// attributes, joined by &&. An expression with anything else decides only if a
// comparison beside it fails; or else it leaves the answer open, never guessed.
func (c Class) Admits(driver string, d Listed) Membership {
	answer := Member
	for _, selector := range c.Selectors {
		for part := range strings.SplitSeq(selector, "&&") {
			switch judge(strings.TrimSpace(part), selector, driver, d) {
			case NotMember:
				return NotMember
			case Undecided:
				answer = Undecided
			}
		}
	}
	return answer
}

func judge(part, selector, driver string, d Listed) Membership {
	m := conjunct.FindStringSubmatch(part)
	// Beside an "or", a "not" or a bracket a comparison may mean anything.
	if m == nil || strings.ContainsAny(selector, "|!?()") {
		return Undecided
	}
	domain, name, want := m[1]+m[2], m[3], m[4]+m[5]
	is := driver
	if name != "" {
		is = attributeOf(driver, d.Attributes, domain, name)
	}
	if is == want && (name == "" || is != "") {
		return Member
	}
	return NotMember
}

// attributeOf finds an attribute by its domain. One that a driver publishes
// without a domain is in the driver's own.
func attributeOf(driver string, attributes map[string]string, domain, name string) string {
	if value, ok := attributes[domain+"/"+name]; ok {
		return value
	}
	if domain == driver {
		return attributes[name]
	}
	return ""
}
