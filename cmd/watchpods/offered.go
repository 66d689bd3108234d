package watchpods

// This file reads what a driver offers, and with it what a typed client of one Kubernetes
// version would drop of another's.

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
)

// Offered is one device that a driver publishes.
type Offered struct {
	Key device.Key
	// Slice is the ResourceSlice that lists it.
	Slice string
	// Node is empty for a device that is on no one node.
	Node   string
	Listed device.Listed
	// Consumes are the node resources that an allocation of it takes, sorted, in
	// whichever shape the driver says so.
	Consumes []string
	// Counters tells that it draws from shared counters, Part that it is one part of a
	// chip, Shared that it can be allocated several times over.
	Counters, Part, Shared bool
}

// String names the device and the slice that lists it.
func (o Offered) String() string { return fmt.Sprintf("%s (ResourceSlice %s)", o.Key, o.Slice) }

// rawDevice are the fields of a device that not every version's types have.
type rawDevice struct {
	Name string `json:"name"`
	// Mappings is the shape of 1.36, Resources that of 1.37 (KEP-5517).
	Mappings  map[string]json.RawMessage `json:"nodeAllocatableResourceMappings"`
	Resources map[string]json.RawMessage `json:"nodeAllocatableResources"`
	Multiple  *bool                      `json:"allowMultipleAllocations"`
}

// rawSlice is a slice as far as this package reads it.
type rawSlice struct {
	name string
	view device.Slice
	raw  map[string]rawDevice
}

// ReadOffered reads all devices of a driver, sorted by name. Problems are pools of which
// not all slices are there.
func ReadOffered(ctx context.Context, client dynamic.Interface, driver string) (offered []Offered, problems []string, err error) {
	pools := map[string][]rawSlice{}
	resource := client.Resource(resourcev1.SchemeGroupVersion.WithResource("resourceslices"))
	err = pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return resource.List(ctx, o)
	}).EachListItem(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, driver).String(),
	}, func(o runtime.Object) error {
		object, ok := o.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("the API server listed a %T", o)
		}
		read, err := readSlice(object)
		if err == nil {
			pools[read.view.Pool] = append(pools[read.view.Pool], read)
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list the ResourceSlices of driver %s: %w", driver, err)
	}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		devices, complete := assemble(device.PoolKey{Driver: driver, Pool: name}, pools[name])
		offered = append(offered, devices...)
		if !complete {
			problems = append(problems, fmt.Sprintf("pool %s of driver %s is incomplete: not all of its slices are published, so that devices may be missing here", name, driver))
		}
	}
	slices.SortFunc(offered, func(a, b Offered) int { return a.Key.Compare(b.Key) })
	return offered, problems, nil
}

func readSlice(object *unstructured.Unstructured) (rawSlice, error) {
	read := rawSlice{name: object.GetName(), raw: map[string]rawDevice{}}
	var typed resourcev1.ResourceSlice
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed); err != nil {
		return read, fmt.Errorf("read ResourceSlice %s: %w", object.GetName(), err)
	}
	read.view = kube.SliceView(&typed)
	content, err := object.MarshalJSON()
	if err != nil {
		return read, fmt.Errorf("read ResourceSlice %s: %w", object.GetName(), err)
	}
	var raw struct {
		Spec struct {
			Devices []rawDevice `json:"devices"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(content, &raw); err != nil {
		return read, fmt.Errorf("read ResourceSlice %s: %w", object.GetName(), err)
	}
	for _, d := range raw.Spec.Devices {
		read.raw[d.Name] = d
	}
	return read, nil
}

// assemble takes the slices of a pool's newest generation.
func assemble(key device.PoolKey, all []rawSlice) (offered []Offered, complete bool) {
	var views []device.Slice
	for _, s := range all {
		views = append(views, s.view)
	}
	pool := device.AssemblePool(key, views)
	for _, s := range all {
		if s.view.Generation != pool.Generation {
			continue
		}
		for _, listed := range s.view.Devices {
			name, err := device.NewDRA(key.Driver, key.Pool, listed.Name)
			if err != nil {
				continue // no API server of today lets it through
			}
			raw := s.raw[listed.Name]
			offered = append(offered, Offered{
				Key: name, Slice: s.name, Node: s.view.Node, Listed: listed,
				Consumes: slices.Compact(slices.Sorted(func(yield func(string) bool) {
					for _, shape := range []map[string]json.RawMessage{raw.Mappings, raw.Resources} {
						for resource := range shape {
							if !yield(resource) {
								return
							}
						}
					}
				})),
				Counters: len(listed.Consumes) > 0, Part: device.IsPart(pool, name), Shared: raw.Multiple != nil && *raw.Multiple,
			})
		}
	}
	return offered, pool.Complete
}

// nodesOf are the nodes of devices, sorted.
func nodesOf(offered []Offered) []string {
	var nodes []string
	for _, o := range offered {
		nodes = append(nodes, o.Node)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// some names the first few of many things.
func some(all []string) string {
	const shown = 5
	if len(all) <= shown {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:shown], ", "), len(all)-shown)
}
