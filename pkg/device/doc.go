// Package device holds what Sickbay knows of a device without asking anyone:
// its key, the shapes in which the kubelet names it, its parents and children,
// the hardware behind the name (incarnation), single readings (observations)
// and what is believed of it now (evidence).
//
// The package is pure. It has no clock, does no I/O and imports the standard
// library only, so that the same code runs in the starter, in a workflow, in a
// property test and in a replay. It never guesses: an ID that doesn't lead to
// one device becomes an Unmapped fault.
//
// Sources: KEP-4680 (health in Pod status), KEP-4381 and KEP-4815 (DRA,
// partitionable devices), and what kubelets 1.36.3 and 1.37.2 were seen to write.
package device
