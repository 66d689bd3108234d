package device

import "strings"

// Incarnation tells which hardware is behind a device's name. Identity is by
// serial (uuid, serial number), which moves with the card; the slot (PCI
// address) doesn't, and so proves nothing about the hardware.
type Incarnation struct {
	// UUID and Serial are empty where the driver publishes none.
	UUID   string `json:"uuid,omitempty"`
	Serial string `json:"serial,omitempty"`
	// Slot is where the card sits, for people: resource.kubernetes.io/pciBusID
	// or the driver's own attribute.
	Slot string `json:"slot,omitempty"`
}

// Sameness is the answer to "is this still the same hardware?".
type Sameness string

const (
	SameHardware Sameness = "Same"
	NewHardware  Sameness = "New"
	// Unprovable is treated like the same hardware: marks and cases stay.
	Unprovable Sameness = "Unprovable"
)

// Compare tells whether the hardware behind a name changed between two looks.
func (i Incarnation) Compare(now Incarnation) Sameness {
	for _, id := range [][2]string{{i.UUID, now.UUID}, {i.Serial, now.Serial}} {
		if id[0] == "" || id[1] == "" {
			continue
		}
		if id[0] == id[1] {
			return SameHardware
		}
		return NewHardware
	}
	return Unprovable
}

// IsZero tells that the driver publishes nothing to tell the hardware by.
func (i Incarnation) IsZero() bool { return i.UUID == "" && i.Serial == "" }

// String names the hardware for people, by the best that the driver publishes.
func (i Incarnation) String() string {
	switch {
	case i.UUID != "":
		return i.UUID
	case i.Serial != "":
		return i.Serial
	}
	return "unidentified hardware"
}

// incarnationOf reads a device's string attributes. Names may be qualified by a
// domain; what counts is the part after it.
func incarnationOf(attributes map[string]string) Incarnation {
	return Incarnation{
		UUID:   attribute(attributes, "uuid"),
		Serial: attribute(attributes, "serialNumber", "serial"),
		Slot:   attribute(attributes, "pciBusID", "pciAddress", "pciBusAddress"),
	}
}

// attribute finds the first of names among the attributes; a plain name wins over
// qualified ones, and those are tried in the order of their text.
func attribute(attributes map[string]string, names ...string) string {
	for _, name := range names {
		if value := attributes[name]; value != "" {
			return value
		}
		qualified := ""
		for full := range attributes {
			if strings.HasSuffix(full, "/"+name) && (qualified == "" || full < qualified) {
				qualified = full
			}
		}
		if qualified != "" {
			return attributes[qualified]
		}
	}
	return ""
}
