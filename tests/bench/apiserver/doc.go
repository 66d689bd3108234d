// Package apiserver is an API server that serves a generated fleet: for benches of
// more nodes than a real control plane can be filled with on one machine.
//
//	server, err := apiserver.Start(apiserver.Fleet{Nodes: 10_000, DevicesPerNode: 8})
//
// It owns what of the Kubernetes API a client of a large cluster notices: protobuf
// and JSON, lists in pages, watches from a resourceVersion, streaming lists with
// their bookmarks, gzip, HTTP/2 over TLS; and the writes that kubelets make all the
// time and that say nothing new. The objects are those of package simnode with what
// an API server adds to them; a test compares them with those of a real one.
//
// It must never be what a test of correctness rests on: it validates nothing, knows
// no rights and no conflicts but of Leases, and keeps everything in memory. What
// Sickbay does is shown on the real control plane; here it is only counted.
package apiserver
