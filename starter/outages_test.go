package starter

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// kubelets are the nodes of a scene that renew their Leases.
type kubelets struct {
	s *scene
	// renewed is what each node's Lease says, version that of its last write.
	renewed map[string]string
	version map[string]device.Version
	at      int
}

// kubelets lets nodes come that are ready and renew their Leases.
func (s *scene) kubelets(nodes ...string) *kubelets {
	k := &kubelets{s: s, renewed: map[string]string{}, version: map[string]device.Version{}, at: 5000}
	for _, name := range nodes {
		s.node(name, true, nil)
		k.renewed[name] = ""
	}
	return k
}

// list has the starter list all Leases, after those nodes renewed theirs.
func (k *kubelets) list(alive ...string) bool {
	for _, name := range alive {
		k.at++
		k.renewed[name], k.version[name] = k.s.clock.Now().String(), device.Version(strconv.Itoa(k.at))
	}
	k.at++ // other Leases of the cluster are renewed, too
	all := map[string]lease{}
	for name := range k.renewed {
		all[name] = lease{renewed: k.renewed[name], version: k.version[name]}
	}
	return k.s.tracker.leasesListed(all, device.Version(strconv.Itoa(k.at)))
}

// live lets time go by as the starter spends it: it lists every 15 s.
func (k *kubelets) live(d time.Duration, alive ...string) {
	for end := k.s.clock.Now().Add(d); k.s.clock.Now().Before(end); {
		k.s.pass(15 * time.Second)
		k.list(alive...)
	}
}

// verdict wants a device to be shown as one that can't be believed for that reason.
func (s *scene) stale(key device.Key, want device.Staleness, when string) {
	s.t.Helper()
	if got := s.seenOf(key); got == nil || got.Stale != want {
		s.t.Errorf("%s: shown as %+v, want it to be %q", when, got, want)
	}
}

