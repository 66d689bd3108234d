// Package budget bounds the damage that Sickbay can do: how many devices may be kept
// out at once, of a class, on a node, of a tenant and in the whole cluster.
//
// It owns the scopes, what a limit allows of how many (Limit), and who gets a permit
// when (Decide): all scopes of a device at once or none, by severity and then by age,
// paced when a budget opens again, and nothing in a scope that an operator paused. It
// owns how many devices come back at once, too.
//
// What it must never do:
//   - grant more than a limit allows
//   - grant anything before it is known which marks exist already
//   - keep a device from being released for want of a permit: giving one back is never
//     refused, and whose turn it is to come back goes by limits of its own
//   - let somebody wait behind what can't be granted at all
//
// The package is pure: the standard library, no clock, no I/O.
package budget
