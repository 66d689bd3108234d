// Package telemetry is what Sickbay tells about itself: the definition of every
// metric, the trace of every epoch, and how both leave the process.
//
// A metric is defined here and nowhere else: name, kind, labels with what they can
// hold, and help text. Its collector and its row in docs/metrics.md are made from
// that. No label holds a device, a Pod or a node, so that the number of series
// doesn't grow with the fleet.
//
// A trace is one epoch of a device: it begins when the starter sees a Pod's status
// change, and goes on through the signal, the decisions of the workflow and its
// activities to the calls of the Kubernetes API. What happens long after that has
// traces of its own, which are linked to it.
//
// The package must never decide anything, and nothing waits for what it exports:
// with a collector that is away, spans are lost and cases go on.
package telemetry
