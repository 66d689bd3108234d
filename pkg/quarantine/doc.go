// Package quarantine is the life of a case: one out-of-service episode of one
// device, from the first not-good reading to its end. Decide takes a case and an
// event and returns the case after it and the commands that are owed to the
// world; when, how often and what if it crashes is the workflow's business.
//
// The package is pure: no clock, no I/O, no Temporal. Its invariants, tested as
// properties:
//
//   - Unknown alone never evicts, migrates or deletes, and never marks.
//   - No path ends a case whose mark is in force other than by the gates or
//     because the device is gone for good: not a message, an expiry, a restart,
//     or a mark deleted by hand.
//   - Severity only rises, the epoch only rises, the first not-good moment of an
//     episode never moves.
//   - Shuffled, repeated and late observations with the same evidence give the
//     same case, if no deadline lies between.
//   - From every reachable state a fair environment leads to the end of the case
//     or to a waiting state that says whose turn it is.
//
// The recovery gates are not part of the package yet. Until they are, a case
// whose time for them has come stays quarantined and says WaitingForRecovery.
package quarantine
