package starter

import (
	"maps"
	"slices"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// mark is a mark of ours, as the watch shows it.
type mark struct {
	rule   string
	node   string
	found  quarantine.MarkFound
	intact bool
}

// markSeen takes in a mark of ours. Whether it has its case is found out before
// anything else is told, and again from time to time.
func (t *tracker) markSeen(key device.Key, seen mark) {
	t.do(func() {
		if old, ok := t.marks[seen.rule]; ok && old != key {
			t.removeMark(seen.rule, old)
		}
		t.marks[seen.rule] = key
		r := t.record(key, seen.node)
		before := r.mark
		if before == nil {
			r.checked = false
			r.inventory.unsure = !r.maybe
			if r.inventory.hardware.IsZero() {
				r.inventory.hardware = seen.found.Hardware
			}
			if p := t.poolOf(key); p != nil {
				p.dirty = true
			}
		}
		r.mark, r.maybe = &seen, true
		if !seen.intact && (before == nil || before.intact) {
			r.markNews = &quarantine.MarkSeen{Node: seen.node, Present: true, Mark: seen.found}
			t.touch(key)
		}
	})
}

// markGone takes in that a mark of ours was deleted.
func (t *tracker) markGone(rule string) {
	t.do(func() {
		delete(t.foreign, rule)
		if key, ok := t.marks[rule]; ok {
			t.removeMark(rule, key)
		}
	})
}

func (t *tracker) removeMark(rule string, key device.Key) {
	delete(t.marks, rule)
	r := t.devices[key]
	if r == nil || r.mark == nil || r.mark.rule != rule {
		return
	}
	r.markNews = &quarantine.MarkSeen{
		Node: r.mark.node,
		Mark: quarantine.MarkFound{Name: r.mark.found.Name, Epoch: r.mark.found.Epoch, Version: r.mark.found.Version},
	}
	r.mark, r.adopt = nil, false
	t.touch(key)
}

// marksListed takes in which rules there are after the watch of them was set up
// anew: those that are known and aren't among them were deleted meanwhile.
func (t *tracker) marksListed(rules map[string]struct{}) {
	t.do(func() {
		for _, rule := range slices.Sorted(maps.Keys(t.marks)) {
			if _, still := rules[rule]; !still {
				t.removeMark(rule, t.marks[rule])
			}
		}
		maps.DeleteFunc(t.foreign, func(rule, _ string) bool {
			_, still := rules[rule]
			return !still
		})
	})
}

// foreignRule takes in a rule that isn't ours. One that selects devices across
// pools is worth an alert: written by mistake, it empties a cluster.
func (t *tracker) foreignRule(name, selects string, wide bool) {
	t.do(func() {
		if key, ours := t.marks[name]; ours {
			t.removeMark(name, key)
		}
		if !wide {
			delete(t.foreign, name)
			return
		}
		if t.foreign[name] == selects {
			return
		}
		t.foreign[name] = selects
		t.log.Warn("a device taint rule that is not Sickbay's selects more than one pool; if that isn't meant, delete it or name driver, pool and device in its selector",
			"rule", name, "selects", selects)
	})
}

// wideRules counts the foreign rules that select devices across pools.
func (t *tracker) wideRules() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.foreign)
}
