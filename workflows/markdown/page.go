// Package markdown writes the pages of workflows in Temporal's UI, their current
// details. The UI shows them in a narrow column and sets lists with one level only.
package markdown

import (
	"fmt"
	"strings"
	"time"
)

// Page is a text that grows.
type Page struct{ strings.Builder }

// Heading begins a part of the page.
func (p *Page) Heading(text string) {
	if p.Len() > 0 {
		p.WriteString("\n")
	}
	fmt.Fprintf(p, "### %s\n\n", text)
}

// Item adds a line of a list.
func (p *Page) Item(format string, args ...any) {
	fmt.Fprintf(p, "- %s\n", fmt.Sprintf(format, args...))
}

// Line adds a line of a list that begins with a name.
func (p *Page) Line(name, format string, args ...any) {
	p.Item("**%s:** %s", name, fmt.Sprintf(format, args...))
}

// Moment is a time to the second, in UTC.
func Moment(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04:05 MST")
}

// Inline keeps somebody else's text from being taken for Markdown.
func Inline(text string) string {
	return "`" + strings.ReplaceAll(strings.ReplaceAll(text, "`", "'"), "\n", " ") + "`"
}
