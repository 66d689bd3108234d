package device_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

var anvil = device.PoolKey{Driver: "gpu.example.com", Pool: "anvil-07"}

// slice makes a slice of the pool anvil-07.
func slice(generation, count int64, devices ...device.Listed) device.Slice {
	return device.Slice{Driver: anvil.Driver, Pool: anvil.Pool, Node: "anvil-07", Generation: generation, SliceCount: count, Devices: devices}
}

// listed makes a device with attributes given as name, value, name, value.
func listed(name string, attributes ...string) device.Listed {
	l := device.Listed{Name: name, Attributes: map[string]string{}}
	for i := 0; i+1 < len(attributes); i += 2 {
		l.Attributes[attributes[i]] = attributes[i+1]
	}
	return l
}

func drawing(l device.Listed, set string, counters ...string) device.Listed {
	for _, c := range counters {
		l.Consumes = append(l.Consumes, device.CounterUse{Set: set, Counter: c, Amount: 1})
	}
	return l
}

func assemble(slices ...device.Slice) device.Pool { return device.AssemblePool(anvil, slices) }

func names(devices []device.PoolDevice) []string {
	all := []string{}
	for _, d := range devices {
		all = append(all, d.Key.Device)
	}
	return all
}

// O8. A pool may be believed only when all slices of its newest generation are there.
func TestAPoolIsCompleteWhenAllSlicesOfTheNewestGenerationAreThere(t *testing.T) {
	a, b := listed("gpu-1"), listed("gpu-0")
	tests := map[string]struct {
		slices     []device.Slice
		complete   bool
		generation int64
		devices    []string
	}{
		"no slices":                             {nil, false, 0, []string{}},
		"one of one":                            {[]device.Slice{slice(3, 1, a, b)}, true, 3, []string{"gpu-0", "gpu-1"}},
		"one of two":                            {[]device.Slice{slice(3, 2, a)}, false, 3, []string{"gpu-1"}},
		"two of two":                            {[]device.Slice{slice(3, 2, a), slice(3, 2, b)}, true, 3, []string{"gpu-0", "gpu-1"}},
		"older ones are left over":              {[]device.Slice{slice(2, 1, listed("gpu-9")), slice(3, 1, a)}, true, 3, []string{"gpu-1"}},
		"a new generation half written":         {[]device.Slice{slice(2, 2, a), slice(2, 2, b), slice(3, 2, a)}, false, 3, []string{"gpu-1"}},
		"more slices than said":                 {[]device.Slice{slice(3, 1, a), slice(3, 1, b)}, false, 3, []string{"gpu-0", "gpu-1"}},
		"slices that disagree on the count":     {[]device.Slice{slice(3, 1, a), slice(3, 2, b)}, true, 3, []string{"gpu-0", "gpu-1"}},
		"a device twice makes the pool invalid": {[]device.Slice{slice(3, 2, a), slice(3, 2, a, b)}, false, 3, []string{"gpu-0", "gpu-1", "gpu-1"}},
		"a reset generation is what is there":   {[]device.Slice{slice(1, 1, a)}, true, 1, []string{"gpu-1"}},
		"names that the API wouldn't accept":    {[]device.Slice{slice(1, 1, a, listed("GPU 2"))}, true, 1, []string{"gpu-1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pool := assemble(test.slices...)
			if pool.Complete != test.complete || pool.Generation != test.generation || !slices.Equal(names(pool.Devices), test.devices) {
				t.Errorf("complete=%t generation=%d devices=%v, want %t, %d, %v", pool.Complete, pool.Generation, names(pool.Devices), test.complete, test.generation, test.devices)
			}
			for _, d := range pool.Devices {
				if found, ok := pool.Find(d.Key.Device); !ok || found.Key != d.Key || d.Key.Driver != anvil.Driver || d.Key.Pool != anvil.Pool {
					t.Errorf("%s isn't found as itself", d.Key)
				}
			}
		})
	}
	if _, ok := assemble(slice(1, 1, a)).Find("gpu-7"); ok {
		t.Error("a device is found that isn't listed")
	}
}

