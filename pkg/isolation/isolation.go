package isolation

import (
	"time"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
)

// Phase is where the isolation of a node stands.
type Phase string

const (
	// PhaseNone: nobody considered it.
	PhaseNone Phase = ""
	// Considered: a starter found it justified; nothing is done to the node yet.
	Considered Phase = "Considered"
	// Observed: it would be isolated in mode enforce.
	Observed Phase = "Observed"
	// Isolated: the node is kept out.
	Isolated Phase = "Isolated"
	// Spared: an operator lifted it, and it stays lifted while the same is found.
	Spared Phase = "Spared"
	// Closed: it is over.
	Closed Phase = "Closed"
)

// OpenPhases lists the phases of isolations that aren't over.
func OpenPhases() []Phase { return []Phase{Considered, Observed, Isolated, Spared} }

// Waiting is what the next step waits for.
type Waiting string

const (
	// WaitsNode: the node is out, and nothing is concluded of it.
	WaitsNode Waiting = "Node"
	// WaitsPermit: as many devices are out as may be, or something is paused.
	WaitsPermit Waiting = "Permit"
	// WaitsOthers: somebody else keeps the node out already.
	WaitsOthers Waiting = "Others"
	// WaitsMark: the API server refuses what has to be written.
	WaitsMark Waiting = "Mark"
)

// End is why an isolation is over.
type End string

const (
	// EndUnjustified: nothing justifies it any more.
	EndUnjustified End = "Unjustified"
	// EndPolicy: the policy isolates no nodes any more.
	EndPolicy End = "Policy"
	// EndGone: the node is deleted, or another one of the same name.
	EndGone End = "Gone"
)

// Levels is what a starter counts on a node now: levels, not what happened on the way to
// them.
type Levels struct {
	// Total are the devices of the node, Classes how many of these each class has.
	Total   int           `json:"total"`
	Classes []budget.Size `json:"classes,omitempty"`
	// Faulty are those that are faulty as far as the starter knows, FaultyCount how many
	// there are where the list was cut.
	Faulty      []Faulty `json:"faulty,omitempty"`
	FaultyCount int      `json:"faultyCount,omitempty"`
	// Conditions are the types of the conditions that are True and that the policy names.
	Conditions []string `json:"conditions,omitempty"`
	// Beat is how the node's Lease behaves.
	Beat device.Heartbeat `json:"beat,omitempty"`
	// Marked tells that a mark of Sickbay's is on the node as a whole.
	Marked bool `json:"marked,omitempty"`
	// By is the starter that counted.
	By string `json:"by,omitempty"`
}

// Same tells whether two counts come to the same, whoever counted.
func (l Levels) Same(other Levels) bool {
	if l.Total != other.Total || l.FaultyCount != other.FaultyCount || l.Beat != other.Beat || l.Marked != other.Marked ||
		len(l.Faulty) != len(other.Faulty) || len(l.Conditions) != len(other.Conditions) || len(l.Classes) != len(other.Classes) {
		return false
	}
	for i := range l.Faulty {
		if l.Faulty[i] != other.Faulty[i] {
			return false
		}
	}
	for i := range l.Conditions {
		if l.Conditions[i] != other.Conditions[i] {
			return false
		}
	}
	for i := range l.Classes {
		if l.Classes[i] != other.Classes[i] {
			return false
		}
	}
	return true
}

// Found is a mark of Sickbay's on a node.
type Found struct {
	Epoch int64     `json:"epoch"`
	Way   Way       `json:"way"`
	Since time.Time `json:"since,omitzero"`
	Why   string    `json:"why,omitempty"`
	// Whole tells that it still keeps the node out: neither the taint nor the cordon was
	// taken away beside what is written of it.
	Whole bool `json:"whole"`
}

// Isolation is what is remembered of one node: all of the workflow's state that is
// decided about. It can be serialised, and every deadline in it is absolute.
type Isolation struct {
	Node    string  `json:"node"`
	UID     string  `json:"uid,omitempty"`
	Phase   Phase   `json:"phase,omitempty"`
	Waiting Waiting `json:"waiting,omitempty"`
	// Detail says what it waits for, for people.
	Detail string `json:"detail,omitempty"`
	// Epoch numbers it: its start in Unix milliseconds, or what was found on the node.
	Epoch int64     `json:"epoch,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Ground is what justified it last, and Justified whether the last live look that could
	// tell found it so. UnjustifiedSince is since when nothing does; zero
	// while something does, or nobody can tell.
	Ground           Ground    `json:"ground,omitzero"`
	Justified        bool      `json:"justified,omitempty"`
	UnjustifiedSince time.Time `json:"unjustifiedSince,omitzero"`

	Levels     Levels    `json:"levels"`
	ReportedAt time.Time `json:"reportedAt,omitzero"`

	// Mark is what Sickbay wrote on the node; a zero Way is nothing. Missing tells that it
	// was taken away by somebody else.
	Mark    Mark      `json:"mark,omitzero"`
	RetryAt time.Time `json:"retryAt,omitzero"`
	Tries   int       `json:"tries,omitempty"`

	LookAt   time.Time `json:"lookAt,omitzero"`
	LookedAt time.Time `json:"lookedAt,omitzero"`
	// Lease is the node's Lease renewal at the last look, LeaseSince the look that first
	// found it so.
	Lease      string             `json:"lease,omitempty"`
	LeaseSince time.Time          `json:"leaseSince,omitzero"`
	Verdict    device.NodeVerdict `json:"verdict,omitempty"`

	// Lifting tells that an operator said to lift it, and SparedUntil how long that holds;
	// zero is until it isn't justified any more.
	Lifting     bool      `json:"lifting,omitempty"`
	SparedUntil time.Time `json:"sparedUntil,omitzero"`
	Words       []Word    `json:"words,omitempty"`
	End         End       `json:"end,omitempty"`
	Ended       time.Time `json:"ended,omitzero"`

	// Notices wait to be announced; Story keeps the latest ones for who asks.
	NoticeSeq int64    `json:"noticeSeq,omitempty"`
	Notices   []Notice `json:"notices,omitempty"`
	Story     []Notice `json:"story,omitempty"`
}

// Mark is what Sickbay wrote on a node.
type Mark struct {
	Way     Way       `json:"way,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Missing bool      `json:"missing,omitempty"`
}

// Open tells whether it has begun and isn't over.
func (i Isolation) Open() bool { return i.Phase != PhaseNone && i.Phase != Closed }

// InForce tells whether the node is kept out by Sickbay, as far as is known.
func (i Isolation) InForce() bool { return i.Mark.Way != "" && !i.Mark.Missing }
