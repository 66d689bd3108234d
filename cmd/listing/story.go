package listing

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reading"
	"github.com/sickbay-dev/sickbay/pkg/telemetry"
	workflow "github.com/sickbay-dev/sickbay/workflows/device"
)

// Story is everything that is known of one device. Its JSON form is part of the
// command line's interface.
type Story struct {
	At time.Time `json:"at"`
	// Summary says in one sentence how it is, Next what happens next and when, or
	// whose turn it is.
	Summary string `json:"summary"`
	Next    string `json:"next"`

	Device  Device  `json:"device"`
	Signals Signals `json:"signals"`
	// Evidence is what each Pod says of the device, and what ended ones said last.
	Evidence []Reading `json:"evidence"`
	// Unmapped are the faults that may be about this device, or about another one.
	Unmapped []device.Unmapped `json:"unmapped"`
	// Case is the open case as its workflow tells it; nil where there is none, or
	// where no worker answered.
	Case *quarantine.Case `json:"case,omitempty"`
	// MarkText says what keeps the device out, in the words of the case.
	MarkText string `json:"markText"`
	// MarkFound is what the device's mark in the cluster says; nil without one.
	MarkFound *quarantine.MarkFound `json:"markFound,omitempty"`
	Family    []Relative            `json:"family"`
	Timeline  []quarantine.Notice   `json:"timeline"`
	// UI is the address of its workflow in Temporal's UI, where that is configured.
	UI string `json:"ui,omitempty"`
	// Trace is the ID of the epoch's trace, where there is one.
	Trace string `json:"trace,omitempty"`

	// Blind says what Sickbay itself can\'t see now.
	Blind    []string `json:"blind,omitempty"`
	Problems []string `json:"problems,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

// Signals are the four that never stand for one another.
type Signals struct {
	// Allocation lists the claims that have the device; for a device plugin's
	// device, nothing tells but the Pods' own status.
	Allocation []Allocation `json:"allocation"`
	// Health is the worst that Pods report now; empty where none does. Stale says why
	// it is Unknown although they say Healthy.
	Health device.Health    `json:"health,omitempty"`
	Stale  device.Staleness `json:"stale,omitempty"`
	// Containers is whether the containers of its holders are ready.
	Containers []PodStatus `json:"containers"`
	// Objective is whether the tenant's service does what it is for. Nobody tells
	// Sickbay: it is always "not configured".
	Objective string `json:"objective"`
}

// Believed is what is believed of its health, with why that isn't what Pods say.
func (s Signals) Believed() string {
	return workflow.BelievedText(device.Evidence{Value: s.Health, Stale: s.Stale})
}

const notConfigured = "not configured"

// Allocation is a claim that has the device allocated.
type Allocation struct {
	Claim   string `json:"claim"`
	Request string `json:"request,omitempty"`
	Class   string `json:"class,omitempty"`
	// AdminAccess marks a claim that monitors the device and doesn't hold it.
	AdminAccess bool `json:"adminAccess,omitempty"`
	// Ours marks a claim of Sickbay's own, by which it tries the device.
	Ours bool     `json:"ours,omitempty"`
	Pods []string `json:"pods,omitempty"`
}

// Reading is one Pod's word on the device.
type Reading struct {
	Pod       device.PodRef `json:"pod"`
	Container string        `json:"container,omitempty"`
	Claim     string        `json:"claim,omitempty"`
	Health    device.Health `json:"health"`
	// Stale says why the case doesn't believe a Healthy; empty where it does.
	Stale   device.Staleness `json:"stale,omitempty"`
	Message string           `json:"message,omitempty"`
	// Version is the status version where a case keeps it, and then Observed says
	// when the reading was first seen. Without a case nobody keeps either: Version
	// is then the Pod's present resourceVersion, and Observed nil.
	Version  device.Version `json:"version"`
	Observed *time.Time     `json:"observed,omitempty"`
	// Monitor marks a Pod that doesn't hold the device: it has it by admin access, is Sickbay's own,
	// or it has another part of the chip, whose fault reaches this one.
	Monitor bool `json:"monitor,omitempty"`
	// Ended marks what a Pod said that is gone now.
	Ended bool `json:"ended,omitempty"`
}

// Relative is another device on the same chip.
type Relative struct {
	Relation Relation `json:"relation"`
	Device   Device   `json:"device"`
}

// Sources is what a story is told from.
type Sources struct {
	Cluster Cluster
	// Cases are those of the device and its relatives. CasesMissing is set where
	// Temporal didn't say which there are.
	Cases        []Case
	CasesMissing bool
	Pods         []PodStatus
	Timeline     []quarantine.Notice
	// Problems are those of the sources beside the cluster.
	Problems []string
}

// Tell puts together what is known of one device. It is deterministic.
func Tell(key device.Key, from Sources, now time.Time) Story {
	j, listing := join(from.Cluster, from.Cases, now)
	survey := &Survey{joined: j}
	told := Story{
		At: now, Device: Device{Name: key.String(), Path: key.Path(), Key: key, Node: key.Node},
		Signals:  Signals{Allocation: []Allocation{}, Containers: slices.Concat([]PodStatus{}, from.Pods), Objective: notConfigured},
		Evidence: []Reading{}, Unmapped: []device.Unmapped{}, Family: []Relative{}, Timeline: from.Timeline,
		Problems: slices.Concat(listing.Problems, from.Problems), Notes: listing.Notes,
	}
	relatives := survey.Relatives(key)
	for _, d := range listing.Devices {
		if d.Key == key {
			told.Device = d
		} else if relation, ok := relatives[d.Key]; ok {
			told.Family = append(told.Family, Relative{Relation: relation, Device: d})
		}
	}
	for _, u := range listing.Unmapped {
		if slices.Contains(u.Candidates, key) {
			told.Unmapped = append(told.Unmapped, u)
		}
	}
	for _, c := range from.Cases {
		if c.State != nil && c.State.Case.Device == key && c.State.Case.Open() {
			state := c.State.Case
			told.Case = &state
			told.Trace = telemetry.Epoch{TraceParent: c.State.TraceParent}.TraceID()
		}
	}
	for _, mark := range from.Cluster.Marks {
		if mark.Device == key {
			told.MarkFound = &mark.Found
		}
	}
	told.Signals.Health, told.Signals.Stale = told.Device.Health, told.Device.Stale
	told.Signals.Allocation = append(told.Signals.Allocation, allocations(key, from.Cluster.Claims)...)
	told.Evidence = append(told.Evidence, evidence(j.reports[key], told.Case)...)
	if told.Case != nil {
		told.Timeline = inOrder(slices.Concat(told.Timeline, told.Case.Notices))
	}
	if told.Timeline == nil {
		told.Timeline = []quarantine.Notice{}
	}
	told.MarkText = markText(told)
	told.Summary = summary(told)
	told.Next = next(told, from.CasesMissing)
	return told
}

func allocations(key device.Key, claims []device.Claim) []Allocation {
	var found []Allocation
	for _, claim := range claims {
		for _, result := range claim.Results {
			if result.Device != key {
				continue
			}
			a := Allocation{
				Claim: claim.Namespace + "/" + claim.Name, Request: result.Request, Class: result.Class, AdminAccess: result.AdminAccess, Ours: result.Ours,
			}
			for _, pod := range claim.ReservedFor {
				a.Pods = append(a.Pods, pod.String())
			}
			slices.Sort(a.Pods)
			found = append(found, a)
		}
	}
	slices.SortFunc(found, func(a, b Allocation) int {
		return cmp.Or(strings.Compare(a.Claim, b.Claim), strings.Compare(a.Request, b.Request))
	})
	return found
}

// evidence lays what Pods say now over what the case remembers of them. What both
// have alike, the case dates.
func evidence(reports []device.Report, open *quarantine.Case) []Reading {
	var remembered []device.Report
	if open != nil {
		remembered = open.Reports
	}
	var readings []Reading
	live := map[string]bool{}
	for _, r := range reports {
		live[r.Pod.UID] = true
		said := Reading{
			Pod: r.Pod, Container: r.Container, Claim: r.Claim, Health: r.Health, Stale: r.Stale, Message: r.Message,
			Version: r.Version, Monitor: r.Monitor,
		}
		for _, known := range remembered {
			if known.Pod.UID == r.Pod.UID && !known.Ended && known.Health == r.Health && known.Message == reading.Shorten(r.Message) {
				said.Version, said.Observed = known.Version, moment(known.Observed)
			}
		}
		readings = append(readings, said)
	}
	for _, r := range remembered {
		if live[r.Pod.UID] {
			continue
		}
		readings = append(readings, Reading{
			Pod: r.Pod, Container: r.Container, Claim: r.Claim, Health: r.Health, Stale: r.Stale, Message: r.Message, Version: r.Version,
			Observed: moment(r.Observed), Monitor: r.Monitor, Ended: r.Ended,
		})
	}
	slices.SortFunc(readings, func(a, b Reading) int {
		return cmp.Or(strings.Compare(a.Pod.String(), b.Pod.String()), strings.Compare(a.Pod.UID, b.Pod.UID))
	})
	return readings
}

// markText is the case's own word on its mark, or what the mark itself shows.
func markText(s Story) string {
	mark := s.Device.Mark
	switch {
	case mark != nil && mark.State == markChanged:
		return mark.Name + " is there, and somebody changed it: it may not keep the device out"
	case s.Case != nil:
		text := workflow.MarkText(*s.Case, plain)
		if s.Case.Mark.State == quarantine.MarkInForce && s.MarkFound == nil {
			text += "; it was not in the cluster when that was read"
		}
		return text
	case mark == nil:
		return workflow.NoMarkText(s.Device.Path)
	case s.Device.Source == SourceAttributes && s.MarkFound == nil:
		return "not known: no worker answers"
	}
	return mark.Name + " is in the cluster as Sickbay wrote it"
}

// plain sets nothing off: a terminal isn't Markdown.
func plain(text string) string { return text }
