package config

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table in docs/configuration.md anew")

const (
	page     = "../../docs/configuration.md"
	tableTop = "<!-- The table is made from pkg/config: go test ./pkg/config -update -->\n\n"
	tableEnd = "\n<!-- end of the table -->\n"
)

func TestTheConfigurationPageShowsEveryVariableAsItIs(t *testing.T) {
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(content), tableTop)
	shown, after, ended := strings.Cut(rest, tableEnd)
	if !found || !ended {
		t.Fatalf("%s has no table: want it between %q and %q", page, tableTop, tableEnd)
	}
	var table strings.Builder
	if err := WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	if shown == table.String() {
		return
	}
	if !*update {
		t.Fatalf("the table of %s isn't what pkg/config says; write it anew with: go test ./pkg/config -update", page)
	}
	if err := os.WriteFile(page, []byte(before+tableTop+table.String()+tableEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestHelpShowsEveryVariable(t *testing.T) {
	for _, spec := range commands() {
		var help strings.Builder
		if err := WriteHelp(&help, spec); err != nil {
			t.Fatal(err)
		}
		for _, v := range Variables(spec) {
			if !strings.Contains(help.String(), "  "+v.Name+"\n      "+v.Description) {
				t.Errorf("%T: the help doesn't show %s", spec, v.Name)
			}
		}
	}
}
