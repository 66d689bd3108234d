package show

import (
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	permitswf "github.com/sickbay-dev/sickbay/workflows/permits"
)

// Budgets are what is kept out of what is allowed, who waits, and what is paused, as
// machines get them too.
type Budgets struct {
	At time.Time `json:"at"`
	// Scopes are those in use, or of which starters count the devices.
	Scopes  []permitswf.Row `json:"scopes"`
	Waiting []Waiting       `json:"waiting"`
	Pauses  []budget.Pause  `json:"pauses"`
	// Observed is what mode observe would have done.
	Observed []permitswf.Row `json:"observed,omitempty"`
	Returns  Returns         `json:"returns"`
	// CountedAt is when it was told last which marks exist, and CountedBy by whom.
	CountedAt time.Time `json:"countedAt,omitzero"`
	CountedBy string    `json:"countedBy,omitempty"`
}

// Waiting is a device that has to wait, in the order of turns.
type Waiting struct {
	Device   string    `json:"device"`
	Epoch    int64     `json:"epoch"`
	Severity int       `json:"severity"`
	Since    time.Time `json:"since"`
	For      string    `json:"for"`
	Why      string    `json:"why"`
}

// Returns are the devices that come back, and those that wait for their turn, in the order
// of turns.
type Returns struct {
	PerNode       int         `json:"perNode"`
	PerClass      int         `json:"perClass"`
	Cluster       int         `json:"cluster"`
	SettleSeconds int         `json:"settleSeconds"`
	Coming        []Coming    `json:"coming"`
	Waiting       []Returning `json:"waiting"`
}

