package main

import (
	"fmt"
	"html"
	"strings"
)

// bars is a chart of horizontal bars, each of parts that stand one behind the other.
type bars struct {
	title, about, axis string
	parts              []string
	rows               []bar
}

type bar struct {
	name   string
	values []float64
	text   string
}

// What a picture is drawn with: it has its own background, and other colours where the
// reader prefers dark ones. Colours differ in lightness too, so that they are told apart
// without their hue.
const style = `<style>
.paper{fill:#ffffff}.text{fill:#1f2328}.faint{fill:#59636e}.line{stroke:#d1d9e0}
.p0{fill:#0b4f8a}.p1{fill:#d1570a}.p2{fill:#7b3294}.p3{fill:#9ecae1}.p4{fill:#333333}.p5{fill:#f2b134}.p6{fill:#6aa84f}
text{font:13px system-ui,-apple-system,"Segoe UI",sans-serif}.title{font-size:16px;font-weight:600}
@media (prefers-color-scheme:dark){.paper{fill:#0d1117}.text{fill:#f0f6fc}.faint{fill:#9198a1}.line{stroke:#3d444d}
.p0{fill:#58a6ff}.p1{fill:#f0883e}.p2{fill:#c297e8}.p3{fill:#1f6feb}.p4{fill:#e6edf3}.p5{fill:#d4a72c}.p6{fill:#7ee787}}
</style>`

const (
	pictureWidth = 900
	labelWidth   = 280
	valueWidth   = 180
	rowHeight    = 24
)

// svg draws the chart.
func (b bars) svg() string {
	most := 0.0
	for _, r := range b.rows {
		most = max(most, sum(r.values))
	}
	if most == 0 {
		most = 1
	}
	top := 56
	if len(b.parts) > 1 {
		top += 24
	}
	height := top + rowHeight*len(b.rows) + 40
	var s strings.Builder
	var said []string
	for _, r := range b.rows {
		said = append(said, r.name+": "+r.text)
	}
	head(&s, height, b.title, b.about, said)
	if len(b.parts) > 1 {
		x := 16
		for i, part := range b.parts {
			fmt.Fprintf(&s, "<rect class=\"p%d\" x=\"%d\" y=\"44\" width=\"12\" height=\"12\"/><text class=\"faint\" x=\"%d\" y=\"55\">%s</text>\n", i, x, x+18, html.EscapeString(part))
			x += 18 + 8*len(part) + 24
		}
	}
	wide := float64(pictureWidth - labelWidth - valueWidth - 16)
	for i, r := range b.rows {
		y := top + rowHeight*i
		fmt.Fprintf(&s, "<text class=\"text\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", labelWidth-10, y+14, html.EscapeString(r.name))
		x := float64(labelWidth)
		for j, v := range r.values {
			if width := v / most * wide; width >= 0.05 {
				fmt.Fprintf(&s, "<rect class=\"p%d\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>\n", j, x, y+2, width, rowHeight-8)
				x += width
			}
		}
		fmt.Fprintf(&s, "<text class=\"faint\" x=\"%.1f\" y=\"%d\">%s</text>\n", x+6, y+14, html.EscapeString(r.text))
	}
	fmt.Fprintf(&s, "<line class=\"line\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n", labelWidth, labelWidth, top-4, top+rowHeight*len(b.rows))
	fmt.Fprintf(&s, "<text class=\"faint\" x=\"%d\" y=\"%d\">%s</text>\n</svg>\n", labelWidth, height-16, html.EscapeString(b.axis))
	return s.String()
}

func sum(values []float64) float64 {
	total := 0.0
	for _, v := range values {
		total += v
	}
	return total
}
