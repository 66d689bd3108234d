package simnode

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// slicePrefixLimit keeps generated slice names within 253 characters.
const slicePrefixLimit = 200

// CDI says what a driver returns as CDI device IDs, the first of which becomes
// the resourceID of the device's health entry (kubelet 1.36.3,
// pkg/kubelet/cm/dra/manager.go: buildResourceHealth).
type CDI int

const (
	// CDINone: no IDs; the entry has "driver/pool/device".
	CDINone CDI = iota
	// CDIDevice: "<driver>/gpu=<device>" (seen on kubelet 1.36.3 and 1.37.2).
	CDIDevice
	// CDIClaim: "k8s.<driver>/claim=<claim UID>-<device>", which names a claim
	// and not a device, as NVIDIA's driver does.
	CDIClaim
	// CDIShared: one ID "k8s.<driver>/claim=<claim UID>" for all devices of a
	// claim; the kubelet then shows the first device's health only (kubelet
	// 1.36.3, manager.go: seenResourceIDs).
	CDIShared
)

// Pool describes the devices of one driver on one node.
type Pool struct {
	Driver string // default Options.Driver
	Name   string // default the node's name; may contain slashes
	// Generation of the first publication. Default 1.
	Generation int64
	Devices    []Device
	// Counters are shared by devices that consume them; they get a slice of
	// their own, as the API demands.
	Counters []resourceapi.CounterSet
	// Slices is over how many slices the devices are spread. Default 1.
	Slices int
	CDI    CDI
	// NoHealthService: the driver never reports health, so every entry is
	// Unknown without a message for ever.
	NoHealthService bool
}

// Device describes one device of a pool.
type Device struct {
	Name string
	// UUID is the attribute "uuid". Default: made from node and name.
	UUID string
	// PCIBusID is the attribute "resource.kubernetes.io/pciBusID". Default:
	// made from the device's place in the pool.
	PCIBusID string
	// Attributes are added to those two.
	Attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
	Capacity   map[resourceapi.QualifiedName]resourceapi.DeviceCapacity
	Consumes   []resourceapi.DeviceCounterConsumption
	// Taints are the driver's own.
	Taints []resourceapi.DeviceTaint
	// Shared lets several claims allocate the device at once.
	Shared bool
}

// MakeDevices makes "gpu-0" ….
func MakeDevices(count int) []Device {
	devices := make([]Device, count)
	for i := range devices {
		devices[i] = Device{Name: fmt.Sprintf("gpu-%d", i)}
	}
	return devices
}

// Partition makes a card that can be had whole, as device "<card>", or as
// count equal parts "<card>-part-0" …, out of one set of shared counters: the
// whole and any part exclude each other, as MIG does. Each part has the card's
// name in the attribute "parent".
func Partition(card string, count int) ([]Device, resourceapi.CounterSet) {
	const slicesCounter = "slices"
	set := resourceapi.CounterSet{
		Name:     card + "-counters",
		Counters: map[string]resourceapi.Counter{slicesCounter: {Value: *resource.NewQuantity(int64(count), resource.DecimalSI)}},
	}
	consume := func(n int) []resourceapi.DeviceCounterConsumption {
		return []resourceapi.DeviceCounterConsumption{{
			CounterSet: set.Name,
			Counters:   map[string]resourceapi.Counter{slicesCounter: {Value: *resource.NewQuantity(int64(n), resource.DecimalSI)}},
		}}
	}
	devices := []Device{{Name: card, Consumes: consume(count)}}
	for i := range count {
		devices = append(devices, Device{
			Name: fmt.Sprintf("%s-part-%d", card, i), Consumes: consume(1),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"parent": {StringValue: &card}},
		})
	}
	return devices, set
}

// pool is a Pool and what became of it; its fields are guarded by Cluster.mu.
type pool struct {
	spec       Pool
	generation int64
	devices    []*device
	published  []*resourceapi.ResourceSlice

	gone   bool // the driver is away
	silent bool // the driver is there and says nothing
}

// device is a Device and what its driver says of it.
type device struct {
	spec    Device
	health  corev1.ResourceHealthStatus
	message string
	removed bool // no longer published; Pods may still hold it
}

func newPool(spec Pool, node, driver string) *pool {
	if spec.Driver == "" {
		spec.Driver = driver
	}
	if spec.Name == "" {
		spec.Name = node
	}
	if spec.Generation == 0 {
		spec.Generation = 1
	}
	if spec.Slices == 0 {
		spec.Slices = 1
	}
	p := &pool{spec: spec, generation: spec.Generation}
	for i, d := range spec.Devices {
		if d.UUID == "" {
			d.UUID = uuidFor(node, d.Name, 0)
		}
		if d.PCIBusID == "" {
			d.PCIBusID = fmt.Sprintf("0000:%02x:00.0", i%255+1)
		}
		p.devices = append(p.devices, &device{spec: d, health: corev1.ResourceHealthStatusHealthy})
	}
	return p
}

