package show

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sickbay-dev/sickbay/cmd/listing"
)

// Screen shows a listing again and again. On a terminal each one takes the place
// of the one before; elsewhere one follows the other, and one that would say the
// same is left out.
type Screen struct {
	out    io.Writer
	wide   bool
	colour bool
	// size tells the terminal's columns and lines; nil where there is none.
	size func() (columns, lines int, err error)

	last []string
}

// NewScreen returns a screen on out. Size is nil where out is no terminal.
func NewScreen(out io.Writer, format Format, colour bool, size func() (columns, lines int, err error)) *Screen {
	return &Screen{out: out, wide: format == Wide, colour: colour, size: size}
}

// Show shows one listing, under a heading and what Sickbay itself can't see.
func (s *Screen) Show(l listing.Listing, heading ...string) error {
	body, foot := lines(l, s.wide, s.colour), footer(l, s.colour)
	for _, said := range l.Blind {
		heading = append(slices.Clone(heading), blindLine(said, s.colour))
	}
	for _, said := range slices.Concat(l.Problems, l.Notes) {
		foot = append(foot, "! "+oneLine(said))
	}
	if s.size == nil {
		return s.follow(l, heading, slices.Concat(body, foot))
	}
	columns, rows, err := s.size()
	if err != nil {
		return fmt.Errorf("ask for the terminal's size: %w", err)
	}
	return s.redraw(slices.Concat(heading, body), foot, columns, rows)
}

func blindLine(said string, colour bool) string {
	line := "! Sickbay itself can't see: " + oneLine(said)
	if colour {
		return red + line + reset
	}
	return line
}

// redraw overwrites the terminal from its first line on, so that nothing
// flickers, and clears what is left of the listing before. Where there are too
// many lines, those above the foot give way: it says how many devices there are.
func (s *Screen) redraw(all, foot []string, columns, rows int) error {
	room := rows - 1 - len(foot)
	if room < 2 {
		all, foot, room = slices.Concat(all, foot), nil, rows-1
	}
	if more := len(all) - room; more > 0 && room > 1 {
		all = append(slices.Clone(all[:room-1]), fmt.Sprintf("… %d more lines", more+1))
	}
	all = slices.Concat(all, foot)
	var frame strings.Builder
	frame.WriteString("\x1b[H")
	for _, line := range all {
		frame.WriteString(cut(line, columns))
		frame.WriteString("\x1b[K\r\n")
	}
	frame.WriteString("\x1b[J")
	_, err := io.WriteString(s.out, frame.String())
	return err
}

// follow prints a listing below the one before, if it says something new. Ages
// alone are nothing new.
func (s *Screen) follow(l listing.Listing, heading, body []string) error {
	ageless := l
	ageless.Devices = slices.Clone(l.Devices)
	for i := range ageless.Devices {
		ageless.Devices[i].Since, ageless.Devices[i].Age = nil, nil
	}
	said := slices.Concat(lines(ageless, s.wide, false), footer(ageless, false), l.Blind, l.Problems)
	if slices.Equal(said, s.last) {
		return nil
	}
	s.last = said
	stamp := l.At.UTC().Format("15:04:05 MST")
	for _, line := range slices.Concat([]string{stamp}, heading, body, []string{""}) {
		if _, err := fmt.Fprintln(s.out, line); err != nil {
			return err
		}
	}
	return nil
}

// cut shortens a line to the terminal's width; escape sequences take no room.
func cut(line string, columns int) string {
	if columns <= 0 {
		return line
	}
	var kept strings.Builder
	width := 0
	for i := 0; i < len(line); {
		if line[i] == '\x1b' {
			end := strings.IndexByte(line[i:], 'm')
			if end < 0 {
				break
			}
			kept.WriteString(line[i : i+end+1])
			i += end + 1
			continue
		}
		_, size := utf8.DecodeRuneInString(line[i:])
		if width < columns {
			kept.WriteString(line[i : i+size])
		}
		width++
		i += size
	}
	return kept.String()
}

// Enter makes room for the screen: it clears the terminal and hides the cursor.
// Leave shows the cursor again; both do nothing where there is no terminal.
func (s *Screen) Enter() error {
	if s.size == nil {
		return nil
	}
	_, err := io.WriteString(s.out, "\x1b[2J\x1b[H\x1b[?25l")
	return err
}

// Leave undoes Enter; the last listing stays.
func (s *Screen) Leave() error {
	if s.size == nil {
		return nil
	}
	_, err := io.WriteString(s.out, "\x1b[?25h")
	return err
}
