package starter

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// O3: 50 faulty devices whose Pods are written 100,000 times cost 50 signals and no
// more, whatever else is written into those Pods.
func TestRepeatedObservationsCostNoSignals(t *testing.T) {
	s := newScene(t)
	const faulty, repeats = 50, 2000
	sent := 0
	for range repeats {
		for i := range faulty {
			node := fmt.Sprintf("node-%d", i)
			s.report(fmt.Sprintf("train-%d", i), gpu(node, "gpu-0"), device.Unhealthy, xid79)
		}
		sent += len(s.send())
	}
	if sent != faulty {
		t.Errorf("%d observations of %d faulty devices cost %d signals, want %d", faulty*repeats, faulty, sent, faulty)
	}
}

// O9: a fleet that is well costs nothing: no signal, no question, no place in the
// queue.
func TestAHealthyFleetCostsNothing(t *testing.T) {
	s := newScene(t)
	const nodes, perNode = 1000, 8
	for n := range nodes {
		node := fmt.Sprintf("node-%d", n)
		var devices []device.Listed
		for d := range perNode {
			name := fmt.Sprintf("gpu-%d", d)
			devices = append(devices, listed(name, node+name))
			s.report(fmt.Sprintf("train-%d-%d", n, d), gpu(node, name), device.Healthy, "")
		}
		s.slice(node, 1, devices...)
	}
	if queued := s.sender.queue.Len(); queued != 0 {
		t.Errorf("%d healthy devices wait to be sent", queued)
	}
	s.pass(time.Minute)
	s.sender.recheckAll(t.Context())
	none(t, s.send(), "after a minute of health")
	if s.cases.asked != 0 {
		t.Errorf("asked %d times for cases of healthy devices", s.cases.asked)
	}
	// Pods that end, slices that are rewritten and nodes that restart are no news.
	for n := range nodes {
		node := fmt.Sprintf("node-%d", n)
		for d := range perNode {
			name := fmt.Sprintf("train-%d-%d", n, d)
			s.tracker.podGone(device.PodRef{Namespace: "team-kestrel", Name: name, UID: "uid-" + name})
		}
		s.tracker.sliceGone(node + "-gpus")
	}
	s.pass(time.Minute)
	none(t, s.send(), "after all Pods ended and all slices went")
	if left := len(s.tracker.devices); left != 0 {
		t.Errorf("%d devices are still remembered", left)
	}
}

// O3: order and repetition of what Pods say make no difference to what the case
// gets to know.
func TestWorseIsSentAtOnceAndBetterOnlyToACase(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newScene(t)
	s.report("train-0", key, device.Healthy, "")
	none(t, s.send(), "healthy")

	first := s.report("train-0", key, device.Unhealthy, xid79)
	e := observed(t, s.send(), key, true)
	if r := e.Readings[0]; r.Health != device.Unhealthy || !r.Fault || r.Version != first.ResourceVersion ||
		r.Reason.Code != "XidFallenOffBus" || e.Node != "anvil-07" {
		t.Errorf("fault as sent: %+v", e)
	}

	// Other writers move the Pod's version; the status version stays.
	s.report("train-0", key, device.Unhealthy, xid79)
	none(t, s.send(), "the same fault at a later version")

	better := s.report("train-0", key, device.Healthy, "")
	e = observed(t, s.send(), key, false)
	if r := e.Readings[0]; r.Health != device.Healthy || r.Version != better.ResourceVersion {
		t.Errorf("improvement as told: %+v", e)
	}

	s.cases.end(key)
	s.report("train-0", key, device.Healthy, "still")
	none(t, s.send(), "an improvement after the case closed")
	s.report("train-0", key, device.Healthy, "and again")
	none(t, s.send(), "a device that turned out to have no case")
	s.report("train-0", key, device.Unhealthy, xid79)
	observed(t, s.send(), key, true)
}

// O3: what a fault said isn't swallowed when the Pod says Healthy again before the
// signal got through: two producers overwrite each other within seconds (case 02).
func TestAFaultIsNotSwallowedByTheHealthyThatFollowsIt(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newScene(t)
	s.report("train-0", key, device.Healthy, "")
	s.report("train-0", key, device.Unhealthy, xid79)
	s.report("train-0", key, device.Healthy, "")
	e := observed(t, s.send(), key, true)
	if len(e.Readings) != 2 || e.Readings[0].Health != device.Unhealthy || e.Readings[1].Health != device.Healthy ||
		!e.Readings[1].Version.Newer(e.Readings[0].Version) {
		t.Errorf("readings as sent: %+v, want the fault and then the healthy one", e.Readings)
	}
	none(t, s.send(), "afterwards")
}

