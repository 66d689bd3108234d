// Package listing puts together what is known of every device: what the cluster
// lists, what Pods report, which marks are there and what the open cases say. It
// is what `sickbay devices` shows.
//
// It owns the reading and the join, which is a pure function of what was read.
// Printing is package show's. It only ever reads, and a source that is away
// becomes a problem in the listing, never a guess about a device.
package listing
