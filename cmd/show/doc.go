// Package show prints a listing of devices: as a table, as JSON or YAML, as bare
// names, or as a table that follows what happens on a terminal.
//
// It owns the form and nothing else: what is in a listing, and what it means, is
// settled in package listing. It never reads anything but the listing it is given.
package show