// O8. Property: the order of the slices changes nothing.
func TestTheOrderOfSlicesChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one := rapid.Custom(func(t *rapid.T) device.Slice {
			var devices []device.Listed
			for range rapid.IntRange(0, 3).Draw(t, "devices") {
				devices = append(devices, listed(rapid.SampledFrom([]string{"gpu-0", "gpu-1", "gpu-2"}).Draw(t, "name"), "uuid", rapid.SampledFrom([]string{"", "u1", "u2"}).Draw(t, "uuid")))
			}
			return slice(int64(rapid.IntRange(1, 3).Draw(t, "generation")), int64(rapid.IntRange(1, 3).Draw(t, "count")), devices...)
		})
		all := rapid.SliceOfN(one, 0, 5).Draw(t, "slices")
		a, b := assemble(all...), assemble(rapid.Permutation(all).Draw(t, "shuffled")...)
		if a.Complete != b.Complete || a.Generation != b.Generation || !slices.Equal(names(a.Devices), names(b.Devices)) {
			t.Fatalf("%+v\nshuffled %+v", a, b)
		}
		for i := range a.Devices {
			if a.Devices[i].Incarnation != b.Devices[i].Incarnation {
				t.Fatalf("%+v\nshuffled %+v", a.Devices[i], b.Devices[i])
			}
		}
	})
}

// O8. What disappeared, and what only changed its shape. Case 12: a repartition
// is no missing GPU.
func TestOnlyHardwareThatIsGoneIsMissing(t *testing.T) {
	const uuid, parent, slot, serial = "uuid", "parentUUID", "resource.kubernetes.io/pciBusID", "serialNumber"
	tests := map[string]struct {
		before, now []device.Listed
		incomplete  bool
		missing     []string
	}{
		"nothing changed":                   {[]device.Listed{listed("gpu-0"), listed("gpu-1")}, []device.Listed{listed("gpu-0"), listed("gpu-1")}, false, nil},
		"a GPU that is listed no more":      {[]device.Listed{listed("gpu-0"), listed("gpu-1")}, []device.Listed{listed("gpu-0")}, false, []string{"gpu-1"}},
		"an incomplete pool says nothing":   {[]device.Listed{listed("gpu-0"), listed("gpu-1")}, []device.Listed{listed("gpu-0")}, true, nil},
		"an empty complete pool misses all": {[]device.Listed{listed("gpu-0"), listed("gpu-1")}, nil, false, []string{"gpu-0", "gpu-1"}},
		"a GPU cut into MIG partitions": {
			[]device.Listed{listed("gpu-0", uuid, "GPU-0"), listed("gpu-1", uuid, "GPU-1")},
			[]device.Listed{listed("mig-0", uuid, "MIG-0", parent, "GPU-0"), listed("mig-1", uuid, "MIG-1", parent, "GPU-0"), listed("gpu-1", uuid, "GPU-1")}, false, nil},
		"MIG partitions put together again": {
			[]device.Listed{listed("mig-0", uuid, "MIG-0", parent, "GPU-0"), listed("mig-1", uuid, "MIG-1", parent, "GPU-0")},
			[]device.Listed{listed("gpu-0", uuid, "GPU-0")}, false, nil},
		"another MIG layout": {
			[]device.Listed{listed("mig-0", parent, "GPU-0"), listed("mig-1", parent, "GPU-0")},
			[]device.Listed{listed("mig-a", parent, "GPU-0")}, false, nil},
		"one partition given up beside others": {
			[]device.Listed{listed("mig-0", parent, "GPU-0"), listed("mig-1", parent, "GPU-0")},
			[]device.Listed{listed("mig-1", parent, "GPU-0")}, false, nil},
		"all partitions gone with their chip": {
			[]device.Listed{listed("mig-0", parent, "GPU-0"), listed("mig-1", parent, "GPU-0"), listed("gpu-1", uuid, "GPU-1")},
			[]device.Listed{listed("gpu-1", uuid, "GPU-1")}, false, []string{"mig-0", "mig-1"}},
		"a chip gone from beside its counters' other users": {
			[]device.Listed{drawing(listed("gpu-0"), "chip-0", "a", "b"), drawing(listed("part-a"), "chip-0", "a")},
			[]device.Listed{drawing(listed("part-a"), "chip-0", "a")}, false, []string{"gpu-0"}},
		"a part gone from beside its chip": {
			[]device.Listed{drawing(listed("gpu-0"), "chip-0", "a", "b"), drawing(listed("part-a"), "chip-0", "a")},
			[]device.Listed{drawing(listed("gpu-0"), "chip-0", "a", "b")}, false, nil},
		"a whole GPU hidden while its VFIO entry is in use": {
			[]device.Listed{listed("gpu-0", uuid, "GPU-0"), listed("gpu-vfio-0", uuid, "GPU-0")},
			[]device.Listed{listed("gpu-vfio-0", uuid, "GPU-0")}, false, nil},
		"the same card under a new name": {
			[]device.Listed{listed("gpu-0", uuid, "GPU-0")}, []device.Listed{listed("gpu-5", uuid, "GPU-0")}, false, nil},
		"a dead card behind which the others moved up: one name is missing": {
			[]device.Listed{listed("gpu-0", uuid, "GPU-0"), listed("gpu-1", uuid, "GPU-1"), listed("gpu-2", uuid, "GPU-2")},
			[]device.Listed{listed("gpu-0", uuid, "GPU-1"), listed("gpu-1", uuid, "GPU-2")}, false, []string{"gpu-2"}},
		"a replaced card under the same name is a new incarnation, not a missing one": {
			[]device.Listed{listed("gpu-0", uuid, "GPU-old")}, []device.Listed{listed("gpu-0", uuid, "GPU-new")}, false, nil},
		"another card under another name in the same slot": {
			[]device.Listed{listed("gpu-0", serial, "1", slot, "0000:5e:00.0")}, []device.Listed{listed("gpu-5", serial, "2", slot, "0000:5e:00.0")}, false, []string{"gpu-0"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			count := int64(1)
			if test.incomplete {
				count = 2
			}
			missing := device.Missing(assemble(slice(11, 1, test.before...)), assemble(slice(12, count, test.now...)))
			if got := names(missing); !slices.Equal(got, append([]string{}, test.missing...)) {
				t.Errorf("missing %v, want %v", got, test.missing)
			}
		})
	}
}

