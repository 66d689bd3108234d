package main

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxLines is how many lines of the story stand above the table.
const maxLines = 8

// story is what happened so far, in words.
type story struct {
	began time.Time

	mu    sync.Mutex
	lines []string
}

func newStory() *story { return &story{began: time.Now()} }

// tell adds a line.
func (s *story) tell(format string, args ...any) {
	elapsed := time.Since(s.began).Round(100 * time.Millisecond)
	line := fmt.Sprintf("%6s  ", elapsed) + fmt.Sprintf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
	if extra := len(s.lines) - maxLines; extra > 0 {
		s.lines = s.lines[extra:]
	}
}

func (s *story) latest() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}
