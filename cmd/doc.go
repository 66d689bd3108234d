// Package cmd is the command line: one file per subcommand, and what they share
// to reach Kubernetes and Temporal and to be watched themselves.
//
// It owns wiring and words, no decisions: what a fault means is settled in the
// packages that the commands start. It reads the environment only through
// pkg/config. It must never keep state of its own, and a command that shows
// something must never change something.
package cmd
