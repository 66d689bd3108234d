package quarantine

import (
	"strings"
	"unicode/utf8"
)

// What drivers and people write is cut before a case keeps it. The bounds are in
// bytes of JSON, so that no text can grow in the encoding.
const (
	maxMessage = 512
	maxReport  = 192
	maxText    = 320
	maxSeen    = 192
	maxName    = 256
	maxReason  = 512
)

// clip cuts a text to so many bytes of JSON, and shows that it did.
func clip(text string, limit int) string {
	if cost(text) <= limit {
		return text
	}
	const more = "…"
	limit -= len(more)
	var b strings.Builder
	for _, r := range text {
		limit -= runeCost(r)
		if limit < 0 {
			break
		}
		b.WriteRune(r)
	}
	return b.String() + more
}

// cost is how many bytes encoding/json writes for a text, at most.
func cost(text string) int {
	total := 0
	for _, r := range text {
		total += runeCost(r)
	}
	return total
}

func runeCost(r rune) int {
	switch {
	case r < ' ', r == '<', r == '>', r == '&', r == '\u2028', r == '\u2029', r == utf8.RuneError:
		return len(`\u0000`)
	case r == '"', r == '\\':
		return 2
	}
	return utf8.RuneLen(r)
}
