package reading

import (
	"slices"
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

// O10. Case 15, rows t=10, t=30 and t=40, by the message alone: a chip's fault
// reaches every replica and every partition, and what happened inside one partition
// stays in it. Xid 94 is contained, so it quarantines nothing until a site says so,
// and then that partition only.
func TestAnXidReachesAsFarAsTheCatalogueSays(t *testing.T) {
	var parts []device.Listed
	for _, name := range []string{"mig-1g-0", "mig-1g-1", "mig-3g-2"} {
		parts = append(parts, device.Listed{Name: name, Attributes: map[string]string{"uuid": "MIG-" + name, "parentUUID": "GPU-9ad0"}})
	}
	pool := device.AssemblePool(device.PoolKey{Driver: "gpu.nvidia.com", Pool: "harbor-12"}, []device.Slice{
		{Driver: "gpu.nvidia.com", Pool: "harbor-12", Node: "harbor-12", Generation: 1, SliceCount: 1, Devices: parts}})
	var replicas []device.Key
	for _, id := range []string{"GPU-5f1c::0", "GPU-5f1c::1", "GPU-5f1c::2", "GPU-5f1c::3", "GPU-77aa::0"} {
		replicas = append(replicas, device.Key{Node: "anvil-07", Resource: "example.com/gpu.shared", ID: id})
	}
	concerned := func(key device.Key, scope device.Scope) []device.Key {
		if key.Path() == device.PathPlugin {
			return device.Replicas(key, replicas)
		}
		return device.Concerned(pool, key, scope)
	}
	overrides, err := reason.Parse([]byte(`{"version":"site-1","enable":[{"xids":[94]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	site, err := reason.Builtin().With(overrides)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		catalogue *reason.Catalogue
		seenOn    device.Key
		message   string
		faulty    []string
	}{
		"t=10: a plugin gives no message, and the chip is all that it can mean": {
			reason.Builtin(), replicas[2], "", []string{"GPU-5f1c::0", "GPU-5f1c::1", "GPU-5f1c::2", "GPU-5f1c::3"}},
		"t=30: 94 by the builtin catalogue": {reason.Builtin(), gpu("mig-1g-0"), "XID 94: Contained ECC error", nil},
		"t=30: 94 where the site counts it": {site, gpu("mig-1g-0"), "XID 94: Contained ECC error", []string{"mig-1g-0"}},
		"t=40: 79": {
			reason.Builtin(), gpu("mig-1g-0"), "XID 79: GPU has fallen off the bus", []string{"mig-1g-0", "mig-1g-1", "mig-3g-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			var faulty []string
			for _, o := range FromPod([]device.DeviceReport{report(tc.seenOn, device.Unhealthy, tc.message)}, tc.catalogue, concerned) {
				if o.Fault {
					faulty = append(faulty, o.Device.Device+o.Device.ID)
				}
			}
			if !slices.Equal(faulty, tc.faulty) {
				t.Errorf("a fault of %v, want %v", faulty, tc.faulty)
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