// O3, K1: the same in a starter that stood by, of a Pod that had been well for long;
// and what is measured and traced is the time since the fault, not since the Pod.
func TestAFaultIsKeptForTheNextLeaderHoweverOldItsPodIs(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newStandby(t)
	s.tracker.listed()
	s.slice("anvil-07", 1, listed("gpu-3", "GPU-a"))
	s.report("train-0", key, device.Healthy, "")
	s.report("train-1", key, device.Healthy, "")
	for range 3 {
		s.pass(10 * time.Minute)
	}
	s.report("train-0", key, device.Unhealthy, xid79)
	s.pass(time.Second)
	s.report("train-0", key, device.Healthy, "")
	s.pass(time.Second)
	s.lead()
	if d, ok := s.tracker.due(key); !ok || s.clock.Since(d.since) != 2*time.Second {
		t.Errorf("owed %t, since %s ago; want the fault of 2 s ago", ok, s.clock.Since(d.since))
	}
	e := observed(t, s.send(), key, true)
	if len(e.Readings) != 3 || e.Readings[0].Health != device.Unhealthy {
		t.Errorf("readings as sent: %+v, want the fault too", e.Readings)
	}
}

// O3: nor is it swallowed where the leader was told long ago that nothing was known of
// the device.
func TestAFaultThatFollowsALongUnknownIsKeptForTheNextLeader(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newStandby(t)
	s.tracker.listed()
	s.report("train-0", key, device.Healthy, "")
	s.report("train-0", key, device.Unknown, "")
	s.pass(10 * time.Minute)
	s.report("train-0", key, device.Unhealthy, xid79)
	s.report("train-0", key, device.Unknown, "")
	s.pass(time.Second)
	s.lead()
	if e := observed(t, s.send(), key, true); len(e.Readings) != 2 || e.Readings[0].Health != device.Unhealthy {
		t.Errorf("readings as sent: %+v, want the fault too", e.Readings)
	}
}

// O3: a restored etcd steps back. What a relist says replaces what was known, even
// at a lower version, until the versions have caught up.
func TestARelistAtALowerVersionReplacesWhatWasKnown(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newScene(t)
	s.version = 500
	s.report("train-0", key, device.Unhealthy, xid79)
	observed(t, s.send(), key, true)

	s.version = 300
	s.report("train-0", key, device.Unhealthy, xid79)
	none(t, s.send(), "the same reading at a lower version")
	s.report("train-0", key, device.Healthy, "")
	if e := observed(t, s.send(), key, false); !e.Readings[0].Relisted {
		t.Errorf("a reading below the highest known version isn't marked as relisted: %+v", e.Readings[0])
	}
	s.version = 600
	s.report("train-0", key, device.Unhealthy, xid79)
	if e := observed(t, s.send(), key, true); e.Readings[0].Relisted {
		t.Errorf("a reading above the highest known version is marked as relisted: %+v", e.Readings[0])
	}
}

// O5. Case 07, its four rows: one device in several containers and Pods is one
// signal to one case, with what each Pod says.
func TestOneDeviceInTwoPodsIsOneSignalWithBothReadings(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newScene(t)
	a, b := podOn("anvil-07", "serve-a", entry(key, device.Unhealthy, xid79)), podOn("anvil-07", "serve-b", entry(key, device.Healthy, ""))
	a.ResourceVersion, b.ResourceVersion = "200", "200"
	a.Containers = append(a.Containers, device.Container{Name: "metrics", Entries: a.Containers[0].Entries})
	s.tracker.podSeen(a)
	s.tracker.podSeen(b)
	e := observed(t, s.send(), key, true)
	if len(e.Readings) != 2 || e.Readings[0].Health != device.Unhealthy || e.Readings[1].Health != device.Healthy {
		t.Errorf("readings of two Pods: %+v", e.Readings)
	}
	b.ResourceVersion, b.Containers = "208", a.Containers
	s.tracker.podSeen(b)
	if e := observed(t, s.send(), key, true); e.Readings[1].Health != device.Unhealthy || e.Readings[1].Pod.Name != "serve-b" {
		t.Errorf("the second Pod's fault: %+v", e.Readings)
	}
}

