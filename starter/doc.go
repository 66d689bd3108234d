// Package starter is the observer: it watches Pods, claims, slices, nodes and
// marks, joins what they say to readings of devices, and hands to the device
// workflows what is news to them, once.
//
// It owns what is known of the cluster's devices in memory (tracker) and the way
// of that knowledge to Temporal (queue). All of it can be lost: after a restart
// the levels are compared once, and a device that is not well costs at most one
// signal more.
//
// What it must never do:
//   - turn its own blindness into news: no event, no evidence
//   - replay edges after a start or a relist instead of comparing levels
//   - send anything about a device that is well and never was otherwise
//   - decide about a device; pkg/quarantine does
//   - guess which device an entry is about
//
// The way of a reading: informers.go receives the object, pods.go joins it and
// finds what changed, due.go says what is owed to the device's case, queue.go
// and sender.go deliver it. Several starters may run; leader.go lets one send.
package starter
