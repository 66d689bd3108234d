package starter

import (
	"maps"
	"slices"
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// watch delivers a watch Pod of a node, with a claim with admin access for all of its
// devices, that says one thing of one of them and Healthy of the others.
func (s *scene) watch(node string, all []device.Listed, bad string, health device.Health, message string) device.Pod {
	s.t.Helper()
	claim := device.Claim{Namespace: "team-kestrel", Name: "watch-" + node, UID: "claim-watch-" + node}
	p := podOn(node, "watch-"+node)
	p.Claims = []device.PodClaim{{Name: "devices", Claim: claim.Name}}
	p.Containers = []device.Container{{Name: "watch"}}
	for _, listed := range all {
		key := gpu(node, listed.Name)
		claim.Results = append(claim.Results, device.Allocated{Request: "all", Device: key, AdminAccess: true})
		e := device.Entry{Name: "claim:devices", ResourceID: key.String(), Health: device.Healthy}
		if listed.Name == bad {
			e.Health, e.Message = health, message
		}
		p.Containers[0].Entries = append(p.Containers[0].Entries, e)
	}
	claim.ReservedFor = []device.PodRef{p.Ref}
	s.tracker.claimSeen(claim)
	return s.see(p)
}

// O11: what only a watch Pod says of a device opens a case like any other word, and the
// Pod holds nothing.
func TestAFaultThatOnlyAWatchPodSeesOpensACase(t *testing.T) {
	s := newScene(t)
	all := eight("anvil-07")
	s.slice("anvil-07", 1, all...)
	s.watch("anvil-07", all, "gpu-3", device.Healthy, "")
	none(t, s.send(), "all are well")
	s.watch("anvil-07", all, "gpu-3", device.Unhealthy, xid79)
	said := observed(t, s.send(), gpu("anvil-07", "gpu-3"), true)
	if len(said.Readings) != 1 || !said.Readings[0].Monitor {
		t.Errorf("readings %+v, want one of a Pod that holds nothing", said.Readings)
	}
}

// O11: a driver that falls silent is Unknown of devices that nobody holds, too, where its
// health was known there.
func TestADriverThatFallsSilentShowsAtAWatchPod(t *testing.T) {
	s := newScene(t)
	all := eight("anvil-07")
	s.slice("anvil-07", 1, all...)
	s.watch("anvil-07", all, "gpu-3", device.Healthy, "")
	none(t, s.send(), "all are well")
	s.watch("anvil-07", all, "gpu-3", device.Unknown, "")
	if said := observed(t, s.send(), gpu("anvil-07", "gpu-3"), true); !said.Lost {
		t.Error("the driver's health was known there, and its loss isn't called one")
	}
}

// O11: devices that nobody reports on are counted as unseen, by driver; a watch Pod makes
// them seen, and isn't taken for somebody who uses them.
func TestDevicesThatNobodyReportsOnAreCountedAsUnseen(t *testing.T) {
	s := newScene(t)
	all := eight("anvil-07")
	unseen := func(after string, want int) {
		t.Helper()
		if got := s.tracker.unseenDevices(); !maps.Equal(got, map[string]int{driver: want}) {
			t.Errorf("%s: unseen %v, want %d of %s", after, got, want, driver)
		}
	}
	s.slice("anvil-07", 1, all...)
	unseen("nobody reports", 8)
	s.report("train-0", gpu("anvil-07", "gpu-0"), device.Healthy, "")
	unseen("a tenant has one", 7)
	p := s.watch("anvil-07", slices.Clone(all), "gpu-3", device.Unknown, "")
	unseen("a watch Pod has all", 0)
	s.tracker.podGone(p.Ref)
	unseen("the watch Pod is gone", 7)
}

// Devices of a driver that never says anything are a gap in coverage where somebody uses
// them, and not where only a watch Pod has them.
func TestAWatchPodUsesNothing(t *testing.T) {
	s := newScene(t)
	only := eight("anvil-07")[:1]
	s.watch("anvil-07", only, "gpu-0", device.Unknown, "")
	if gaps := s.tracker.coverage(); len(gaps) != 0 {
		t.Errorf("gaps in the coverage of devices in use: %v, want none", gaps)
	}
	s.report("train-0", gpu("anvil-07", "gpu-0"), device.Unknown, "")
	if gaps := s.tracker.coverage(); gaps[driver] != 1 {
		t.Errorf("a tenant has it: gaps %v, want one", gaps)
	}
}
