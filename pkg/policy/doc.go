// Package policy is what an operator decides about Sickbay, as one object: whether it
// only observes, how long it waits for what, by what devices are proven healthy, and how
// many may be out at once; for all devices, for those of a driver, and for those of a class.
//
// It owns the object's form (Document), how a text is read (Parse: strict, and all that
// is wrong at once), and what holds for a device (InForce): what its class says, else
// what its driver says, else what the object says of all, else the environment.
//
// The structs are the only place where a field is described. What is refused, the table
// in docs/policy.md and what `sickbay policy explain` prints are all made from their
// tags:
//
//	desc     what the field is for
//	min,max  bounds of a duration or a number
//	whole    what a duration has to be a multiple of
//	oneof    the only values that are allowed, separated by spaces
//	form     what a text has to look like
//	items    what each entry of a list has to look like
//	most     how many entries a list may have
//	never    what an entry may not be, or begin with
//	default  what holds where nobody says it, and no variable does
//	env      the variable that holds where the object says nothing
//
// What it must never do:
//   - take a text of which something isn't understood
//   - decide anything: that is for the packages whose policies it fills
//
// The package is pure: no clock, no I/O, no environment.
package policy