// Q10. Case 25, "never mistake index renumbering for a replacement".
func TestHardwareThatMovedToAnotherNameIsFound(t *testing.T) {
	pool := assemble(slice(2, 1,
		listed("gpu-0", "uuid", "GPU-a"), listed("gpu-1", "uuid", "GPU-b"), listed("gpu-vfio-1", "uuid", "GPU-b"), listed("gpu-2", "serial", "4711"), listed("gpu-3")))
	key := func(name string) device.Key { return dra(t, "gpu.example.com/anvil-07/"+name) }
	tests := map[string]struct {
		was      string
		hardware device.Incarnation
		now      string
	}{
		"it stands under another index": {"gpu-7", device.Incarnation{UUID: "GPU-a"}, "gpu-0"},
		"found by its serial number":    {"gpu-7", device.Incarnation{Serial: "4711"}, "gpu-2"},
		"it is still where it was":      {"gpu-1", device.Incarnation{UUID: "GPU-b"}, ""},
		"it is nowhere":                 {"gpu-7", device.Incarnation{UUID: "GPU-z"}, ""},
		"nothing is known of it":        {"gpu-7", device.Incarnation{}, ""},
		"only its slot is known":        {"gpu-7", device.Incarnation{Slot: "0000:5e:00.0"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			now, ok := device.Renamed(pool, key(test.was), test.hardware)
			if ok != (test.now != "") || now.Device != test.now {
				t.Errorf("found %q, want %q", now.Device, test.now)
			}
		})
	}
}

// Q10. Case 25: identity goes by the serial, not by the slot.
func TestASwappedCardIsTellableByItsSerialAndNotByItsSlot(t *testing.T) {
	const same, changed, unprovable = device.SameHardware, device.NewHardware, device.Unprovable
	tests := map[string]struct {
		was, now device.Incarnation
		want     device.Sameness
	}{
		"the same uuid":                            {device.Incarnation{UUID: "a"}, device.Incarnation{UUID: "a"}, same},
		"another uuid in the same slot":            {device.Incarnation{UUID: "a", Slot: "s"}, device.Incarnation{UUID: "b", Slot: "s"}, changed},
		"the same uuid in another slot":            {device.Incarnation{UUID: "a", Slot: "s"}, device.Incarnation{UUID: "a", Slot: "t"}, same},
		"the same serial number without a uuid":    {device.Incarnation{Serial: "1"}, device.Incarnation{Serial: "1", UUID: "a"}, same},
		"another serial number":                    {device.Incarnation{Serial: "1"}, device.Incarnation{Serial: "2"}, changed},
		"the uuid counts before the serial number": {device.Incarnation{UUID: "a", Serial: "1"}, device.Incarnation{UUID: "a", Serial: "2"}, same},
		"nothing published":                        {device.Incarnation{}, device.Incarnation{}, unprovable},
		"only the slot published":                  {device.Incarnation{Slot: "s"}, device.Incarnation{Slot: "s"}, unprovable},
		"published only since":                     {device.Incarnation{}, device.Incarnation{UUID: "a"}, unprovable},
		"a uuid then, only a serial number now":    {device.Incarnation{UUID: "a"}, device.Incarnation{Serial: "1"}, unprovable},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.was.Compare(test.now); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if got := test.now.Compare(test.was); got != test.want {
				t.Errorf("looked at from the other side: %s, want %s", got, test.want)
			}
			if zero := test.was.UUID == "" && test.was.Serial == ""; test.was.IsZero() != zero {
				t.Errorf("known: %t", !test.was.IsZero())
			}
		})
	}
}