func TestAFaultOutlivesItsPod(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	for name, end := range map[string]func(*scene, device.Pod){
		"deleted": func(s *scene, p device.Pod) { s.tracker.podGone(p.Ref) },
		"failed":  func(s *scene, p device.Pod) { p.Terminal, p.Containers = true, nil; s.see(p) },
		"replaced under its name while the watch was broken": func(s *scene, p device.Pod) {
			p.Ref.UID, p.Containers = "another", nil
			s.see(p)
		},
	} {
		t.Run(name+" after the fault was sent", func(t *testing.T) {
			s := newScene(t)
			p := s.report("train-0", key, device.Unhealthy, xid79)
			observed(t, s.send(), key, true)
			end(s, p)
			e := observed(t, s.send(), key, false)
			if r := e.Readings[0]; !r.Ended || r.Health != device.Unhealthy {
				t.Errorf("what is told of the ended Pod: %+v", r)
			}
			none(t, s.send(), "afterwards")
		})
		t.Run(name+" before the fault was sent", func(t *testing.T) {
			s := newScene(t)
			p := s.report("train-0", key, device.Unhealthy, xid79)
			end(s, p)
			e := observed(t, s.send(), key, true)
			if r := e.Readings[0]; !r.Ended || r.Health != device.Unhealthy || !r.Fault {
				t.Errorf("what is sent of the ended Pod: %+v", r)
			}
		})
		t.Run(name+" when all was well", func(t *testing.T) {
			s := newScene(t)
			end(s, s.report("train-0", key, device.Healthy, ""))
			none(t, s.send(), "a healthy Pod's end")
		})
	}
}

func TestEntriesThatVanishLeaveTheLastReading(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newScene(t)
	p := s.report("train-0", key, device.Unhealthy, xid79)
	observed(t, s.send(), key, true)
	p.Containers = []device.Container{{Name: "main", Terminated: true}}
	p = s.see(p)
	none(t, s.send(), "entries erased at the container's end")
	// The container comes back and so does the entry, unchanged.
	p.Containers = []device.Container{{Name: "main", Entries: []device.Entry{entry(key, device.Unhealthy, xid79)}}}
	s.see(p)
	none(t, s.send(), "the same entry after a restart of the container")
}

func TestClaimsMayComeAfterTheStatusThatNeedsThem(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	cdi := device.Entry{Name: "claim:accel", ResourceID: "k8s.gpu.nvidia.com/claim=0c1-gpu-0", Health: device.Unhealthy, Message: xid79}
	s := newScene(t)
	s.see(podOn("anvil-07", "train-0", cdi))
	none(t, s.send(), "a CDI ID without its claim")
	if u := s.tracker.unmappedFaults(); len(u) != 1 || u[0].Reason != device.ClaimUnknown {
		t.Errorf("unmapped: %+v", u)
	}
	s.allocate("train-0", key)
	observed(t, s.send(), key, true)
	if u := s.tracker.unmappedFaults(); len(u) != 0 {
		t.Errorf("still unmapped: %+v", u)
	}
	// A claim that is deleted under its Pod takes nothing back.
	s.tracker.claimGone("team-kestrel", "train-0-accel")
	none(t, s.send(), "the claim is deleted")
}

