package device_test

import (
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// O6, in its pure part: a node is judged by whether its Lease advances and by its
// condition Ready, and an entry on it by what the node is worth. Only on a node that
// is up is any entry a device's, and there it is exactly one that the driver calls
// Unhealthy.
func TestANodeIsJudgedByItsLeaseAndItsReadyCondition(t *testing.T) {
	entries := []device.Health{device.Healthy, device.Unknown, device.Unhealthy}
	up := []device.Verdict{device.NoTrouble, device.DriverFault, device.DeviceFault}
	held := []device.Verdict{device.NodeHeld, device.NodeHeld, device.NodeHeld}
	down := []device.Verdict{device.NodeDown, device.NodeDown, device.NodeDown}
	tests := map[string]struct {
		beat    device.Heartbeat
		ready   device.Readiness
		node    device.NodeVerdict
		entries []device.Verdict
	}{
		"alive and ready":     {device.HeartbeatAdvancing, device.ReadyTrue, device.NodeUp, up},
		"alive and not ready": {device.HeartbeatAdvancing, device.ReadyFalse, device.NodeDegraded, held},
		"heard again, and not yet by the node controller": {device.HeartbeatAdvancing, device.ReadyUnknown, device.NodeDegraded, held},
		"silent, and the node controller hasn't noticed":  {device.HeartbeatStopped, device.ReadyTrue, device.NodeOutage, down},
		"silent after it said that it isn't ready":        {device.HeartbeatStopped, device.ReadyFalse, device.NodeOutage, down},
		"silent":                                                   {device.HeartbeatStopped, device.ReadyUnknown, device.NodeOutage, down},
		"ready, and its Lease can't be judged":                     {device.HeartbeatUnseen, device.ReadyTrue, device.NodeUp, up},
		"not ready, and its Lease can't be judged":                 {device.HeartbeatUnseen, device.ReadyFalse, device.NodeDegraded, held},
		"silent by the node controller, its Lease can't be judged": {device.HeartbeatUnseen, device.ReadyUnknown, device.NodeOutage, down},
		"without the condition, its Lease can't be judged":         {device.HeartbeatUnseen, "", device.NodeOutage, down},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := device.JudgeNode(test.beat, test.ready)
			if node != test.node {
				t.Errorf("the node is %q, want %q", node, test.node)
			}
			around := device.Surroundings{WatchCurrent: true, Node: node, PoolComplete: true, Offer: device.Offer{Listed: 8, Allocatable: 8}}
			for _, path := range []device.Path{device.PathDRA, device.PathPlugin} {
				for i, entry := range entries {
					if got := around.Verdict(path, entry); got != test.entries[i] {
						t.Errorf("%s is %q, want %q", entry, got, test.entries[i])
					}
				}
			}
		})
	}
}

// O4, O7, in their pure part: a Healthy that nobody stands behind isn't one, an
// Unhealthy stands all the same, and where Sickbay can't see it says nothing of any.
func TestAnEntryIsJudgedByWhoStandsBehindIt(t *testing.T) {
	tests := map[string]struct {
		around device.Surroundings
		want   [3]device.Verdict // of Healthy, Unknown, Unhealthy
		path   device.Path
	}{
		"the slices are gone": {device.Surroundings{WatchCurrent: true}, [3]device.Verdict{device.DriverGone, device.DriverFault, device.DeviceFault}, device.PathDRA},
		"nothing is allocatable": {
			device.Surroundings{WatchCurrent: true, PoolComplete: true, Offer: device.Offer{Listed: 8}},
			[3]device.Verdict{device.DriverGone, device.DriverFault, device.DeviceFault}, device.PathPlugin,
		},
		"the watch is behind": {device.Surroundings{}, [3]device.Verdict{device.NotSeen, device.NotSeen, device.NotSeen}, device.PathDRA},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for i, entry := range []device.Health{device.Healthy, device.Unknown, device.Unhealthy} {
				if got := test.around.Verdict(test.path, entry); got != test.want[i] {
					t.Errorf("%s is %q, want %q", entry, got, test.want[i])
				}
			}
		})
	}
}
