package starter

import (
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// O4, O8: where a driver's slices are gone, or not all there, nobody stands behind a
// Healthy of its devices. Once that has lasted, those in use are Unknown, and each has a
// case that waits; what was Unhealthy stays so; slices that are back count at once.
func TestADriverWhoseSlicesAreGoneMakesItsDevicesInUseUnknown(t *testing.T) {
	bad, well, other := gpu("anvil-07", "gpu-0"), gpu("anvil-07", "gpu-1"), gpu("anvil-08", "gpu-0")
	for name, goes := range map[string]func(*scene){
		"gone": func(s *scene) { s.tracker.sliceGone("anvil-07-gpus") },
		"incomplete": func(s *scene) {
			s.tracker.sliceSeen("anvil-07-gpus", device.Slice{
				Driver: driver, Pool: "anvil-07", Node: "anvil-07", Generation: 2, SliceCount: 2, Devices: eight("anvil-07"),
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.kubelets("anvil-07", "anvil-08")
			s.slice("anvil-07", 1, eight("anvil-07")...)
			s.slice("anvil-08", 1, eight("anvil-08")...)
			s.report("train-0", bad, device.Unhealthy, xid79)
			s.report("train-1", well, device.Healthy, "")
			s.report("train-2", other, device.Healthy, "")
			observed(t, s.send(), bad, true)

			goes(s)
			s.pass(time.Minute)
			s.slice("anvil-07", 3, eight("anvil-07")...)
			s.pass(time.Hour)
			goes(s)
			s.pass(119 * time.Second)
			for _, c := range s.send() {
				if c.key != bad {
					t.Fatalf("signal %+v about slices that were away for less than 2 min, twice", c)
				}
			}
			s.pass(time.Second)
			e := observed(t, s.send(), well, true)
			if r := e.Readings[0]; !e.Lost || r.Health != device.Healthy || r.Stale != device.DriverAbsent || r.Counts() != device.Unknown {
				t.Errorf("told as %+v, want a Healthy that isn't believed, and a loss", e)
			}
			s.report("train-1", well, device.Healthy, "")
			s.pass(time.Hour)
			none(t, s.send(), "the same said again")
			s.slice("anvil-07", 4, eight("anvil-07")...)
			if e := observed(t, s.send(), well, false); e.Readings[0].Stale != device.Fresh {
				t.Errorf("told as %+v, want a Healthy that may be believed", e)
			}
		})
	}
}

// O4: a driver that takes devices out of its slices while they are allocated isn't away
// because it lists none, or nothing at all; one of whose free devices nothing is listed
// is, and so is one that left its pool half written.
func TestADriverThatHidesWhatIsAllocatedIsNotAway(t *testing.T) {
	nic, free := gpu("anvil-07", "gpu-1"), listed("gpu-2", "GPU-b")
	for name, tc := range map[string]struct {
		happens func(*scene)
		want    int
	}{
		"it lists only what is free":             {func(s *scene) { s.slice("anvil-07", 2, free) }, 0},
		"it lists nothing":                       {func(s *scene) { s.slice("anvil-07", 2) }, 0},
		"its slice is gone with its only device": {func(s *scene) { s.tracker.sliceGone("anvil-07-gpus") }, 0},
		"its slice is gone, and one was free": {func(s *scene) {
			s.slice("anvil-07", 2, listed("gpu-1", "GPU-a"), free)
			s.pass(2 * time.Second)
			s.tracker.sliceGone("anvil-07-gpus")
		}, 1},
		"its pool is half written": {func(s *scene) {
			s.tracker.sliceSeen("anvil-07-gpus", device.Slice{Driver: driver, Pool: "anvil-07", Node: "anvil-07", Generation: 2, SliceCount: 2})
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, func(o *Options) { o.Drivers = map[string]DriverPolicy{driver: {HidesAllocated: true}} })
			s.kubelets("anvil-07")
			s.slice("anvil-07", 1, listed("gpu-1", "GPU-a"))
			s.pass(2 * time.Second)
			s.allocate("train-1", nic)
			s.report("train-1", nic, device.Healthy, "")
			tc.happens(s)
			s.pass(2 * time.Minute)
			if calls := s.send(); len(calls) != tc.want {
				t.Errorf("%d signals, want %d: %+v", len(calls), tc.want, calls)
			}
		})
	}
}
