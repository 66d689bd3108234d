package telemetry

import (
	"fmt"
	"strings"
)

// Page is what docs/metrics.md says of all metrics: a table for each section.
func Page() string {
	var page strings.Builder
	for _, section := range Sections() {
		fmt.Fprintf(&page, "## %s\n\n| metric | kind | in | labels | what it says |\n| --- | --- | --- | --- | --- |\n", section.Title)
		for _, m := range section.Metrics {
			var in []string
			for _, p := range m.Has {
				in = append(in, string(p))
			}
			labels := "–"
			if len(m.Labels) > 0 {
				var each []string
				for _, l := range m.Labels {
					each = append(each, fmt.Sprintf("`%s`: %s", l.Name, l.Values))
				}
				labels = strings.Join(each, "; ")
			}
			fmt.Fprintf(&page, "| `%s` | %s | %s | %s | %s |\n", m.Name, m.Kind, strings.Join(in, ", "), labels, m.Help)
		}
		page.WriteString("\n")
	}
	return strings.TrimRight(page.String(), "\n") + "\n"
}
