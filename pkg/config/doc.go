// Package config is how an operator sets Sickbay up: one struct per command,
// filled from environment variables that begin with SICKBAY_.
//
// The structs are the only place where a variable is described. Its help text,
// its row in docs/configuration.md and the message that refuses a wrong value
// are all made from the field's type and tags:
//
//	desc     what the variable is for
//	default  the value that holds where it isn't set
//	min,max  bounds of a duration or a number
//	oneof    the only values that are allowed, separated by spaces
//	form     what a text has to look like; see forms
//
// Load reports everything that is wrong at once: each wrong value with its
// variable's name, the value and what is allowed, and each SICKBAY_ variable
// that doesn't exist with the name that was probably meant.
//
// No variable carries a secret: secrets are read from files, whose paths the
// variables hold. The package opens those files and the environment, and must
// never talk to a cluster, to Temporal or to anything else.
package config
