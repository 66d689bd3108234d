package isolation

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind is why a node is isolated; the names are labels.
type Kind string

const (
	// Devices: so many of its devices are faulty.
	Devices Kind = "Devices"
	// NodeCondition: a condition of the node itself.
	NodeCondition Kind = "Condition"
	// NoMark: a device of it is faulty, and nothing can keep a single one out.
	NoMark Kind = "NoMark"
)

// Faulty is a device that is known to be faulty: it carries a mark of a quarantine, or
// has a case that confirmed a fault. One that is only Unknown is none.
type Faulty struct {
	Device string `json:"device"`
	Epoch  int64  `json:"epoch,omitempty"`
	Reason string `json:"reason,omitempty"`
	Marked bool   `json:"marked,omitempty"`
	// Unmarkable: nothing can keep it out by itself.
	Unmarkable bool `json:"unmarkable,omitempty"`
}

// Condition is a condition of a node that is True.
type Condition struct {
	Type    string `json:"type"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Ground is what justifies that a node is isolated.
type Ground struct {
	Kind Kind `json:"kind,omitempty"`
	// Text says it for people, with what the policy wants.
	Text string `json:"text,omitempty"`
	// Devices are those that it is about, without the end of a long list.
	Devices []string `json:"devices,omitempty"`
}

// maxNamed bounds the devices that a ground names.
const maxNamed = 4

// Justify tells whether the policy isolates a node with so many devices, of which these
// are faulty, and with these conditions True; and on which ground. Where it isn't known
// how many devices there are, none justifies it by number.
func Justify(total int, faulty []Faulty, conditions []Condition, p Policy) (Ground, bool) {
	if !p.isolates() {
		return Ground{}, false
	}
	faulty = slices.Clone(faulty)
	slices.SortFunc(faulty, func(a, b Faulty) int { return cmp.Compare(a.Device, b.Device) })
	if n := len(faulty); n >= p.Devices && total > 0 && float64(n)*100 >= p.Percent*float64(total) {
		return ground(Devices, faulty, "%d of the node's %d devices are faulty, and the policy isolates it at %d that are %s%% of them", n, max(total, n), p.Devices, number(p.Percent)), true
	}
	for _, c := range conditions {
		if c.Type != NeverCondition && slices.Contains(p.Conditions, c.Type) {
			text := "its condition " + c.Type + " is True, which the policy names"
			if said := strings.Trim(c.Reason+": "+c.Message, ": "); said != "" {
				text += " (" + said + ")"
			}
			return Ground{Kind: NodeCondition, Text: clip(text, maxText)}, true
		}
	}
	if p.WithoutMarks {
		if alone := slices.DeleteFunc(faulty, func(f Faulty) bool { return !f.Unmarkable }); len(alone) > 0 {
			return ground(NoMark, alone, "nothing can keep a faulty device of it out by itself, and the policy allows to isolate the node for it"), true
		}
	}
	return Ground{}, false
}

func ground(kind Kind, faulty []Faulty, format string, args ...any) Ground {
	g := Ground{Kind: kind}
	var named []string
	for _, f := range faulty[:min(len(faulty), maxNamed)] {
		g.Devices = append(g.Devices, clip(f.Device, maxDevice))
		text := f.Device
		if f.Reason != "" {
			text += " (" + f.Reason + ")"
		}
		named = append(named, text)
	}
	if more := len(faulty) - len(named); more > 0 {
		named = append(named, strconv.Itoa(more)+" more")
	}
	g.Text = clip(fmt.Sprintf(format, args...)+": "+strings.Join(named, ", "), maxText)
	return g
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
