package reading

import (
	"slices"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// OfDevice gives what one Pod, read live, says of one device: its own word, or
// that of another part of the chip whose fault reaches this one, the graver of the
// two. A Pod that is known to the case has told of it before. If no word of its
// reaches the device any more, what it says of the chip's other parts takes the
// place of what it told: nothing else would ever take it back.
func OfDevice(key device.Key, reports []device.DeviceReport, catalogue *reason.Catalogue, concerned func(device.Key, device.Scope) []device.Key, known bool) (Of, bool) {
	read := FromPod(reports, catalogue, concerned)
	if i := slices.IndexFunc(read, func(o Of) bool { return o.Device == key }); i >= 0 {
		return read[i], true
	}
	if !known {
		return Of{}, false
	}
	var word Of
	chip := concerned(key, device.ScopeChip)
	for _, o := range read {
		if o.Own() && slices.Contains(chip, o.Device) && (word.Device.IsZero() || Graver(o.Reading, word.Reading)) {
			word = o
		}
	}
	if word.Device.IsZero() {
		return Of{}, false
	}
	word.Device, word.Monitor = key, true
	return word, true
}
