package pages

import (
	"regexp"
	"slices"
	"strings"
)

// omission is a line of a page that stands for any number of lines of an answer, or
// the end of a line that stands for any rest of it.
const omission = "…"

// compare tells whether an answer is what the page shows, but for what is masked and
// what the page leaves out, and returns what the page is to show of it.
func compare(mask func(string) string, shown, said []string) (lines []string, same bool) {
	shown = withoutBlankEnd(shown)
	pieces := [][]string{nil}
	for _, line := range shown {
		if line == omission {
			pieces = append(pieces, nil)
			continue
		}
		pieces[len(pieces)-1] = append(pieces[len(pieces)-1], line)
	}
	// The first piece begins the answer, the last one ends it, the others stand
	// between them in their order.
	at := 0
	for i, piece := range pieces {
		last := len(said) - len(piece)
		switch {
		case len(pieces) == 1 && last != 0:
			return said, false
		case i == len(pieces)-1:
			at = max(at, last)
		case i > 0:
			for at < last && !alike(mask, piece, said[at:at+len(piece)]) {
				at++
			}
		}
		if at > last || !alike(mask, piece, said[at:at+len(piece)]) {
			return said, false
		}
		if i > 0 {
			lines = append(lines, omission)
		}
		for n, line := range piece {
			if !strings.HasSuffix(line, omission) {
				line = said[at+n]
			}
			lines = append(lines, line)
		}
		at += len(piece)
	}
	return lines, true
}

// alike compares as many lines of an answer as the page shows.
func alike(mask func(string) string, shown, said []string) bool {
	return slices.EqualFunc(shown, said, func(shown, said string) bool {
		want, got := mask(shown), mask(said)
		beginning, isPart := strings.CutSuffix(want, omission)
		return want == got || isPart && strings.HasPrefix(got, beginning)
	})
}

func withoutBlankEnd(lines []string) []string {
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
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