// O6: what was read on a node that is out is told to no case and opens none, whatever
// the entry says and by whatever the node is known to be out. When the node is back and
// has settled, its level is told if it calls for a case, and nothing that was between.
func TestADeadNodesDevicesAreNotJudged(t *testing.T) {
	dra, plugged := gpu("anvil-07", "gpu-3"), replica("anvil-07", "GPU-1")
	for name, out := range map[string]struct {
		goes  func(*scene, *kubelets)
		stays func(*scene, *kubelets, time.Duration)
		back  func(*scene, *kubelets)
		stale device.Staleness
	}{
		"its Lease stands still and the node controller is away": {
			goes:  func(_ *scene, k *kubelets) { k.live(time.Minute+15*time.Second, "anvil-08") },
			stays: func(_ *scene, k *kubelets, d time.Duration) { k.live(d, "anvil-08") },
			back:  func(_ *scene, k *kubelets) { k.live(15*time.Second, "anvil-07", "anvil-08") },
			stale: device.NodeSilent,
		},
		"the node controller hears nothing of it": {
			goes:  func(s *scene, _ *kubelets) { s.tracker.nodeReady("anvil-07", device.ReadyUnknown) },
			stays: func(s *scene, _ *kubelets, d time.Duration) { s.pass(d) },
			back:  func(s *scene, _ *kubelets) { s.tracker.nodeReady("anvil-07", device.ReadyTrue) },
			stale: device.NodeNotReady, // its Lease moved a moment ago
		},
		"its kubelet says that it isn't ready": {
			goes:  func(s *scene, _ *kubelets) { s.tracker.nodeReady("anvil-07", device.ReadyFalse) },
			stays: func(_ *scene, k *kubelets, d time.Duration) { k.live(d, "anvil-07", "anvil-08") },
			back:  func(s *scene, _ *kubelets) { s.tracker.nodeReady("anvil-07", device.ReadyTrue) },
			stale: device.NodeNotReady,
		},
	} {
		for _, key := range []device.Key{dra, plugged} {
			t.Run(fmt.Sprintf("%s, %s", name, key), func(t *testing.T) {
				s := newScene(t)
				k := s.kubelets("anvil-07", "anvil-08")
				s.slice("anvil-07", 1, listed("gpu-3", "GPU-a"))
				s.tracker.nodeSeen("anvil-07", "anvil-07-uid", map[string]device.Offer{plugin: {Listed: 8, Allocatable: 8}})
				s.report("train-0", key, device.Healthy, "")
				k.live(time.Minute, "anvil-07", "anvil-08")
				s.stale(key, device.Fresh, "all is well")

				out.goes(s, k)
				s.stale(key, out.stale, "out")
				s.report("train-0", key, device.Unknown, "")
				s.report("train-1", key, device.Unknown, "")
				none(t, s.send(), "Unknown while the node is out")
				out.stays(s, k, time.Hour)
				s.report("train-1", key, device.Unhealthy, xid79)
				none(t, s.send(), "Unhealthy while the node is out")
				late := key
				late.Device, late.ID = late.Device+"x", late.ID+"x"
				if key.Path() == device.PathDRA {
					late.ID = ""
				} else {
					late.Device = ""
				}
				s.report("train-2", late, device.Unhealthy, xid79)
				none(t, s.send(), "a device that is first seen while the node is out")
				s.sender.recheckAll(t.Context())
				none(t, s.send(), "a round of checks")

				out.back(s, k)
				none(t, s.send(), "back, and not settled")
				s.report("train-0", key, device.Healthy, "")
				s.report("train-2", late, device.Healthy, "")
				s.pass(15 * time.Second)
				none(t, s.send(), "half settled")
				s.stale(key, out.stale, "half settled")
				s.pass(15 * time.Second)
				calls := s.send()
				if len(calls) == 0 {
					t.Fatal("the fault that is there still isn't told")
				}
				for _, c := range calls {
					if c.key == late {
						continue // its fault was said by a kubelet that lived, and is over
					}
					e := observedIn(t, c, key, true)
					for _, r := range e.Readings {
						if r.Pod.Name == "train-1" && (r.Health != device.Unhealthy || !r.Observed.Equal(s.clock.Now())) {
							t.Errorf("told as %+v, want the level as it was read now", r)
						}
					}
				}
				s.stale(key, device.Fresh, "settled")
			})
		}
	}
}

// O6, U1: the window of an Unknown that was read while its node was out begins when the
// node has settled, and an Unknown that is over by then was never there.
func TestAnUnknownOfANodeThatWasOutCountsFromItsReturn(t *testing.T) {
	lasting, passing := gpu("anvil-07", "gpu-3"), gpu("anvil-07", "gpu-4")
	s := newScene(t)
	k := s.kubelets("anvil-07")
	s.slice("anvil-07", 1, listed("gpu-3", "GPU-a"), listed("gpu-4", "GPU-b"))
	s.report("train-0", lasting, device.Healthy, "")
	s.report("train-1", passing, device.Healthy, "")
	k.live(time.Minute, "anvil-07")
	s.tracker.nodeReady("anvil-07", device.ReadyUnknown)
	s.report("train-0", lasting, device.Unknown, "")
	s.report("train-1", passing, device.Unknown, "")
	s.pass(time.Hour)
	s.tracker.nodeReady("anvil-07", device.ReadyTrue)
	s.report("train-1", passing, device.Healthy, "")
	s.pass(30 * time.Second)
	e := observed(t, s.send(), lasting, true)
	if r := e.Readings[0]; !r.Observed.Equal(s.clock.Now()) {
		t.Errorf("the Unknown is dated %s, want now, %s", r.Observed, s.clock.Now())
	}
}

