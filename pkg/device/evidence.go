package device

import (
	"slices"
	"strings"
	"time"
)

// Report is what one Pod's status says of one device: all its containers taken
// together, the worst counting, with the status version at which it first said so.
type Report struct {
	Pod  PodRef `json:"pod"`
	Node string `json:"node,omitempty"`
	// Claim is the claim through which the Pod has the device (DRA only).
	Claim string `json:"claim,omitempty"`
	// Container is one container that carries the reading.
	Container string `json:"container,omitempty"`
	Health    Health `json:"health"`
	Message   string `json:"message,omitempty"`
	// Stale says why a Healthy can't be believed, as far as that shows around the
	// reading; empty where it can. What the Pod says stays as it was said.
	Stale Staleness `json:"stale,omitempty"`
	// Version is the status version, the deduplication key beside the Pod's UID.
	Version Version `json:"version"`
	// Observed is when Sickbay first saw this reading, on its own clock: the API
	// carries no time. The truth may be older.
	Observed time.Time `json:"observed"`
	// Monitor marks a reading through an admin-access claim or one of Sickbay's own: evidence, but its
	// Pod is no holder.
	Monitor bool `json:"monitor,omitempty"`
	// Acknowledged marks a reading that the kubelet is known to have worked out after
	// it was asked for. Others may be as old as the kubelet lets them be.
	Acknowledged bool `json:"acknowledged,omitempty"`
	// Fault is set by whoever classified the message: the catalogue calls this
	// Unhealthy the device's own fault, and not an application's.
	Fault bool `json:"fault,omitempty"`
	// Relisted is set when the watch had to start over and the Pod's version is
	// lower than what was known of it (a restored etcd): versions before and after
	// can't be compared, and what is there now replaces what was.
	Relisted bool `json:"relisted,omitempty"`
	// Ended is set when the Pod is gone or terminal. The report stays as history
	// and counts only while no live Pod reports on the device.
	Ended bool `json:"ended,omitempty"`
}

// Says tells whether two reports carry the same reading, whenever and from
// whichever container it was taken.
func (r Report) Says(other Report) bool {
	return r.Health == other.Health && r.Message == other.Message && r.Stale == other.Stale && r.Fault == other.Fault && r.Ended == other.Ended
}

// Counts is the health that a report counts for: a Healthy that can't be believed
// is an Unknown.
func (r Report) Counts() Health {
	if r.Health == Healthy && r.Stale != Fresh {
		return Unknown
	}
	return r.Health
}

// Digest takes all observations of one Pod (as Observe returns them) together:
// one report per device, the worst health among its containers, and the
// messages that go with it. Frozen entries give no report, since they say
// nothing of now. The status version is the observation's; Keep corrects it.
func Digest(observations []Observation, observed time.Time) []DeviceReport {
	var digest []DeviceReport
	var messages []string
	for _, o := range observations {
		if o.Frozen {
			continue
		}
		report := Report{
			Pod: o.Pod, Node: o.Node, Claim: o.Claim, Container: o.Container,
			Health: o.Health, Message: o.Message,
			Version: o.ResourceVersion, Observed: observed, Monitor: o.Monitor,
		}
		last := len(digest) - 1
		if last < 0 || digest[last].Device != o.Device {
			digest = append(digest, DeviceReport{Device: o.Device, Report: report})
			messages = []string{report.Message}
			continue
		}
		held := &digest[last].Report
		// A Pod that has the device by one ordinary claim holds it, whatever
		// admin claims it has beside that.
		monitor := held.Monitor && report.Monitor
		switch {
		case report.Health.WorseThan(held.Health):
			*held = report
			messages = []string{report.Message}
		case report.Health == held.Health:
			messages = append(messages, report.Message)
			held.Message = joinMessages(messages)
		}
		held.Monitor = monitor
	}
	return digest
}

// DeviceReport is a report and the device that it is about.
type DeviceReport struct {
	Device Key    `json:"device"`
	Report Report `json:"report"`
}

