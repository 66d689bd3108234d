package main

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"
)

// head opens a picture; what it shows stands in its description too, row by row.
func head(s *strings.Builder, height int, title, about string, rows []string) {
	fmt.Fprintf(s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title about">`+"\n", pictureWidth, height)
	fmt.Fprintf(s, "<title id=\"title\">%s</title>\n<desc id=\"about\">%s", html.EscapeString(title), html.EscapeString(about))
	for _, row := range rows {
		fmt.Fprintf(s, " %s.", html.EscapeString(row))
	}
	fmt.Fprintf(s, "</desc>\n%s\n<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n", style, pictureWidth, height)
	fmt.Fprintf(s, "<text class=\"text title\" x=\"16\" y=\"28\">%s</text>\n", html.EscapeString(title))
}

// front is a chart of points of which less is better in both directions. The names stand
// to the right, in the order of their points' heights.
type front struct {
	title, about, across, up string
	points                   []point
}

type point struct {
	name string
	x, y float64
	// best is set where no other point is better in all that counts.
	best bool
}

// svg draws the chart. The line is where the first point's sum of both is.
func (f front) svg() string {
	const left, right, top, under = 60, 560, 60, 60
	height := max(480, top+under+18*len(f.points))
	bottom := height - under
	var mostX, mostY float64
	var rows []string
	for _, p := range f.points {
		mostX, mostY = max(mostX, 1.05*p.x), max(mostY, 1.05*p.y)
		rows = append(rows, fmt.Sprintf("%s: %.1f and %.1f", p.name, p.x, p.y))
	}
	mostX, mostY = max(mostX, 1), max(mostY, 1)
	x := func(v float64) float64 { return left + v/mostX*(right-left) }
	y := func(v float64) float64 { return float64(bottom) - v/mostY*float64(bottom-top) }
	var s strings.Builder
	head(&s, height, f.title, f.about, rows)
	fmt.Fprintf(&s, "<path class=\"line\" fill=\"none\" d=\"M%d %dV%dH%d\"/>\n", left, top, bottom, right)
	for i := range 5 {
		at := float64(i) / 4
		fmt.Fprintf(&s, "<text class=\"faint\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.1f</text>\n", x(at*mostX), bottom+18, at*mostX)
		fmt.Fprintf(&s, "<text class=\"faint\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.1f</text>\n", left-8, y(at*mostY)+4, at*mostY)
	}
	fmt.Fprintf(&s, "<text class=\"faint\" x=\"%d\" y=\"%d\">%s</text>\n", left, bottom+40, html.EscapeString(f.across))
	fmt.Fprintf(&s, "<text class=\"faint\" x=\"16\" y=\"48\">%s</text>\n", html.EscapeString(f.up))
	sum := f.points[0].x + f.points[0].y
	from, to := max(0, sum-mostY), min(sum, mostX)
	fmt.Fprintf(&s, "<path class=\"line\" stroke-dasharray=\"4 4\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", x(from), y(sum-from), x(to), y(sum-to))
	sorted := slices.Clone(f.points)
	slices.SortStableFunc(sorted, func(a, b point) int { return cmp.Compare(b.y, a.y) })
	for i, p := range sorted {
		at := top + (bottom-top)*i/max(len(sorted)-1, 1)
		fmt.Fprintf(&s, "<path class=\"line\" fill=\"none\" d=\"M%.1f %.1fL%d %d\"/>", x(p.x), y(p.y), right+24, at-4)
		class, radius := "p1", 4
		if p.best {
			class, radius = "p0", 6
		}
		fmt.Fprintf(&s, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"/>", class, x(p.x), y(p.y), radius)
		fmt.Fprintf(&s, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"8\" height=\"8\"/><text class=\"text\" x=\"%d\" y=\"%d\">%s</text>\n", class, right+26, at-8, right+40, at, html.EscapeString(p.name))
	}
	s.WriteString("</svg>\n")
	return s.String()
}

// ranges is a chart of differences with their spreads, several in a row.
type ranges struct {
	title, about, axis string
	parts              []string
	rows               []spread
}

type spread struct {
	name string
	of   []estimate
}

// widest is where the chart ends; what lies beyond is drawn at its edge.
const widest = 75.0

func (r ranges) svg() string {
	const top, tall = 76, 30
	left, right := float64(labelWidth), float64(pictureWidth-24)
	height := top + tall*len(r.rows) + 48
	x := func(v float64) float64 {
		return left + (min(max(v, -widest), widest)+widest)/(2*widest)*(right-left)
	}
	var rows []string
	for _, row := range r.rows {
		text := row.name + ":"
		for i, e := range row.of {
			text += fmt.Sprintf(" %s %s,", r.parts[i], e)
		}
		rows = append(rows, strings.TrimSuffix(text, ","))
	}
	var s strings.Builder
	head(&s, height, r.title, r.about, rows)
	at := 16
	for i, part := range r.parts {
		fmt.Fprintf(&s, "<rect class=\"p%d\" x=\"%d\" y=\"44\" width=\"12\" height=\"12\"/><text class=\"faint\" x=\"%d\" y=\"55\">%s</text>\n", i, at, at+18, html.EscapeString(part))
		at += 18 + 7*len(part) + 24
	}
	bottom := top + tall*len(r.rows)
	for v := -50.0; v <= 50; v += 25 {
		fmt.Fprintf(&s, "<path class=\"line\" d=\"M%.1f %dV%d\"/><text class=\"faint\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%+.0f %%</text>\n", x(v), top, bottom, x(v), bottom+16, v)
	}
	for i, row := range r.rows {
		y := top + tall*i
		fmt.Fprintf(&s, "<text class=\"text\" x=\"%.0f\" y=\"%d\" text-anchor=\"end\">%s</text>\n", left-10, y+18, html.EscapeString(row.name))
		for j, e := range row.of {
			at := y + 4 + 24*j/len(row.of)
			fmt.Fprintf(&s, "<rect class=\"p%d\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"1\"/><circle class=\"p%d\" cx=\"%.1f\" cy=\"%d\" r=\"3\"/>\n",
				j, x(e.mean-e.within), at, x(e.mean+e.within)-x(e.mean-e.within), j, x(e.mean), at)
		}
	}
	fmt.Fprintf(&s, "<text class=\"faint\" x=\"16\" y=\"%d\">%s</text>\n</svg>\n", bottom+36, html.EscapeString(r.axis))
	return s.String()
}
