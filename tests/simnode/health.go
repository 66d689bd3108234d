package simnode

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// messageLimit is the API server's, for a health message (validation of
// allocatedResourcesStatus in 1.36.3).
const messageLimit = 1024

// Write is one status write of one Pod that the API server accepted.
type Write struct {
	Pod types.NamespacedName
	UID types.UID
	// ResourceVersion is the Pod's after the write.
	ResourceVersion string
	// Sent is the time just before the request went out and Accepted just after
	// the answer came.
	Sent, Accepted time.Time
}

// Set lets the driver report a device's health, and returns when the status of
// every Pod that holds the device is written; the kubelet takes 0.1 to 0.7 s.
// The message is truncated to the API's 1,024 bytes.
func (c *Cluster) Set(ctx context.Context, nodeName, deviceName string, health corev1.ResourceHealthStatus, message string) ([]Write, error) {
	n, p, d, err := c.device(nodeName, deviceName)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	switch {
	case p.gone || p.silent:
		err = fmt.Errorf("set the health of %s on node %s: its driver is gone or silent", deviceName, nodeName)
	case p.spec.NoHealthService:
		err = fmt.Errorf("set the health of %s on node %s: its driver has no health service", deviceName, nodeName)
	default:
		d.health, d.message = health, message[:min(len(message), messageLimit)]
	}
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return c.flushNode(ctx, n)
}

// Silence lets the drivers of a node say nothing any more: their devices become
// Unknown without a message, their slices stay (seen on kubelet 1.36.3 with a
// timeout of 30 s: Unknown after 79 s). A node that is to be silent from the
// start can be silenced before it has Pods.
func (c *Cluster) Silence(ctx context.Context, nodeName string) ([]Write, error) {
	return c.changePools(ctx, nodeName, func(p *pool) { p.silent = true })
}

// Speak ends a Silence; the drivers report what they reported before.
func (c *Cluster) Speak(ctx context.Context, nodeName string) ([]Write, error) {
	return c.changePools(ctx, nodeName, func(p *pool) { p.silent = false })
}

// DriverGone takes the drivers of a node away: health Unknown without a
// message, slices deleted (seen on kubelet 1.36.3: entry stale for up to 85 s,
// then Unknown; the kubelet deletes a lost driver's slices after 30 s). Pods
// that are deleted meanwhile hang in Terminating.
func (c *Cluster) DriverGone(ctx context.Context, nodeName string) ([]Write, error) {
	n, err := c.node(nodeName)
	if err != nil {
		return nil, err
	}
	writes, err := c.changePools(ctx, nodeName, func(p *pool) { p.gone = true })
	return writes, errors.Join(err, c.wipeSlices(ctx, n))
}

// DriverBack starts the drivers of a node anew: new slices from the first
// generation on, and every device Healthy, because a driver that restarts has
// forgotten what it knew (seen on kubelet 1.36.3).
func (c *Cluster) DriverBack(ctx context.Context, nodeName string) ([]Write, error) {
	n, err := c.node(nodeName)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	for _, p := range n.pools {
		p.gone, p.silent, p.generation = false, false, p.spec.Generation
		for _, d := range p.devices {
			d.message = ""
			d.health = corev1.ResourceHealthStatusHealthy
			if d.removed {
				d.health = corev1.ResourceHealthStatusUnknown
			}
		}
	}
	c.mu.Unlock()
	for _, p := range n.pools {
		if err := c.publish(ctx, n, p); err != nil {
			return nil, err
		}
	}
	writes, err := c.flushNode(ctx, n)
	c.enqueueNode(n) // Pods that waited for the driver
	return writes, err
}

// RestartKubelet restarts the kubelet of a node whose drivers and plugins do
// not come back by themselves: slices deleted and DRA health Unknown until
// DriverBack; device-plugin entries Healthy even if they were Unhealthy, and
// allocatable 0, until PluginBack (seen on kubelet 1.36.3).
func (c *Cluster) RestartKubelet(ctx context.Context, nodeName string) ([]Write, error) {
	n, err := c.node(nodeName)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	for _, p := range n.plugins {
		p.gone, p.forgotten = true, true
	}
	c.mu.Unlock()
	if err := c.writeNode(ctx, n); err != nil {
		return nil, err
	}
	return c.DriverGone(ctx, nodeName)
}

// Resync writes the status of every Pod of a node again with the same health in
// a new random order, as a kubelet's periodic sync may: resource versions move
// and nothing is said that was not said before.
func (c *Cluster) Resync(ctx context.Context, nodeName string) ([]Write, error) {
	n, err := c.node(nodeName)
	if err != nil {
		return nil, err
	}
	return c.flush(ctx, n, true)
}

// changePools changes every pool of a node and writes its Pods' status.
func (c *Cluster) changePools(ctx context.Context, nodeName string, change func(*pool)) ([]Write, error) {
	n, err := c.node(nodeName)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	for _, p := range n.pools {
		change(p)
	}
	c.mu.Unlock()
	return c.flushNode(ctx, n)
}

// flushNode writes the status of the node's Pods whose status changed.
func (c *Cluster) flushNode(ctx context.Context, n *node) ([]Write, error) {
	return c.flush(ctx, n, false)
}

func (c *Cluster) flush(ctx context.Context, n *node, always bool) ([]Write, error) {
	c.mu.Lock()
	var onNode []*pod
	for _, p := range c.pods {
		if p.node == n {
			onNode = append(onNode, p)
		}
	}
	c.mu.Unlock()
	var (
		mu     sync.Mutex
		writes []Write
	)
	err := each(ctx, onNode, podWorkers, func(ctx context.Context, p *pod) error {
		written, err := c.writePod(ctx, p, always)
		if written != nil {
			mu.Lock()
			defer mu.Unlock()
			writes = append(writes, *written)
		}
		return err
	})
	return writes, err
}

// healthOf is what the kubelet knows of a DRA device: Unknown without a message
// of one that no simulated driver reports (kubelet 1.36.3, healthinfo.go:
// getHealthInfo). The caller holds Cluster.mu.
func (n *node) healthOf(driver, poolName, deviceName string) (corev1.ResourceHealthStatus, string) {
	for _, p := range n.pools {
		if p.spec.Driver != driver || p.spec.Name != poolName {
			continue
		}
		if d := p.find(deviceName); d != nil && !p.gone && !p.silent && !p.spec.NoHealthService {
			return d.health, d.message
		}
	}
	return corev1.ResourceHealthStatusUnknown, ""
}

// driverHere says whether the driver of a pool is there. Without it the kubelet
// can neither prepare nor unprepare a claim. The caller holds Cluster.mu.
func (n *node) driverHere(driver, poolName string) bool {
	for _, p := range n.pools {
		if p.spec.Driver == driver && p.spec.Name == poolName {
			return !p.gone
		}
	}
	return true // another driver's business
}
