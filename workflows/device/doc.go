// Package device is the workflow that owns one device's case, recovery gates
// included. One execution per device that has a case; a healthy device has none.
//
// The workflow decides nothing itself: pkg/quarantine does. It keeps the case,
// feeds it events (signals, updates, answers of activities, deadlines), starts
// what the case owes the world, and continues as new when nothing is pending.
//
// Invariants:
//   - State is the whole truth of a run: its argument, and the argument of the
//     next run. Deadlines in it are absolute.
//   - Every acknowledged signal and update is in the state before a run ends.
//   - At most one activity of each kind is under way; a mark never waits behind
//     a look or an announcement.
//
// Client is the only code that knows workflow IDs and message names.
package device