// uuidFor makes the UUID of the nth card behind a device name.
func uuidFor(node, name string, nth int) string {
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%s/%s/%d", node, name, nth)
	sum := hash.Sum64()
	return fmt.Sprintf("GPU-%08x-%04x-4%03x-8000-%012x", sum>>32, sum>>16&0xffff, sum&0xfff, sum&0xffffffffffff)
}

// find is the device of that name, published or not.
func (p *pool) find(name string) *device {
	for _, d := range p.devices {
		if d.spec.Name == name {
			return d
		}
	}
	return nil
}

// slices renders the pool as its driver would publish it. The counters come
// first: a slice has either counters or devices.
func (p *pool) slices(n *node) []*resourceapi.ResourceSlice {
	var all []resourceapi.ResourceSliceSpec
	if len(p.spec.Counters) > 0 {
		all = append(all, resourceapi.ResourceSliceSpec{SharedCounters: p.spec.Counters})
	}
	var devices []resourceapi.Device
	for _, d := range p.devices {
		if !d.removed {
			devices = append(devices, d.render())
		}
	}
	for i := range p.spec.Slices {
		from, to := i*len(devices)/p.spec.Slices, (i+1)*len(devices)/p.spec.Slices
		all = append(all, resourceapi.ResourceSliceSpec{Devices: devices[from:to]})
	}
	prefix := strings.NewReplacer("/", "-", "_", "-").Replace(p.spec.Driver + "-" + p.spec.Name)
	prefix = prefix[:min(len(prefix), slicePrefixLimit)]
	var rendered []*resourceapi.ResourceSlice
	for i, spec := range all {
		spec.Driver = p.spec.Driver
		spec.NodeName = &n.spec.Name
		spec.Pool = resourceapi.ResourcePool{Name: p.spec.Name, Generation: p.generation, ResourceSliceCount: int64(len(all))}
		rendered = append(rendered, &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{
				GenerateName:    fmt.Sprintf("%05d-%s-", i, prefix),
				OwnerReferences: []metav1.OwnerReference{n.owner()},
			},
			Spec: spec,
		})
	}
	return rendered
}

func (d *device) render() resourceapi.Device {
	attributes := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"uuid":                            {StringValue: &d.spec.UUID},
		"resource.kubernetes.io/pciBusID": {StringValue: &d.spec.PCIBusID},
	}
	for name, value := range d.spec.Attributes {
		attributes[name] = value
	}
	rendered := resourceapi.Device{
		Name: d.spec.Name, Attributes: attributes, Capacity: d.spec.Capacity,
		ConsumesCounters: d.spec.Consumes, Taints: d.spec.Taints,
	}
	if d.spec.Shared {
		rendered.AllowMultipleAllocations = &d.spec.Shared
	}
	return rendered
}

// publish brings the slices in the API server to what the pool is now: existing
// ones are updated in place, missing ones created, surplus ones deleted, as the
// drivers' library does (k8s.io/dynamic-resource-allocation resourceslice).
func (c *Cluster) publish(ctx context.Context, n *node, p *pool) error {
	c.mu.Lock()
	wanted := p.slices(n)
	have := slices.Clone(p.published)
	c.mu.Unlock()
	api := c.client.ResourceV1().ResourceSlices()
	var published []*resourceapi.ResourceSlice
	var failure error
	for i, slice := range wanted {
		var written *resourceapi.ResourceSlice
		if i < len(have) {
			update := have[i].DeepCopy()
			update.Spec = slice.Spec
			written, failure = api.Update(ctx, update, metav1.UpdateOptions{})
			if apierrors.IsNotFound(failure) || apierrors.IsConflict(failure) {
				written, failure = api.Create(ctx, slice, metav1.CreateOptions{})
			}
		} else {
			written, failure = api.Create(ctx, slice, metav1.CreateOptions{})
		}
		if failure != nil {
			break
		}
		published = append(published, written)
	}
	for i := len(wanted); i < len(have) && failure == nil; i++ {
		failure = ignoreNotFound(api.Delete(ctx, have[i].Name, metav1.DeleteOptions{}))
	}
	c.mu.Lock()
	p.published = published
	c.mu.Unlock()
	if failure != nil {
		return fmt.Errorf("publish pool %s of driver %s: %w", p.spec.Name, p.spec.Driver, failure)
	}
	return nil
}

// wipeSlices deletes all slices of a node, whoever made them.
func (c *Cluster) wipeSlices(ctx context.Context, n *node) error {
	c.mu.Lock()
	for _, p := range n.pools {
		p.published = nil
	}
	c.mu.Unlock()
	err := c.client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{
		FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + n.spec.Name,
	})
	if err != nil {
		return fmt.Errorf("delete the slices of node %s: %w", n.spec.Name, err)
	}
	return nil
}

