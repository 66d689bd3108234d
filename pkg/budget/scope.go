package budget

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Kind is a kind of scope.
type Kind string

// The kinds of scopes, from the widest to the narrowest. Cluster, Class, Tenant and Node
// have limits; all of them can be paused.
const (
	Cluster Kind = "cluster"
	Driver  Kind = "driver"
	Class   Kind = "class"
	Tenant  Kind = "tenant"
	Pool    Kind = "pool"
	Node    Kind = "node"
	Device  Kind = "device"
)

// Kinds lists all kinds, from the widest to the narrowest.
func Kinds() []Kind { return []Kind{Cluster, Driver, Class, Tenant, Pool, Node, Device} }

// Scope is a set of devices: those of a class or of a driver, on a node, held by a
// tenant (a namespace), in a pool (driver/pool), one, or all.
type Scope struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name,omitempty"`
}

// Everything is the scope of all devices.
var Everything = Scope{Kind: Cluster}

// String is the scope as people write it: "cluster", "node/anvil-07".
func (s Scope) String() string {
	if s.Name == "" {
		return string(s.Kind)
	}
	return string(s.Kind) + "/" + s.Name
}

// Compare orders scopes from the widest to the narrowest kind, and by name.
func Compare(a, b Scope) int {
	return cmp.Or(cmp.Compare(slices.Index(Kinds(), a.Kind), slices.Index(Kinds(), b.Kind)), strings.Compare(a.Name, b.Name))
}

// MarshalText and UnmarshalText have a scope written as one text, which keeps what is
// remembered of many devices small.
func (s Scope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s *Scope) UnmarshalText(text []byte) error {
	scope, err := ParseScope(string(text))
	*s = scope
	return err
}

// maxName bounds a scope's name, in bytes: a device's name has at most 253 + 2 × 63.
const maxName = 400

// ParseScope reads a scope as people write it. The error names what is allowed.
func ParseScope(text string) (Scope, error) {
	kind, name, named := strings.Cut(text, "/")
	scope := Scope{Kind: Kind(kind), Name: name}
	switch {
	case scope.Kind == Cluster && !named:
		return scope, nil
	case scope.Kind == Cluster:
		return Scope{}, fmt.Errorf("scope %q: the cluster has no name; want just %s", text, Cluster)
	case !slices.Contains(Kinds(), scope.Kind):
		return Scope{}, fmt.Errorf("scope %q: want %s", text, forms)
	case name == "" || len(name) > maxName || strings.ContainsAny(name, " \t\n"):
		return Scope{}, fmt.Errorf("scope %q: want a name behind %s/; scopes are %s", text, kind, forms)
	case scope.Kind == Pool && !strings.Contains(name, "/"):
		return Scope{}, fmt.Errorf("scope %q: a pool is named by its driver too; want pool/DRIVER/POOL", text)
	case scope.Kind == Device && strings.Count(name, "/") < 2:
		return Scope{}, fmt.Errorf("scope %q: a device is named in full; want device/DRIVER/POOL/DEVICE or device/NODE/RESOURCE/ID", text)
	}
	return scope, nil
}

const forms = "cluster, driver/NAME, class/NAME, tenant/NAMESPACE, pool/DRIVER/POOL, node/NAME or device/DRIVER/POOL/DEVICE"
