package budget

import "github.com/sickbay-dev/sickbay/pkg/device"

// ScopesOf are the scopes that a device is in, but for the cluster and the device
// itself. Without classes it is in one of its own: its driver's name, or its plugin's
// resource.
func ScopesOf(key device.Key, node string, classes, tenants []string) []Scope {
	var scopes []Scope
	if key.Path() == device.PathDRA {
		scopes = append(scopes, Scope{Driver, key.Driver}, Scope{Pool, key.Driver + "/" + key.Pool})
	} else {
		node = key.Node
	}
	if len(classes) == 0 {
		classes = []string{ClassOf(key)}
	}
	for _, class := range classes {
		scopes = append(scopes, Scope{Class, class})
	}
	for _, tenant := range tenants {
		scopes = append(scopes, Scope{Tenant, tenant})
	}
	if node != "" {
		scopes = append(scopes, Scope{Node, node})
	}
	return scopes
}

// ClassOf is the class of a device that no other is known of.
func ClassOf(key device.Key) string {
	if key.Path() == device.PathDRA {
		return key.Driver
	}
	return key.Resource
}
