package checks

import (
	"slices"
	"testing"
)

// readCases reads what the clone that the test is in says of cases.
func readCases(t *testing.T) (cases []Case, gaps []Gap, tests []Test) {
	t.Helper()
	root, _, tests, _ := read(t)
	if *update {
		if err := UpdateCases(root, tests); err != nil {
			t.Fatal(err)
		}
	}
	cases, gaps, err := ReadCases(root)
	if err != nil {
		t.Fatal(err)
	}
	return cases, gaps, tests
}

func TestEveryCaseHasItsRowAndItsTests(t *testing.T) {
	cases, _, _ := readCases(t)
	var numbers []string
	for _, c := range cases {
		numbers = append(numbers, c.Number)
		if c.What == "" {
			t.Errorf("case %s: the row doesn't say what goes wrong", c.Number)
		}
		if len(c.Tests) == 0 {
			t.Errorf("case %s: no test's doc comment names it", c.Number)
		}
	}
	if !slices.Equal(numbers, caseNumbers) {
		t.Errorf("%s has the cases\n%v, want\n%v", TablePath, numbers, caseNumbers)
	}
}

func TestTheTableNamesTheTestsThatTellOfEachCase(t *testing.T) {
	cases, _, tests := readCases(t)
	for _, c := range cases {
		want := naming(tests, Test.cases, c.Number)
		for _, test := range want {
			if !slices.Contains(c.Tests, test) {
				t.Errorf("case %s: the doc comment of %s names it and the row doesn't name the test", c.Number, test)
			}
		}
		for _, test := range c.Tests {
			if !slices.Contains(want, test) {
				t.Errorf("case %s: the row names %s, which doesn't exist or doesn't name the case in its doc comment", c.Number, test)
			}
		}
	}
	for _, test := range tests {
		for _, number := range test.Cases {
			if !slices.Contains(caseNumbers, number) {
				t.Errorf("%s names case %s, which isn't one of %v", test, number, caseNumbers)
			}
		}
	}
	if t.Failed() {
		t.Logf("write the tests into the table with: go -C tests test ./checks -update")
	}
}

func TestEachGapSaysWhatItWaitsFor(t *testing.T) {
	_, gaps, _ := readCases(t)
	if len(gaps) == 0 {
		t.Errorf("no table of what the cases wait for; its head is %q", gapHead)
	}
	seen := map[Gap]bool{}
	last := 0
	for _, g := range gaps {
		at := slices.Index(caseNumbers, g.Case)
		if at < last {
			t.Errorf("case %q, row %q: want one of %v, in their order", g.Case, g.Row, caseNumbers)
		}
		last = max(last, at)
		if g.Row == "" || g.WaitsFor == "" {
			t.Errorf("case %s: row %q waits for %q; want both said", g.Case, g.Row, g.WaitsFor)
		}
		if key := (Gap{Case: g.Case, Row: g.Row}); seen[key] {
			t.Errorf("case %s, row %q: listed twice", g.Case, g.Row)
		} else {
			seen[key] = true
		}
	}
}

func TestCasesAreFoundInProse(t *testing.T) {
	for text, want := range map[string][]string{
		"O3. Case 02, each row.":                                 {"02"},
		"rows of case 22: the clean-up":                          {"22"},
		"Cases 06\nand 35 have origins.":                         {"06", "35"},
		"cases 06, 07 and 35":                                    {"06", "07", "35"},
		"Case 10's lists, and case 10":                           {"10"},
		"a case of 30 s, case 900, a case that lasts 10 minutes": nil,
	} {
		if got := casesIn(text); !slices.Equal(got, want) {
			t.Errorf("%q names %v, want %v", text, got, want)
		}
	}
}