// O6: a case that was told of a fault before its node went out hears nothing of the
// outage, and nothing at its end if nothing has changed.
func TestAnOutageIsNoNewsToACaseThatIsOpen(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newScene(t)
	k := s.kubelets("anvil-07")
	s.slice("anvil-07", 1, listed("gpu-3", "GPU-a"))
	s.report("train-0", key, device.Unhealthy, xid79)
	observed(t, s.send(), key, true)
	k.live(2*time.Minute, "anvil-07")
	k.live(10 * time.Minute)
	s.stale(key, device.NodeSilent, "out")
	s.tracker.sliceGone("anvil-07-gpus")
	s.pass(time.Minute)
	none(t, s.send(), "the slices of a node that is out are gone")
	// A mark that is deleted meanwhile is no matter of the node's.
	s.marked(key, 1700, true)
	s.tracker.markGone("sickbay-gpu-3")
	if calls := s.send(); len(calls) != 1 {
		t.Errorf("%d signals of the mark, want one: %+v", len(calls), calls)
	}
	s.slice("anvil-07", 1, listed("gpu-3", "GPU-a"))
	k.live(time.Minute, "anvil-07")
	none(t, s.send(), "back as it was")
	s.stale(key, device.Fresh, "back as it was")
}

// O6, Q10: that a node is deleted ends its outage: its cases hear of that.
func TestANodeThatIsDeletedWhileItIsOutIsTold(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newScene(t)
	s.node("anvil-07", true, nil)
	s.slice("anvil-07", 1, listed("gpu-3", "GPU-a"))
	p := s.report("train-0", key, device.Unhealthy, xid79)
	observed(t, s.send(), key, true)
	s.tracker.nodeReady("anvil-07", device.ReadyUnknown)
	s.pass(time.Hour)
	none(t, s.send(), "out")
	s.tracker.nodeGone("anvil-07")
	calls := s.send()
	if len(calls) != 1 {
		t.Fatalf("%d signals, want that the node is deleted: %+v", len(calls), calls)
	}
	s.tracker.podGone(p.Ref)
	if len(s.tracker.outages)+len(s.tracker.nodesOut)+len(s.tracker.ready) > 0 {
		t.Errorf("of the deleted node there is still known %v, %v, %v", s.tracker.outages, s.tracker.nodesOut, s.tracker.ready)
	}
}

// O6: how long a node may be silent is said for each driver, and judged for each.
func TestHowLongANodeMayBeSilentGoesByTheDriver(t *testing.T) {
	patient := device.Key{Driver: "nic.example.com", Pool: "anvil-07", Device: "nic-0"}
	s := newScene(t, func(o *Options) {
		o.Drivers = map[string]DriverPolicy{"nic.example.com": {HeartbeatLimit: 5 * time.Minute}}
	})
	k := s.kubelets("anvil-07")
	s.report("train-0", gpu("anvil-07", "gpu-3"), device.Healthy, "")
	s.report("train-0", patient, device.Healthy, "")
	k.live(time.Minute, "anvil-07")
	k.live(75 * time.Second)
	s.stale(gpu("anvil-07", "gpu-3"), device.NodeSilent, "75 s")
	if got := s.seenOf(patient); got.Stale == device.NodeSilent {
		t.Error("75 s of silence are too many for a driver that is given 5 min")
	}
	k.live(5 * time.Minute)
	s.stale(patient, device.NodeSilent, "6 min")
}

