package directory

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reading"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// Entry is one device's record.
type Entry struct {
	Device device.Key `json:"device"`
	// Seen is nil for a device that nothing in the cluster names any more.
	Seen *Seen `json:"seen,omitempty"`
	// Case is nil for a device without an open case.
	Case *Case `json:"case,omitempty"`
	// SeenRevision and CaseRevision change with every write of the field, also
	// with its removal; zero is a field that was never written.
	SeenRevision int64 `json:"seenRevision,omitempty"`
	CaseRevision int64 `json:"caseRevision,omitempty"`
}

// Seen is what the starter observes of a device. Its signals are kept apart: who
// has it allocated (Holders), what is reported of its health (Health), whether
// its holders' containers are ready (Holder.Containers), and whether the tenant's service
// meets its objective (Objective). None is derived from another.
type Seen struct {
	Device device.Key `json:"device"`
	Node   string     `json:"node,omitempty"`
	// Classes are the DeviceClasses by which it is allocated now, sorted, or a device
	// plugin's resource; none for a DRA device that nobody holds.
	Classes []string `json:"classes,omitempty"`
	// Listed tells that a slice has it now. For a device plugin's device it tells no
	// more than that the node lists devices of its resource.
	Listed bool `json:"listed"`
	// Hardware is the incarnation behind the name, as far as the driver says.
	Hardware device.Incarnation `json:"hardware,omitzero"`

	Holders []Holder `json:"holders,omitempty"`

	// Health is the worst that live Pods report; empty where none does.
	Health  device.Health `json:"health,omitempty"`
	Message string        `json:"message,omitempty"`
	// Stale says why the health can't be believed now; empty where it can.
	Stale device.Staleness `json:"stale,omitempty"`
	// StaleSince is since when it can't be, as far as the starter that wrote this has
	// seen: the truth may be older. Zero where it doesn't know.
	StaleSince time.Time `json:"staleSince,omitzero"`
	// Unmonitored says that the health is Unknown because the driver never reported any on
	// the node: nothing was lost.
	Unmonitored bool `json:"unmonitored,omitempty"`
	// Pod and Version are the reading that decides: its Pod, and the status
	// version at which it first said so. Observed is when Sickbay first saw it.
	Pod      string         `json:"pod,omitempty"`
	Version  device.Version `json:"version,omitempty"`
	Observed time.Time      `json:"observed,omitzero"`

	Objective Objective `json:"objective"`
}

// Objective says whether the tenant's service meets its objective. Sickbay has no
// way to know, and says that; a site's own probe may.
type Objective string

// ObjectiveNotConfigured is the only value that Sickbay writes.
const ObjectiveNotConfigured Objective = "not configured"

// Holder is a Pod that has the device allocated.
type Holder struct {
	Pod device.PodRef `json:"pod"`
	// Claim is empty on the device-plugin path.
	Claim string `json:"claim,omitempty"`
	// Containers says whether the Pod's containers are ready, empty where its Pod
	// isn't known. It says nothing of the device's health, nor that of it.
	Containers Readiness `json:"containers,omitempty"`
}

// Readiness is what a Pod's condition ContainersReady says.
type Readiness string

const (
	ContainersReady    Readiness = "Ready"
	ContainersNotReady Readiness = "NotReady"
)

// Case is what the device's workflow says of its open case.
type Case struct {
	Device   device.Key         `json:"device"`
	Node     string             `json:"node,omitempty"`
	Workflow string             `json:"workflow,omitempty"`
	Phase    quarantine.Phase   `json:"phase"`
	Waiting  quarantine.Waiting `json:"waiting,omitempty"`
	// Epoch and Attempt fence: an older one never replaces a newer one.
	Epoch        int64           `json:"epoch"`
	Attempt      int             `json:"attempt,omitempty"`
	Reason       reason.Code     `json:"reason,omitempty"`
	Severity     reason.Severity `json:"severity,omitempty"`
	Closes       reason.Closes   `json:"closes,omitempty"`
	Message      string          `json:"message,omitempty"`
	Actor        string          `json:"actor,omitempty"`
	Since        time.Time       `json:"since,omitzero"`
	FirstNotGood time.Time       `json:"firstNotGood,omitzero"`
	LeaseUntil   time.Time       `json:"leaseUntil,omitzero"`
	Mark         Mark            `json:"mark,omitzero"`
	Evidence     device.Health   `json:"evidence,omitempty"`
	LookedAt     time.Time       `json:"lookedAt,omitzero"`
	// Next is the case's next deadline; zero where only an event carries it on.
	Next time.Time `json:"next,omitzero"`
	// End is set in the last transition of a case only.
	End quarantine.End `json:"end,omitempty"`
	// Source says who told: the workflow itself, or, where none answered, the mark.
	Source Source `json:"source"`
}

// Source says where a case's record comes from.
type Source string

