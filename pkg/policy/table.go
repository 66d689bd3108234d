package policy

import (
	"fmt"
	"io"
	"reflect"
	"strings"
)

// WriteTable writes the Markdown table of all fields that docs/policy.md shows.
func WriteTable(out io.Writer) error {
	if _, err := fmt.Fprint(out, "| field | what it is for | allowed | where it isn't said |\n| --- | --- | --- | --- |\n"); err != nil {
		return err
	}
	return writeRows(out, reflect.TypeFor[Document](), "")
}

func writeRows(out io.Writer, of reflect.Type, at string) error {
	for _, f := range fieldsOf(of) {
		path := join(at, f.name)
		section, of := false, f.kind
		switch f.kind.Kind() {
		case reflect.Map:
			section, of, path = true, f.kind.Elem().Elem(), path+"[NAME]"
		case reflect.Struct:
			section = true
		}
		allowed, otherwise := "", ""
		if !section {
			allowed, otherwise = f.allowed(), unsaidOf(f, path)
		}
		if _, err := fmt.Fprintf(out, "| `%s` | %s | %s | %s |\n", path, f.tag.Get("desc"), allowed, otherwise); err != nil {
			return err
		}
		// What is said of some devices has the fields of what is said of all.
		if section && !(at != "" && (of == reflect.TypeFor[Quarantine]() || of == reflect.TypeFor[Recovery]())) {
			if err := writeRows(out, of, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// unsaidOf says what holds where a field isn't said.
func unsaidOf(f field, path string) string {
	if variable := f.tag.Get("env"); variable != "" {
		return "`" + variable + "`"
	}
	if held := f.tag.Get("default"); held != "" {
		return held
	}
	switch section, name, _ := strings.Cut(path, "."); {
	case path == "apiVersion", path == "kind":
		return "refused"
	case section == "budgets":
		scope, _, _ := strings.Cut(name, ".")
		return "`SICKBAY_BUDGET_" + strings.ToUpper(scope) + "`"
	case strings.HasSuffix(section, "]") && strings.HasPrefix(name, "budget."):
		return "`budgets.class." + f.name + "`"
	}
	return "`" + f.name + "`, of all devices"
}
