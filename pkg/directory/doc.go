// Package directory is the device directory: a read model in Redis of every
// device, healthy ones too, for dashboards, schedulers and command lines that
// should not have to scan the API server.
//
// It owns the keys in Redis and how they are written: an entry per device (a
// hash), index sets, and an append-only stream of transitions behind a snapshot.
// A device's entry, its indexes and its transitions are in one shard, whose keys
// share a hash tag, so that one Lua script writes them together, on a cluster
// too. Each field of an entry has one writer: `seen` the starter, `case` the
// device's workflow.
//
// What it must never be:
//   - a lock, or a source of a decision: all of it can be lost at any instant
//   - in the way of a mark: nobody waits for it, and its errors fail nothing else
//   - truth: cluster, marks and Temporal are, and it is rebuilt from them
//
// Everything in it is a level. A writer that missed anything, because Redis was
// away, empty, or came back with older data, compares levels and writes what
// differs (Writer, Reconcile); no edge is replayed.
package directory