const (
	SourceWorkflow Source = "workflow"
	// SourceMark: no workflow answered, and a mark in the cluster says that there
	// is a case. It says less.
	SourceMark Source = "mark"
)

// Mark is what keeps the device out of new allocations.
type Mark struct {
	State        quarantine.MarkState `json:"state,omitempty"`
	Name         string               `json:"name,omitempty"`
	Detail       string               `json:"detail,omitempty"`
	InForceSince time.Time            `json:"inForceSince,omitzero"`
}

// CaseOf is the record of a workflow's case. now bounds the next deadline from
// below. It is nil for a device whose case isn't open.
func CaseOf(c quarantine.Case, workflow string, now time.Time) *Case {
	if c.Phase == quarantine.PhaseNone {
		return nil
	}
	record := &Case{
		Device: c.Device, Node: c.Node, Workflow: workflow, Phase: c.Phase, Waiting: c.Waiting,
		Epoch: c.Epoch, Attempt: c.Attempt,
		Reason: c.Reason.Code, Severity: c.Severity, Closes: c.Reason.Closes, Message: c.Message, Actor: c.Actor,
		Since: c.Since, FirstNotGood: c.FirstNotGood, LeaseUntil: c.LeaseUntil,
		Mark:     Mark{State: c.Mark.State, Name: c.Mark.Name, Detail: c.Mark.Detail, InForceSince: c.Mark.InForceSince},
		Evidence: c.Evidence().Value, LookedAt: c.LookedAt, Next: c.NextWake(now), End: c.End, Source: SourceWorkflow,
	}
	return record
}

// CaseOfMark is the record of a case of which only the mark tells.
func CaseOfMark(key device.Key, node string, found quarantine.MarkFound) *Case {
	record := &Case{
		Device: key, Node: node, Phase: found.Phase(), Epoch: found.Epoch, Attempt: found.Attempt,
		Reason: found.Reason, Severity: found.Severity, Closes: found.Closes, Message: found.Message, Actor: found.Actor,
		Mark: Mark{State: quarantine.MarkInForce, Name: found.Name}, Source: SourceMark,
	}
	if found.Since > 0 {
		record.Since = time.UnixMilli(found.Since).UTC()
	}
	if found.FirstNotGood > 0 {
		record.FirstNotGood = time.UnixMilli(found.FirstNotGood).UTC()
	}
	return record
}

// Observe fills in what the reports of all Pods say of the device.
func (s *Seen) Observe(reports []device.Report) {
	live := slices.DeleteFunc(slices.Clone(reports), func(r device.Report) bool { return r.Ended })
	evidence := device.Fuse(live)
	s.Health, s.Message = evidence.Value, evidence.Message
	for _, r := range evidence.Reports {
		if r.Health == evidence.Value && (s.Pod == "" || r.Observed.Before(s.Observed)) {
			s.Pod, s.Version, s.Observed = r.Pod.String(), r.Version, r.Observed.UTC()
		}
	}
}

// Hold takes in a holder. Holders are kept sorted, each Pod once.
func (s *Seen) Hold(h Holder) {
	at, there := slices.BinarySearchFunc(s.Holders, h, func(a, b Holder) int {
		switch {
		case a.Pod.String()+a.Pod.UID < b.Pod.String()+b.Pod.UID:
			return -1
		case a.Pod.String()+a.Pod.UID > b.Pod.String()+b.Pod.UID:
			return 1
		}
		return 0
	})
	if !there {
		s.Holders = slices.Insert(s.Holders, at, h)
	}
}

// says is what a field's value says, for comparing: without what two processes
// that see the same cluster may put differently. When a reading was first seen,
// at which version, and since when it can't be believed is known only to who has
// watched since then.
func (s Seen) says() string {
	s.Observed, s.StaleSince, s.Version, s.Pod = time.Time{}, time.Time{}, "", ""
	return encode(s)
}

// same tells whether two texts of a field say the same.
func same(field Field, a, b string) bool {
	if a == b || a == "" || b == "" || field == FieldCase {
		return a == b
	}
	var x, y Seen
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && x.says() == y.says()
}

// encode writes a value as it stands in Redis. Only types of this file are given
// to it, and they can be written.
func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("write %T: %v", value, err))
	}
	return string(text)
}

// indexes are the index sets that a field's value puts the device into.
func (s Seen) indexes() []string {
	names := indexed(IndexNode, s.Node, IndexDriver, reading.DriverOf(s.Device))
	for _, class := range s.Classes {
		names = append(names, indexed(IndexClass, class)...)
	}
	return names
}

func (c Case) indexes() []string {
	return append(indexed(IndexPhase, string(c.Phase), IndexReason, string(c.Reason)), casesName)
}

func indexed(pairs ...string) []string {
	var names []string
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			names = append(names, indexName(pairs[i], pairs[i+1]))
		}
	}
	return names
}
