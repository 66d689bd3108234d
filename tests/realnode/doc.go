// Package realnode joins one real node to a running stack: containerd with CDI,
// runc, CNI and a kubelet of the chosen version, and on it the fake DRA drivers
// and device plugins as processes of their own.
//
//	s := stack.Start(t, stack.Options{Kubernetes: "1.37"})
//	n := realnode.Start(t, s, realnode.Options{})
//	d, err := n.StartDriver(ctx, fakedriver.Defaults(fakedriver.Nasty))
//
// It owns the node's directory, its bridge, its address and those of Services on
// the loopback interface, its cgroup and its mounts, and leaves none of them behind; what a
// killed test left is removed by the next start. There is one such node on a
// machine at a time, because a kubelet's device plugin directory is a fixed
// path: a second start waits for the first to stop.
//
// It must never run beside another kubelet on the machine, never touch a
// container, mount or process that is not below its own directory, and never
// write what a kubelet or a driver writes.
//
// It needs root, runc, the CNI plugins bridge, host-local and loopback, and ip;
// what is missing is installed with apt where that is there.
package realnode
