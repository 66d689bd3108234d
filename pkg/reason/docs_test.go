package reason_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/sickbay-dev/sickbay/pkg/reason"
)

//go:generate go test -run TestTheReasonTableInTheDocsIsCurrent -update .

var update = flag.Bool("update", false, "write the generated table into docs/reasons.md")

const (
	docsPath   = "../../docs/reasons.md"
	tableBegin = "<!-- table: go generate ./pkg/reason -->\n"
	tableEnd   = "<!-- end of table -->\n"
)

// Q7. The documented table is the table that decides.
func TestTheReasonTableInTheDocsIsCurrent(t *testing.T) {
	text, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := strings.Index(string(text), tableBegin), strings.Index(string(text), tableEnd)
	if begin < 0 || end < begin {
		t.Fatalf("%s has no place for the table", docsPath)
	}
	want := string(text[:begin]) + tableBegin + table(reason.Builtin()) + string(text[end:])
	if *update {
		if err := os.WriteFile(docsPath, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s is not current: run go generate ./pkg/reason", docsPath)
	}
	for _, code := range []reason.Code{reason.HealthUnknown, reason.PluginAbsent, reason.HealthFlapping, reason.DeviceMissing, reason.HardwareReplaced, reason.Adopted, reason.ByHand} {
		if row := fmt.Sprintf("| `%s` | %s |", code, reason.Builtin().Meaning(code)); !strings.Contains(string(text), row) {
			t.Errorf("%s doesn't explain %s as its cases do: %s", docsPath, code, row)
		}
	}
}

// Q7. The example in the docs is accepted and does what the docs say.
func TestTheExampleInTheDocsWorks(t *testing.T) {
	text, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(text), "```yaml\n")
	example, _, ok := strings.Cut(example, "```")
	if !ok {
		t.Fatalf("%s has no example", docsPath)
	}
	asJSON, err := yaml.YAMLToJSONStrict([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	overrides, err := reason.Parse(asJSON)
	if err != nil {
		t.Fatal(err)
	}
	catalogue, err := reason.Builtin().With(overrides)
	if err != nil {
		t.Fatal(err)
	}
	for message, want := range map[string]string{
		"XID 13":                         "site/enable(nvidia/xid-13)",
		"XID 63":                         "site/disable(nvidia/xid-63)",
		"XID 9999":                       "site/default/unrecognized-xid",
		"thermal shutdown, HBM at 110 C": "site/thermal-shutdown",
	} {
		if m := catalogue.Match("gpu.nvidia.com", message); m.Rule != want {
			t.Errorf("%q is judged by %s, want %s", message, m.Rule, want)
		}
	}
}

// table writes one row for neighbouring rules that share a code.
func table(c *reason.Catalogue) string {
	var b strings.Builder
	b.WriteString("| code | said as | meaning | severity | action | closes | scope | source |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	rules := c.Rules()
	for len(rules) > 0 {
		r := rules[0]
		same := 1
		for same < len(rules) && rules[same].Code == r.Code && rules[same].Message == r.Message {
			same++
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s | %s |\n",
			r.Code, saidAs(rules[:same]), r.Meaning, r.Severity, r.Action, r.Closes, r.Scope, r.Source)
		rules = rules[same:]
	}
	return b.String()
}

func saidAs(rules []reason.Rule) string {
	var parts []string
	var xids []int
	for _, r := range rules {
		xids = append(xids, r.Xids...)
	}
	if len(xids) > 0 {
		parts = append(parts, "Xid "+ranges(xids))
	}
	if expression := rules[0].Message; expression != "" {
		parts = append(parts, "`"+strings.ReplaceAll(expression, "|", `\|`)+"`")
	}
	if drivers := rules[0].Drivers; len(drivers) > 0 {
		parts = append(parts, "from "+strings.Join(drivers, ", "))
	}
	if len(parts) == 0 {
		return "–"
	}
	return strings.Join(parts, ", ")
}

// ranges writes 8, 39–41, 70.
func ranges(numbers []int) string {
	slices.Sort(numbers)
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		switch {
		case j > i+1:
			parts = append(parts, fmt.Sprintf("%d–%d", numbers[i], numbers[j]))
		default:
			for _, n := range numbers[i : j+1] {
				parts = append(parts, strconv.Itoa(n))
			}
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}
