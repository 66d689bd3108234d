package device

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Path is the mechanism by which a device reaches Pods. The two differ in what
// they can say about health and in how one device can be kept out.
type Path string

const (
	// PathDRA is dynamic resource allocation: a device is named cluster-wide.
	PathDRA Path = "dra"
	// PathPlugin is the device plugin API: an ID is unique on its node only.
	PathPlugin Path = "device-plugin"
)

// Key names one device. Either the three DRA fields are set or the three
// device-plugin fields, never both; NewDRA, NewPlugin and ParseKey guarantee it.
// A Key is comparable and can be a map key.
type Key struct {
	// Driver, Pool and Device name a DRA device, unique in the cluster.
	// A pool's name may contain slashes.
	Driver string `json:"driver,omitempty"`
	Pool   string `json:"pool,omitempty"`
	Device string `json:"device,omitempty"`

	// Node, Resource and ID name a device-plugin device. The same ID on
	// another node is another device.
	Node     string `json:"node,omitempty"`
	Resource string `json:"resource,omitempty"`
	ID       string `json:"id,omitempty"`
}

// ErrKey is wrapped by every error that says that a text doesn't name a device.
var ErrKey = errors.New("not a device")

// resourceName is what may stand behind the domain of an extended resource.
var resourceName = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)

// isLabel tells whether a text is a DNS label, of any length. It is asked for each
// device of each event, and regular expressions would be a tenth of all the work.
func isLabel(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case c == '-' && i > 0 && i < len(text)-1:
		default:
			return false
		}
	}
	return text != ""
}

// isSubdomain tells whether a text is DNS labels joined by dots.
func isSubdomain(text string) bool {
	for label := range strings.SplitSeq(text, ".") {
		if !isLabel(label) {
			return false
		}
	}
	return true
}

// NewDRA returns the key of a DRA device. It refuses what the API server would
// refuse in a ResourceSlice: a driver is a DNS subdomain of at most 63
// characters, a pool is DNS subdomains separated by slashes (at most 253), a
// device is a DNS label.
func NewDRA(driver, pool, name string) (Key, error) {
	if len(driver) > 63 || !isSubdomain(driver) {
		return Key{}, fmt.Errorf("%w: driver %q must be a DNS subdomain of at most 63 characters", ErrKey, driver)
	}
	if !validPool(pool) {
		return Key{}, fmt.Errorf("%w: pool %q must be DNS subdomains separated by slashes, at most 253 characters", ErrKey, pool)
	}
	if len(name) > 63 || !isLabel(name) {
		return Key{}, fmt.Errorf("%w: device %q must be a DNS label of at most 63 characters", ErrKey, name)
	}
	return Key{Driver: driver, Pool: pool, Device: name}, nil
}

// NewPlugin returns the key of a device-plugin device. The resource must be an
// extended resource name (domain/name); the ID is whatever the plugin says.
func NewPlugin(node, resource, id string) (Key, error) {
	if node == "" || !isSubdomain(node) {
		return Key{}, fmt.Errorf("%w: node %q must be a DNS subdomain", ErrKey, node)
	}
	domain, name, ok := strings.Cut(resource, "/")
	if !ok || !isSubdomain(domain) || !resourceName.MatchString(name) {
		return Key{}, fmt.Errorf("%w: resource %q must be an extended resource name like example.com/gpu", ErrKey, resource)
	}
	if id == "" {
		return Key{}, fmt.Errorf("%w: the device ID of %s on node %s is empty", ErrKey, resource, node)
	}
	return Key{Node: node, Resource: resource, ID: id}, nil
}

func validPool(pool string) bool {
	if pool == "" || len(pool) > 253 {
		return false
	}
	for part := range strings.SplitSeq(pool, "/") {
		if !isSubdomain(part) {
			return false
		}
	}
	return true
}

// ParseDRA reads "driver/pool/device", the form in which the kubelet writes a
// DRA device without CDI IDs. The driver is what stands before the first slash,
// the device what stands after the last, the pool all between.
func ParseDRA(text string) (Key, error) {
	first, last := strings.Index(text, "/"), strings.LastIndex(text, "/")
	if first < 0 || first == last {
		return Key{}, fmt.Errorf("%w: %q, want driver/pool/device", ErrKey, text)
	}
	return NewDRA(text[:first], text[first+1:last], text[last+1:])
}

// ParseKey reads what Key.String writes: "driver/pool/device" for DRA,
// "node|resource|ID" for device plugins.
func ParseKey(text string) (Key, error) {
	if node, rest, ok := strings.Cut(text, "|"); ok {
		resource, id, ok := strings.Cut(rest, "|")
		if !ok {
			return Key{}, fmt.Errorf("%w: %q, want node|resource|ID", ErrKey, text)
		}
		return NewPlugin(node, resource, id)
	}
	return ParseDRA(text)
}

// Path tells which mechanism the device belongs to.
func (k Key) Path() Path {
	if k.Driver != "" {
		return PathDRA
	}
	return PathPlugin
}

// IsZero tells that no device is named.
func (k Key) IsZero() bool { return k == Key{} }

// Validate reports what is wrong with a key that came from outside.
func (k Key) Validate() error {
	var err error
	switch {
	case k.IsZero():
		err = fmt.Errorf("%w: no field is set", ErrKey)
	case k.Driver != "" && (k.Node != "" || k.Resource != "" || k.ID != ""):
		err = fmt.Errorf("%w: %+v names a DRA and a device-plugin device at once", ErrKey, k)
	case k.Path() == PathDRA:
		_, err = NewDRA(k.Driver, k.Pool, k.Device)
	default:
		_, err = NewPlugin(k.Node, k.Resource, k.ID)
	}
	return err
}

// String is the device's name for people and for Sickbay's command line.
func (k Key) String() string {
	if k.Path() == PathDRA {
		return k.Driver + "/" + k.Pool + "/" + k.Device
	}
	return k.Node + "|" + k.Resource + "|" + k.ID
}

// Compare orders keys by their text, so that lists come out alike every time.
func (k Key) Compare(other Key) int { return cmp.Compare(k.String(), other.String()) }
