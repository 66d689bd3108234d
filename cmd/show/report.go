package show

// This file shows what the doctor found.

import (
	"errors"
	"fmt"
	"io"

	"github.com/sickbay-dev/sickbay/cmd/doctor"
)

// PrintReport writes what the doctor found: a line for each thing, and below those
// that aren't as needed what is needed, what is lacking and how to mend it.
func PrintReport(out io.Writer, r doctor.Report, format Format, colour bool) error {
	if format == Name {
		return errors.New("-o name: there are no names in this answer; want table, json or yaml")
	}
	return write(out, r, format, nil, func() []string { return reportLines(r, colour) })
}

func reportLines(r doctor.Report, colour bool) []string {
	rows, colours := [][]string{{"CHECK", "STATE", "FOUND"}}, []string{bold}
	for _, f := range r.Findings {
		rows = append(rows, []string{oneLine(f.Check), string(f.State), oneLine(f.Found)})
		colours = append(colours, map[doctor.State]string{doctor.Degraded: yellow, doctor.Unknown: yellow, doctor.Missing: red}[f.State])
		if f.State == doctor.OK {
			continue
		}
		for _, more := range [][2]string{{"needed", f.Needed}, {"without", f.Without}, {"remedy", f.Remedy}} {
			rows, colours = append(rows, []string{"", "  " + more[0], oneLine(more[1])}), append(colours, "")
		}
	}
	return append(aligned(rows, colours, colour), fmt.Sprintf("%d ok, %d degraded, %d unknown, %d missing",
		r.Count(doctor.OK), r.Count(doctor.Degraded), r.Count(doctor.Unknown), r.Count(doctor.Missing)))
}
