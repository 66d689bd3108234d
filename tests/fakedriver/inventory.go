package fakedriver

// This file is about the devices themselves: what is plugged in, how it is
// named, and what a removal, an addition and a swap do to it. It is pure.

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

const (
	maxDevices     = 64 // devices in one slice with taints (resource/v1 types.go)
	maxPartitions  = 7  // of the largest MIG layout
	maxPartitioned = 8  // counter sets in one slice
)

// Health is what the driver says about one device.
type Health struct {
	// Status is Healthy, Unhealthy or Unknown.
	Status kubeletplugin.HealthStatus `json:"status"`
	// Message is shown in the Pod's status; the kubelet cuts it at 1024 characters.
	Message string `json:"message,omitempty"`
	// Timeout is the health check timeout, in whole seconds on the wire; zero
	// leaves it to the kubelet (30 s).
	Timeout time.Duration `json:"timeout,omitempty"`
}

// Device is one device as the driver sees it.
type Device struct {
	Name     string `json:"name"`
	UUID     string `json:"uuid"`
	PCIBusID string `json:"pciBusID"`
	// Parent is the name of the whole device that this one is a partition of.
	Parent string `json:"parent,omitempty"`
	// Attributes are published beside the standard ones, as strings.
	Attributes map[string]string `json:"attributes,omitempty"`

	Health Health `json:"health"`
	// Omitted devices are published but left out of health reports.
	Omitted bool `json:"omitted,omitempty"`
	// Taints are those that a test has set.
	Taints []resourceapi.DeviceTaint `json:"taints,omitempty"`
	// OwnTaint is the one that the driver derives from its own events.
	OwnTaint *resourceapi.DeviceTaint `json:"ownTaint,omitempty"`
}

// inventory is the hardware of one node. It is not safe for concurrent use.
type inventory struct {
	Devices []Device `json:"devices"`
	// Swaps counts replaced boards, so that each gets a UUID never seen before.
	Swaps int `json:"swaps"`
}

func newInventory(c Config) inventory {
	var inv inventory
	for i := range c.Devices {
		whole := Device{
			Name:     fmt.Sprintf("gpu-%d", i),
			UUID:     uuidOf("GPU", c.Node, i, 0),
			PCIBusID: fmt.Sprintf("0000:%02x:00.0", 0x10+i),
			Health:   Health{Status: kubeletplugin.HealthStatusHealthy, Timeout: c.Timeout},
		}
		inv.Devices = append(inv.Devices, whole)
		for p := range c.Partitions {
			part := whole
			part.Name = fmt.Sprintf("%s-mig-1g-%d", whole.Name, p)
			part.UUID = uuidOf("MIG", c.Node, i, p)
			part.Parent = whole.Name
			inv.Devices = append(inv.Devices, part)
		}
	}
	return inv
}

// uuidOf makes a UUID in the vendor's form that depends on nothing but its
// arguments, so that a restarted driver finds the same hardware.
func uuidOf(kind, node string, a, b int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d/%d", kind, node, a, b))
	h := hex.EncodeToString(sum[:16])
	return fmt.Sprintf("%s-%s-%s-%s-%s-%s", kind, h[:8], h[8:12], h[12:16], h[16:20], h[20:32])
}

func (inv *inventory) find(name string) (*Device, error) {
	names := make([]string, 0, len(inv.Devices))
	for i := range inv.Devices {
		if inv.Devices[i].Name == name {
			return &inv.Devices[i], nil
		}
		names = append(names, inv.Devices[i].Name)
	}
	return nil, fmt.Errorf("device %q: %w: the driver has %q", name, errNoSuchDevice, names)
}

// vanish takes a device out, and with a whole device its partitions.
func (inv *inventory) vanish(name string) error {
	if _, err := inv.find(name); err != nil {
		return err
	}
	inv.Devices = slices.DeleteFunc(inv.Devices, func(d Device) bool {
		return d.Name == name || d.Parent == name
	})
	return nil
}

// add plugs a device in. It is Healthy unless told otherwise.
func (inv *inventory) add(d Device) error {
	if d.Name == "" {
		return fmt.Errorf("a device to add has no name: give it one that is not in the pool")
	}
	if _, err := inv.find(d.Name); err == nil {
		return fmt.Errorf("device %q is there already: take it out first, or swap it", d.Name)
	}
	if d.Health.Status == "" {
		d.Health.Status = kubeletplugin.HealthStatusHealthy
	}
	if d.UUID == "" {
		inv.Swaps++
		d.UUID = uuidOf("GPU", d.Name, len(inv.Devices), inv.Swaps)
	}
	inv.Devices = append(inv.Devices, d)
	slices.SortStableFunc(inv.Devices, func(a, b Device) int {
		return compareNatural(a.Name, b.Name)
	})
	return nil
}

// swap replaces the board behind a name, and with it its partitions: same slot,
// new UUID, well again.
func (inv *inventory) swap(name string) (Device, error) {
	d, err := inv.find(name)
	if err != nil {
		return Device{}, err
	}
	inv.Swaps++
	for i := range inv.Devices {
		e := &inv.Devices[i]
		if e.Name != d.Name && e.Parent != d.Name {
			continue
		}
		kind := "GPU"
		if e.Parent != "" {
			kind = "MIG"
		}
		e.UUID = uuidOf(kind, e.Name+"/"+e.PCIBusID, len(inv.Devices), inv.Swaps)
		e.Health = Health{Status: kubeletplugin.HealthStatusHealthy, Timeout: e.Health.Timeout}
		e.OwnTaint = nil
	}
	return *d, nil
}

// forget is what a driver without memory does when it starts: the hardware is
// found again as it is, and every device is well.
func (inv *inventory) forget(timeout time.Duration) {
	for i := range inv.Devices {
		d := &inv.Devices[i]
		d.Health = Health{Status: kubeletplugin.HealthStatusHealthy, Timeout: timeout}
		d.Omitted = false
		d.Taints = nil
		d.OwnTaint = nil
	}
}

// compareNatural orders gpu-2 before gpu-10.
func compareNatural(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