// O6, O7: only a Lease that was watched without a break and didn't change stands still.
// What the starter missed, what an API server that is behind gave it, and what its own
// pause made of it say nothing; nor do they end an outage.
func TestOnlyALeaseThatWasWatchedStandsStill(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	for name, happens := range map[string]func(*scene, *kubelets){
		"it advances": func(_ *scene, k *kubelets) { k.live(time.Hour, "anvil-07") },
		"it stood still for less than may be": func(_ *scene, k *kubelets) {
			k.live(45 * time.Second)
			k.live(15*time.Second, "anvil-07")
			k.live(45 * time.Second)
		},
		"the starter has just begun to watch": func(s *scene, k *kubelets) { s.tracker.leasesForgotten(); k.list(); k.live(45 * time.Second) },
		"the lists failed": func(s *scene, k *kubelets) {
			for range 10 {
				s.pass(15 * time.Second)
				s.tracker.leasesMissed()
			}
			k.list()
			k.live(45 * time.Second)
		},
		"every third list failed": func(s *scene, k *kubelets) {
			for range 20 {
				k.live(30 * time.Second)
				s.pass(15 * time.Second)
				s.tracker.leasesMissed()
			}
		},
		"the starter stood still itself": func(s *scene, k *kubelets) {
			s.pass(10 * time.Minute)
			s.tracker.nodeReady("anvil-07", device.ReadyFalse) // and hears of something before it lists again
			s.tracker.nodeReady("anvil-07", device.ReadyTrue)
			s.pass(30 * time.Second)
			k.list()
			k.live(45 * time.Second)
		},
		"the API server's own view stands still": func(s *scene, k *kubelets) {
			for range 20 {
				s.pass(15 * time.Second)
				k.at--
				if k.list() {
					t.Error("a list that isn't newer than the one before is taken for a present one")
				}
			}
		},
		"all of etcd was restored": func(_ *scene, k *kubelets) {
			k.live(45 * time.Second)
			k.at -= 1000
			k.list()
			k.live(45 * time.Second)
		},
		"it has no Lease": func(_ *scene, k *kubelets) { delete(k.renewed, "anvil-07"); k.live(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			k := s.kubelets("anvil-07")
			s.slice("anvil-07", 1, listed("gpu-3", "GPU-a"))
			s.report("train-0", key, device.Healthy, "")
			k.live(time.Minute, "anvil-07")
			happens(s, k)
			s.stale(key, device.Fresh, name)
			s.report("train-0", key, device.Unhealthy, xid79)
			observed(t, s.send(), key, true)
		})
	}
}

// O6, O7: an outage that a Lease showed ends when the Lease moves, and not because the
// starter can't see it any more; if that lasts, the node's own word counts.
func TestBlindnessEndsNoOutage(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newScene(t)
	k := s.kubelets("anvil-07")
	s.slice("anvil-07", 1, listed("gpu-3", "GPU-a"))
	s.report("train-0", key, device.Healthy, "")
	k.live(time.Minute, "anvil-07")
	k.live(2 * time.Minute)
	s.report("train-0", key, device.Unknown, "")
	for range 10 {
		s.pass(15 * time.Second)
		s.tracker.leasesMissed()
	}
	k.list()
	k.live(45 * time.Second)
	s.stale(key, device.NodeSilent, "not seen for a while")
	none(t, s.send(), "not seen for a while")
	for range 30 {
		s.pass(15 * time.Second)
		s.tracker.leasesMissed()
	}
	observed(t, s.send(), key, true)
}

// O6: nodes that are out are counted by verdict, with the time of the longest.
func TestNodesThatAreOutAreCounted(t *testing.T) {
	s := newScene(t)
	k := s.kubelets("anvil-07", "anvil-08", "anvil-09")
	for _, node := range []string{"anvil-07", "anvil-08", "anvil-09"} {
		s.report("train-"+node, gpu(node, "gpu-0"), device.Healthy, "")
		s.report("other-"+node, replica(node, "GPU-0"), device.Healthy, "")
	}
	k.live(time.Minute, "anvil-07", "anvil-08", "anvil-09")
	s.tracker.nodeReady("anvil-08", device.ReadyFalse)
	k.live(10*time.Minute, "anvil-08", "anvil-09")
	count, longest := s.tracker.outNodes()
	if count[device.NodeOutage] != 1 || count[device.NodeDegraded] != 1 || longest[device.NodeOutage] != 10*time.Minute || longest[device.NodeDegraded] != 10*time.Minute {
		t.Errorf("counted %v for %v, want one each, both for 10 min", count, longest)
	}
	s.tracker.nodeReady("anvil-08", device.ReadyTrue)
	k.live(time.Minute, "anvil-07", "anvil-08", "anvil-09")
	if count, longest = s.tracker.outNodes(); count[device.NodeOutage]+count[device.NodeDegraded] != 0 || longest[device.NodeOutage] != 0 {
		t.Errorf("counted %v for %v, want none", count, longest)
	}
}
