// Package policywatch keeps the policy that is in force, from the ConfigMap in which an
// operator writes it.
//
// It owns what a change, a mistake, a deletion and a missing right come to: a policy that
// is read holds at once, a wrong one leaves the last good one in force, and so does a
// deletion. A process that begins with a wrong one only observes until it is mended.
// Each is told in the log, as a metric, and as an Event on the ConfigMap.
//
// What it must never do:
//   - end the process over what somebody wrote
//   - let a process that can't tell what was decided make marks
//   - write to the ConfigMap
package policywatch
