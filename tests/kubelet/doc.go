// Package kubelet holds the tests that need a real kubelet: what kubelets of
// each version write into a Pod's status when drivers and plugins fail, and
// Sickbay's main job on top of it. They need root and are skipped without it;
// `make kubelet` runs them.
//
// For each version one stack and one node are started and shared by all tests
// of that version, one after the other; see suite. A test makes its own driver
// or plugin under a name of its own and takes it away again.
//
// The package is test code only. It must never assert on what our own fakes say
// of themselves where the kubelet or the API server can be asked.
package kubelet
