package checks

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Case is one row of the table of reported cases in docs/requirements.md.
type Case struct {
	// Number is its two digits, by which the tests' doc comments name it.
	Number string
	What   string
	// Tests are written "./pkg/device TestName", sorted.
	Tests []string
}

// Gap is what no test asserts of a case yet.
type Gap struct {
	Case string
	// Row is the moment of the case's table, or what must or must never happen.
	Row      string
	WaitsFor string
}

// caseNumbers are the cases that Sickbay is held to.
var caseNumbers = []string{"01", "02", "04", "06", "07", "09", "10", "12", "14", "15", "18", "19", "22", "25", "27", "33", "35", "38", "40", "49"}

var (
	caseLike  = regexp.MustCompile(`(?i)\bcases?\s+([0-9]{2}(?:(?:,\s*|\s+and\s+)[0-9]{2})*)\b`)
	twoDigits = regexp.MustCompile(`[0-9]{2}`)
)

// casesIn finds the cases that a text names ("Case 06", "cases 06 and 35"), each
// once, sorted.
func casesIn(text string) []string {
	var found []string
	for _, match := range caseLike.FindAllStringSubmatch(text, -1) {
		found = append(found, twoDigits.FindAllString(match[1], -1)...)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// The heads of the two tables about cases, by which they are found.
const (
	caseHead = "| case | what goes wrong | tests |"
	gapHead  = "| case | row | waits for |"
)

// ReadCases reads the two tables about cases. A table ends with the first line
// that isn't a row.
func ReadCases(root string) ([]Case, []Gap, error) {
	content, err := os.ReadFile(filepath.Join(root, TablePath))
	if err != nil {
		return nil, nil, err
	}
	var cases []Case
	var gaps []Gap
	err = eachCaseRow(strings.Split(string(content), "\n"), func(_ int, head string, cells []string) {
		if head == gapHead {
			gaps = append(gaps, Gap{Case: cells[0], Row: cells[1], WaitsFor: cells[2]})
			return
		}
		cases = append(cases, Case{Number: cells[0], What: cells[1], Tests: testsIn(cells[2])})
	})
	return cases, gaps, err
}

// eachCaseRow visits the rows of the tables about cases, with their cells.
func eachCaseRow(lines []string, visit func(line int, head string, cells []string)) error {
	head := ""
	for i, line := range lines {
		switch {
		case line == caseHead || line == gapHead:
			head = line
		case head == "" || strings.HasPrefix(line, "| ---"):
		case !strings.HasPrefix(line, "|"):
			head = ""
		default:
			cells := strings.Split(strings.Trim(line, "|"), "|")
			if len(cells) != 3 {
				return fmt.Errorf("%s:%d: the row has %d cells, want 3: %s", TablePath, i+1, len(cells), strings.Trim(head, "| "))
			}
			for c := range cells {
				cells[c] = strings.TrimSpace(cells[c])
			}
			visit(i, head, cells)
		}
	}
	return nil
}

// UpdateCases writes the tests that name each case into its row.
func UpdateCases(root string, tests []Test) error {
	path := filepath.Join(root, TablePath)
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines := strings.Split(string(content), "\n")
	err = eachCaseRow(lines, func(line int, head string, cells []string) {
		if head == caseHead {
			lines[line] = fmt.Sprintf("| %s | %s | %s |", cells[0], cells[1], quoted(naming(tests, Test.cases, cells[0])))
		}
	})
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644)
}
