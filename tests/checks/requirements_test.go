package checks

import (
	"flag"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tests of each requirement into docs/requirements.md")

// read reads the clone that the test is in.
func read(t *testing.T) (root string, rows []Requirement, tests []Test, patches []Patch) {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	if tests, err = FindTests(root); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := UpdateTable(root, tests); err != nil {
			t.Fatal(err)
		}
	}
	if rows, err = ReadTable(root); err != nil {
		t.Fatal(err)
	}
	if patches, err = ReadPatches(root); err != nil {
		t.Fatal(err)
	}
	return root, rows, tests, patches
}

func TestEveryRequirementHasItsRow(t *testing.T) {
	_, rows, _, _ := read(t)
	var numbers []string
	for _, row := range rows {
		numbers = append(numbers, row.Number)
		if row.What == "" {
			t.Errorf("%s: the row doesn't say what is required", row.Number)
		}
	}
	if !slices.Equal(numbers, Numbers()) {
		t.Errorf("%s has the rows\n%v, want\n%v", TablePath, numbers, Numbers())
	}
}

func TestTheTableNamesTheTestsThatCarryEachNumber(t *testing.T) {
	_, rows, tests, _ := read(t)
	for _, row := range rows {
		want := naming(tests, Test.numbers, row.Number)
		for _, test := range want {
			if !slices.Contains(row.Tests, test) {
				t.Errorf("%s: the doc comment of %s carries the number and the row doesn't name it", row.Number, test)
			}
		}
		for _, test := range row.Tests {
			if !slices.Contains(want, test) {
				t.Errorf("%s: the row names %s, which doesn't exist or doesn't carry the number in its doc comment", row.Number, test)
			}
		}
	}
	if t.Failed() {
		t.Logf("write the tests into the table with: go -C tests test ./checks -update")
	}
}

func TestEachStateIsBackedByWhatItClaims(t *testing.T) {
	_, rows, _, patches := read(t)
	for _, row := range rows {
		broken := slices.IndexFunc(patches, func(p Patch) bool { return p.Number == row.Number })
		switch row.State {
		case Open:
			if broken >= 0 {
				t.Errorf("%s is open and has a break, %s; it is at least part", row.Number, patches[broken].Path)
			}
		case Part:
			if len(row.Tests) == 0 {
				t.Errorf("%s is part and no test carries its number", row.Number)
			}
		case Proven:
			if len(row.Tests) == 0 || broken < 0 {
				t.Errorf("%s is proven and has %d tests and break %t; want both: add %s/%s.patch", row.Number, len(row.Tests), broken >= 0, BreaksDir, row.Number)
			}
		default:
			t.Errorf("%s has state %q, want %s, %s or %s", row.Number, row.State, Open, Part, Proven)
		}
	}
}

func TestABreakIsNoticedByTestsOfItsOwnRequirement(t *testing.T) {
	_, rows, _, patches := read(t)
	for _, patch := range patches {
		for _, row := range rows {
			if row.Number != patch.Number {
				continue
			}
			for _, test := range patch.Tests {
				if !slices.Contains(row.Tests, test.String()) {
					t.Errorf("%s: it wants %s to fail, and the row of %s doesn't name that test", patch.Path, test, row.Number)
				}
			}
		}
	}
}

func TestNumbersOfRequirementsStandInTestsOnly(t *testing.T) {
	root, _, _, _ := read(t)
	places, err := FindNumbers(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(places) > 0 {
		t.Errorf("code names requirements by number; say what is meant instead:\n%s", strings.Join(places, "\n"))
	}
}

func TestNumbersAreFoundInProse(t *testing.T) {
	for text, want := range map[string][]string{
		"O3: the same evidence, twice.":  {"O3"},
		"Part of Q1 (and of O10, O1).":   {"O1", "O10", "Q1"},
		"an L40 and a B200, on a Q99 R0": nil,
		"GPU0 and XQ1Y are other words":  nil,
	} {
		if got := numbersIn(text); !slices.Equal(got, want) {
			t.Errorf("%q names %v, want %v", text, got, want)
		}
	}
}
