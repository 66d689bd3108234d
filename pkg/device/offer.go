package device

// Offer is what a Node's status says of one extended resource, in devices. It is
// all that the API tells of a device plugin itself: how many, and never which.
//
// The kubelet writes it with the node's status, every 10 s by default. A device's
// change of health reaches its Pods within a second, and that it left the list only at
// their next sync, up to 90 s later: the two may be of different moments either way
// (cm/devicemanager: GetCapacity, genericDeviceUpdateCallback; 1.36 and 1.37).
type Offer struct {
	// Listed is status.capacity: the devices on the plugin's list, Unhealthy ones
	// too. It stays as it was for 5 minutes after a plugin is gone, and is 0 after
	// that; in a kubelet that has started, until the plugin registers.
	Listed int64 `json:"listed"`
	// Allocatable is status.allocatable: the listed devices that the plugin calls
	// Healthy, in use or not. 0 at once when the plugin is gone.
	Allocatable int64 `json:"allocatable"`
}

// Vouched tells whether a plugin stands behind a Healthy. Where nothing is
// allocatable none does: the device that it is said of would be. The reverse
// doesn't hold, since the plugin may have taken just this one off its list.
func (o Offer) Vouched() bool { return o.Allocatable > 0 }

// Doubt says of each Healthy among the reports why it can't be believed, as far as
// why knows; the empty answer is that it can. All else stays: an Unhealthy was said
// by a plugin that had the device on its list, and stands until it is taken back.
func Doubt(reports []DeviceReport, why func(Key) Staleness) {
	for i := range reports {
		if reports[i].Report.Health == Healthy {
			reports[i].Report.Stale = why(reports[i].Device)
		}
	}
}
