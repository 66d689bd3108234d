package isolation

import (
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// Event is something that an isolation learns. The types below are all there are.
type Event interface{ event() }

// Reported is a starter's count. The first one begins it.
type Reported struct{ Levels Levels }

// Look is what a live look is to read.
type Look struct {
	Node string `json:"node"`
	// Epoch tells what was written for this isolation from what others wrote.
	Epoch int64 `json:"epoch,omitempty"`
	// Devices are those without a mark whose cases are to be asked.
	Devices []Faulty `json:"devices,omitempty"`
	// Conditions are the types that matter.
	Conditions []string `json:"conditions,omitempty"`
}

// Looked is what it read.
type Looked struct {
	Exists bool   `json:"exists"`
	UID    string `json:"uid,omitempty"`
	// Ready and Lease are the node's, as it is read now.
	Ready device.Readiness `json:"ready,omitempty"`
	Lease string           `json:"lease,omitempty"`
	// Faulty are the devices that are faulty now, Conditions those that are True.
	Faulty     []Faulty    `json:"faulty,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
	// Found is Sickbay's own mark on the node, and Others who else keeps it out.
	Found  *Found `json:"found,omitempty"`
	Others string `json:"others,omitempty"`
}

// Put isolates the node, or makes what is there say so.
type Put struct {
	Node   string    `json:"node"`
	Epoch  int64     `json:"epoch"`
	Way    Way       `json:"way"`
	Since  time.Time `json:"since"`
	Ground Ground    `json:"ground"`
	Levels Levels    `json:"levels"`
	// Observe only asks whether there would be a permit.
	Observe bool `json:"observe,omitempty"`
	// Again tells that it is in force, and was taken away or is to be another way: it has
	// its permit.
	Again bool `json:"again,omitempty"`
}

// Lift takes Sickbay's own mark off the node, of this epoch.
type Lift struct {
	Node  string `json:"node"`
	Epoch int64  `json:"epoch"`
}

// Outcome is what became of a Put or a Lift.
type Outcome string

const (
	InForce    Outcome = "InForce"
	WouldBe    Outcome = "Observed"
	Held       Outcome = "Held"
	Foreign    Outcome = "Foreign"
	Refused    Outcome = "Refused"
	Superseded Outcome = "Superseded"
	NodeOut    Outcome = "NodeOut"
	NodeGone   Outcome = "NodeGone"
	Lifted     Outcome = "Lifted"
)

// Written tells what became of a Put, Taken what became of a Lift.
type Written struct {
	Outcome Outcome       `json:"outcome"`
	Epoch   int64         `json:"epoch"`
	Way     Way           `json:"way,omitempty"`
	Detail  string        `json:"detail,omitempty"`
	Again   time.Duration `json:"again,omitempty"`
}

// Taken is what became of a Lift.
type Taken struct {
	Outcome Outcome `json:"outcome"`
	Epoch   int64   `json:"epoch"`
	Detail  string  `json:"detail,omitempty"`
}

// Offered tells that there is a permit now for who waited.
type Offered struct {
	Epoch int64 `json:"epoch"`
}

// Woke is a deadline that was reached.
type Woke struct{}

// Announced tells that the notices up to a number are on record.
type Announced struct{ UpTo int64 }

func (Reported) event()  {}
func (Looked) event()    {}
func (Written) event()   {}
func (Taken) event()     {}
func (Offered) event()   {}
func (Woke) event()      {}
func (Announced) event() {}
func (Message) event()   {}

// Answer is what a starter is told.
type Answer struct {
	Phase Phase `json:"phase"`
	Open  bool  `json:"open"`
}
