package simnode

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Node describes a simulated node.
type Node struct {
	Name   string
	Labels map[string]string
	// Capacity is the node's own; device plugins add theirs. Default 64 CPUs,
	// 512 GiB and 250 Pods.
	Capacity corev1.ResourceList
	// DeclaredFeatures go to status.declaredFeatures. 1.37 wants
	// "DRANodeAllocatableResources" there before it admits slices that use it.
	DeclaredFeatures []string
	// Pools are the node-local pools of DRA drivers.
	Pools []Pool
	// Plugins are device plugins.
	Plugins []Plugin
}

// node is a Node and what became of it.
type node struct {
	spec    Node
	uid     types.UID
	address string
	pools   []*pool
	plugins []*plugin

	out     bool // no heartbeats, no status writes: a node outage
	deleted bool
	ready   corev1.NodeCondition // the Ready condition it posts

	renewing sync.Mutex // one renewal at a time; taken before Cluster.mu
	lease    *coordinationv1.Lease
	beats    int // renewals so far, under renewing
}

// MakeNodes makes count nodes "<prefix>-0" … with one pool each of devices
// "gpu-0" ….
func MakeNodes(prefix string, count, devices int) []Node {
	nodes := make([]Node, count)
	for i := range nodes {
		nodes[i] = MakeNode(fmt.Sprintf("%s-%d", prefix, i), devices)
	}
	return nodes
}

// MakeNode makes a node with one pool of devices "gpu-0" ….
func MakeNode(name string, devices int) Node {
	return Node{Name: name, Pools: []Pool{{Devices: MakeDevices(devices)}}}
}

// Add registers nodes, publishes their slices and starts their heartbeats. It
// returns when the API server has everything; the scheduler uses a node a
// moment later, once the control plane took the not-ready taint off.
func (c *Cluster) Add(ctx context.Context, nodes ...Node) error {
	return each(ctx, nodes, nodeWorkers, c.add)
}

func (c *Cluster) add(ctx context.Context, spec Node) error {
	n := newNode(spec, c.opts.Driver)
	c.mu.Lock()
	if c.nodes[spec.Name] != nil {
		c.mu.Unlock()
		return fmt.Errorf("add node %s: there is one of that name; delete it first", spec.Name)
	}
	n.address = c.nextAddress("10.200")
	c.nodes[spec.Name] = n
	c.mu.Unlock()

	if err := c.register(ctx, n); err != nil {
		c.mu.Lock()
		delete(c.nodes, spec.Name)
		c.mu.Unlock()
		return fmt.Errorf("add node %s: %w", spec.Name, err)
	}
	return nil
}

// newNode is a node that nothing was written of yet.
func newNode(spec Node, driver string) *node {
	if spec.Capacity == nil {
		spec.Capacity = corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("64"),
			corev1.ResourceMemory: resource.MustParse("512Gi"),
			corev1.ResourcePods:   resource.MustParse("250"),
		}
	}
	n := &node{spec: spec, ready: readyCondition(true, "KubeletReady", "kubelet is posting ready status")}
	for i := range spec.Pools {
		n.pools = append(n.pools, newPool(spec.Pools[i], spec.Name, driver))
	}
	for i := range spec.Plugins {
		n.plugins = append(n.plugins, newPlugin(spec.Plugins[i]))
	}
	return n
}

// object is the Node as its kubelet creates it, without a status.
func (n *node) object() *corev1.Node {
	labels := map[string]string{
		corev1.LabelHostname: n.spec.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
	}
	maps.Copy(labels, n.spec.Labels)
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.spec.Name, Labels: labels}}
}

// register does what a starting kubelet and its drivers do. The kubelet deletes
// whatever slices the node still has when it starts (kubelet 1.36.3,
// pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go: wipeResourceSlices).
func (c *Cluster) register(ctx context.Context, n *node) error {
	created, err := c.client.CoreV1().Nodes().Create(ctx, n.object(), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	c.mu.Lock()
	n.uid = created.UID
	c.mu.Unlock()
	if err := c.writeNode(ctx, n); err != nil {
		return err
	}
	c.beat(ctx, n)
	if err := c.wipeSlices(ctx, n); err != nil {
		return err
	}
	for _, p := range n.pools {
		if err := c.publish(ctx, n, p); err != nil {
			return err
		}
	}
	c.heartbeats.add(n)
	c.enqueueNode(n)
	return nil
}

// Delete deletes the Node object and ends the node. Its Lease and slices go by
// garbage collection and its Pods by the Pod garbage collector, in their time.
// Add may then make a node of the same name: another Node, by its UID.
func (c *Cluster) Delete(ctx context.Context, name string) error {
	n, err := c.node(name)
	if err != nil {
		return err
	}
	c.heartbeats.remove(n)
	c.mu.Lock()
	n.deleted = true
	delete(c.nodes, name)
	c.mu.Unlock()
	if err := c.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete node %s: %w", name, err)
	}
	return nil
}

