package show

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/sickbay-dev/sickbay/pkg/policy"
)

// Held is what holds for a device, as JSON and YAML have it.
type Held struct {
	Device  string             `json:"device"`
	Classes []string           `json:"classes,omitempty"`
	Values  []policy.Explained `json:"values"`
}

// PrintHeld prints what holds for a device.
func PrintHeld(out io.Writer, h Held, format Format) error {
	return write(out, h, format, nil, func() []string {
		of := "of no class"
		if len(h.Classes) > 0 {
			of = "of class " + strings.Join(h.Classes, ", ")
		}
		var text strings.Builder
		fmt.Fprintf(&text, "%s, %s\n\n", h.Device, of)
		table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "FIELD\tVALUE\tFROM")
		for _, v := range h.Values {
			fmt.Fprintf(table, "%s\t%s\t%s\n", v.Field, v.Value, v.Source)
		}
		table.Flush() // a strings.Builder never fails
		return strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	})
}
