// Package node is the workflow that isolates one whole node, and gives it back: one
// execution per node for as long as something justifies it, or may again. None runs for a
// node that is well.
//
// The workflow decides nothing itself: pkg/isolation does. It keeps what is remembered,
// takes what a starter counts, looks live before anything is done, has the node isolated or
// given back by activities, takes operators' words, and continues as new when nothing is
// pending.
//
// Invariants:
//   - State is the whole truth of a run: its argument, and the argument of the next run.
//     Deadlines in it are absolute.
//   - Every acknowledged signal and update is in the state before a run ends.
//   - One look or write is under way at a time.
//
// Client and Offer are the only code that knows workflow IDs and message names.
package node
