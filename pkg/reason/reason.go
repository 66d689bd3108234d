// Package reason is the catalogue that turns what a driver says into a reason
// code, and a code into how serious it is, how far it reaches, what is done and
// what closes it. The catalogue is versioned data with a site's overrides on top;
// every decision records the version and the rule that matched.
//
// The package is pure: parsing and matching only. It never decides about a
// device; pkg/quarantine does, with the match as one of its inputs.
package reason

import (
	"fmt"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// Code names a reason. Codes are stable across catalogue versions, CamelCase,
// and fit into a Kubernetes label value (at most 63 characters).
type Code string

// Codes that Sickbay itself gives; the catalogue's tables add the drivers' ones.
const (
	// UnhealthyWithoutMessage: the driver or plugin says Unhealthy and no more.
	UnhealthyWithoutMessage Code = "UnhealthyWithoutMessage"
	// UnrecognizedMessage: no rule matches the driver's message.
	UnrecognizedMessage Code = "UnrecognizedMessage"
	// XidUnrecognized: an Xid that no rule lists.
	XidUnrecognized Code = "XidUnrecognized"
	// HealthUnknown: the device's health was known and isn't any more.
	HealthUnknown Code = "HealthUnknown"
	// PluginAbsent: the kubelet says Healthy, and no device plugin stands behind it.
	PluginAbsent Code = "PluginAbsent"
	// HealthFlapping: the device went Unknown again and again within a while.
	HealthFlapping Code = "HealthFlapping"
	// DeviceMissing: a complete pool doesn't list the device any more.
	DeviceMissing Code = "DeviceMissing"
	// HardwareReplaced: another card stands behind the device's name, and has
	// proven nothing yet.
	HardwareReplaced Code = "HardwareReplaced"
	// Adopted: a mark was found whose case is unknown; what it says is kept.
	Adopted Code = "Adopted"
	// ByHand: an operator quarantined the device, for a reason of their own.
	ByHand Code = "ByHand"
)

// Severity orders reasons. Inside a case it only rises.
type Severity int

const (
	// SeverityNote: an application's error, no fault of the device.
	SeverityNote Severity = iota + 1
	// SeverityMinor: contained or passing; watched.
	SeverityMinor
	// SeverityMajor: the device is out until it is reset and proven.
	SeverityMajor
	// SeverityFatal: hands are needed; nothing is checkpointed on the device.
	SeverityFatal
)

var severities = [...]string{SeverityNote: "note", SeverityMinor: "minor", SeverityMajor: "major", SeverityFatal: "fatal"}

// String is the severity's name in catalogues, labels and metrics.
func (s Severity) String() string {
	if s < SeverityNote || s > SeverityFatal {
		return "none"
	}
	return severities[s]
}

// MarshalText writes the severity's name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads note, minor, major or fatal; "none" is no severity.
func (s *Severity) UnmarshalText(text []byte) error {
	if string(text) == "none" || len(text) == 0 {
		*s = 0
		return nil
	}
	for i, name := range severities {
		if name == string(text) {
			*s = Severity(i)
			return nil
		}
	}
	return fmt.Errorf("severity %q: want note, minor, major or fatal", text)
}

// Action is what a reason asks for when a driver calls a device Unhealthy with it.
type Action string

const (
	// ActionIgnore: neither the device's nor the workload's fault; counted only.
	ActionIgnore Action = "ignore"
	// ActionBlameWorkload: the application's error. No case; noted against the
	// workload.
	ActionBlameWorkload Action = "blameWorkload"
	// ActionWatch: contained by the device; the application has to restart, and
	// repetitions are counted. No case on first sight.
	ActionWatch Action = "watch"
	// ActionSuspect: a case that waits out the grace window, and quarantines if
	// the device is still Unhealthy then.
	ActionSuspect Action = "suspect"
	// ActionQuarantine: a mark at once.
	ActionQuarantine Action = "quarantine"
)

// Closes says what closes a reason once the gates (evidence, probe, canary,
// stability window) are passed.
type Closes string

const (
	// ClosesByGates: passing the gates is enough.
	ClosesByGates Closes = "gates"
	// ClosesByReset: the device has to be reset first, then the gates.
	ClosesByReset Closes = "reset"
	// ClosesByRepair: somebody has to say `repaired`, or new hardware is proven.
	ClosesByRepair Closes = "repair"
	// ClosesByOperator: an operator has to say `release`.
	ClosesByOperator Closes = "operator"
)

// Match is the catalogue's answer to one message, recorded with every decision.
type Match struct {
	Code     Code         `json:"code"`
	Severity Severity     `json:"severity"`
	Action   Action       `json:"action"`
	Closes   Closes       `json:"closes"`
	Scope    device.Scope `json:"scope"`
	// Rule names the rule that matched, e.g. "nvidia/xid-79", "site/amd-ecc",
	// "site/enable(nvidia/xid-13)".
	Rule string `json:"rule"`
	// Catalogue is the version of the catalogue, with the site's own version
	// after a plus sign where there is one: "2026-11+site-4".
	Catalogue string `json:"catalogue"`
}

// DeviceFault tells whether the reason is the device's own fault.
func (m Match) DeviceFault() bool {
	return m.Action == ActionSuspect || m.Action == ActionQuarantine
}
