package quarantine

import (
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// Event is something that a case learns. The types below are all there are.
type Event interface{ event() }

// Reading is a report and what the catalogue makes of its message. The match is
// empty for Healthy and Unknown.
type Reading struct {
	device.Report
	Reason reason.Match `json:"match,omitzero"`
}

// Observed carries readings from the watch.
type Observed struct {
	Node     string    `json:"node,omitempty"`
	Readings []Reading `json:"readings"`
	// Lost is set when the driver has reported a health on this node before, so
	// that an Unknown is a loss. An Unknown that was never anything else opens no
	// case: the driver may have no health service.
	Lost bool `json:"lost,omitempty"`
	// Incarnation is the hardware behind the name, as the slices say.
	Incarnation device.Incarnation `json:"incarnation,omitzero"`
	// Around is what the device's mark counts in.
	Around Around `json:"around,omitzero"`
	// Sent is when this was sent, on the clock by which its readings are dated. What
	// counts is how old they were then, so that a clock that is wrong moves nothing.
	Sent time.Time `json:"sent,omitzero"`
	// Made is the mark that was made for this fault ahead of its case.
	Made Made `json:"made,omitzero"`
}

// Made is a mark that was made ahead of its case, because many devices failed at once.
type Made struct {
	// Epoch is that of the case that the fault opens, in milliseconds.
	Epoch   int64          `json:"epoch"`
	Name    string         `json:"name"`
	Version device.Version `json:"version,omitempty"`
	// At is when it was made.
	At time.Time `json:"at"`
}

// MadeAhead is a mark that was made, and of which device.
type MadeAhead struct {
	Device device.Key `json:"device"`
	Made   Made       `json:"made"`
}

// Fault is what is about to open a device's case.
type Fault struct {
	Device device.Key `json:"device"`
	Event  Observed   `json:"event"`
}

// Inventory tells that the device went missing or is listed (again).
type Inventory struct {
	Node    string               `json:"node,omitempty"`
	Present bool                 `json:"present"`
	Missing device.MissingReason `json:"missing,omitempty"`
	Now     device.Incarnation   `json:"incarnation,omitzero"`
	// MovedTo is set when the hardware that stood here is listed under another name.
	MovedTo string `json:"movedTo,omitempty"`
	// Listed is how many devices of the resource the node lists (device-plugin path
	// only). Present says then no more than that there are some.
	Listed int64 `json:"listed,omitempty"`
}

// MarkSeen tells what the watch sees of the device's mark: that it is there, or
// that it isn't any more, or that it doesn't say what Sickbay wrote.
type MarkSeen struct {
	Node    string    `json:"node,omitempty"`
	Present bool      `json:"present"`
	Intact  bool      `json:"intact"`
	Mark    MarkFound `json:"mark,omitzero"`
}

// MarkFound is what a mark says of the case that made it.
type MarkFound struct {
	Name     string          `json:"name,omitempty"`
	Epoch    int64           `json:"epoch,omitempty"`
	Severity reason.Severity `json:"severity,omitempty"`
	Reason   reason.Code     `json:"reason,omitempty"`
	Closes   reason.Closes   `json:"closes,omitempty"`
	Message  string          `json:"message,omitempty"`
	Actor    string          `json:"actor,omitempty"`
	Attempt  int             `json:"attempt,omitempty"`
	// Since is when that case was opened, in Unix milliseconds.
	Since int64 `json:"since,omitempty"`
	// FirstNotGood is when the device was first seen not good, in Unix milliseconds;
	// zero on a mark that doesn't tell.
	FirstNotGood int64 `json:"firstNotGood,omitempty"`
	// Until is the end of that case's lease, in Unix milliseconds.
	Until int64 `json:"until,omitempty"`
	// Retired is set if an operator retired the device, Restricted if nothing was found
	// of it but that its health is Unknown.
	Retired    bool `json:"retired,omitempty"`
	Restricted bool `json:"restricted,omitempty"`
	// Hardware is the incarnation that the mark was made for.
	Hardware device.Incarnation `json:"hardware,omitzero"`
	// Version is the object's resourceVersion when it was read.
	Version device.Version `json:"version,omitempty"`
}

// Phase is the phase of the case that wrote the mark, as far as the mark tells.
func (f MarkFound) Phase() Phase {
	switch {
	case f.Retired:
		return PhaseRetired
	case f.Restricted:
		return PhaseRestricted
	}
	return PhaseQuarantined
}

// Looked is the answer to a Look: what a live read of the API said.
type Looked struct {
	// Failed says why nothing could be read. All else is empty then.
	Failed string `json:"failed,omitempty"`
	// Asked is when the look was asked for: what was learnt later is newer.
	Asked    time.Time `json:"asked,omitzero"`
	Node     string    `json:"node,omitempty"`
	Readings []Reading `json:"readings,omitempty"`
	// Ended lists the UIDs of Pods among the known reports that are gone or terminal.
	Ended   []string `json:"ended,omitempty"`
	Holders []Holder `json:"holders,omitempty"`
	// NodeReady and NodeLease tell of the node: a Healthy counts only on a node
	// that is ready and whose Lease advanced since the look before.
	NodeReady bool `json:"nodeReady,omitempty"`
	// Readiness is the node's condition Ready; empty from a worker that only tells
	// whether it is True.
	Readiness device.Readiness `json:"readiness,omitempty"`
	NodeLease string           `json:"nodeLease,omitempty"`
	// Presence is the inventory's answer; nil where it has none (an incomplete
	// pool, a node that can't be told).
	Presence *Inventory `json:"presence,omitempty"`
	// Mark is the device's mark, nil if there is none or none can be.
	Mark *MarkFound `json:"mark,omitempty"`
	// MarkIntact tells that the mark says what Sickbay wrote.
	MarkIntact bool `json:"markIntact,omitempty"`
	// Poke says how the kubelet was asked to work the device's health out anew, or why
	// it wasn't: then the entries may lag by the driver's reporting delay.
	Poke string `json:"poke,omitempty"`
	// Driver tells what the look found of the driver itself on the node.
	Driver DriverSign `json:"driver,omitempty"`
	// Slices names the device's pool as it is published: another name for each time that
	// its slices were made anew. Empty while the pool is incomplete or gone.
	Slices string `json:"slices,omitempty"`
}

// DriverSign is what live Pods on a device's node say of its driver's other devices.
type DriverSign string

const (
	// DriverSilent: they say nothing, since no Pod there has one.
	DriverSilent DriverSign = ""
	// DriverSpeaks: some are Healthy or Unhealthy, and none is Unknown; or, of a device
	// plugin, some device of its resource is allocatable.
	DriverSpeaks DriverSign = "Speaks"
	// DriverUnknown: some are Unknown.
	DriverUnknown DriverSign = "Unknown"
)

// MarkOutcome says what became of a PutMark or LiftMark.
type MarkOutcome string

const (
	// OutcomeInForce: the API server accepted the mark, or it was there already.
	OutcomeInForce MarkOutcome = "InForce"
	// OutcomeUnavailable: no API to mark this device with.
	OutcomeUnavailable MarkOutcome = "Unavailable"
	// OutcomeRefused: the API server said no (rights, admission, validation).
	OutcomeRefused MarkOutcome = "Refused"
	// OutcomeHeld: there is no permit for it now; nothing was written.
	OutcomeHeld MarkOutcome = "Held"
	// OutcomeSuperseded: the mark belongs to a later epoch.
	OutcomeSuperseded MarkOutcome = "Superseded"
	// OutcomeForeign: an object of that name isn't Sickbay's. It is left alone.
	OutcomeForeign MarkOutcome = "Foreign"
	// OutcomeLifted: the mark is gone.
	OutcomeLifted MarkOutcome = "Lifted"
	// OutcomeChanged: the mark isn't what Sickbay wrote, and so isn't removed.
	OutcomeChanged MarkOutcome = "Changed"
)

// MarkReported is the answer to a PutMark or LiftMark.
type MarkReported struct {
	Outcome MarkOutcome `json:"outcome"`
	// Revision is the PutMark's; zero answers a LiftMark.
	Revision int64  `json:"revision,omitempty"`
	Epoch    int64  `json:"epoch"`
	Name     string `json:"name,omitempty"`
	Detail   string `json:"detail,omitempty"`
	// Again is when to ask again for a permit that was refused.
	Again time.Duration `json:"again,omitempty"`
	// Version is the object's resourceVersion as it is in force.
	Version device.Version `json:"version,omitempty"`
	// Before is what an older epoch's mark said that this one took over, or what
	// the later epoch's mark says.
	Before *MarkFound `json:"before,omitempty"`
}

// Announced tells that the notices up to a number are out.
type Announced struct {
	UpTo int64 `json:"upTo"`
}

// RestrictionAnswered is the answer to an AskRestriction.
type RestrictionAnswered struct {
	Epoch   int64 `json:"epoch"`
	Granted bool  `json:"granted"`
	// Again is when to ask again if it isn't granted.
	Again time.Duration `json:"again,omitempty"`
	// Incident is the workflow ID of the incident that holds the device's restriction,
	// Why says so for people.
	Incident string `json:"incident,omitempty"`
	Why      string `json:"why,omitempty"`
}

// PermitAnswered is the answer to an AskPermit.
type PermitAnswered struct {
	Epoch   int64 `json:"epoch"`
	Granted bool  `json:"granted"`
	// Again is when to ask again, Why says for people why it wouldn't be granted.
	Again time.Duration `json:"again,omitempty"`
	Why   string        `json:"why,omitempty"`
}

// PermitOffered tells a case that is held that it is its turn.
type PermitOffered struct {
	Epoch int64 `json:"epoch"`
}

// Woke tells that time went on.
type Woke struct{}

func (Observed) event()     {}
func (Inventory) event()    {}
func (MarkSeen) event()     {}
func (Looked) event()       {}
func (MarkReported) event() {}
func (Announced) event()    {}
func (Woke) event()         {}
func (Message) event()      {}

func (RestrictionAnswered) event() {}
func (PermitOffered) event()       {}
func (PermitAnswered) event()      {}
