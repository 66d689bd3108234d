package listing

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	workflow "github.com/sickbay-dev/sickbay/workflows/device"
)

// summary says in one sentence how a device is: the first line that somebody
// reads who was woken up for it.
func summary(s Story) string {
	d := s.Device
	switch {
	case d.Phase == "" && d.Workflow != "":
		return d.Name + " has an open case of which nobody tells anything."
	case d.Phase == "":
		return strings.TrimSuffix(withoutCase(d), ".") + mayConcern(s.Unmapped) + "."
	}
	said := fmt.Sprintf("%s is %s: %s%s", d.Name, condition(d), describeReason(d), age(d.Since, s.At))
	if holders := heldBy(d.Holders); holders != "" {
		said += "; " + holders
	}
	return said + mayConcern(s.Unmapped) + "."
}

// mayConcern says that something else is reported that may be about the device.
func mayConcern(unmapped []device.Unmapped) string {
	if len(unmapped) == 0 {
		return ""
	}
	return "; " + count(len(unmapped), "unmapped fault", "unmapped faults") + " may be about it"
}

func withoutCase(d Device) string {
	switch {
	case d.NodeOut != "":
		return fmt.Sprintf("%s can't be judged now: its node %s is out (%s), and what was read there is old; it has no case.", d.Name, d.Node, d.NodeOut)
	case d.Unmonitored:
		return fmt.Sprintf("%s isn't monitored: its driver never reported any health on %s; it has no case.", d.Name, d.Node)
	case d.Stale != device.Fresh:
		return fmt.Sprintf("%s is reported Healthy, which can't be believed now (%s); it has no case.", d.Name, d.Stale)
	case !d.Listed && d.Mark == nil:
		return d.Name + " isn't listed by the cluster, and has no open case."
	case d.Health == "" && len(d.Holders) == 0:
		return d.Name + " has no case; nobody holds it, so nobody reports on it."
	case d.Health == "":
		return d.Name + " has no case; none of its holders reports on it."
	case d.Health == device.Healthy:
		return d.Name + " is well: reported Healthy, and without a case."
	}
	return fmt.Sprintf("%s is reported %s, and has no case.", d.Name, d.Health)
}

// condition says what the phase means for whoever wants the device.
func condition(d Device) string {
	out := d.Mark != nil && d.Mark.State == string(quarantine.MarkInForce)
	switch d.Phase {
	case quarantine.PhaseSuspect:
		return "suspect, and not kept out"
	case quarantine.PhaseReleased:
		return "back in service, and watched"
	case quarantine.PhaseGone:
		return "gone"
	}
	if d.Phase == quarantine.PhaseRestricted {
		return restricted(d, out)
	}
	switch {
	case out:
		return "out of service"
	case d.Mark != nil && d.Mark.State == string(quarantine.MarkObserved):
		return "faulty, and not kept out because the mode is observe"
	case d.Mark != nil && d.Mark.State == string(quarantine.MarkAdvisory):
		return "faulty, and can't be kept out"
	}
	return "faulty, and NOT kept out yet"
}

// restricted says how a device is kept from new Pods of which nothing was found but
// that its health is unknown.
func restricted(d Device, out bool) string {
	const unknown = "not known to be healthy"
	switch {
	case out:
		return "restricted: kept from new Pods because it is " + unknown
	case d.Mark != nil && d.Mark.State == string(quarantine.MarkObserved):
		return unknown + ", and not kept out because the mode is observe"
	case d.Mark != nil && d.Mark.State == string(quarantine.MarkAdvisory):
		return unknown + ", and can't be kept out"
	case d.Mark != nil && d.Mark.State == string(quarantine.MarkLifting):
		return "restricted, and its mark is being removed"
	}
	return unknown + ", and NOT kept out yet"
}

func describeReason(d Device) string {
	text := d.Reason
	if text == "" {
		text = "no reason known"
	}
	if d.Severity != "" {
		text += " (" + d.Severity + ")"
	}
	switch d.Phase {
	case quarantine.PhaseSuspect, quarantine.PhaseRestricted, quarantine.PhaseGone, quarantine.PhaseReleased:
		// The condition said it.
		return text
	}
	return text + ", " + string(d.Phase)
}

func age(since *time.Time, now time.Time) string {
	if since == nil {
		return ""
	}
	return ", not good for " + duration.HumanDuration(max(now.Sub(*since), 0))
}

