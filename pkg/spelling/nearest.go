package spelling

import (
	"cmp"
	"slices"
)

// Nearest finds the name that was probably meant: the one with the fewest
// letters to change, if that isn't more than a third of it. Empty if none is near.
func Nearest(name string, known []string) string {
	best, least := "", len(name)/3+1
	for _, candidate := range known {
		if d := distance(name, candidate); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// Near finds up to a number of names that may have been meant, the nearest first.
func Near(name string, known []string, most int) []string {
	type candidate struct {
		name     string
		distance int
	}
	var near []candidate
	for _, k := range known {
		if d := distance(name, k); d < len(name)/3+1 {
			near = append(near, candidate{k, d})
		}
	}
	slices.SortFunc(near, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.name, b.name))
	})
	var names []string
	for _, c := range near[:min(most, len(near))] {
		names = append(names, c.name)
	}
	return names
}

// distance is the Levenshtein distance: how many letters have to be inserted,
// removed or replaced to make one word of the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
