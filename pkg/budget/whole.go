package budget

import (
	"slices"
	"strings"
)

// This file counts what is kept out as a whole node. It has a permit of its own, under
// the node's scope as its name, and costs all devices of the node. Of these, each counts
// once: what has a permit by itself isn't counted beside its node.

// Whole names what is kept out with a node: all its devices at once.
func Whole(node string) string { return Scope{Node, node}.String() }

// NodeOf is the node of which Whole gave the name. No device is named like that.
func NodeOf(device string) (node string, whole bool) {
	node, whole = strings.CutPrefix(device, string(Node)+"/")
	return node, whole && node != "" && !strings.Contains(node, "/")
}

// costIn is a cost in a scope; costs are those by class.
func costIn(cost int, costs []Size, s Scope) int {
	if i := slices.IndexFunc(costs, func(c Size) bool { return c.Scope == s }); i >= 0 {
		return costs[i].Eligible
	}
	return max(cost, 1)
}

// covers tells whether a single device is out with its whole node.
func (l *Ledger) covers(device string, scopes []Scope) bool {
	if _, whole := NodeOf(device); whole {
		return false
	}
	i := slices.IndexFunc(scopes, func(s Scope) bool { return s.Kind == Node })
	return i >= 0 && l.find(Whole(scopes[i].Name)) != nil
}

// more is by how many devices of a scope what is in force grows if the ask is granted.
func (l *Ledger) more(a Ask, s Scope) int {
	if l.covers(a.Device, a.Scopes) {
		return 0
	}
	more := a.costIn(s)
	node, whole := NodeOf(a.Device)
	if !whole {
		return more
	}
	for _, g := range l.Grants {
		if _, other := NodeOf(g.Device); !other && g.in(s) && slices.Contains(g.Scopes, Scope{Node, node}) {
			more--
		}
	}
	return max(more, 0)
}
