package policy_test

import (
	"flag"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/policy"
)

var update = flag.Bool("update", false, "write the table in docs/policy.md anew")

const (
	page     = "../../docs/policy.md"
	tableTop = "<!-- The table is made from pkg/policy: go test ./pkg/policy -update -->\n\n"
	tableEnd = "\n<!-- end of the table -->\n"
)

func TestThePolicyPageShowsEveryFieldAsItIs(t *testing.T) {
	content := readPage(t)
	before, rest, found := strings.Cut(content, tableTop)
	shown, after, ended := strings.Cut(rest, tableEnd)
	if !found || !ended {
		t.Fatalf("%s has no table: want it between %q and %q", page, tableTop, tableEnd)
	}
	var table strings.Builder
	if err := policy.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	if shown == table.String() {
		return
	}
	if !*update {
		t.Fatalf("the table of %s isn't what pkg/policy says; write it anew with: go test ./pkg/policy -update", page)
	}
	if err := os.WriteFile(page, []byte(before+tableTop+table.String()+tableEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readPage(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// The one that deploy/ has is a policy, too, and changes nothing by itself.
func TestTheShippedPolicySaysWhatHoldsAnyway(t *testing.T) {
	text, err := os.ReadFile("../../deploy/examples/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Metadata struct{ Name string }
		Data     map[string]string
	}
	if err := yaml.Unmarshal(text, &object); err != nil || object.Metadata.Name != policy.ConfigMapName || len(object.Data) != 1 {
		t.Fatalf("%+v, %v", object, err)
	}
	held, plain := policy.New(policy.DefaultBase(), parse(t, object.Data[policy.ConfigMapKey])), policy.New(policy.DefaultBase(), nil)
	if held.For("", nil) != plain.For("", nil) || held.Incidents() != plain.Incidents() || !reflect.DeepEqual(held.Limits(), plain.Limits()) {
		t.Errorf("limits %+v, want %+v", held.Limits(), plain.Limits())
	}
}

func TestTheExamplesOfThePagesAreRead(t *testing.T) {
	for page, least := range map[string]int{page: 3, "../../docs/recovery.md": 4} {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(content), -1)
		if len(examples) < least {
			t.Fatalf("%s: %d examples", page, len(examples))
		}
		for _, example := range examples {
			if _, err := policy.Parse([]byte(example[1])); err != nil {
				t.Errorf("%s: %v in\n%s", page, err, example[1])
			}
		}
	}
}

// The variables that hold where a policy says nothing are ones that there are, and their
// values are ones that a policy may have.
func TestTheTableNamesVariablesThatThereAre(t *testing.T) {
	var table strings.Builder
	if err := policy.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	for _, v := range append(config.Variables(config.Worker{}), config.Variables(config.Starter{})...) {
		known[v.Name] = v.Default
	}
	named := regexp.MustCompile("(?m)^\\| `([^`]+)` .*`(SICKBAY_[A-Z_]+)` \\|$").FindAllStringSubmatch(table.String(), -1)
	if len(named) < 20 {
		t.Fatalf("%d rows name a variable", len(named))
	}
	for _, row := range named {
		initial, there := known[row[2]]
		if !there {
			t.Errorf("%s: there is no variable %s", row[1], row[2])
			continue
		}
		if strings.HasPrefix(row[1], "budgets.") && row[1] != "budgets.pace" {
			continue // a limit is written in another form there
		}
		text := head
		if section, field, nested := strings.Cut(row[1], "."); nested {
			text += section + ": {" + field + ": " + initial + "}"
		} else {
			text += row[1] + ": " + initial
		}
		if _, err := policy.Parse([]byte(text)); err != nil {
			t.Errorf("the default of %s is refused as a policy: %v", row[2], err)
		}
	}
}
