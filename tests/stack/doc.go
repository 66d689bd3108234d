// Package stack starts the real parts that Sickbay lives among, for tests and
// by hand: etcd, kube-apiserver, kube-scheduler and kube-controller-manager of
// a chosen Kubernetes version, the Temporal server with its UI, and Redis.
//
//	s := stack.Start(t, stack.Options{Kubernetes: "1.36", Temporal: true})
//	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
//
// The package owns the binaries (built once from the Go modules under
// tests/parts and cached outside the clone), the ports, the certificates, the
// data directory and every process that it starts. Nothing it started outlives
// it: not after Stop, not after a failed test, not after kill -9 of the test.
//
// It must never listen on anything but the loopback address, never touch a
// cluster or a kubeconfig that it did not make, and never stand in for a part
// with something simpler. Nodes are somebody else's: package simnode simulates
// many, package realnode runs one kubelet, both on top of a Stack.
//
// Linux only: the guarantee about processes rests on prctl(PR_SET_PDEATHSIG).
package stack
