package listing

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/spelling"
	workflow "github.com/sickbay-dev/sickbay/workflows/device"
)

// ErrNotFound is wrapped by errors that say that what was asked for isn't there.
var ErrNotFound = errors.New("not found")

// notFound says what isn't there without another word.
type notFound struct{ text string }

func (e *notFound) Error() string { return e.text }
func (e *notFound) Unwrap() error { return ErrNotFound }

// Survey is a cluster in which single devices are looked up.
type Survey struct {
	joined *joiner
	names  []string
}

// NewSurvey prepares a cluster for look-ups.
func NewSurvey(cluster Cluster) *Survey {
	j, listing := join(cluster, nil, time.Time{})
	s := &Survey{joined: j}
	for _, d := range listing.Devices {
		s.names = append(s.names, d.Name)
	}
	return s
}

// Names are the names of all devices, sorted.
func (s *Survey) Names() []string { return s.names }

// Device is what the cluster alone knows of a device.
func (s *Survey) Device(key device.Key) (Device, bool) {
	d, ok := s.joined.devices[key]
	if !ok {
		return Device{}, false
	}
	found := *d
	slices.SortFunc(found.Holders, func(a, b Holder) int { return strings.Compare(a.String()+a.UID, b.String()+b.UID) })
	found.Holders = slices.CompactFunc(found.Holders, func(a, b Holder) bool { return a.UID == b.UID })
	return found, true
}

// Resolve finds the device that a person named: by its key, or by the ID of its
// workflow with or without "device/" in front. A key that is well formed and that
// the cluster doesn't know is returned all the same: it may have a case. An error
// wraps device.ErrKey, and names the devices that may have been meant.
func (s *Survey) Resolve(text string) (device.Key, error) {
	path := "device/" + strings.TrimPrefix(text, "device/")
	if key, ok := s.joined.ofWorkflow(path); ok {
		return key, nil
	}
	key, err := device.ParseKey(strings.TrimPrefix(text, "device/"))
	if err == nil {
		return key, nil
	}
	const want = "want driver/pool/device, or 'node|resource|ID' for a device plugin's"
	near := s.partly(text)
	if len(near) == 0 {
		return device.Key{}, fmt.Errorf("%w; `sickbay devices -o name` lists all", err)
	}
	return device.Key{}, fmt.Errorf("%w: %q lacks a part: %s; did you mean %s?", device.ErrKey, text, want, alternatives(near, mostNamed))
}

// partly finds the devices whose key begins or ends with the parts given, or has
// the part given.
func (s *Survey) partly(text string) []string {
	separated := func(r rune) bool { return r == '/' || r == '|' }
	given := strings.FieldsFunc(text, separated)
	var found []string
	for _, name := range s.names {
		parts := strings.FieldsFunc(name, separated)
		for at := range parts {
			if len(given) > 0 && at+len(given) <= len(parts) && slices.Equal(parts[at:at+len(given)], given) {
				found = append(found, name)
				break
			}
		}
	}
	return found
}

// Unknown is the error for a device that neither the cluster nor Temporal knows;
// casesMissing says that Temporal couldn't be asked.
func (s *Survey) Unknown(key device.Key, casesMissing bool) error {
	text := fmt.Sprintf("no device is called %s, and it has no case", key)
	if casesMissing {
		text = fmt.Sprintf("no device is called %s; whether it has a case can't be told without Temporal", key)
	}
	near := spelling.Near(key.String(), s.names, mostNamed)
	if len(near) == 0 {
		return &notFound{text + "; `sickbay devices -o name` lists all"}
	}
	return &notFound{text + "; did you mean " + alternatives(near, mostNamed) + "?"}
}

func alternatives(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" or one of %d more", more)
	}
	if len(names) == 1 {
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// Relation says how another device stands to the one that is asked about.
type Relation string

const (
	// Parent is the chip of which the device is a part, Child a part of it, and
	// Sibling another part of the same chip.
	Parent  Relation = "parent"
	Child   Relation = "child"
	Sibling Relation = "sibling"
	// Twin is another entry for the same hardware.
	Twin Relation = "same hardware"
	// Replica is another share of a device that a plugin offers several times.
	Replica Relation = "replica"
)

// Relatives finds the devices on the same chip, and how each stands to this one.
func (s *Survey) Relatives(key device.Key) map[device.Key]Relation {
	relatives := map[device.Key]Relation{}
	if key.Path() == device.PathPlugin {
		for _, k := range device.Replicas(key, slices.Collect(maps.Keys(s.joined.devices))) {
			if k != key {
				relatives[k] = Replica
			}
		}
		return relatives
	}
	pool := s.joined.byPool[device.PoolKey{Driver: key.Driver, Pool: key.Pool}]
	part := device.IsPart(pool, key)
	for _, k := range device.Chip(pool, key) {
		switch other := device.IsPart(pool, k); {
		case k == key:
		case part && other:
			relatives[k] = Sibling
		case part:
			relatives[k] = Parent
		case other:
			relatives[k] = Child
		default:
			relatives[k] = Twin
		}
	}
	return relatives
}

// Workflows are the IDs of the workflows that would own the cases of these
// devices.
func Workflows(keys ...device.Key) []string {
	ids := make([]string, len(keys))
	for i, key := range keys {
		ids[i] = workflow.ID(key)
	}
	return ids
}
