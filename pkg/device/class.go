package device

import (
	"regexp"
	"strings"
)

// Class is a DeviceClass as far as it can be judged without CEL: the comparisons
// that have to hold, and whether there is more to it.
type Class struct {
	Name  string
	Needs []Need
	// More tells that the class demands something beside Needs.
	More bool
}

// Need is one comparison that a class makes.
type Need struct {
	// Domain and Attribute name a string attribute; both empty, the driver is
	// meant.
	Domain    string
	Attribute string
	Want      string
}

// Membership says whether a device belongs to a class.
type Membership string

const (
	Member    Membership = "Member"
	NotMember Membership = "NotMember"
	// Undecided: the class demands something that can't be judged here.
	Undecided Membership = "Undecided"
)

// comparison is what drivers' own classes are made of. Strings with escapes
// aren't read.
var comparison = regexp.MustCompile(
	`^device\.(?:driver|attributes\[(?:"([^"\\]*)"|'([^'\\]*)')\]\.([A-Za-z_][A-Za-z0-9_]*))\s*==\s*(?:"([^"\\]*)"|'([^'\\]*)')$`)

// ReadClass reads the selectors of a DeviceClass, which are CEL expressions that
// all have to hold. Read are comparisons of device.driver and of string
// attributes, joined by &&; anything else is only remembered to be there.
func ReadClass(name string, selectors []string) Class {
	class := Class{Name: name}
	for _, selector := range selectors {
		parts, ok := conjuncts(selector)
		class.More = class.More || !ok
		for _, part := range parts {
			if m := comparison.FindStringSubmatch(strings.TrimSpace(part)); m != nil {
				class.Needs = append(class.Needs, Need{Domain: m[1] + m[2], Attribute: m[3], Want: m[4] + m[5]})
			} else {
				class.More = true
			}
		}
	}
	return class
}

// conjuncts splits an expression at each && that stands outside of brackets and
// strings. Beside an "or" or a question mark out there nothing is certain, and it
// isn't split.
func conjuncts(expression string) (parts []string, ok bool) {
	depth, begin := 0, 0
	var quote byte
	for i := 0; i < len(expression); i++ {
		c := expression[i]
		switch {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case strings.IndexByte("([{", c) >= 0:
			depth++
		case strings.IndexByte(")]}", c) >= 0:
			depth--
		case depth > 0:
		case c == '|' || c == '?':
			return nil, false
		case c == '&':
			parts = append(parts, expression[begin:i])
			i++
			begin = i + 1
		}
	}
	return append(parts, expression[min(begin, len(expression)):]), true
}

// Admits tells whether a driver's device belongs to the class, held or not. What
// can't be judged leaves the answer open unless a comparison fails: it is never
// guessed.
func (c Class) Admits(driver string, d Listed) Membership {
	for _, need := range c.Needs {
		is := driver
		if need.Attribute != "" {
			is = attributeOf(driver, d.Attributes, need.Domain, need.Attribute)
		}
		if is == "" || is != need.Want {
			return NotMember
		}
	}
	if c.More {
		return Undecided
	}
	return Member
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
