package listing

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/pkg/spelling"
)

// orders are how devices can be sorted. What somebody who sorts looks for comes
// first: the gravest phase, the worst health, the oldest case.
func orders() map[string]func(a, b Device) int {
	return map[string]func(a, b Device) int{
		"name":     func(_, _ Device) int { return 0 },
		"node":     func(a, b Device) int { return strings.Compare(a.Node, b.Node) },
		"phase":    func(a, b Device) int { return cmp.Compare(phaseRank(a), phaseRank(b)) },
		"health":   func(a, b Device) int { return cmp.Compare(healthRank(a), healthRank(b)) },
		"severity": func(a, b Device) int { return cmp.Compare(severityRank(b), severityRank(a)) },
		"reason":   func(a, b Device) int { return emptyLast(a.Why(), b.Why()) },
		"since":    func(a, b Device) int { return sinceOf(a).Compare(sinceOf(b)) },
		"holders":  func(a, b Device) int { return cmp.Compare(len(b.Holders), len(a.Holders)) },
	}
}

// Orders names the ways to sort.
func Orders() []string {
	return []string{"name", "node", "phase", "health", "severity", "reason", "since", "holders"}
}

// Order is a way to sort a listing. The zero value is by name.
type Order struct {
	By      string
	Reverse bool
}

// Check says what is wrong with an order.
func (o Order) Check() error {
	if _, ok := orders()[o.By]; ok || o.By == "" {
		return nil
	}
	want := "want " + strings.Join(Orders(), ", ")
	if near := spelling.Nearest(o.By, Orders()); near != "" {
		want = "did you mean " + near + "?"
	}
	return fmt.Errorf("--sort-by %q: %s", o.By, want)
}

// Sort returns the listing with its devices in that order, by name where they are
// alike.
func (l Listing) Sort(o Order) Listing {
	order, ok := orders()[o.By]
	if !ok {
		order = orders()["name"]
	}
	l.Devices = slices.Clone(l.Devices)
	slices.SortFunc(l.Devices, func(a, b Device) int { return cmp.Or(order(a, b), strings.Compare(a.Name, b.Name)) })
	if o.Reverse {
		slices.Reverse(l.Devices)
	}
	return l
}

func phaseRank(d Device) int {
	switch phase := phaseOf(d); phase {
	case NoCase:
		return len(Phases())
	case unknownPhase:
		return len(Phases()) - 1
	default:
		return slices.Index(Phases(), phase)
	}
}

// healthRank puts what nobody reports on behind everything that is reported.
func healthRank(d Device) int {
	return slices.Index([]device.Health{device.Unhealthy, device.Unknown, device.Healthy, ""}, d.Health)
}

func severityRank(d Device) reason.Severity {
	var severity reason.Severity
	// A severity that can't be read sorts as none.
	_ = severity.UnmarshalText([]byte(d.Severity))
	return severity
}

// sinceOf puts devices without a case last.
func sinceOf(d Device) time.Time {
	if d.Since == nil {
		return time.Unix(1<<40, 0)
	}
	return *d.Since
}

func emptyLast(a, b string) int {
	if (a == "") != (b == "") {
		return cmp.Compare(b, a)
	}
	return strings.Compare(a, b)
}
