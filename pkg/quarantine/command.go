package quarantine

import (
	"fmt"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// Command is something that is owed to the world. Decide returns all that are
// owed, every time, in the order of their urgency: they are levels and not
// edges. One that is under way already isn't started again; each is safe to
// repeat.
type Command interface{ command() }

// PutMark asks for the mark to be there and to say this. It is answered by a
// MarkReported.
type PutMark struct {
	Device   device.Key         `json:"device"`
	Node     string             `json:"node,omitempty"`
	Epoch    int64              `json:"epoch"`
	Revision int64              `json:"revision"`
	Reason   reason.Match       `json:"reason"`
	Message  string             `json:"message,omitempty"`
	Severity reason.Severity    `json:"severity"`
	Attempt  int                `json:"attempt,omitempty"`
	Actor    string             `json:"actor"`
	Since    time.Time          `json:"since"`
	Until    time.Time          `json:"until"`
	Hardware device.Incarnation `json:"hardware,omitzero"`
	// FirstNotGood is since when the device isn't good, Tenants are the namespaces whose
	// Pods hold it: its turn for a permit, and what that counts in.
	FirstNotGood time.Time `json:"firstNotGood,omitzero"`
	Around       Around    `json:"around,omitzero"`
	Tenants      []string  `json:"tenants,omitempty"`
	// Retired is what an operator said of the device, which no reading tells again.
	Retired bool `json:"retired,omitempty"`
	// Restricted is set while nothing is found of the device but that its health is
	// Unknown: whoever adopts the mark needs no gates to take it away.
	Restricted bool `json:"restricted,omitempty"`
}

// LiftMark asks for the mark of this epoch to be removed, if it is still what
// Sickbay wrote. It is answered by a MarkReported.
type LiftMark struct {
	Device device.Key `json:"device"`
	Epoch  int64      `json:"epoch"`
}

// Look asks for a live read of everything that bears on the device. It is
// answered by a Looked.
type Look struct {
	Device device.Key `json:"device"`
	Node   string     `json:"node,omitempty"`
	// Asked is when the look was first owed.
	Asked time.Time `json:"asked"`
	// Hardware is what the case is about, to see where it is listed now.
	Hardware device.Incarnation `json:"hardware,omitzero"`
	// Known are the Pods whose reports the case holds.
	Known []device.PodRef `json:"known,omitempty"`
}

// AskRestriction asks whether a device that is Unknown past its window may be kept out
// of new allocations now, or is a part of something larger that is looked into as a
// whole. It is answered by a RestrictionAnswered.
type AskRestriction struct {
	Device device.Key `json:"device"`
	Node   string     `json:"node,omitempty"`
	Epoch  int64      `json:"epoch"`
	// Since is the first not-good moment of the case.
	Since time.Time `json:"since"`
}

// AskPermit asks, where the mode is observe, whether the mark that isn't made would have
// a permit. It is answered by a PermitAnswered.
type AskPermit struct {
	Device       device.Key      `json:"device"`
	Node         string          `json:"node,omitempty"`
	Epoch        int64           `json:"epoch"`
	Severity     reason.Severity `json:"severity"`
	FirstNotGood time.Time       `json:"firstNotGood,omitzero"`
	Around       Around          `json:"around,omitzero"`
	Tenants      []string        `json:"tenants,omitempty"`
}

// Announce asks for notices to be published. It is answered by an Announced.
type Announce struct {
	Device  device.Key `json:"device"`
	Notices []Notice   `json:"notices"`
}

func (PutMark) command()  {}
func (LiftMark) command() {}
func (Look) command()     {}
func (Announce) command() {}

func (AskRestriction) command() {}
func (AskPermit) command()      {}

// owed lists what the case owes the world now.
func (d *decision) owed() []Command {
	c := &d.c
	var commands []Command
	switch {
	case d.p.Mode != ModeEnforce:
	case c.Mark.State == MarkWanted, c.Mark.State == MarkInForce && c.Mark.outdated() && c.Mark.RetryAt.IsZero():
		until, phase := c.LeaseUntil, c.Phase
		if c.Phase == PhaseGone {
			// Whoever adopts the mark of a gone device goes on as what it was before.
			until, phase = c.ForgetAt, c.Former
		}
		message := c.Message
		if c.Phase == PhaseRestricted && message == "" {
			message = fmt.Sprintf("its health isn't known since %s; nothing else was found", stamp(c.FirstNotGood))
		}
		commands = append(commands, PutMark{
			Device: c.Device, Node: c.Node, Epoch: c.Epoch, Revision: c.Mark.Revision,
			Reason: c.Reason, Message: message, Severity: c.Severity, Attempt: c.Attempt,
			Actor: c.Actor, Since: c.Since, Until: until, Hardware: c.Incarnation,
			FirstNotGood: c.FirstNotGood, Around: c.Around, Tenants: c.tenants(),
			Retired: phase == PhaseRetired, Restricted: phase == PhaseRestricted,
		})
	case c.Mark.State == MarkLifting && c.Mark.RetryAt.IsZero():
		commands = append(commands, LiftMark{Device: c.Device, Epoch: c.Epoch})
	}
	if c.Open() && !c.LookAt.IsZero() && !c.LookAt.After(d.now) {
		look := Look{Device: c.Device, Node: c.Node, Asked: d.now, Hardware: c.Incarnation}
		for _, r := range c.Reports {
			if !r.Ended {
				look.Known = append(look.Known, r.Pod)
			}
		}
		commands = append(commands, look)
	}
	if r := c.Recovery; r != nil && c.Phase == PhaseRecovering && !r.Granted && c.Mark.State == MarkInForce && !r.TendAt.After(d.now) {
		commands = append(commands, Tend{
			Device: c.Device, Node: c.Node, Epoch: c.Epoch, Attempt: c.Attempt, Token: r.Token, Gate: r.Gate, Hardware: c.Incarnation,
			Asked: d.now, Deadline: r.Deadline, Health: r.Health, Job: r.Job,
		})
	}
	if r := c.Recovery; r != nil && c.Phase == PhaseRecovering && r.Asked && !r.Granted {
		commands = append(commands, AskReturn{Device: c.Device, Node: c.Node, Epoch: c.Epoch, Token: r.Token, Around: c.Around})
	}
	if c.Litter != 0 && !c.CleanAt.After(d.now) {
		commands = append(commands, CleanUp{Device: c.Device, UpTo: c.Litter})
	}
	if c.Asking {
		commands = append(commands, AskRestriction{Device: c.Device, Node: c.Node, Epoch: c.Epoch, Since: c.FirstNotGood})
	}
	if d.asksPermit() {
		commands = append(commands, AskPermit{
			Device: c.Device, Node: c.Node, Epoch: c.Epoch, Severity: c.Severity, FirstNotGood: c.FirstNotGood, Around: c.Around, Tenants: c.tenants(),
		})
	}
	if len(c.Notices) > 0 {
		commands = append(commands, Announce{Device: c.Device, Notices: c.Notices})
	}
	return commands
}
