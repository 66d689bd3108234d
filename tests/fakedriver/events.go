package fakedriver

// This file is about the events that a vendor's driver turns into health,
// message and taint: an Xid, a lost card, a card that cannot be watched. The
// texts, keys, effects and classes are those of NVIDIA's DRA driver
// (device_health.go and device_health_status.go). It is pure.

import (
	"fmt"
	"slices"
	"strconv"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// applicationXids are the errors that NVIDIA's driver counts as the
// application's and not the device's.
func applicationXids() []int { return []int{13, 31, 43, 45, 68, 109} }

// xid records an Xid on a device. An Unhealthy device stays Unhealthy with its
// first message, as in NVIDIA's driver.
func (d *Device) xid(driver string, number int, taint bool) {
	health := Health{
		Status:  kubeletplugin.HealthStatusUnhealthy,
		Message: fmt.Sprintf("critical XID %d reported by NVML", number),
		Timeout: d.Health.Timeout,
	}
	effect := resourceapi.DeviceTaintEffectNoSchedule
	if slices.Contains(applicationXids(), number) {
		health.Status = kubeletplugin.HealthStatusHealthy
		health.Message = fmt.Sprintf("non-fatal XID %d reported by NVML", number)
		effect = resourceapi.DeviceTaintEffectNone
	}
	if d.Health.Status == kubeletplugin.HealthStatusUnhealthy && health.Status != kubeletplugin.HealthStatusUnhealthy {
		return
	}
	d.Health = health
	if taint {
		d.OwnTaint = &resourceapi.DeviceTaint{Key: driver + "/xid", Value: strconv.Itoa(number), Effect: effect}
	}
}

// lost records that the card fell off the bus.
func (d *Device) lost(driver string, taint bool) {
	d.Health = Health{Status: kubeletplugin.HealthStatusUnhealthy, Message: "GPU is lost", Timeout: d.Health.Timeout}
	if taint {
		d.OwnTaint = &resourceapi.DeviceTaint{Key: driver + "/gpu-lost", Effect: resourceapi.DeviceTaintEffectNoSchedule}
	}
}

// unmonitored records that the driver cannot watch the card.
func (d *Device) unmonitored(driver string, taint bool) {
	if d.Health.Status == kubeletplugin.HealthStatusUnhealthy {
		return
	}
	d.Health = Health{Status: kubeletplugin.HealthStatusUnknown, Message: "device health is not monitored", Timeout: d.Health.Timeout}
	if taint {
		d.OwnTaint = &resourceapi.DeviceTaint{Key: driver + "/unmonitored", Effect: resourceapi.DeviceTaintEffectNone}
	}
}
