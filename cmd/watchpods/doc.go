// Package watchpods knows what a set-up of watch Pods looks like, for one DRA driver:
// where there must be none, what it is made of, and what a running one covers.
//
// A watch Pod's claim has admin access to all devices of a driver on its node, so that
// the kubelet reports the health of those too that nobody holds. It must never cost a
// tenant anything: what would is refused here. The package changes nothing in a cluster.
package watchpods