// Q10. Drivers qualify attribute names or don't, and give the PCI address several names.
func TestHardwareIsReadFromWhateverNamesADriverUses(t *testing.T) {
	tests := map[string]struct {
		attributes []string
		want       device.Incarnation
		shown      string
	}{
		"plain names":                         {[]string{"uuid", "GPU-1", "pciAddress", "0000:5e:00.0"}, device.Incarnation{UUID: "GPU-1", Slot: "0000:5e:00.0"}, "GPU-1"},
		"qualified names":                     {[]string{"gpu.example.com/uuid", "GPU-1", "resource.kubernetes.io/pciBusID", "0000:5e:00.0"}, device.Incarnation{UUID: "GPU-1", Slot: "0000:5e:00.0"}, "GPU-1"},
		"a plain name before a qualified one": {[]string{"uuid", "plain", "a.example.com/uuid", "qualified"}, device.Incarnation{UUID: "plain"}, "plain"},
		"the first of several by name":        {[]string{"b.example.com/uuid", "b", "a.example.com/uuid", "a"}, device.Incarnation{UUID: "a"}, "a"},
		"a serial number":                     {[]string{"serialNumber", "4711"}, device.Incarnation{Serial: "4711"}, "4711"},
		"a name that only ends alike":         {[]string{"productuuid", "x"}, device.Incarnation{}, "unidentified hardware"},
		"none":                                {nil, device.Incarnation{}, "unidentified hardware"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d, ok := assemble(slice(1, 1, listed("gpu-0", test.attributes...))).Find("gpu-0")
			if !ok || d.Incarnation != test.want || d.Incarnation.String() != test.shown {
				t.Errorf("got %+v, shown as %q", d.Incarnation, d.Incarnation)
			}
		})
	}
}

// O6, O7 in their pure part: why a Healthy can't be believed now, nearest cause first.
func TestAHealthyIsBelievedOnlyWhileItsSurroundingsAreWell(t *testing.T) {
	well := device.Surroundings{WatchCurrent: true, PoolComplete: true, Offer: device.Offer{Listed: 2, Allocatable: 2}}
	tests := map[string]struct {
		change      func(*device.Surroundings)
		dra, plugin device.Staleness
	}{
		"all is well":                   {func(*device.Surroundings) {}, device.Fresh, device.Fresh},
		"Sickbay's own watch is behind": {func(s *device.Surroundings) { *s = device.Surroundings{} }, device.WatchBehind, device.WatchBehind},
		"the node's Lease stopped":      {func(s *device.Surroundings) { s.Node, s.PoolComplete = device.NodeOutage, false }, device.NodeSilent, device.NodeSilent},
		"the node isn't ready":          {func(s *device.Surroundings) { s.Node, s.PoolComplete = device.NodeDegraded, false }, device.NodeNotReady, device.NodeNotReady},
		"the driver's slices are gone":  {func(s *device.Surroundings) { s.PoolComplete = false }, device.DriverAbsent, device.Fresh},
		"the plugin offers nothing":     {func(s *device.Surroundings) { s.Offer.Allocatable = 0 }, device.Fresh, device.PluginAbsent},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := well
			test.change(&s)
			if dra, plugin := s.Freshness(device.PathDRA), s.Freshness(device.PathPlugin); dra != test.dra || plugin != test.plugin {
				t.Errorf("got %q and %q, want %q and %q", dra, plugin, test.dra, test.plugin)
			}
		})
	}
}