// Outage ends a node's heartbeats and status writes, as a power cut or a cut
// network does. After 50 s the control plane makes the node's Ready condition
// Unknown; health entries stay as they were (seen on kubelet 1.36.3 and 1.37.2:
// kubelet killed, Ready Unknown after 44 s, entries unchanged).
func (c *Cluster) Outage(name string) error {
	n, err := c.node(name)
	if err != nil {
		return err
	}
	// Not in the middle of a renewal: after this returns none arrives.
	n.renewing.Lock()
	defer n.renewing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	n.out = true
	return nil
}

// Recover ends an Outage: the node posts its status and Lease at once and
// catches up with its Pods.
func (c *Cluster) Recover(ctx context.Context, name string) error {
	n, err := c.node(name)
	if err != nil {
		return err
	}
	c.mu.Lock()
	n.out = false
	c.mu.Unlock()
	c.beat(ctx, n)
	if err := c.writeNode(ctx, n); err != nil {
		return err
	}
	c.enqueueNode(n)
	return nil
}

// SetReady makes a node that is alive post its Ready condition as True or, with
// a reason and message, as False.
func (c *Cluster) SetReady(ctx context.Context, name string, ready bool, reason, message string) error {
	n, err := c.node(name)
	if err != nil {
		return err
	}
	c.mu.Lock()
	n.ready = readyCondition(ready, reason, message)
	c.mu.Unlock()
	return c.writeNode(ctx, n)
}

// writeNode posts the node's status: conditions, capacity, allocatable.
func (c *Cluster) writeNode(ctx context.Context, n *node) error {
	c.mu.Lock()
	status := n.status(c.version)
	c.mu.Unlock()
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().Nodes().Patch(ctx, n.spec.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("write the status of node %s: %w", n.spec.Name, err)
	}
	return nil
}

// status is the node's status now. The caller holds Cluster.mu.
func (n *node) status(version string) corev1.NodeStatus {
	now := metav1.Now()
	conditions := []corev1.NodeCondition{n.ready}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		conditions = append(conditions, corev1.NodeCondition{
			Type: kind, Status: corev1.ConditionFalse, Reason: "KubeletHasNo" + string(kind), LastTransitionTime: n.ready.LastTransitionTime,
		})
	}
	for i := range conditions {
		conditions[i].LastHeartbeatTime = now
	}
	capacity, allocatable := n.spec.Capacity.DeepCopy(), n.spec.Capacity.DeepCopy()
	for _, p := range n.plugins {
		p.count(capacity, allocatable)
	}
	return corev1.NodeStatus{
		Capacity: capacity, Allocatable: allocatable, Conditions: conditions,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: n.address}, {Type: corev1.NodeHostName, Address: n.spec.Name},
		},
		NodeInfo: corev1.NodeSystemInfo{
			KubeletVersion: version, ContainerRuntimeVersion: "simnode://1", OperatingSystem: "linux", Architecture: "amd64",
		},
		DeclaredFeatures: n.spec.DeclaredFeatures,
	}
}

func readyCondition(ready bool, reason, message string) corev1.NodeCondition {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return corev1.NodeCondition{
		Type: corev1.NodeReady, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(time.Now()),
	}
}

// owner is the reference that makes an object go with its node.
func (n *node) owner() metav1.OwnerReference {
	controller := true
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: n.spec.Name, UID: n.uid, Controller: &controller}
}

func (c *Cluster) node(name string) (*node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nodes[name]
	if n == nil {
		return nil, fmt.Errorf("no simulated node %q", name)
	}
	return n, nil
}

// Nodes are the names of the simulated nodes, sorted.
func (c *Cluster) Nodes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.nodes))
}

// nextAddress counts through a /16. The caller holds Cluster.mu.
func (c *Cluster) nextAddress(prefix string) string {
	c.names++
	return fmt.Sprintf("%s.%d.%d", prefix, c.names/250%250, c.names%250+1)
}
