package device_test

// Random lives of a device's cases: the workflow as it is, in the SDK's test
// environment with skipped time, with everything around it drawn from a seed. What
// happens is in simsteps_test.go, the cluster behind the activities in
// simcluster_test.go, Temporal's part in simserver_test.go, and what has to hold in
// simchecks_test.go.

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

var (
	lives = flag.Int("lives", 60, "how many random lives to simulate; make long simulates 10,000")
	seed  = flag.Uint64("seed", 1, "the seed of the first life; the next ones count up from it")
)

// Q5, Q6, R7, U1, U2, U3: whatever happens, in any order, late, twice or never, while activities
// fail, time out and write afterwards, while workers come back with other settings and
// runs continue at any moment: severity and epoch only rise, the first not-good moment
// stays, no case ends with its mark in force, mode observe writes nothing, nobody is
// kept out by what is only Unknown, each acknowledged message is in the state or on
// record, and a world that is fair from some moment on leads each case to its end or
// to a wait with a name.
func TestNoRandomLifeBreaksAnInvariant(t *testing.T) {
	began := time.Now()
	var next, runs, released atomic.Uint64
	for range runtime.GOMAXPROCS(0) {
		t.Run("lives", func(t *testing.T) {
			t.Parallel()
			for !t.Failed() {
				n := next.Add(1) - 1
				if n >= uint64(*lives) {
					return
				}
				l, err := simulate(*seed + n)
				if err != nil {
					t.Errorf("seed %d: %v\nagain: go test ./workflows/device -run %s -lives 1 -seed %d", *seed+n, err, "TestNoRandomLifeBreaksAnInvariant", *seed+n)
				}
				runs.Add(uint64(l.runs))
				released.Add(uint64(l.released))
			}
		})
	}
	t.Cleanup(func() {
		t.Logf("%d lives from seed %d, %d runs, %d devices given back, %s", min(next.Load(), uint64(*lives)), *seed, runs.Load(), released.Load(), time.Since(began).Round(time.Millisecond))
	})
}

// A seed that failed is of use only if it fails again: the same seed is the same life,
// to its last word.
func TestASeedGivesTheSameLifeAgain(t *testing.T) {
	for n := range uint64(5) {
		first, err := simulate(*seed + n)
		if err != nil {
			t.Fatalf("seed %d: %v", *seed+n, err)
		}
		again, err := simulate(*seed + n)
		if err != nil {
			t.Fatalf("seed %d: %v", *seed+n, err)
		}
		if a, b := strings.Join(first.trace, "\n"), strings.Join(again.trace, "\n"); a != b {
			t.Errorf("seed %d gives another life\nfirst\n%s\nagain\n%s", *seed+n, a, b)
		}
	}
}

// simulate lives one life. The error says which invariant was broken, and what came
// before.
func simulate(seed uint64) (l *life, err error) {
	l = newLife(seed)
	defer func() {
		switch broken := recover().(type) {
		case nil:
		case violation:
			err = errors.New(broken.text + "\nbefore that\n\t" + strings.Join(l.trace[max(0, len(l.trace)-maxTrace):], "\n\t"))
		default:
			panic(fmt.Sprintf("seed %d: %v", seed, broken))
		}
	}()
	l.live()
	return l, nil
}

// simPaths are the ways in which a device may be reached and kept out.
var simPaths = []struct {
	key    device.Key
	served bool
}{
	{device.Key{Driver: "gpu.example.com", Pool: "anvil-07", Device: "gpu-3"}, true},
	{device.Key{Driver: "gpu.example.com", Pool: "anvil-07", Device: "gpu-3"}, true},
	{device.Key{Driver: "gpu.example.com", Pool: "anvil-07", Device: "gpu-3"}, false},
	{device.Key{Node: simNode, Resource: "example.com/gpu", ID: "GPU-3"}, false},
}

func newLife(seed uint64) *life {
	rng := rand.New(rand.NewPCG(seed, 0))
	path := simPaths[rng.IntN(len(simPaths))]
	policy := quarantine.DefaultPolicy()
	policy.Mode, policy.Forget = quarantine.ModeEnforce, 3*time.Hour
	if rng.IntN(4) == 0 {
		policy.Mode = quarantine.ModeObserve
	}
	policy.Recover = rng.IntN(4) > 0
	policy.Attempts, policy.AttemptPause, policy.AttemptPauseMax, policy.CanaryWithin = 3, 10*time.Minute, time.Hour, 20*time.Minute
	l := &life{
		seed: seed, rng: rng, keyed: keyed{path.key}, cluster: newCluster(path.key, path.served),
		knobs: devicewf.Knobs{Policy: policy, SearchAttributes: rng.IntN(2) == 0},
		now:   time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC), tasks: map[string]*task{},
		record: record{calm: rng.IntN(4) == 0, pauses: drawPauses(rng), updating: map[string]string{}, trail: map[int64]quarantine.Notice{},
			granted: map[int64]bool{}, shortest: policy.Grace},
	}
	l.chaosUntil = l.now.Add(time.Second)
	for _, pause := range l.pauses {
		l.chaosUntil = l.chaosUntil.Add(pause)
	}
	// By then a gone device is forgotten, and some leases have run out after that.
	l.endsAt = l.chaosUntil.Add(policy.Forget + 5*time.Hour)
	l.in(time.Millisecond, l.next)
	l.in(l.chaosUntil.Sub(l.now), l.turnFair)
	return l
}