// O2: an ID that could mean several devices is shown and counted, and never becomes
// the fault of one of them by guessing. Case 06, "never dropped silently".
func TestAnEntryThatMayMeanSeveralDevicesIsAnUnmappedFault(t *testing.T) {
	s := newScene(t)
	s.allocate("train-0", gpu("anvil-07", "gpu-2"), gpu("anvil-07", "gpu-3"))
	p := podOn("anvil-07", "train-0",
		device.Entry{Name: "claim:accel", ResourceID: "k8s.gpu.nvidia.com/claim=0c1-gpu-0", Health: device.Unhealthy, Message: xid79},
		device.Entry{Name: "claim:accel", ResourceID: "k8s.gpu.nvidia.com/claim=0c1-gpu-1", Health: device.Healthy},
		device.Entry{Name: plugin, ResourceID: "", Health: device.Unhealthy},
		device.Entry{Name: "claim:", ResourceID: "x", Health: device.Unhealthy},
	)
	p = s.see(p)
	s.pass(time.Minute)
	none(t, s.send(), "entries that lead nowhere")
	found := s.tracker.unmappedFaults()
	var reasons []string
	for _, u := range found {
		reasons = append(reasons, string(u.Reason))
	}
	if got, want := strings.Join(reasons, " "), "EmptyID"; len(found) != 3 || !strings.Contains(got, want) ||
		!strings.Contains(got, "MalformedName") || !strings.Contains(got, "SeveralDevices") {
		t.Errorf("unmapped: %s", got)
	}
	for _, u := range found {
		if u.Reason == device.SeveralDevices && len(u.Candidates) != 2 {
			t.Errorf("candidates: %v", u.Candidates)
		}
		if !u.Since.Equal(startOfTime) {
			t.Errorf("since %s, want when it was first seen", u.Since)
		}
	}
	s.tracker.podGone(p.Ref)
	if left := s.tracker.unmappedFaults(); len(left) != 0 {
		t.Errorf("still unmapped after the Pod's end: %+v", left)
	}
}

// U1. Case 04, what must be: never known is told from lost, by driver and node, and
// each driver's policy is explicit.
func TestUnknownOpensACaseOnlyWhereHealthWasKnown(t *testing.T) {
	key, other := gpu("anvil-07", "gpu-3"), gpu("anvil-07", "gpu-4")
	policy := func(p DriverPolicy) func(*Options) {
		return func(o *Options) { o.Drivers = map[string]DriverPolicy{driver: p} }
	}
	t.Run("a driver without a health service is a gap in coverage, not a fault", func(t *testing.T) {
		s := newScene(t)
		s.report("mpi-0", key, device.Unknown, "")
		s.pass(24 * time.Hour)
		none(t, s.send(), "never known")
		if gaps := s.tracker.coverage(); gaps[driver] != 1 {
			t.Errorf("coverage gaps: %v", gaps)
		}
	})
	t.Run("an Unknown that was Healthy before is a loss", func(t *testing.T) {
		s := newScene(t)
		s.report("train-0", key, device.Healthy, "")
		s.report("train-0", key, device.Unknown, "")
		if e := observed(t, s.send(), key, true); !e.Lost {
			t.Errorf("sent as %+v", e)
		}
		if gaps := s.tracker.coverage(); len(gaps) != 0 {
			t.Errorf("coverage gaps: %v", gaps)
		}
	})
	t.Run("another device of the driver on the node shows that health is known there", func(t *testing.T) {
		s := newScene(t)
		s.report("train-0", key, device.Unknown, "")
		s.report("train-1", other, device.Healthy, "")
		if e := observed(t, s.send(), key, true); !e.Lost {
			t.Errorf("sent as %+v", e)
		}
	})
	t.Run("another node doesn't", func(t *testing.T) {
		s := newScene(t)
		s.report("train-0", key, device.Unknown, "")
		s.report("train-1", gpu("anvil-08", "gpu-0"), device.Healthy, "")
		none(t, s.send(), "known elsewhere")
	})
	t.Run("ignore", func(t *testing.T) {
		s := newScene(t, policy(DriverPolicy{Unknown: UnknownIgnore}))
		s.report("train-0", key, device.Healthy, "")
		s.report("train-0", key, device.Unknown, "")
		none(t, s.send(), "ignored")
	})
	t.Run("fault", func(t *testing.T) {
		s := newScene(t, policy(DriverPolicy{Unknown: UnknownFault}))
		s.report("train-0", key, device.Unknown, "")
		if e := observed(t, s.send(), key, true); !e.Lost {
			t.Errorf("sent as %+v", e)
		}
	})
}

// Q7. Case 10, "never on first sight": no case comes of an application's error or a
// contained one.
func TestWhatTheCatalogueForgivesOpensNoCase(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	for _, message := range []string{xid13, xid94} {
		s := newScene(t)
		match := reason.Builtin().Match(driver, message)
		s.report("train-0", key, device.Unhealthy, message)
		calls := s.send()
		if match.DeviceFault() {
			observed(t, calls, key, true)
			continue
		}
		none(t, calls, message)
		// A case that exists hears of it.
		s.report("train-0", key, device.Unhealthy, xid79)
		observed(t, s.send(), key, true)
		s.report("train-0", key, device.Unhealthy, message)
		if e := observed(t, s.send(), key, false); e.Readings[0].Fault {
			t.Errorf("%s sent as a fault of the device", message)
		}
	}
}

