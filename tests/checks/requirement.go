package checks

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// State is how far a requirement has come.
type State string

const (
	// Open: nothing proves it yet.
	Open State = "open"
	// Part: tests prove some of it.
	Part State = "part"
	// Proven: tests prove it, and a break shows that they would notice its loss.
	Proven State = "proven"
)

// Requirement is one row of docs/requirements.md.
type Requirement struct {
	Number string
	What   string
	// Tests are written "./pkg/device TestName", sorted.
	Tests []string
	State State
}

// groups are the letters of the requirements and how many there are of each.
var groups = []struct {
	letter string
	count  int
}{{"O", 11}, {"Q", 10}, {"U", 4}, {"B", 4}, {"M", 7}, {"R", 7}, {"K", 4}, {"L", 14}}

// Numbers lists every requirement's number, in the order of the table.
func Numbers() []string {
	var all []string
	for _, group := range groups {
		for n := range group.count {
			all = append(all, fmt.Sprintf("%s%d", group.letter, n+1))
		}
	}
	return all
}

var numberLike = regexp.MustCompile(`\b[OQUBMRKL][0-9]{1,2}\b`)

// numbersIn finds the requirements that a text names, each once, sorted.
func numbersIn(text string) []string {
	var found []string
	for _, word := range numberLike.FindAllString(text, -1) {
		if slices.Contains(Numbers(), word) {
			found = append(found, word)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// TablePath is the table of requirements, below the root of the clone.
const TablePath = "docs/requirements.md"

// between separates the tests of a row.
const between = "<br>"

// ReadTable reads the rows of the table. Every line that begins like a row with a
// number has to be one.
func ReadTable(root string) ([]Requirement, error) {
	content, err := os.ReadFile(filepath.Join(root, TablePath))
	if err != nil {
		return nil, err
	}
	var rows []Requirement
	for i, line := range strings.Split(string(content), "\n") {
		row, isRow, err := parseRow(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", TablePath, i+1, err)
		}
		if isRow {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

var rowStart = regexp.MustCompile(`^\| ?[OQUBMRKL][0-9]+ ?\|`)

func parseRow(line string) (row Requirement, isRow bool, err error) {
	if !rowStart.MatchString(line) {
		return Requirement{}, false, nil
	}
	cells := strings.Split(strings.Trim(line, "|"), "|")
	if len(cells) != 4 {
		return Requirement{}, false, fmt.Errorf("the row has %d cells, want 4: number, what, tests, state", len(cells))
	}
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	row = Requirement{Number: cells[0], What: cells[1], State: State(cells[3])}
	row.Tests = testsIn(cells[2])
	return row, true, nil
}

// testsIn reads the tests that a cell names.
func testsIn(cell string) []string {
	var tests []string
	for test := range strings.SplitSeq(cell, between) {
		if test = strings.Trim(strings.TrimSpace(test), "`"); test != "" {
			tests = append(tests, test)
		}
	}
	return tests
}

// quoted writes tests as a cell.
func quoted(tests []string) string {
	all := make([]string, len(tests))
	for i, test := range tests {
		all[i] = "`" + test + "`"
	}
	return strings.Join(all, between)
}

// Row writes a requirement as a line of the table.
func (r Requirement) Row() string {
	return fmt.Sprintf("| %s | %s | %s | %s |", r.Number, r.What, quoted(r.Tests), r.State)
}

// UpdateTable writes the tests that carry each number into its row.
func UpdateTable(root string, tests []Test) error {
	path := filepath.Join(root, TablePath)
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines := strings.Split(string(content), "\n")
	for i, line := range lines {
		row, isRow, err := parseRow(line)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", TablePath, i+1, err)
		}
		if isRow {
			row.Tests = naming(tests, Test.numbers, row.Number)
			lines[i] = row.Row()
		}
	}
	return os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644)
}

// naming lists the tests whose doc comment names a number, among those that names
// reads from it.
func naming(tests []Test, names func(Test) []string, number string) []string {
	var found []string
	for _, test := range tests {
		if slices.Contains(names(test), number) {
			found = append(found, test.String())
		}
	}
	slices.Sort(found)
	return found
}
