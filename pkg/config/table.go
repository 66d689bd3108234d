package config

import (
	"fmt"
	"io"
	"strings"
)

// WriteTable writes the Markdown table of all variables that docs/configuration.md
// shows, with the commands that read each.
func WriteTable(out io.Writer) error {
	type row struct {
		Variable
		readers []string
	}
	var rows []*row
	byName := map[string]*row{}
	for _, command := range []struct {
		name string
		spec any
	}{{"starter", Starter{}}, {"worker", Worker{}}, {"devices, device, pod", Client{}}, {"rebuild", Rebuild{}}, {"audit", Audit{}}, {"doctor", Doctor{}}, {"setup", Setup{}}, {"watch", WatchPods{}}, {"policy", Governed{}}} {
		for _, v := range Variables(command.spec) {
			if byName[v.Name] == nil {
				byName[v.Name] = &row{Variable: v}
				rows = append(rows, byName[v.Name])
			}
			byName[v.Name].readers = append(byName[v.Name].readers, command.name)
		}
	}
	if _, err := fmt.Fprint(out, "| variable | read by | what it is for | allowed | default |\n| --- | --- | --- | --- | --- |\n"); err != nil {
		return err
	}
	for _, r := range rows {
		initial := ""
		if r.Default != "" {
			initial = "`" + r.Default + "`"
		}
		if _, err := fmt.Fprintf(out, "| `%s` | %s | %s | %s | %s |\n",
			r.Name, strings.Join(r.readers, ", "), cell(r.Description), cell(r.Allowed()), initial); err != nil {
			return err
		}
	}
	return nil
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
