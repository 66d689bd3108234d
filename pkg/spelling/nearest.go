package spelling

import "slices"

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

// Near finds the names that may have been meant where several are as near as the
// nearest: up to a number of them, sorted.
func Near(name string, known []string, most int) []string {
	var near []string
	least := len(name)/3 + 1
	for _, k := range known {
		switch d := distance(name, k); {
		case d < least:
			near, least = []string{k}, d
		case d == least && len(near) > 0:
			near = append(near, k)
		}
	}
	slices.Sort(near)
	return near[:min(most, len(near))]
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
