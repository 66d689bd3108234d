// Package spelling finds the name that somebody who wrote another one probably
// meant, for messages that say so. It is pure, and must never be used to decide
// for the user: a name is suggested, not taken.
package spelling