// Keep returns the report to remember when a Pod's status was read again: the
// known one if it says the same, so that its status version stays the one at
// which the reading was first seen, else the new one.
func Keep(known, read Report) Report {
	if known.Pod.UID == read.Pod.UID && known.Says(read) {
		return known
	}
	return read
}

// Evidence is what is believed of a device: the worst of all readings, and the
// readings themselves. Freshness is kept apart from it.
type Evidence struct {
	// Value is the worst that a report counts for.
	Value   Health `json:"value,omitempty"`
	Message string `json:"message,omitempty"`
	// Stale is why Value is Unknown where every Pod says Healthy.
	Stale Staleness `json:"stale,omitempty"`
	// Held tells whether a live Pod holds the device (monitors don't count).
	Held bool `json:"held"`
	// Reports has one element per Pod, sorted by UID.
	Reports []Report `json:"reports,omitempty"`
}

// Live tells whether a Pod that still runs reports on the device.
func (e Evidence) Live() bool {
	return slices.ContainsFunc(e.Reports, func(r Report) bool { return !r.Ended })
}

// Fuse takes the reports of all Pods that have or had one device together. Live
// reports decide, the worst first; where none is left, what the last ones said
// stands as history, so that a device's fault doesn't die with its Pod. Where
// Pods agree on the health and not on the message, all messages are kept: one of
// them may be the grave one.
func Fuse(reports []Report) Evidence {
	sorted := slices.Clone(reports)
	slices.SortFunc(sorted, func(a, b Report) int { return strings.Compare(a.Pod.UID, b.Pod.UID) })
	evidence := Evidence{Reports: sorted}
	live := slices.ContainsFunc(sorted, func(r Report) bool { return !r.Ended })
	var messages []string
	for _, r := range sorted {
		if live && r.Ended {
			continue
		}
		if !r.Ended && !r.Monitor {
			evidence.Held = true
		}
		switch counts := r.Counts(); {
		case counts.WorseThan(evidence.Value):
			evidence.Value, evidence.Stale, messages = counts, r.Stale, []string{r.Message}
		case counts == evidence.Value:
			evidence.Stale = commonCause(evidence.Stale, r.Stale)
			messages = append(messages, r.Message)
		}
	}
	evidence.Message = joinMessages(messages)
	return evidence
}

// commonCause is why several readings count for Unknown. One that says Unknown
// itself needs no other cause.
func commonCause(a, b Staleness) Staleness {
	if a == Fresh || b == Fresh {
		return Fresh
	}
	return min(a, b)
}

// Belief tells what became of a report that was offered to a set of known ones.
type Belief int

const (
	// Repeated: the same evidence, or older than what is known.
	Repeated Belief = iota
	// Believed: it is in the set now.
	Believed
	// Doubted: it would make things better, and only a live read may do that.
	Doubted
)

// Believe offers a report to the known ones. Worse is believed at once. What makes
// a Pod's reading or the fused value better is believed only from a live read of
// the Pod: a watch may be behind, and two producers may overwrite each other for
// seconds. Readings older than the Pod's known status version are
// late and change nothing, except that a live read replaces what was known
// whatever its version (a restored etcd steps back).
func Believe(known []Report, offered Report, live bool) ([]Report, Belief) {
	next := slices.Clone(known)
	i := slices.IndexFunc(known, func(r Report) bool { return r.Pod.UID == offered.Pod.UID })
	switch {
	case i < 0:
		next = append(next, offered)
	case known[i].Says(offered):
		return known, Repeated
	case !live && !offered.Relisted && known[i].Version.Newer(offered.Version):
		return known, Repeated
	case !live && known[i].Ended && !offered.Ended:
		// A UID that is gone never comes back; this was under way before it went.
		return known, Repeated
	default:
		next[i] = offered
	}
	better := i >= 0 && known[i].Counts().WorseThan(offered.Counts()) || Fuse(known).Value.WorseThan(Fuse(next).Value)
	if !live && better {
		return known, Doubted
	}
	return next, Believed
}
