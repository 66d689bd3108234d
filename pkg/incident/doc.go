// Package incident decides about many devices at once: a storm, in which devices
// become Unknown together, and a crowd, in which they become Unhealthy together.
// Neither is believed of the devices one by one: a driver that restarts, a network
// that is away or a library that can't tell which card an error belongs to looks
// like that too.
//
// It owns the scopes, when an incident begins (Tally, Thresholds) and what becomes
// of it (Decide): how long it holds, at which pace it lets devices through after
// that, when it is over.
//
// What it must never do:
//   - hold a fault because of a storm
//   - let devices through faster than the pace, unless an operator said so
//   - hold for ever: every hold has an end, which only an operator's word moves
//
// The package is pure: the standard library, no clock, no I/O.
package incident
