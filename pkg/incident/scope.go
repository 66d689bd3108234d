package incident

import (
	"fmt"
	"strings"
)

// Kind is what devices of an incident have in common.
type Kind string

const (
	// Storm: they are Unknown.
	Storm Kind = "Storm"
	// Crowd: they are Unhealthy, and became so together.
	Crowd Kind = "Crowd"
)

// Scope is what an incident is about: a node, a driver, or for a storm the whole
// cluster. Its text is the end of the incident's workflow ID.
type Scope struct {
	Kind Kind `json:"kind"`
	// Node and Driver: one of them, or neither for the cluster.
	Node string `json:"node,omitempty"`
	// Driver is a DRA driver or a device plugin's resource.
	Driver string `json:"driver,omitempty"`
	// Version is the driver's, where its slices publish one. Only crowds have it.
	Version string `json:"version,omitempty"`
}

// Cluster is the scope of a storm over several drivers.
func Cluster() Scope { return Scope{Kind: Storm} }

// OfDriver is the scope of a storm of one driver's devices, on several nodes.
func OfDriver(driver string) Scope { return Scope{Kind: Storm, Driver: driver} }

// OfNode is the scope of a storm on one node.
func OfNode(node string) Scope { return Scope{Kind: Storm, Node: node} }

// CrowdOfDriver is the scope of a crowd of one driver's devices, on several nodes.
func CrowdOfDriver(driver, version string) Scope {
	return Scope{Kind: Crowd, Driver: driver, Version: version}
}

// CrowdOfNode is the scope of a crowd on one node.
func CrowdOfNode(node string) Scope { return Scope{Kind: Crowd, Node: node} }

const (
	clusterText = "cluster"
	crowdText   = "crowd/"
	driverText  = "driver/"
	nodeText    = "node/"
	versionText = "@"
)

// String is the scope as people write it: cluster, driver/gpu.example.com,
// node/node-7, crowd/driver/gpu.example.com@580.1, crowd/node/node-7.
func (s Scope) String() string {
	text := clusterText
	switch {
	case s.Driver != "":
		text = driverText + s.Driver
	case s.Node != "":
		text = nodeText + s.Node
	}
	if s.Version != "" {
		text += versionText + s.Version
	}
	if s.Kind == Crowd {
		return crowdText + text
	}
	return text
}

// maxName bounds a name in a scope. Kubernetes allows a node 253 bytes and an
// extended resource 317; a driver's version is 64 at most.
const maxName = 400

// ParseScope reads what String writes.
func ParseScope(text string) (Scope, error) {
	s := Scope{Kind: Storm}
	rest, crowd := strings.CutPrefix(text, crowdText)
	if crowd {
		s.Kind = Crowd
	}
	switch {
	case rest == clusterText:
	case strings.HasPrefix(rest, driverText):
		s.Driver, s.Version, _ = strings.Cut(strings.TrimPrefix(rest, driverText), versionText)
	case strings.HasPrefix(rest, nodeText):
		s.Node = strings.TrimPrefix(rest, nodeText)
	default:
		return Scope{}, refuseScope(text)
	}
	if s.String() != text || s.Validate() != nil {
		return Scope{}, refuseScope(text)
	}
	return s, nil
}

func refuseScope(text string) error {
	return fmt.Errorf("%q isn't the scope of an incident; want cluster, driver/NAME, node/NAME, crowd/driver/NAME[@VERSION] or crowd/node/NAME; `sickbay incidents -o name` lists those that are open", text)
}

// Validate tells whether there can be an incident of that scope.
func (s Scope) Validate() error {
	odd := func(name string) bool {
		return len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f })
	}
	switch {
	case s.Kind != Storm && s.Kind != Crowd,
		s.Node != "" && s.Driver != "",
		s.Kind == Crowd && s.Node == "" && s.Driver == "",
		s.Version != "" && (s.Driver == "" || s.Kind != Crowd),
		odd(s.Node), strings.Contains(s.Node, "/"), odd(s.Driver), odd(s.Version), strings.Contains(s.Driver, versionText):
		return refuseScope(s.String())
	}
	return nil
}

// Covers tells whether a device of that driver on that node is in the scope. A
// crowd of one version covers those devices only whom the starter counted into it,
// so that it is asked by name.
func (s Scope) Covers(node, driver string) bool {
	switch {
	case s.Node != "":
		return s.Node == node
	case s.Driver != "":
		return s.Driver == driver
	}
	return true
}

// Storms are the scopes of storms that a device may be in, the widest first.
func Storms(node, driver string) []Scope {
	scopes := []Scope{Cluster()}
	if driver != "" {
		scopes = append(scopes, OfDriver(driver))
	}
	if node != "" {
		scopes = append(scopes, OfNode(node))
	}
	return scopes
}
