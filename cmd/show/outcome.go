package show

import (
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sickbay-dev/sickbay/cmd/listing"
)

// PrintOutcome writes what came of a span of time, or in mode observe would have come.
func PrintOutcome(out io.Writer, r listing.Report, format Format, colour bool) error {
	return write(out, r, format, func(name func(string)) {
		for _, e := range r.Cases {
			name(e.Name)
		}
	}, func() []string {
		if r.Total.Cases == 0 {
			return []string{fmt.Sprintf("No case since %s.", inUTC(r.Since))}
		}
		rows := [][]string{{"DRIVER", "REASON", "CASES", "PASSED", "OUT", "WOULD BE OUT", "REFUSED", "TIME OUT", "RIGHT"}}
		for _, o := range append(r.Groups, r.Total) {
			driver := oneLine(o.Driver)
			if driver == "" {
				driver = "in all"
			}
			rows = append(rows, []string{
				driver, oneLine(o.Reason), fmt.Sprint(o.Cases), fmt.Sprint(o.Passed), fmt.Sprint(o.Marked), fmt.Sprint(o.Unmarked), fmt.Sprint(o.Refused),
				spell(o.Out), share(o.Right, o.Out),
			})
		}
		all := aligned(rows, headed(len(rows)), colour)
		if format == Wide {
			all = append(all, "")
			rows = [][]string{{"DEVICE", "REASON", "OPENED", "OUT FROM", "HEALTHY FROM", "OVER", "MARK", "REFUSED"}}
			for _, e := range r.Cases {
				mark := "-"
				switch {
				case e.Marked:
					mark = "made"
				case !e.Out.IsZero():
					mark = "not made"
				}
				rows = append(rows, []string{oneLine(e.Name), oneLine(e.Reason), dash(e.Opened), dash(e.Out), dash(e.Good), dash(e.Closed), mark, fmt.Sprint(e.Refused)})
			}
			all = append(all, aligned(rows, headed(len(rows)), colour)...)
		}
		return append(all, "", fmt.Sprintf("Since %s. RIGHT is how much of the time out the devices weren't known to be healthy.", inUTC(r.Since)))
	})
}

func spell(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return duration.HumanDuration(d)
}

func share(part, whole time.Duration) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*part.Seconds()/whole.Seconds())
}

func dash(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return inUTC(t)
}