// Coming is a device that comes back.
type Coming struct {
	Device string    `json:"device"`
	Epoch  int64     `json:"epoch"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	// Relapsed is when it failed again.
	Relapsed time.Time `json:"relapsed,omitzero"`
}

// Returning is a device that waits for its turn.
type Returning struct {
	Device string    `json:"device"`
	Epoch  int64     `json:"epoch"`
	Since  time.Time `json:"since"`
	For    string    `json:"for"`
	Why    string    `json:"why"`
}

func returnsOf(v permitswf.View, now time.Time) Returns {
	limits := v.Limits.Returns
	r := Returns{PerNode: limits.Node, PerClass: limits.Class, Cluster: limits.Cluster, SettleSeconds: limits.Settle, Coming: []Coming{}, Waiting: []Returning{}}
	for _, c := range v.Book.Returns.Coming {
		if c.Until.After(now) {
			r.Coming = append(r.Coming, Coming{Device: c.Device, Epoch: c.Epoch, Since: c.At, Until: c.Until, Relapsed: c.Relapsed})
		}
	}
	for _, w := range v.Book.Returns.Line {
		r.Waiting = append(r.Waiting, Returning{Device: w.Device, Epoch: w.Epoch, Since: w.Since, For: w.For.String(), Why: w.Why})
	}
	return r
}

// lines are the tables of it, if there is anything to tell.
func (r Returns) lines(at time.Time, colour bool) []string {
	var all []string
	if len(r.Coming) > 0 {
		rows, colours := [][]string{{"COMING BACK", "SINCE", "SETTLES IN", ""}}, []string{bold}
		for _, c := range r.Coming {
			what, paint := "", ""
			if !c.Relapsed.IsZero() {
				what, paint = "failed again; nothing of its class comes back until then", red
			}
			rows = append(rows, []string{oneLine(c.Device), duration.HumanDuration(max(at.Sub(c.Since), 0)), duration.HumanDuration(c.Until.Sub(at)), what})
			colours = append(colours, paint)
		}
		all = append(append(all, ""), aligned(rows, colours, colour)...)
	}
	if len(r.Waiting) > 0 {
		rows := [][]string{{"NEXT BACK", "DEVICE", "WAITS", "WHY"}}
		for i, w := range r.Waiting {
			rows = append(rows, []string{fmt.Sprint(i + 1), oneLine(w.Device), duration.HumanDuration(max(at.Sub(w.Since), 0)), oneLine(w.Why)})
		}
		all = append(append(all, ""), aligned(rows, headed(len(rows)), colour)...)
	}
	if len(all) > 0 {
		all = append(all, "", fmt.Sprintf("Of a node %d may be coming back at once, of a class %d, %d in all; each settles for %s.",
			r.PerNode, r.PerClass, r.Cluster, time.Duration(r.SettleSeconds)*time.Second))
	}
	return all
}

// BudgetsOf are the budgets as the permits workflow has them.
func BudgetsOf(v permitswf.View, now time.Time) Budgets {
	b := Budgets{
		At: now, Scopes: permitswf.Rows(v, budget.Mark), Waiting: []Waiting{}, Pauses: []budget.Pause{},
		Returns: returnsOf(v, now), CountedAt: v.Book.Known, CountedBy: v.Book.By,
	}
	for _, w := range v.Book.Marks.Waiters {
		b.Waiting = append(b.Waiting, Waiting{Device: w.Device, Epoch: w.Epoch, Severity: w.Severity, Since: w.HeldSince, For: w.For.String(), Why: w.Why})
	}
	for _, p := range v.Book.Pauses {
		if p.Until.After(now) {
			b.Pauses = append(b.Pauses, p)
		}
	}
	if len(v.Book.Observed.Grants)+len(v.Book.Observed.Waiters) > 0 {
		b.Observed = permitswf.Rows(v, budget.Observe)
	}
	return b
}

// PrintBudgets writes the budgets.
func PrintBudgets(out io.Writer, b Budgets, format Format, colour bool) error {
	return write(out, b, format, func(name func(string)) {
		for _, row := range b.Scopes {
			name(row.Scope.String())
		}
	}, func() []string {
		age := func(t time.Time) string { return duration.HumanDuration(max(b.At.Sub(t), 0)) }
		rows, colours := [][]string{{"SCOPE", "OUT", "LIMIT", "OF", "WAITING", "ALLOWS"}}, []string{bold}
		for _, row := range b.Scopes {
			of := "?"
			if row.Eligible > 0 {
				of = fmt.Sprint(row.Eligible)
			}
			rows = append(rows, []string{oneLine(row.Scope.String()), fmt.Sprint(row.Used), fmt.Sprint(row.Limit), of, fmt.Sprint(row.Waiting), row.Allows})
			switch {
			case row.Waiting > 0:
				colours = append(colours, red)
			case row.Used >= row.Limit:
				colours = append(colours, yellow)
			default:
				colours = append(colours, "")
			}
		}
		all := aligned(rows, colours, colour)
		if len(b.Pauses) > 0 {
			rows = [][]string{{"PAUSED", "BY", "ENDS IN", "REASON"}}
			for _, p := range b.Pauses {
				reason := p.Reason
				if p.Upgrade {
					reason += " (driver upgrade)"
				}
				rows = append(rows, []string{oneLine(p.Scope.String()), oneLine(p.Actor), duration.HumanDuration(p.Until.Sub(b.At)), oneLine(reason)})
			}
			all = append(append(all, ""), aligned(rows, headed(len(rows)), colour)...)
		}
		if len(b.Waiting) > 0 {
			rows = [][]string{{"NEXT", "DEVICE", "WAITS", "WHY"}}
			for i, w := range b.Waiting {
				rows = append(rows, []string{fmt.Sprint(i + 1), oneLine(w.Device), age(w.Since), oneLine(w.Why)})
			}
			all = append(append(all, ""), aligned(rows, headed(len(rows)), colour)...)
		}
		all = append(all, b.Returns.lines(b.At, colour)...)
		last := fmt.Sprintf("Which marks exist was told %s ago by %s.", age(b.CountedAt), oneLine(b.CountedBy))
		if b.CountedAt.IsZero() {
			last = "It isn't known yet which marks exist: nothing is granted until a worker or a starter tells."
		}
		return append(all, "", last)
	})
}

// headed colours a table's first line.
func headed(lines int) []string {
	colours := make([]string, lines)
	colours[0] = bold
	return colours
}
