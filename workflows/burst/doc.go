// Package burst is the workflow that makes the first marks of many devices at once, ahead
// of their cases: a case of its own for each takes far longer than a mark, and the last
// device of a thousand shouldn't wait for the cases of all others.
//
// One execution is one batch. It fixes the epoch under which the marks are made, has one
// activity make them, and answers which were made. The cases that the starter opens next
// are told, take that epoch for theirs, and find their marks in force.
//
// Invariants:
//   - A mark says what its case would have it say: the same pkg/quarantine decides.
//   - Each takes its permit like any other mark.
//   - A mark that is there already isn't touched.
//   - Nothing depends on it. Whatever fails here, the case does.
package burst