func heldBy(holders []Holder) string {
	switch len(holders) {
	case 0:
		return ""
	case 1:
		return holders[0].String() + " has it"
	}
	return fmt.Sprintf("%s and %d more have it", holders[0], len(holders)-1)
}

// next says what happens next and when, or whose turn it is. Where a case
// answered, these are its own words.
func next(s Story, casesMissing bool) string {
	d := s.Device
	switch {
	case s.Case != nil:
		return workflow.Next(*s.Case, s.At)
	case casesMissing && d.Mark != nil:
		return "not known without Temporal; the mark keeps the device out until its case lifts it"
	case casesMissing:
		return "not known without Temporal; whether there is a case can't be told"
	case d.Workflow != "":
		return "not known, because no worker answers; start one (sickbay worker). Marks stay as they are meanwhile"
	case d.Mark != nil:
		return "the starter gives the mark its case back (SICKBAY_MARK_CHECK); if that doesn't come, see whether a starter runs"
	case d.NodeOut != "":
		return "its node has to come back; then its devices are read anew. Nothing is concluded about them meanwhile"
	case d.Unmonitored:
		return "nothing; a driver without a health service opens no case (SICKBAY_UNKNOWN_POLICY)"
	case d.Stale == device.DriverAbsent:
		return "the driver has to publish its slices again; the starter opens a case if it stays away (SICKBAY_DRIVER_AWAY)"
	case d.Stale == device.PluginAbsent:
		return "the plugin has to come back; the starter opens a case if it stays away (SICKBAY_PLUGIN_AWAY)"
	case d.Health == device.Unhealthy:
		return "the starter opens a case, unless the catalogue says that this is no fault of the device; if none comes, see whether a starter runs"
	case d.Health == device.Unknown:
		return "the starter opens a case, unless the driver never reported any health on this node (SICKBAY_UNKNOWN_POLICY)"
	}
	if len(s.Unmapped) > 0 {
		return unmappedNext(s.Unmapped[0])
	}
	return "nothing; it is nobody's turn"
}

// podSummary says in one sentence how a Pod's devices are.
func podSummary(s PodStory) string {
	faulty := map[string]bool{}
	names := map[string]bool{}
	var worst *PodDevice
	for i, e := range s.Devices {
		names[e.Device.Name] = true
		if e.Device.Faulty() || e.Health.WorseThan(device.Healthy) {
			faulty[e.Device.Name] = true
			if worst == nil || phaseRank(e.Device) < phaseRank(worst.Device) {
				worst = &s.Devices[i]
			}
		}
	}
	bad := 0
	for _, u := range s.Unmapped {
		if u.Health.WorseThan(device.Healthy) {
			bad++
		}
	}
	unmapped := ""
	if bad > 0 {
		unmapped = fmt.Sprintf("; %s can't be attributed to one device", count(bad, "faulty health entry", "faulty health entries"))
	}
	switch {
	case worst == nil && len(names) == 0:
		return fmt.Sprintf("%s has health entries, and none leads to one device%s.", s.Pod, unmapped)
	case worst == nil:
		return fmt.Sprintf("%s has %s, none of them known to be faulty%s.", s.Pod, count(len(names), "device", "devices"), unmapped)
	case worst.Device.Phase == "":
		return fmt.Sprintf("%s has %s, of which %d faulty: %s is reported %s%s.",
			s.Pod, count(len(names), "device", "devices"), len(faulty), worst.Device.Name, worst.Health, unmapped)
	}
	return fmt.Sprintf("%s has %s, of which %d faulty: %s is %s, %s%s%s.", s.Pod, count(len(names), "device", "devices"), len(faulty),
		worst.Device.Name, condition(worst.Device), describeReason(worst.Device), age(worst.Device.Since, s.At), unmapped)
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// podNext gives the next step of each faulty device of a Pod.
func podNext(steps []string, unmapped []device.Unmapped) string {
	for _, u := range unmapped {
		if u.Health.WorseThan(device.Healthy) {
			steps = append(steps, unmappedNext(u))
			break
		}
	}
	if len(steps) == 0 {
		return "nothing; it is nobody's turn"
	}
	return strings.Join(steps, "\n")
}

func unmappedNext(u device.Unmapped) string {
	if u.Reason == device.SeveralDevices {
		return "unmapped entries: your turn; the claim has several devices, and only the driver's log or the kubelet's podresources API can tell which of them is meant"
	}
	return fmt.Sprintf("unmapped entries: your turn; find out from the driver what %q names", u.ID)
}
