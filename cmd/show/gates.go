package show

import (
	"fmt"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// gates tells how a device is proven healthy: each gate of the attempt under way, or of
// the last one.
func (p *page) gates(c quarantine.Case) []string {
	plain := func(text string) string { return text }
	var lines []string
	tell := func(results []quarantine.GateResult) {
		for _, r := range results {
			lines = append(lines, fmt.Sprintf("%s %s", r.Gate, devicewf.ResultText(r, plain)))
		}
	}
	switch r, last := c.Recovery, c.Last; {
	case r != nil:
		lines = append(lines, fmt.Sprintf("attempt %d, since %s", c.Attempt, p.moment(r.Began)))
		tell(r.Results)
		lines = append(lines, fmt.Sprintf("%s %s", r.Gate, devicewf.GateText(c, plain)))
	case last != nil:
		head := fmt.Sprintf("attempt %d, over since %s", last.Attempt, p.moment(last.Result.Ended))
		if last.Result.Verdict == quarantine.VerdictUnsure {
			head += ", and not counted"
		}
		lines = append(lines, head)
		tell(last.Passed)
		if last.Result.Verdict != quarantine.VerdictPassed {
			tell([]quarantine.GateResult{last.Result})
		}
	}
	if c.RestUntil.After(p.now) {
		lines = append(lines, "tried again from "+p.moment(c.RestUntil)+" on")
	}
	return lines
}
