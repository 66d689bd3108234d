package temporal

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// ParseRetention reads how long closed workflows are kept: a duration as Go writes
// it, or one that begins with days, as Temporal's own tools write it: 30d, 720h,
// 1d12h.
func ParseRetention(text string) (time.Duration, error) {
	wrong := fmt.Errorf("%q: want a duration such as 30d or 720h", text)
	rest := text
	var days float64
	if number, after, found := strings.Cut(text, "d"); found {
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || math.IsNaN(n) || n < 0 {
			return 0, wrong
		}
		days = n
		if rest = after; rest == "" {
			rest = "0s"
		}
	}
	duration, err := time.ParseDuration(rest)
	if err != nil {
		return 0, wrong
	}
	// A century is longer than any server keeps what it is told, and fits.
	if most := 36500 * day; days*float64(day)+float64(duration) > float64(most) {
		return 0, fmt.Errorf("%q: want at most 36500d", text)
	}
	duration += time.Duration(days * float64(day))
	if duration <= 0 {
		return 0, fmt.Errorf("%q: want more than nothing; Temporal keeps closed workflows for that long", text)
	}
	return duration, nil
}

// FormatRetention writes it in days where it is some, for example 30d or 1d12h.
func FormatRetention(d time.Duration) string {
	days, rest := d/day, d%day
	text := ""
	if days > 0 {
		text = fmt.Sprintf("%dd", days)
	}
	if rest > 0 || days == 0 {
		written := rest.String()
		if strings.HasSuffix(written, "m0s") {
			written = strings.TrimSuffix(written, "0s")
		}
		if strings.HasSuffix(written, "h0m") {
			written = strings.TrimSuffix(written, "0m")
		}
		text += written
	}
	return text
}
