// Package incident is the workflow that owns one incident: many devices of a driver,
// a node or the whole cluster that became Unknown, or Unhealthy, together. One
// execution per scope while it lasts; none runs while nothing of that kind happens.
//
// The workflow decides nothing itself: pkg/incident does. It keeps the incident,
// answers the starter that counts its devices and the cases that want to restrict
// theirs, takes operators' words, and continues as new when nothing is pending.
//
// Invariants:
//   - State is the whole truth of a run: its argument, and the argument of the
//     next run. Deadlines in it are absolute.
//   - Every acknowledged signal and update is in the state before a run ends.
//   - It touches no device: it only says what has to wait.
//
// Client is the only code that knows workflow IDs and message names.
package incident
