// Package temporal makes a Temporal namespace fit for Sickbay: it tells what a
// namespace is like, what it lacks, and brings it up to date.
//
// Inspect only reads. Plan is pure. Apply writes what Plan says and nothing else,
// and can be repeated. What Sickbay wants of a namespace comes from the caller:
// the search attributes are those of workflows/device.
//
// The package must never remove anything from a namespace, and never shorten how
// long it keeps closed workflows unless it is told to.
package temporal
