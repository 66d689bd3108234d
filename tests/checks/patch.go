package checks

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// BreaksDir holds the breaks, below the root of the clone.
const BreaksDir = "tests/breaks"

// Patch is one break: a small change that takes a requirement away, and the tests
// that have to notice.
type Patch struct {
	// Number is the requirement's. It begins the file's name; a second break of
	// the same requirement says after a hyphen what it takes away.
	Number string
	// Name is the file's without its ending, "Q5-rewrite".
	Name string
	Path string
	// Why is the first line: what the change makes wrong.
	Why string
	// Tests come from lines "Test: ./pkg/device TestName".
	Tests []Test
}

// NeedsStack tells whether one of its tests may need the development stack.
func (p Patch) NeedsStack() bool { return slices.ContainsFunc(p.Tests, Test.NeedsStack) }

// ReadPatches reads the heads of all breaks, sorted by number as in the table.
func ReadPatches(root string) ([]Patch, error) {
	paths, err := filepath.Glob(filepath.Join(root, BreaksDir, "*.patch"))
	if err != nil {
		return nil, err
	}
	var patches []Patch
	for _, path := range paths {
		patch, err := readPatch(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		patches = append(patches, patch)
	}
	order := Numbers()
	slices.SortStableFunc(patches, func(a, b Patch) int { return slices.Index(order, a.Number) - slices.Index(order, b.Number) })
	return patches, nil
}

func readPatch(path string) (Patch, error) {
	patch := Patch{Name: strings.TrimSuffix(filepath.Base(path), ".patch"), Path: path}
	patch.Number, _, _ = strings.Cut(patch.Name, "-")
	if !slices.Contains(Numbers(), patch.Number) {
		return Patch{}, fmt.Errorf("no requirement is called %q; name the file by its requirement's number", patch.Number)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return Patch{}, err
	}
	head, _, found := strings.Cut(string(content), "\ndiff --git ")
	if !found {
		return Patch{}, fmt.Errorf("there is no diff in it; make it with git diff")
	}
	patch.Why, _, _ = strings.Cut(head, "\n")
	for line := range strings.SplitSeq(head, "\n") {
		named, isTest := strings.CutPrefix(line, "Test: ")
		if !isTest {
			continue
		}
		fields := strings.Fields(named)
		if len(fields) != 2 || !strings.HasPrefix(fields[0], "./") {
			return Patch{}, fmt.Errorf("line %q: want Test: ./pkg/device TestName", line)
		}
		patch.Tests = append(patch.Tests, Test{Package: fields[0], Name: fields[1]})
	}
	if strings.TrimSpace(patch.Why) == "" || len(patch.Tests) == 0 {
		return Patch{}, fmt.Errorf("its head lacks something; want one line that says what becomes wrong, then lines Test: ./pkg/device TestName")
	}
	return patch, nil
}
