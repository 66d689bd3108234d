package simnode

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Plugin describes a device plugin: the devices of one extended resource.
type Plugin struct {
	Resource corev1.ResourceName
	IDs      []string
}

// plugin is a Plugin and what became of it; guarded by Cluster.mu.
type plugin struct {
	spec   Plugin
	health map[string]corev1.ResourceHealthStatus // of the IDs it lists
	frozen map[string]corev1.ResourceHealthStatus // of all IDs, at the end
	owners map[string]*pod                        // ID to the Pod that has it

	gone bool // disconnected
	// forgotten: the kubelet restarted since and knows nothing of the IDs.
	forgotten bool
}

func newPlugin(spec Plugin) *plugin {
	p := &plugin{
		spec:   spec,
		health: map[string]corev1.ResourceHealthStatus{},
		frozen: map[string]corev1.ResourceHealthStatus{},
		owners: map[string]*pod{},
	}
	for _, id := range spec.IDs {
		p.health[id] = corev1.ResourceHealthStatusHealthy
	}
	return p
}

// count adds the plugin's devices to a node's resources. Capacity counts what
// is listed and allocatable what of it is healthy; of a plugin that is gone
// capacity stays, for 5 minutes, and allocatable is 0 (seen on kubelet 1.36.3, node
// status after the plugin disconnected: capacity 2, allocatable 0). A kubelet that
// restarted lists nothing until the plugin registers (cm/devicemanager:
// readCheckpoint, GetCapacity).
func (p *plugin) count(capacity, allocatable corev1.ResourceList) {
	healthy, listed := 0, len(p.health)
	if p.forgotten {
		listed = 0
	}
	for _, health := range p.health {
		if health == corev1.ResourceHealthStatusHealthy && !p.gone {
			healthy++
		}
	}
	capacity[p.spec.Resource] = *resource.NewQuantity(int64(listed), resource.DecimalSI)
	allocatable[p.spec.Resource] = *resource.NewQuantity(int64(healthy), resource.DecimalSI)
}

// healthOf is what the kubelet writes for an ID. It has no message. A device
// that is not listed is Healthy (kubelet 1.36.3,
// pkg/kubelet/cm/devicemanager/manager.go: UpdateAllocatedResourcesStatus;
// seen: an ID that leaves the list turns Healthy), and so is everything after a
// restart of the kubelet until the plugin registers again.
func (p *plugin) healthOf(id string) corev1.ResourceHealthStatus {
	if p.forgotten {
		return corev1.ResourceHealthStatusHealthy
	}
	known := p.health
	if p.gone {
		known = p.frozen
	}
	if health, listed := known[id]; listed {
		return health
	}
	return corev1.ResourceHealthStatusHealthy
}

// take gives a Pod a number of free, healthy IDs, or none if there are too few.
func (p *plugin) take(owner *pod, count int) []string {
	if p.gone {
		return nil
	}
	var ids []string
	for _, id := range p.spec.IDs {
		if len(ids) < count && p.owners[id] == nil && p.health[id] == corev1.ResourceHealthStatusHealthy {
			ids = append(ids, id)
		}
	}
	if len(ids) < count {
		return nil
	}
	for _, id := range ids {
		p.owners[id] = owner
	}
	return ids
}

func (p *plugin) giveBack(owner *pod) {
	for id, has := range p.owners {
		if has == owner {
			delete(p.owners, id)
		}
	}
}

// SetPlugin lets a device plugin report an ID's health. Allocatable drops or
// rises by one with it.
func (c *Cluster) SetPlugin(ctx context.Context, nodeName string, name corev1.ResourceName, id string, health corev1.ResourceHealthStatus) ([]Write, error) {
	return c.changePlugin(ctx, nodeName, name, func(p *plugin) error {
		if _, listed := p.health[id]; !listed || p.gone {
			return fmt.Errorf("set the health of %s %q on node %s: the plugin does not list it", name, id, nodeName)
		}
		if health == corev1.ResourceHealthStatusUnknown {
			return fmt.Errorf("set the health of %s %q on node %s: a device plugin says Healthy or Unhealthy only", name, id, nodeName)
		}
		p.health[id] = health
		return nil
	})
}

// RemovePluginDevice takes an ID out of the plugin's list: its entry turns
// Healthy, capacity and allocatable drop.
func (c *Cluster) RemovePluginDevice(ctx context.Context, nodeName string, name corev1.ResourceName, id string) ([]Write, error) {
	return c.changePlugin(ctx, nodeName, name, func(p *plugin) error {
		delete(p.health, id)
		return nil
	})
}

// PluginGone disconnects a device plugin: entries freeze, allocatable is 0
// (seen on kubelet 1.36.3: entry unchanged for 7.5 minutes, allocatable 0 after
// 10 s).
func (c *Cluster) PluginGone(ctx context.Context, nodeName string, name corev1.ResourceName) ([]Write, error) {
	return c.changePlugin(ctx, nodeName, name, func(p *plugin) error {
		for _, id := range p.spec.IDs {
			p.frozen[id] = p.healthOf(id)
		}
		p.gone = true
		return nil
	})
}

// PluginBack registers a device plugin again, with every ID of its description
// and all Healthy.
func (c *Cluster) PluginBack(ctx context.Context, nodeName string, name corev1.ResourceName) ([]Write, error) {
	return c.changePlugin(ctx, nodeName, name, func(p *plugin) error {
		p.gone, p.forgotten = false, false
		for _, id := range p.spec.IDs {
			p.health[id] = corev1.ResourceHealthStatusHealthy
		}
		return nil
	})
}

// changePlugin changes a plugin, and writes the node's and its Pods' status.
func (c *Cluster) changePlugin(ctx context.Context, nodeName string, name corev1.ResourceName, change func(*plugin) error) ([]Write, error) {
	n, err := c.node(nodeName)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	p := n.plugin(name)
	if p == nil {
		err = fmt.Errorf("node %s has no device plugin for %s", nodeName, name)
	} else {
		err = change(p)
	}
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	writes, err := c.flushNode(ctx, n)
	if err != nil {
		return writes, err
	}
	return writes, c.writeNode(ctx, n)
}

func (n *node) plugin(name corev1.ResourceName) *plugin {
	for _, p := range n.plugins {
		if p.spec.Resource == name {
			return p
		}
	}
	return nil
}
