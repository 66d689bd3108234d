// Package isolation decides when a whole node is kept out of scheduling, and when no
// longer. Single devices are kept out first, by their own cases; a node only where a
// policy says so: when several of its devices are faulty, when a condition of its own
// that the policy names is True, or when nothing can keep a single device out on its path.
//
// It owns the grounds (Justify), what is remembered of one node (Isolation), what becomes
// of it (Decide), and what is to be done next (Due).
//
// What it must never do:
//   - isolate a node because it is out: that its Lease stands still or its kubelet isn't
//     ready is no fault
//   - isolate one without a policy that says so, or on evidence that wasn't read live
//   - lift what isn't Sickbay's, or lift because nothing can be seen
//
// The package is pure: the standard library and pure packages, no clock, no I/O.
package isolation
