package listing

import (
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// O4: that nothing was ever known is told from a health that was lost.
func TestAnUnknownThatWasNeverAnythingElseIsUnmonitored(t *testing.T) {
	here := map[string]bool{"node-1": true}
	for name, tc := range map[string]struct {
		said  device.Health
		known Known
		want  bool
	}{
		"the driver spoke on this node before":        {device.Unknown, Known{"gpu.example.com": here}, false},
		"it only ever spoke on others":                {device.Unknown, Known{"gpu.example.com": {"node-9": true}}, true},
		"only another driver did":                     {device.Unknown, Known{"nic.example.com": here}, true},
		"nobody tells who did":                        {device.Unknown, nil, false},
		"it speaks now, and nobody wrote it down yet": {device.Healthy, Known{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := twoGPUs(t, tc.said, "")
			cluster.Known = tc.known
			d := find(t, Join(cluster, nil, now), gpu(t, "0").String())
			if d.Unmonitored != tc.want || (d.Why() == Unmonitored) != tc.want {
				t.Errorf("unmonitored %t (%s), want %t", d.Unmonitored, d.Why(), tc.want)
			}
		})
	}
	cluster := twoGPUs(t, device.Healthy, "")
	cluster.Known, cluster.Slices[0].SliceCount = Known{}, 2
	if d := find(t, Join(cluster, nil, now), gpu(t, "0").String()); d.Unmonitored || d.Why() != string(device.DriverAbsent) {
		t.Errorf("a Healthy that isn't believed is unmonitored %t (%s)", d.Unmonitored, d.Why())
	}
}
