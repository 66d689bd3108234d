package pages

import (
	"regexp"
	"slices"
	"strings"
)

// omission is a line of a page that stands for any number of lines of an answer, or
// the end of a line that stands for any rest of it.
const omission = "…"

// abridged tells whether something is left out of what the page shows.
func abridged(shown []string) bool {
	return slices.ContainsFunc(shown, func(line string) bool { return strings.HasSuffix(line, omission) })
}

// alike tells whether an answer is what the page shows, but for what is masked and
// what the page leaves out.
func alike(mask func(string) string, shown, said []string) bool {
	masked := func(lines []string) []string {
		return strings.Split(strings.Trim(mask(strings.Join(lines, "\n")), "\n"), "\n")
	}
	answer := masked(said)
	pieces := [][]string{nil}
	for _, line := range shown {
		if line == omission {
			pieces = append(pieces, nil)
			continue
		}
		pieces[len(pieces)-1] = append(pieces[len(pieces)-1], line)
	}
	if len(pieces) == 1 {
		return slices.EqualFunc(masked(shown), answer, begins)
	}
	// The first piece begins the answer, the last one ends it, the others stand
	// between them in their order.
	for i, piece := range pieces {
		if len(piece) == 0 {
			continue
		}
		want := masked(piece)
		at := index(answer, want)
		switch {
		case at < 0, i == 0 && at != 0:
			return false
		case i == len(pieces)-1:
			return len(answer) >= len(want) && slices.EqualFunc(want, answer[len(answer)-len(want):], begins)
		}
		answer = answer[at+len(want):]
	}
	return true
}

// begins tells whether a line of an answer is what a line of the page shows of it.
func begins(shown, said string) bool {
	beginning, isPart := strings.CutSuffix(shown, omission)
	return shown == said || isPart && strings.HasPrefix(said, beginning)
}

// index is where lines stand one after the other in an answer, or -1.
func index(answer, lines []string) int {
	for at := 0; at+len(lines) <= len(answer); at++ {
		if slices.EqualFunc(lines, answer[at:at+len(lines)], begins) {
			return at
		}
	}
	return -1
}

// differing is what is never the same in two runs, and what it is masked as.
var differing = []struct {
	pattern *regexp.Regexp
	as      string
}{
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "UID"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "TRACE"},
	{regexp.MustCompile(`\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( UTC|Z)?`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d( UTC)?\b`), "TIME"},
	{regexp.MustCompile(`\b1\d{12}\b|\b1\.\d+e\+12\b`), "EPOCH"},
	{regexp.MustCompile(`\bnow\b|\b\d+ (second|minute|hour)s? ago\b`), "AGE"},
	// An age, 4.2s or 9m27s; the columns beside it are as wide as it is.
	{regexp.MustCompile(`\b(\d+d)?(\d+h)?(\d+m)?\d+(\.\d+)?(ms|[smhd])\b`), "AGE"},
	{regexp.MustCompile(`\b127\.0\.0\.1:\d+\b`), "ADDRESS"},
	{regexp.MustCompile(`AGE  +\d+ `), "AGE  VERSION "},
	{regexp.MustCompile(`\bat version \d+`), "at version VERSION"},
	{regexp.MustCompile(`≤ \d+ `), "≤ VERSION "},
	{regexp.MustCompile(` {2,}`), "  "},
}

// Masked makes times, ages, UIDs, epochs, traces, resource versions and local
// addresses alike, and the room between columns.
func Masked(text string) string {
	for _, d := range differing {
		text = d.pattern.ReplaceAllString(text, d.as)
	}
	return text
}
