package permits

import (
	"fmt"
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/workflows/markdown"
)

// This file writes the page of the budgets in Temporal's UI, its current details: for
// somebody who was woken up and knows neither the code nor the words of
// docs/operating.md.

// maxShown bounds what a list on the page has.
const maxShown = 12

// Details is the book in Markdown: what is used of which limit, who waits and why, what
// is paused, what a person can do, and what was decided.
func Details(v View, now time.Time) string {
	var p markdown.Page
	b := v.Book
	p.Heading(title(b))
	for _, row := range Rows(v, budget.Mark) {
		p.Line("`"+row.Scope.String()+"`", "%d of %d kept out, %d wait (%s%s)", row.Used, row.Limit, row.Waiting, row.Allows, ofEligible(row))
	}
	if n := len(b.Observed.Grants) + len(b.Observed.Waiters); n > 0 {
		p.Line("Only observed", "%d would be kept out, %d would have to wait", len(b.Observed.Grants), len(b.Observed.Waiters))
	}
	for _, pause := range b.Pauses {
		what := "Paused"
		if pause.Upgrade {
			what = "Paused for a driver's upgrade"
		}
		p.Line(what, "`%s` until %s by %s: %s", pause.Scope, markdown.Moment(pause.Until), markdown.Inline(pause.Actor), markdown.Inline(pause.Reason))
	}
	if len(b.Marks.Waiters) > 0 {
		p.Heading("Who waits, by whose turn it is")
		for i, w := range b.Marks.Waiters {
			if i == maxShown {
				p.Item("and %d more", len(b.Marks.Waiters)-maxShown)
				break
			}
			p.Item("`%s` since %s: %s", w.Device, markdown.Moment(w.HeldSince), markdown.Inline(w.Why))
		}
	}
	if back := b.Returns; len(back.Coming)+len(back.Line) > 0 {
		p.Heading("Coming back")
		for i, c := range back.Coming {
			if i == maxShown {
				p.Item("and %d more come back", len(back.Coming)-maxShown)
				break
			}
			if !c.Relapsed.IsZero() {
				p.Item("`%s` failed again at %s: nothing of its class comes back until %s", c.Device, markdown.Moment(c.Relapsed), markdown.Moment(c.Until))
				continue
			}
			p.Item("`%s` comes back since %s, and settles until %s", c.Device, markdown.Moment(c.At), markdown.Moment(c.Until))
		}
		for i, w := range back.Line {
			if i == maxShown {
				p.Item("and %d more wait", len(back.Line)-maxShown)
				break
			}
			p.Item("`%s` waits for its turn since %s: %s", w.Device, markdown.Moment(w.Since), markdown.Inline(w.Why))
		}
	}
	p.Heading("What you can do")
	p.Item("Send `%s`: %s `{\"scope\":\"node/anvil-07\",\"for\":\"2h\",\"actor\":\"you@example.com\",\"reason\":\"why\"}`, or `sickbay pause node/anvil-07 --for 2h --reason why`.", budget.VerbPause, describeVerb(budget.VerbPause))
	if len(b.Pauses) > 0 {
		p.Item("Send `%s`: %s `sickbay resume %s --reason why` does it.", budget.VerbResume, describeVerb(budget.VerbResume), b.Pauses[0].Scope)
	}
	p.Item("A limit is changed by policy; see `sickbay budgets`.")
	p.Heading("On record")
	switch {
	case b.Known.IsZero():
		p.Line("Marks", "it isn't known yet which exist; nothing is granted until a starter or a worker tells")
	default:
		p.Line("Marks", "%d are known of, told last at %s by `%s`", len(b.Marks.Grants), markdown.Moment(b.Known), b.By)
	}
	for _, n := range b.Story[max(len(b.Story)-maxShown, 0):] {
		p.Line(markdown.Moment(n.At), "%s", markdown.Inline(n.Text))
	}
	return p.String()
}

func title(b budget.Book) string {
	switch {
	case len(b.Marks.Waiters) > 0:
		return fmt.Sprintf("%d devices wait for a budget or a pause", len(b.Marks.Waiters))
	case len(b.Pauses) > 0:
		return fmt.Sprintf("%d scopes are paused", len(b.Pauses))
	}
	return "Nobody waits"
}

func ofEligible(row Row) string {
	if row.Eligible == 0 {
		return ""
	}
	return fmt.Sprintf(" of %d", row.Eligible)
}

// Row is one scope's budget, for people.
type Row struct {
	Scope    budget.Scope `json:"scope"`
	Used     int          `json:"used"`
	Limit    int          `json:"limit"`
	Eligible int          `json:"eligible,omitempty"`
	Waiting  int          `json:"waiting,omitempty"`
	Allows   string       `json:"allows"`
}

// Rows lists the scopes of a purpose that are in use, are waited for, or are counted by
// starters, from the widest.
func Rows(v View, purpose budget.Purpose) []Row {
	ledger := v.Book.Ledger(purpose)
	scopes := []budget.Scope{budget.Everything}
	add := func(s budget.Scope) {
		if !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	for _, size := range v.Book.Sizes {
		add(size.Scope)
	}
	for _, g := range ledger.Grants {
		for _, s := range g.Scopes {
			add(s)
		}
	}
	for _, w := range ledger.Waiters {
		add(w.For)
	}
	rows := []Row{}
	for _, s := range scopes {
		limit, ok := v.Limits.Limit(s)
		if !ok {
			continue
		}
		eligible := v.Book.SizeOf(s)
		rows = append(rows, Row{Scope: s, Used: ledger.Used(s), Limit: limit.Of(eligible), Eligible: eligible, Waiting: ledger.Waiting(s), Allows: limit.String()})
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return budget.Compare(a.Scope, b.Scope) })
	return rows
}
