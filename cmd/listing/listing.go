package listing

import (
	"cmp"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// Listing is one answer. Its JSON form is part of the command line's interface.
type Listing struct {
	At time.Time `json:"at"`
	// Devices is sorted by name, unless Sort was told otherwise.
	Devices []Device `json:"devices"`
	// Unmapped holds the health entries that are not Healthy and can't be
	// attributed to one device, sorted by Pod; nil where nobody could tell.
	Unmapped []device.Unmapped `json:"unmapped"`
	// Blind says what Sickbay itself can't see now: nobody watches, or decides.
	Blind []string `json:"blind,omitempty"`
	// Problems says what could not be read and what the answer lacks for it.
	Problems []string `json:"problems,omitempty"`
	// Notes says what can't be done in this cluster at all.
	Notes []string `json:"notes,omitempty"`

	// openClasses are the DeviceClasses that some devices may belong to or not.
	openClasses []string
	// noClasses says why the classes are those of allocations only.
	noClasses string
}

// Device is what is known of one device. Its four signals stay apart: what is
// allocated (Holders), what is reported (Health), what was decided (Phase), what
// keeps it out (Mark).
type Device struct {
	Name string      `json:"name"`
	Path device.Path `json:"path"`
	Key  device.Key  `json:"key"`
	Node string      `json:"node,omitempty"`
	// Listed tells that a slice or a Pod's status names the device now. A device
	// that is only in a case or a mark isn't there.
	Listed bool `json:"listed"`
	// Classes are the DeviceClasses that the device belongs to, held or not, and
	// those by which it is allocated now; for a device plugin's device, its
	// resource. Sorted.
	Classes []string `json:"classes,omitempty"`

	// Health is the worst that Pods report now; empty where no Pod does. Where a
	// Healthy can't be believed, it is Unknown, and Stale says why.
	Health  device.Health    `json:"health,omitempty"`
	Stale   device.Staleness `json:"stale,omitempty"`
	Message string           `json:"message,omitempty"`
	// Age is how old what is reported may be, apart from what it is; nil where
	// nothing is reported.
	Age *Age `json:"age,omitempty"`
	// Unmonitored says that the device is Unknown because its driver never reported any
	// health on the node, as far as the starters remember.
	Unmonitored bool `json:"unmonitored,omitempty"`
	// NodeOut says that the device's node is out, and why: nothing that is read on it
	// says anything of now, and nothing is concluded from it.
	NodeOut device.Staleness `json:"nodeOut,omitempty"`
	// NodeIsolated says that Sickbay keeps the device's whole node out, and why; nil where it
	// doesn't, and in an answer from the directory.
	NodeIsolated *Isolated `json:"nodeIsolated,omitempty"`

	// Phase and what follows are the open case's; empty without one. Where only
	// the mark tells of a case, Source is "mark" and Waiting isn't known.
	Phase    quarantine.Phase   `json:"phase,omitempty"`
	Waiting  quarantine.Waiting `json:"waiting,omitempty"`
	Reason   string             `json:"reason,omitempty"`
	Severity string             `json:"severity,omitempty"`
	Epoch    int64              `json:"epoch,omitempty"`
	Attempt  int                `json:"attempt,omitempty"`
	// Since is when the device was first not good; where only Temporal's list of
	// workflows tells of the case, when that was opened.
	Since  *time.Time `json:"since,omitempty"`
	Source Source     `json:"source,omitempty"`
	// Workflow is the ID of the workflow that owns the case.
	Workflow string `json:"workflow,omitempty"`

	Mark    *Mark    `json:"mark,omitempty"`
	Holders []Holder `json:"holders,omitempty"`
}

// Source says where a phase comes from.
type Source string

const (
	// SourceCase: the workflow itself answered.
	SourceCase Source = "case"
	// SourceAttributes: Temporal lists the workflow, but no worker answered; what
	// it last wrote into its search attributes is shown.
	SourceAttributes Source = "searchAttributes"
	// SourceMark: Temporal is away or has no case; the mark says what its case was.
	SourceMark Source = "mark"
)

// Mark is what keeps a device out.
type Mark struct {
	// State is the case's word on it, or for a mark without a case InForce or
	// Changed, as it is found.
	State string `json:"state"`
	// Name is the DeviceTaintRule; empty where there is none.
	Name  string `json:"name,omitempty"`
	Epoch int64  `json:"epoch,omitempty"`
	// Detail says why it isn't in force.
	Detail string `json:"detail,omitempty"`
}

// markChanged is the state of a mark that doesn't say any more what Sickbay wrote.
const markChanged = "Changed"

// Holder is a Pod that has the device allocated.
type Holder struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Claim     string `json:"claim,omitempty"`
}

// String is namespace/name.
func (h Holder) String() string { return h.Namespace + "/" + h.Name }

// Why is the reason of the open case, or without one why what is reported can't be
// believed.
func (d Device) Why() string {
	if d.Phase != "" || d.Workflow != "" {
		return d.Reason
	}
	if d.Unmonitored {
		return Unmonitored
	}
	return string(cmp.Or(d.Stale, d.NodeOut))
}

// Faulty tells that there is something to look at: a case, a mark, or a report
// that isn't Healthy.
func (d Device) Faulty() bool {
	return d.Workflow != "" || d.Phase != "" || d.Mark != nil || d.Health.WorseThan(device.Healthy)
}
