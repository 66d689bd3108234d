// Package simnode simulates nodes with accelerators on a real control plane,
// for tests that need more nodes than a machine can run kubelets.
//
//	nodes := simnode.Start(t, s.SimulatorConfig(), simnode.Options{})
//	nodes.Add(t.Context(), simnode.MakeNodes("node", 3, 8)...)
//	nodes.Set(t.Context(), "node-0", "gpu-3", corev1.ResourceHealthUnhealthy, "Xid 79")
//
// It owns its Node objects, their Leases in kube-node-lease, the ResourceSlices
// of a simulated DRA driver, the resources of simulated device plugins, and the
// status of the Pods that are bound to its nodes. Scheduling, claims, taints,
// eviction and node lifecycle are the real components' work.
//
// Everything it writes has the shape in which a kubelet writes it; the source
// stands beside each behaviour, as "kubelet 1.36.3 (file)" where the code says
// so and as "seen on kubelet 1.36.3" where it was watched. What takes a kubelet
// seconds or minutes (a silent driver becomes Unknown after its timeout and the
// next sync of the Pod, 79 s seen) happens here at the call.
//
// It must never write anything that a kubelet or a driver does not write: no
// claim status, no taints on Nodes, no DeviceTaintRules. The one exception is
// Place, which does the scheduler's part for benches and says so.
package simnode
