package kube

// This file pins a claim to one device. A claim can't name a device: what a selector sees
// of one are its driver, attributes and capacity. So the selector names attributes, and
// the ResourceSlices show whether only that one device has them.

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// pinned is a selector that only one device answers to, and the taints that the driver
// itself has on that.
type pinned struct {
	expression string
	taints     []resourcev1.DeviceTaint
}

// offer is one device that a Pod on the node could get.
type offer struct {
	key        device.Key
	generation int64
	// attributes are by their full names, as a selector sees them.
	attributes map[string]resourcev1.DeviceAttribute
	taints     []resourcev1.DeviceTaint
}

// pin returns how a claim gets this device of the driver's slices and no other, for a Pod
// on that node.
func pin(driver []resourcev1.ResourceSlice, key device.Key, node string) (pinned, error) {
	offers := reachable(driver, key, node)
	var target *offer
	for i := range offers {
		if o := &offers[i]; o.key == key && (target == nil || o.generation > target.generation) {
			target = o
		}
	}
	if target == nil {
		return pinned{}, refuse("no ResourceSlice of driver %s lists device %s of pool %s for node %s; look whether the driver runs there", key.Driver, key.Device, key.Pool, cmp.Or(node, "(any)"))
	}
	var chosen []string
	others := slices.DeleteFunc(slices.Clone(offers), func(o offer) bool { return o.key == key })
	for _, name := range ranked(target.attributes) {
		left := slices.DeleteFunc(slices.Clone(others), func(o offer) bool { return literal(o.attributes[name]) != literal(target.attributes[name]) })
		if !identifies(name) && len(left) == len(others) {
			continue
		}
		chosen, others = append(chosen, name), left
	}
	if len(others) > 0 {
		return pinned{}, refuse("no selector tells the device apart: %s has the same attributes. A driver that publishes uuid or resource.kubernetes.io/pciBusID for each device mends that; until then sickbay can't prove it healthy", others[0].key)
	}
	terms := []string{fmt.Sprintf("device.driver == %s", strconv.Quote(key.Driver))}
	for _, name := range chosen {
		domain, id, _ := strings.Cut(name, "/")
		terms = append(terms, fmt.Sprintf("%[1]q in device.attributes[%[2]q] && device.attributes[%[2]q][%[1]q] == %[3]s", id, domain, literal(target.attributes[name])))
	}
	return pinned{expression: strings.Join(terms, " && "), taints: target.taints}, nil
}

// reachable are the devices of a driver that a Pod on the node could get: those of the
// node, and those that aren't said to be on any one. Where no node is known that is every
// one of them.
func reachable(driver []resourcev1.ResourceSlice, key device.Key, node string) []offer {
	var offers []offer
	for _, slice := range driver {
		if slice.Spec.Driver != key.Driver || node != "" && slice.Spec.NodeName != nil && *slice.Spec.NodeName != node {
			continue
		}
		for _, d := range slice.Spec.Devices {
			if node != "" && d.NodeName != nil && *d.NodeName != node {
				continue
			}
			o := offer{
				key:        device.Key{Driver: key.Driver, Pool: slice.Spec.Pool.Name, Device: d.Name},
				generation: slice.Spec.Pool.Generation, attributes: map[string]resourcev1.DeviceAttribute{}, taints: d.Taints,
			}
			for name, value := range d.Attributes {
				full := string(name)
				if !strings.Contains(full, "/") { // it is in the driver's own domain
					full = key.Driver + "/" + full
				}
				o.attributes[full] = value
			}
			offers = append(offers, o)
		}
	}
	return offers
}

// ranked are the attributes that can be compared, the most telling first.
func ranked(attributes map[string]resourcev1.DeviceAttribute) []string {
	var names []string
	for name, value := range attributes {
		if literal(value) != "" {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	return names
}

// telling are the attributes by which drivers tell devices apart.
var telling = []string{"uuid", "pciBusID"}

func rank(name string) int {
	_, id, _ := strings.Cut(name, "/")
	if i := slices.Index(telling, id); i >= 0 {
		return i
	}
	return len(telling)
}

// identifies tells whether an attribute is always named, so that a card that is swapped
// while the claim waits doesn't answer to it.
func identifies(name string) bool { return rank(name) < len(telling) }

// literal is an attribute's value in CEL; empty for one of a kind that isn't compared.
func literal(value resourcev1.DeviceAttribute) string {
	switch {
	case value.StringValue != nil:
		return strconv.Quote(*value.StringValue)
	case value.IntValue != nil:
		return strconv.FormatInt(*value.IntValue, 10)
	case value.BoolValue != nil:
		return strconv.FormatBool(*value.BoolValue)
	}
	return ""
}
