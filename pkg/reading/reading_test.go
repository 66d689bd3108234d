package reading

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

func gpu(name string) device.Key {
	return device.Key{Driver: "gpu.nvidia.com", Pool: "harbor-12", Device: name}
}

func report(key device.Key, health device.Health, message string) device.DeviceReport {
	return device.DeviceReport{Device: key, Report: device.Report{
		Pod: device.PodRef{Namespace: "team-kestrel", Name: "train-0", UID: "u-1"}, Node: "harbor-12",
		Claim: "accel-" + key.Device, Health: health, Message: message, Version: "100",
	}}
}

// O10: what concerns the whole chip reaches every part of it, what concerns one
// partition that one only, and holders stay holders.
func TestFromPodCarriesFaultsAsFarAsTheyReach(t *testing.T) {
	parts := []device.Key{gpu("mig-1g-0"), gpu("mig-1g-1"), gpu("mig-3g-2")}
	concerned := func(key device.Key, scope device.Scope) []device.Key {
		if scope == device.ScopeChip {
			return parts
		}
		return []device.Key{key}
	}
	type said struct {
		health  device.Health
		fault   bool
		monitor bool
	}
	for name, tc := range map[string]struct {
		reports []device.DeviceReport
		want    map[string]said
	}{
		"a healthy part says nothing of the others": {
			reports: []device.DeviceReport{report(parts[0], device.Healthy, "")},
			want:    map[string]said{"mig-1g-0": {device.Healthy, false, false}},
		},
		"a chip that fell off the bus takes all its parts with it": {
			reports: []device.DeviceReport{report(parts[0], device.Unhealthy, "XID 79: GPU has fallen off the bus")},
			want: map[string]said{
				"mig-1g-0": {device.Unhealthy, true, false},
				"mig-1g-1": {device.Unhealthy, true, true},
				"mig-3g-2": {device.Unhealthy, true, true},
			},
		},
		"a Pod that has two parts holds both, and both are bad": {
			reports: []device.DeviceReport{
				report(parts[0], device.Unhealthy, "XID 79: GPU has fallen off the bus"),
				report(parts[1], device.Healthy, ""),
			},
			want: map[string]said{
				"mig-1g-0": {device.Unhealthy, true, false},
				"mig-1g-1": {device.Unhealthy, true, false},
				"mig-3g-2": {device.Unhealthy, true, true},
			},
		},
		"an application's error stays where it was seen": {
			reports: []device.DeviceReport{report(parts[0], device.Unhealthy, "XID 13: Graphics Engine Exception")},
			want:    map[string]said{"mig-1g-0": {device.Unhealthy, false, false}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]said{}
			for _, o := range FromPod(tc.reports, reason.Builtin(), concerned) {
				got[o.Device.Device] = said{o.Health, o.Fault, o.Monitor}
				if o.Own() && o.Claim != "accel-"+o.Device.Device {
					t.Errorf("%s is read through claim %s", o.Device, o.Claim)
				}
			}
			if len(got) != len(tc.want) {
				t.Errorf("readings of %d devices, want %d: %+v", len(got), len(tc.want), got)
			}
			for key, want := range tc.want {
				if got[key] != want {
					t.Errorf("%s: %+v, want %+v", key, got[key], want)
				}
			}
		})
	}
}

func TestLongMessagesAreJudgedWholeAndShortened(t *testing.T) {
	long := strings.Repeat("ü", 400) + "; XID 79: GPU has fallen off the bus"
	read := Judge(reason.Builtin(), gpu("gpu-0"), report(gpu("gpu-0"), device.Unhealthy, long).Report)
	if read.Reason.Severity != reason.SeverityFatal {
		t.Errorf("the Xid at the end of a long message was judged %s", read.Reason.Severity)
	}
	if len(read.Message) > MaxMessage || !utf8.ValidString(read.Message) || !strings.HasSuffix(read.Message, "…") {
		t.Errorf("shortened to %d bytes, valid %t", len(read.Message), utf8.ValidString(read.Message))
	}
	for message, want := range map[string]string{"": "", "ecc": "ecc", "a\xffb": "a\ufffdb"} {
		if got := Shorten(message); got != want {
			t.Errorf("Shorten(%q) = %q, want %q", message, got, want)
		}
	}
}
