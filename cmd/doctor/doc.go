// Package doctor finds out whether a site has what Sickbay needs, of Kubernetes,
// Temporal and Redis, and says for each thing what was found, what is needed, what
// is lacking without it, and how to mend it.
//
// It owns the list of prerequisites; the services' readiness and the command
// `sickbay doctor` show the same findings. It must never change what a site has:
// what it has to try, it tries with dry runs, but for Probe, which a person asks
// for by name.
package doctor