// DropSlice deletes one slice of a pool and leaves the others: the pool is
// incomplete until its driver publishes again (Republish). The pool is named
// "pool" or "driver/pool"; index counts the slices as published.
func (c *Cluster) DropSlice(ctx context.Context, nodeName, poolName string, index int) error {
	n, err := c.node(nodeName)
	if err != nil {
		return err
	}
	p, err := n.pool(poolName)
	if err != nil {
		return err
	}
	c.mu.Lock()
	published := slices.Clone(p.published)
	c.mu.Unlock()
	if index >= len(published) {
		return fmt.Errorf("pool %s of node %s has %d slices, none with index %d", poolName, nodeName, len(published), index)
	}
	return c.client.ResourceV1().ResourceSlices().Delete(ctx, published[index].Name, metav1.DeleteOptions{})
}

// Republish publishes every pool of a node again at a new generation.
func (c *Cluster) Republish(ctx context.Context, nodeName string) error {
	n, err := c.node(nodeName)
	if err != nil {
		return err
	}
	for _, p := range n.pools {
		c.mu.Lock()
		p.generation++
		c.mu.Unlock()
		if err := c.publish(ctx, n, p); err != nil {
			return err
		}
	}
	return nil
}

// RemoveDevice takes a device out of its pool, at a new generation. Pods that
// hold it go on; as the driver reports it no more, its health entry times out
// to Unknown (kubelet 1.36.3, pkg/kubelet/cm/dra/healthinfo.go: phase 2 of
// updateHealthInfo).
func (c *Cluster) RemoveDevice(ctx context.Context, nodeName, deviceName string) ([]Write, error) {
	return c.changeDevice(ctx, nodeName, deviceName, func(p *pool, d *device) {
		d.removed = true
		d.health, d.message = corev1.ResourceHealthStatusUnknown, ""
		p.generation++
	})
}

// ReturnDevice puts a removed device back, at a new generation and Healthy: the
// same incarnation.
func (c *Cluster) ReturnDevice(ctx context.Context, nodeName, deviceName string) ([]Write, error) {
	return c.changeDevice(ctx, nodeName, deviceName, func(p *pool, d *device) {
		d.removed = false
		d.health, d.message = corev1.ResourceHealthStatusHealthy, ""
		p.generation++
	})
}

// SwapDevice puts another card behind a device name: same name, new UUID,
// Healthy. A pool in one slice keeps its generation, as the drivers' library
// does for an edit of a single slice; a pool in several gets a new one.
func (c *Cluster) SwapDevice(ctx context.Context, nodeName, deviceName, uuid string) ([]Write, error) {
	return c.changeDevice(ctx, nodeName, deviceName, func(p *pool, d *device) {
		d.spec.UUID, d.removed = uuid, false
		d.health, d.message = corev1.ResourceHealthStatusHealthy, ""
		if p.spec.Slices > 1 {
			p.generation++
		}
	})
}

// SetDriverTaints replaces the taints that the driver itself publishes for a
// device. The generation stays: taints never move it.
func (c *Cluster) SetDriverTaints(ctx context.Context, nodeName, deviceName string, taints ...resourceapi.DeviceTaint) error {
	_, err := c.changeDevice(ctx, nodeName, deviceName, func(_ *pool, d *device) { d.spec.Taints = taints })
	return err
}

// changeDevice changes a device, publishes its pool and writes the status of
// the Pods that hold it.
func (c *Cluster) changeDevice(ctx context.Context, nodeName, deviceName string, change func(*pool, *device)) ([]Write, error) {
	n, p, d, err := c.device(nodeName, deviceName)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if p.gone {
		c.mu.Unlock()
		return nil, fmt.Errorf("device %s of node %s: its driver is gone; DriverBack brings it back", deviceName, nodeName)
	}
	change(p, d)
	c.mu.Unlock()
	if err := c.publish(ctx, n, p); err != nil {
		return nil, err
	}
	return c.flushNode(ctx, n)
}

// device finds a DRA device by "device", "pool/device" or "driver/pool/device".
func (c *Cluster) device(nodeName, deviceName string) (*node, *pool, *device, error) {
	n, err := c.node(nodeName)
	if err != nil {
		return nil, nil, nil, err
	}
	var inPool *pool
	var found *device
	for _, p := range n.pools {
		for _, d := range p.devices {
			short := d.spec.Name
			if deviceName != short && deviceName != p.spec.Name+"/"+short && deviceName != p.spec.Driver+"/"+p.spec.Name+"/"+short {
				continue
			}
			if found != nil {
				return nil, nil, nil, fmt.Errorf("node %s has several devices %q: say driver/pool/device", nodeName, deviceName)
			}
			inPool, found = p, d
		}
	}
	if found == nil {
		return nil, nil, nil, fmt.Errorf("node %s has no device %q", nodeName, deviceName)
	}
	return n, inPool, found, nil
}

// pool finds a pool by "pool" or "driver/pool".
func (n *node) pool(name string) (*pool, error) {
	for _, p := range n.pools {
		if name == p.spec.Name || name == p.spec.Driver+"/"+p.spec.Name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("node %s has no pool %q", n.spec.Name, name)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
