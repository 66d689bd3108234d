package show

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sickbay-dev/sickbay/cmd/listing"
)

// PrintTrail writes what was decided, the oldest first. Names are those of the
// devices, each once.
func PrintTrail(out io.Writer, t listing.Trail, format Format, colour bool) error {
	return write(out, t, format, func(name func(string)) {
		named := map[string]bool{}
		for _, d := range t.Decisions {
			if !named[d.Name] {
				named[d.Name] = true
				name(d.Name)
			}
		}
	}, func() []string {
		if len(t.Decisions) == 0 {
			return []string{"Nothing was decided since " + t.Since.UTC().Format(time.DateTime) + " UTC."}
		}
		rows, colours := [][]string{trailHeader(format == Wide)}, []string{bold}
		for _, d := range t.Decisions {
			rows = append(rows, trailRow(d, format == Wide))
			colours = append(colours, decisionColour(d))
		}
		return aligned(rows, colours, colour)
	})
}

// TrailWriter writes a trail and goes on with what is decided later, line by line.
type TrailWriter struct {
	out    io.Writer
	format Format
	colour bool
	widths []int
}

// NewTrailWriter writes tables, or JSON with one decision in each line.
func NewTrailWriter(out io.Writer, format Format, colour bool) *TrailWriter {
	return &TrailWriter{out: out, format: format, colour: colour}
}

// Write writes decisions. The first ones give a table's columns their widths.
func (w *TrailWriter) Write(decisions []listing.Decision) error {
	buffered := bufio.NewWriter(w.out)
	if w.format == JSON {
		encoder := json.NewEncoder(buffered)
		for _, d := range decisions {
			if err := encoder.Encode(d); err != nil {
				return err
			}
		}
		return buffered.Flush()
	}
	wide := w.format == Wide
	var rows [][]string
	var colours []string
	if w.widths == nil {
		rows, colours = append(rows, trailHeader(wide)), append(colours, bold)
		w.widths = make([]int, len(rows[0]))
	}
	for _, d := range decisions {
		rows, colours = append(rows, trailRow(d, wide)), append(colours, decisionColour(d))
	}
	for _, row := range rows {
		for i, cell := range row {
			w.widths[i] = max(w.widths[i], utf8.RuneCountInString(cell))
		}
	}
	for r, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "%-*s  ", w.widths[i], cell)
		}
		text := strings.TrimRight(line.String(), " ")
		if w.colour && colours[r] != "" {
			text = colours[r] + text + reset
		}
		if _, err := fmt.Fprintln(buffered, text); err != nil {
			return err
		}
	}
	return buffered.Flush()
}

func trailHeader(wide bool) []string {
	if wide {
		return []string{"TIME (UTC)", "DEVICE", "DECISION", "BY", "CALLER", "NODE", "PHASE", "REASON", "SEVERITY", "EPOCH", "SEQ", "SEEN", "WHAT"}
	}
	return []string{"TIME (UTC)", "DEVICE", "DECISION", "BY", "SEEN", "WHAT"}
}

func trailRow(d listing.Decision, wide bool) []string {
	row := []string{d.At.UTC().Format(time.DateTime), d.Name, string(d.Kind), orNothing(d.Actor)}
	if wide {
		row = append(row, orNothing(d.Caller), orNothing(d.Node), orNothing(string(d.Phase)), orNothing(d.Reason), orNothing(d.Severity),
			fmt.Sprint(d.Epoch), fmt.Sprint(d.Seq))
	}
	row = append(row, orNothing(d.Seen), d.Text)
	for i := range row {
		row[i] = oneLine(row[i])
	}
	return row
}

// decisionColour tells decisions that raise an alert apart.
func decisionColour(d listing.Decision) string {
	if d.Alert {
		return yellow
	}
	return ""
}
