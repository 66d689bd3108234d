// Package reading turns what one Pod's status says into readings of devices, as
// cases take them in: judged by the catalogue, carried over to every device that
// a fault of the chip concerns, and short enough for a workflow's state.
//
// The package is pure. The starter uses it on what the watch delivers and the
// live look on what it reads, so that both say the same of the same status.
package reading

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// MaxMessage bounds a driver's message, in bytes. Kubernetes allows 1024 per
// entry, and a case may hold dozens of them.
const MaxMessage = 512

// Of is one reading and the device that it is about.
type Of struct {
	Device device.Key
	quarantine.Reading
	// SeenOn is the device whose entry said it: Device itself, or another part
	// of its chip.
	SeenOn device.Key
}

// Own tells that the Pod has the device itself, not only another part of its chip.
func (o Of) Own() bool { return o.Device == o.SeenOn }

// Judge gives the catalogue's verdict on a report of one device. A message is
// judged whole and shortened after that.
func Judge(catalogue *reason.Catalogue, key device.Key, report device.Report) quarantine.Reading {
	read := quarantine.Reading{Report: report}
	if report.Health == device.Unhealthy {
		read.Reason = catalogue.Match(DriverOf(key), report.Message)
		read.Fault = read.Reason.DeviceFault()
	}
	read.Message = Shorten(report.Message)
	return read
}

// DriverOf is the name by which the catalogue knows who speaks of a device: the
// DRA driver, or the extended resource whose plugin it is.
func DriverOf(key device.Key) string {
	if key.Path() == device.PathDRA {
		return key.Driver
	}
	return key.Resource
}

// FromPod gives everything that one Pod's reports (as device.Digest returns them)
// say of any device, sorted by device: at most one reading for each. concerned
// names the devices that a fault of a given scope concerns. Where a Pod has a
// device itself and a fault of another part of the chip concerns it too, the
// graver of the two counts. Readings carried over never make the Pod a holder.
func FromPod(reports []device.DeviceReport, catalogue *reason.Catalogue, concerned func(device.Key, device.Scope) []device.Key) []Of {
	byDevice := map[device.Key]Of{}
	for _, r := range reports {
		byDevice[r.Device] = Of{Device: r.Device, Reading: Judge(catalogue, r.Device, r.Report), SeenOn: r.Device}
	}
	own := sorted(byDevice)
	for _, fault := range own {
		if fault.Health != device.Unhealthy || !fault.Fault {
			continue
		}
		for _, key := range concerned(fault.SeenOn, fault.Reason.Scope) {
			if key != fault.Device {
				byDevice[key] = carry(byDevice[key], fault, key)
			}
		}
	}
	return sorted(byDevice)
}

// carry lays a fault of another part of the chip over what is known of a device.
func carry(known, fault Of, key device.Key) Of {
	carried := fault
	carried.Device, carried.Monitor = key, true
	if known.Device.IsZero() {
		return carried
	}
	if !Graver(fault.Reading, known.Reading) {
		return known
	}
	if known.Own() {
		// The Pod goes on holding the device by its own claim.
		carried.Monitor, carried.Claim, carried.Container = known.Monitor, known.Claim, known.Container
	}
	return carried
}

// Graver tells whether a says worse of a device than b: a fault of the device
// before anything else, then the worse health, then the higher severity. Ties go
// by text, so that the order of reading never matters.
func Graver(a, b quarantine.Reading) bool {
	if a.Fault != b.Fault {
		return a.Fault
	}
	if a.Health != b.Health {
		return a.Health.WorseThan(b.Health)
	}
	return cmp.Or(
		cmp.Compare(a.Reason.Severity, b.Reason.Severity),
		cmp.Compare(insistence(a.Reason.Action), insistence(b.Reason.Action)),
		cmp.Compare(b.Reason.Code, a.Reason.Code),
		cmp.Compare(b.Message, a.Message),
	) > 0
}

func insistence(action reason.Action) int {
	return slices.Index([]reason.Action{
		reason.ActionIgnore, reason.ActionBlameWorkload, reason.ActionWatch, reason.ActionSuspect, reason.ActionQuarantine,
	}, action)
}

func sorted(byDevice map[device.Key]Of) []Of {
	all := make([]Of, 0, len(byDevice))
	for _, o := range byDevice {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b Of) int { return a.Device.Compare(b.Device) })
	return all
}

// Shorten cuts a message to MaxMessage bytes without cutting a character in two,
// and leaves only valid UTF-8.
func Shorten(message string) string {
	if len(message) <= MaxMessage && utf8.ValidString(message) {
		return message
	}
	const mark = "…"
	short := make([]byte, 0, MaxMessage)
	for _, r := range message {
		if len(short)+utf8.RuneLen(r) > MaxMessage-len(mark) {
			return string(short) + mark
		}
		short = utf8.AppendRune(short, r)
	}
	return string(short)
}
