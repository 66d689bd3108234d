// Package permits is the workflow that owns every budget: one execution for the whole
// cluster hands out the permits to keep devices out.
//
// The workflow decides nothing itself: pkg/budget does. It keeps the book, answers who
// asks in batches, tells cases that waited when it is their turn, takes operators'
// pauses, says whose turn it is to be given back, and continues as new when nothing is
// pending.
//
// Invariants:
//   - State is the whole truth of a run: its argument, and the argument of the next run.
//     Deadlines in it are absolute.
//   - Every acknowledged signal and update is in the state before a run ends.
//   - A workflow that was emptied grants nothing before it was told which marks exist.
//   - It touches no device: it only says what may be done.
//
// Client is the only code that knows the workflow's ID and message names.
package permits