// O10: a fault of the chip is delivered to every device on it; the Pods that see it
// elsewhere are no holders. Case 15, rows t=10 and t=40.
func TestAChipFaultReachesAllReplicasAndPartitions(t *testing.T) {
	t.Run("time-sliced replicas", func(t *testing.T) {
		s := newScene(t)
		for i := range 3 {
			s.report(fmt.Sprintf("serve-%d", i), replica("anvil-07", fmt.Sprintf("GPU-5f1c::%d", i)), device.Healthy, "")
		}
		s.report("other", replica("anvil-07", "GPU-9ad0::0"), device.Healthy, "")
		s.report("serve-2", replica("anvil-07", "GPU-5f1c::2"), device.Unhealthy, "")
		bad := faultsByDevice(t, s.send())
		for i := range 3 {
			key := replica("anvil-07", fmt.Sprintf("GPU-5f1c::%d", i))
			r, ok := bad[key]
			if !ok || r.Pod.Name != "serve-2" || r.Monitor != (i != 2) {
				t.Errorf("%s: %+v", key, r)
			}
		}
		if len(bad) != 3 {
			t.Errorf("faults of %d devices, want 3", len(bad))
		}
		// A replica that comes into use later is on the broken chip too.
		late := replica("anvil-07", "GPU-5f1c::3")
		s.report("late", late, device.Healthy, "")
		if bad := faultsByDevice(t, s.send()); bad[late].Pod.Name != "serve-2" {
			t.Errorf("the late replica: %+v", bad)
		}
	})
	t.Run("partitions, whether the slice comes before the fault or after it", func(t *testing.T) {
		part := func(name string) device.Listed {
			d := listed(name, "MIG-"+name)
			d.Attributes["parentUUID"] = "GPU-9ad0"
			return d
		}
		parts := []device.Listed{part("mig-1g-0"), part("mig-1g-1"), part("mig-3g-2")}
		for _, before := range []bool{true, false} {
			s := newScene(t)
			if before {
				s.slice("harbor-12", 1, parts...)
			}
			s.report("train-0", gpu("harbor-12", "mig-1g-0"), device.Unhealthy, xid79)
			if !before {
				observed(t, s.send(), gpu("harbor-12", "mig-1g-0"), true)
				s.slice("harbor-12", 1, parts...)
			}
			bad := faultsByDevice(t, s.send())
			for _, name := range []string{"mig-1g-1", "mig-3g-2"} {
				if r, ok := bad[gpu("harbor-12", name)]; !ok || !r.Monitor {
					t.Errorf("slice first %t: %s: %+v", before, name, r)
				}
			}
			// The chip is reset and says so: every case on it hears it.
			s.report("train-0", gpu("harbor-12", "mig-1g-0"), device.Healthy, "")
			told := map[device.Key]bool{}
			for _, c := range s.send() {
				e := observedIn(t, c, c.key, false)
				told[c.key] = e.Readings[0].Health == device.Healthy
			}
			if len(told) != 3 || !told[gpu("harbor-12", "mig-3g-2")] {
				t.Errorf("slice first %t: the improvement was told to %v", before, told)
			}
		}
	})
}

func faultsByDevice(t *testing.T, calls []call) map[device.Key]quarantine.Reading {
	t.Helper()
	faults := map[device.Key]quarantine.Reading{}
	for _, c := range calls {
		e, ok := c.event.(quarantine.Observed)
		if !ok || !c.open {
			t.Fatalf("unexpected signal %+v", c)
		}
		for _, r := range e.Readings {
			if r.Fault {
				faults[c.key] = r
			}
		}
	}
	return faults
}

func TestMessagesAreCutBeforeTheyTravel(t *testing.T) {
	key := gpu("anvil-07", "gpu-3")
	s := newScene(t)
	s.report("train-0", key, device.Unhealthy, xid79+strings.Repeat(" é", 400))
	r := observed(t, s.send(), key, true).Readings[0]
	if len(r.Message) > 512 || !utf8.ValidString(r.Message) || r.Reason.Code != "XidFallenOffBus" {
		t.Errorf("message of %d bytes, valid %t, reason %s", len(r.Message), utf8.ValidString(r.Message), r.Reason.Code)
	}
}
