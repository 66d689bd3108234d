package quarantine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// follow goes on until something is so, with everything answered at once.
func (r *run) follow(limit time.Duration, until string, so func(quarantine.Case) bool) {
	r.t.Helper()
	end := r.now.Add(limit)
	for range 5000 {
		r.settleStep()
		if so(r.c) {
			return
		}
		if r.mark != nil || r.look != nil || r.ask != nil || r.tends() || len(r.watch) > 0 {
			continue
		}
		next := r.c.NextWake(r.now)
		if next.IsZero() || next.After(end) {
			break
		}
		r.now = next
		r.tell(quarantine.Woke{})
	}
	r.t.Fatalf("not within %s: %s\n%s", limit, until, encode(r.t, r.c))
}

// settleStep answers what is under way, once.
func (r *run) settleStep() {
	r.askAnswers()
	r.tendAnswers()
	r.markRuns()
	r.markAnswers()
	r.lookReads()
	r.lookAnswers()
	r.delivers()
}

func inPhase(p quarantine.Phase) func(quarantine.Case) bool {
	return func(c quarantine.Case) bool { return c.Phase == p }
}

func atGate(g quarantine.Gate) func(quarantine.Case) bool {
	return func(c quarantine.Case) bool { return c.Recovery != nil && c.Recovery.Gate == g }
}

// comesBack follows a device to its release.
func (r *run) comesBack(within time.Duration) {
	r.t.Helper()
	r.follow(within, "the device is given back", inPhase(quarantine.PhaseReleased))
}

// says has a running Pod of the attempt report something of the device, and the watch
// deliver it.
func (r *run) attemptSays(health device.Health, message string) {
	r.t.Helper()
	i := slices.IndexFunc(r.w.pods, func(p pod) bool { return p.running && p.monitor })
	if i < 0 {
		r.t.Fatalf("no Pod of an attempt runs")
	}
	r.w.write(i, health, message, r.now)
	r.watch = append(r.watch, quarantine.Observed{Node: "anvil-07", Incarnation: oldCard, Readings: []quarantine.Reading{r.w.reading(r.w.pods[i])}})
	for len(r.watch) > 0 {
		r.delivers()
	}
}

// R1, case 10, row t=20 (what a reset mends): a device that nobody holds rests, and then passes evidence on our own claim, probe,
// canary, stability window, the close of its reason and its turn, in this order and in one
// attempt; only then, with everything of ours gone, its mark is removed.
func TestADeviceIsGivenBackByAllGatesInTheirOrder(t *testing.T) {
	r := keptOut(t, majorFault)
	r.follow(r.p.CoolDown, "it rests", func(c quarantine.Case) bool { return c.Waiting == quarantine.WaitingForCoolDown })
	left := r.now
	for _, gate := range quarantine.Gates[1:4] {
		r.follow(time.Hour, "gate "+string(gate), atGate(gate))
		if r.w.mark == nil || r.c.Mark.State != quarantine.MarkInForce {
			t.Fatalf("at gate %s the mark is %+v", gate, r.c.Mark)
		}
	}
	r.comesBack(time.Hour)
	c := r.c
	if took, least := r.now.Sub(left), r.p.CoolDown+r.p.Stability-slipped; took < least {
		t.Errorf("it came back after %s; cool-down and stability window alone are %s", took, least)
	}
	if r.w.mark != nil || len(r.w.proof.made) > 0 {
		t.Errorf("left behind: mark %+v, attempts %v", r.w.mark, r.w.proof.made)
	}
	if c.End != quarantine.EndReleased || c.Waiting != quarantine.WaitingForRelapse || !c.Lives() || c.Open() || c.Attempt != 1 || !c.Relapse.FirstTry {
		t.Errorf("the case is %s", encode(t, c))
	}
	for i, result := range c.Last.Passed {
		if result.Gate != quarantine.Gates[i] || result.Verdict != quarantine.VerdictPassed || i < 5 && result.Evidence == "" {
			t.Errorf("gate %d is %+v", i, result)
		}
	}
	r.follow(r.p.RelapseWatch+time.Minute, "the watch is over", func(c quarantine.Case) bool { return !c.Lives() })
}

// R1, case 09, rows T+00:00:00 to T+02:17:00: a driver that was restarted and says
// Healthy again, a taint that is gone, or silence are leave to try the device, and never
// its release.
func TestCase09RecoveryWithoutProof(t *testing.T) {
	r := keptOut(t, majorFault)
	r.w.proof.trouble = "the driver isn't registered"
	r.passes(2 * time.Hour)
	r.settle()
	if r.c.Phase == quarantine.PhaseReleased || r.w.mark == nil {
		t.Fatalf("released without a gate: %s", encode(t, r.c))
	}
	if r.c.Waiting != quarantine.WaitingForProbe && r.c.Waiting != quarantine.WaitingForDriver && r.c.Waiting != quarantine.WaitingForGates {
		t.Errorf("it waits for %q, which names nobody's next step", r.c.Waiting)
	}
	// T+02:00:00: the plugin is restarted and its slices are made anew; it says Healthy.
	r.w.proof.trouble = ""
	r.w.published++
	r.watch = append(r.watch, r.w.inventory())
	r.settle()
	restarted := r.now
	if r.c.Phase == quarantine.PhaseReleased || r.w.mark == nil {
		t.Fatal("a driver that starts anew released the device")
	}
	r.comesBack(2 * time.Hour)
	if r.now.Sub(restarted) < r.p.Stability {
		t.Errorf("it was released %s after the restart; the stability window is %s", r.now.Sub(restarted), r.p.Stability)
	}
	if passed := r.c.Last.Passed; len(passed) != len(quarantine.Gates) || passed[1].Gate != quarantine.GateProbe || passed[2].Gate != quarantine.GateCanary {
		t.Errorf("passed %+v", passed)
	}
}

// R2: whatever gate a device fails at, it rests for twice as long after each failure, and
// after the last one that may be it is retired, until somebody says that it is repaired;
// that begins an attempt, and no release.
func TestADeviceThatFailsRestsLongerAndIsRetiredInTheEnd(t *testing.T) {
	for name, bad := range map[string]struct {
		gate quarantine.Gate
		make func(*proof)
	}{
		"its driver calls it Unhealthy on our claim": {quarantine.GateEvidence, func(p *proof) { p.health, p.message = device.Unhealthy, majorFault }},
		"the probe finds something":                  {quarantine.GateProbe, func(p *proof) { p.ends = quarantine.JobFailed }},
		"the probe never ends":                       {quarantine.GateProbe, func(p *proof) { p.ends = quarantine.JobRunning }},
		"idle it is well, and under load it fails":   {quarantine.GateCanary, func(p *proof) { p.under = quarantine.JobFailed }},
	} {
		t.Run(name, func(t *testing.T) {
			r := keptOut(t, majorFault)
			bad.make(&r.w.proof)
			want := r.p.AttemptPause
			for attempt := 1; attempt <= r.p.Attempts; attempt++ {
				r.follow(3*time.Hour, "an attempt ends", func(c quarantine.Case) bool {
					return c.Last != nil && c.Last.Attempt == attempt
				})
				if last := r.c.Last; !last.Counted || last.Result.Gate != bad.gate || last.Result.Verdict != quarantine.VerdictFailed || last.Result.Evidence == "" {
					t.Fatalf("attempt %d came to %+v", attempt, last)
				}
				if attempt < r.p.Attempts {
					if got := r.c.RestUntil.Sub(r.c.Last.Result.Ended); got != want {
						t.Errorf("after attempt %d it rests for %s, want %s", attempt, got, want)
					}
					want *= 2
				}
			}
			if r.c.Phase != quarantine.PhaseRetired || r.c.Waiting != quarantine.WaitingForOperator {
				t.Fatalf("after %d attempts it is %s, %s", r.p.Attempts, r.c.Phase, r.c.Waiting)
			}
			r.settle()
			if r.w.mark == nil || !r.w.mark.Retired || len(r.w.proof.made) > 0 {
				t.Errorf("mark %+v, left behind %v", r.w.mark, r.w.proof.made)
			}
			r.passes(24 * time.Hour)
			r.settle()
			if r.c.Phase != quarantine.PhaseRetired {
				t.Fatalf("a day later it is %s", r.c.Phase)
			}
			made := r.w.proof.made
			r.w.proof = soundProof()
			r.w.proof.made = made
			r.tell(quarantine.Message{Verb: quarantine.VerbRepaired, Actor: "oncall@example.com", Reason: "replaced the riser"})
			if r.c.Phase != quarantine.PhaseQuarantined && r.c.Phase != quarantine.PhaseRecovering {
				t.Fatalf("repaired makes it %s", r.c.Phase)
			}
			r.comesBack(time.Hour)
			if r.c.Attempt != 1 {
				t.Errorf("it came back in attempt %d after the repair", r.c.Attempt)
			}
		})
	}
}

// R2, R7: what couldn't be tried says nothing of the device, and costs it no try; it waits
// under a name, and goes on once it can be tried.
func TestWhatCannotBeTriedCostsNoTry(t *testing.T) {
	for name, hindered := range map[string]struct {
		make func(*run)
		mend func(*run)
		want []quarantine.Waiting
	}{
		"an image isn't there": {
			func(r *run) { r.w.proof.trouble = "image sickbay:1 can't be pulled" }, func(r *run) { r.w.proof.trouble = "" },
			[]quarantine.Waiting{quarantine.WaitingForProbe, quarantine.WaitingForDriver},
		},
		"a taint of the driver": {
			func(r *run) { r.w.proof.blocked = true }, func(r *run) { r.w.proof.blocked = false },
			[]quarantine.Waiting{quarantine.WaitingForDriver},
		},
		"its driver says nothing": {
			func(r *run) { r.w.proof.health = device.Unknown },
			func(r *run) { r.w.proof.health = device.Healthy },
			[]quarantine.Waiting{quarantine.WaitingForDriver},
		},
		"the node is out": {
			func(r *run) { r.w.node.ready = false }, func(r *run) { r.w.node.ready = true },
			[]quarantine.Waiting{quarantine.WaitingForDriver, quarantine.WaitingForProbe},
		},
		"programs are evicted": {
			func(r *run) { r.w.proof.ends = quarantine.JobLost }, func(r *run) { r.w.proof.ends = quarantine.JobPassed },
			[]quarantine.Waiting{quarantine.WaitingForProbe},
		},
		"another device is given to our claim": {
			func(r *run) { r.w.proof.elsewhere = true }, func(r *run) { r.w.proof.elsewhere = false },
			[]quarantine.Waiting{quarantine.WaitingForDriver, quarantine.WaitingForProbe},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := keptOut(t, majorFault)
			hindered.make(r)
			r.passes(5 * time.Hour)
			r.settle()
			if c := r.c; c.Attempt > 1 || c.Phase == quarantine.PhaseRetired || c.Last != nil && c.Last.Counted {
				t.Fatalf("it cost a try: %s", encode(t, c))
			}
			r.follow(time.Hour, "it waits under a name", func(c quarantine.Case) bool { return slices.Contains(hindered.want, c.Waiting) })
			hindered.mend(r)
			r.comesBack(4 * time.Hour)
			if !r.c.Relapse.FirstTry {
				t.Error("what couldn't be tried counted as an attempt")
			}
		})
	}
}

// R5: a fault at any gate ends the attempt. The case goes on in its epoch, no less severe
// than before, with one try less; what was made for the attempt goes, and what it still
// answers changes nothing.
func TestAFaultDuringAnAttemptEndsIt(t *testing.T) {
	for _, gate := range []quarantine.Gate{quarantine.GateProbe, quarantine.GateCanary, quarantine.GateStability, quarantine.GateReturn} {
		t.Run(string(gate), func(t *testing.T) {
			r := keptOut(t, majorFault)
			r.w.proof.waiting = true
			r.follow(2*time.Hour, "gate "+string(gate), func(c quarantine.Case) bool {
				return atGate(gate)(c) && r.tend != nil && r.w.proofPod() != (device.PodRef{})
			})
			epoch, token, late := r.c.Epoch, r.c.Token, r.w.tend(*r.tend, r.now)
			r.attemptSays(device.Unhealthy, fatalFault)
			// That fault takes a repair.
			if r.c.Phase != quarantine.PhaseRetired || r.c.Epoch != epoch || r.c.Severity != reason.SeverityFatal || r.c.Attempt != 1 || !r.c.Last.Counted {
				t.Fatalf("the case is %s", encode(t, r.c))
			}
			before := encode(t, r.c)
			r.c, _ = quarantine.Decide(r.c, late, r.now, r.p)
			if after := encode(t, r.c); string(before) != string(after) {
				t.Errorf("a late answer of the attempt changed the case\nfrom %s\nto   %s", before, after)
			}
			r.tend = nil
			r.follow(time.Hour, "what was made for it is gone", func(c quarantine.Case) bool { return c.Litter == 0 })
			if len(r.w.proof.made) > 0 || r.w.mark == nil || r.w.mark.Epoch != epoch {
				t.Errorf("left behind %v, mark %+v", r.w.proof.made, r.w.mark)
			}
			if r.c.Token != token {
				t.Errorf("token %d, want %d", r.c.Token, token)
			}
		})
	}
}

// proofPod is the Pod of an attempt that runs.
func (w *world) proofPod() device.PodRef {
	for _, m := range w.proof.made {
		if w.pods[m.pod].running {
			return w.reading(w.pods[m.pod]).Pod
		}
	}
	return device.PodRef{}
}

// R5, case 22, rows T+00:01:40 to T+00:01:43: a fault right after the release is a new
// case, above the old one's epoch, that remembers it; nothing that is left of the old one
// touches it.
func TestCase22AFaultRightAfterTheRelease(t *testing.T) {
	r := keptOut(t, majorFault)
	r.comesBack(2 * time.Hour)
	old := r.c
	r.passes(time.Second)
	i := r.w.start("train-9", false, device.Unhealthy, majorFault, r.now)
	r.watch = append(r.watch, quarantine.Observed{Node: "anvil-07", Incarnation: oldCard, Readings: []quarantine.Reading{r.w.reading(r.w.pods[i])}})
	r.settle()
	c := r.c
	if c.Phase != quarantine.PhaseQuarantined || c.Epoch <= old.Epoch || r.w.mark == nil || r.w.mark.Epoch != c.Epoch {
		t.Fatalf("the case is %s, mark %+v", encode(t, c), r.w.mark)
	}
	if c.Relapse.Count != 1 || c.Relapse.Epoch != old.Epoch || !c.RestUntil.Equal(c.Since.Add(r.p.AttemptPause)) {
		t.Errorf("it remembers %+v and rests until %s", c.Relapse, c.RestUntil)
	}
	for _, late := range []quarantine.Event{
		quarantine.Tended{Token: old.Token, Gate: quarantine.GateReturn, Asked: r.now},
		quarantine.Cleaned{UpTo: old.Token},
		quarantine.ReturnAnswered{Token: old.Token, Granted: true},
		quarantine.MarkReported{Outcome: quarantine.OutcomeLifted, Epoch: old.Epoch},
	} {
		before := encode(t, withoutBookkeeping(r.c))
		r.tell(late)
		if after := encode(t, withoutBookkeeping(r.c)); string(before) != string(after) {
			t.Errorf("%T of the old case changed the new one\nfrom %s\nto   %s", late, before, after)
		}
	}
	if !slices.ContainsFunc(r.c.Notices, func(n quarantine.Notice) bool { return n.Kind == quarantine.NoticeRelapse }) && r.c.NoticeSeq == 0 {
		t.Error("nothing tells of the relapse")
	}
}

// R5: after the watch a fault is a new case like any other.
func TestAFaultLongAfterTheReleaseIsNoRelapse(t *testing.T) {
	r := keptOut(t, majorFault)
	r.comesBack(2 * time.Hour)
	old := r.c.Epoch
	r.passes(r.p.RelapseWatch + time.Minute)
	i := r.w.start("train-9", false, device.Unhealthy, majorFault, r.now)
	r.watch = append(r.watch, quarantine.Observed{Node: "anvil-07", Incarnation: oldCard, Readings: []quarantine.Reading{r.w.reading(r.w.pods[i])}})
	r.settle()
	if c := r.c; c.Phase != quarantine.PhaseQuarantined || c.Epoch <= old || c.Relapse.Count != 0 || !c.RestUntil.IsZero() {
		t.Errorf("the case is %s", encode(t, c))
	}
}

// R1: the stability window counts only time in which each reading is fresh and Healthy;
// a gap makes it longer, and a bad reading ends the attempt.
func TestTheStabilityWindowCountsFreshHealthOnly(t *testing.T) {
	r := keptOut(t, majorFault)
	r.follow(time.Hour, "the window", atGate(quarantine.GateStability))
	began := r.now
	r.follow(time.Hour, "half of the window", func(c quarantine.Case) bool { return c.Recovery.Stable >= r.p.Stability/2 })
	// The driver falls silent, and comes back after ten minutes.
	r.attemptSays(device.Unknown, "")
	silent := r.now
	half := r.c.Recovery.Stable
	r.passes(10 * time.Minute)
	r.settle()
	if got := r.c.Recovery; got == nil || got.Gate != quarantine.GateStability || got.Stable > half+r.p.Stability/10+renewal {
		t.Fatalf("in the gap the window went on from %s: %s", half, encode(t, r.c))
	}
	r.attemptSays(device.Healthy, "")
	gap := r.now.Sub(silent)
	r.comesBack(time.Hour)
	if took := r.now.Sub(began); took < r.p.Stability+gap-r.p.Stability/5 {
		t.Errorf("the window took %s, with a gap of %s in it", took, gap)
	}
}

// R1, case 01: a Healthy that was said once and never again, because the kubelet doesn't
// answer, passes no gate: not the first, not the canary's, and none of it counts as time.
func TestAnUnchangedHealthyProvesNothing(t *testing.T) {
	for _, from := range quarantine.Gates[:4] {
		t.Run(string(from), func(t *testing.T) {
			r := keptOut(t, majorFault)
			if from != quarantine.GateEvidence {
				r.follow(time.Hour, "gate "+string(from), atGate(from))
			}
			r.w.proof.unheard = true
			deadline := r.now.Add(time.Hour)
			for r.now.Before(deadline) {
				r.passes(10 * time.Minute)
				r.settle()
				if c := r.c; c.Phase == quarantine.PhaseReleased || c.Recovery != nil && slices.Index(quarantine.Gates[:], c.Recovery.Gate) > slices.Index(quarantine.Gates[:], from) {
					t.Fatalf("it passed gate %s: %s", from, encode(t, c))
				}
			}
			r.w.proof.unheard = false
			r.comesBack(4 * time.Hour)
		})
	}
}

// renewal is what a reading may be late.
const renewal = 15 * time.Second

// R1: a reason that only an operator or a repair closes isn't closed by gates.
func TestAReasonThatNeedsAWordWaitsForIt(t *testing.T) {
	for name, needs := range map[string]struct {
		message string
		phase   quarantine.Phase
		verb    quarantine.Verb
	}{
		"a repair": {fatalFault, quarantine.PhaseRetired, quarantine.VerbRepaired},
	} {
		t.Run(name, func(t *testing.T) {
			r := keptOut(t, needs.message)
			r.passes(12 * time.Hour)
			r.settle()
			if r.c.Phase != needs.phase || r.c.Waiting != quarantine.WaitingForOperator || r.c.Attempt != 0 {
				t.Fatalf("the case is %s", encode(t, r.c))
			}
			r.tell(quarantine.Message{Verb: needs.verb, Actor: "oncall@example.com", Reason: "a new card"})
			r.comesBack(time.Hour)
		})
	}
}

// R1: in mode observe nothing is tried, and an attempt that is under way ends without a
// trace.
func TestModeObserveEndsAnAttempt(t *testing.T) {
	r := keptOut(t, majorFault)
	r.follow(time.Hour, "the canary", atGate(quarantine.GateCanary))
	r.p.Mode = quarantine.ModeObserve
	r.tell(quarantine.Woke{})
	if r.c.Phase != quarantine.PhaseQuarantined || r.c.Last.Counted || r.c.Attempt != 0 {
		t.Fatalf("the case is %s", encode(t, r.c))
	}
	r.passes(24 * time.Hour)
	r.settle()
	if r.c.Phase != quarantine.PhaseQuarantined || r.w.mark == nil || len(r.w.proof.made) > 0 || r.c.Waiting != quarantine.WaitingForRecovery {
		t.Errorf("a day later the case is %s, left behind %v", encode(t, r.c), r.w.proof.made)
	}
}

// Q5, R1: a mark that is deleted during an attempt comes back, and the deed is on record;
// it is no way to have the device given back.
func TestAMarkThatIsDeletedDuringAnAttemptComesBack(t *testing.T) {
	r := keptOut(t, majorFault)
	r.follow(time.Hour, "the canary", atGate(quarantine.GateCanary))
	epoch := r.w.mark.Epoch
	r.w.mark = nil
	r.watch = append(r.watch, r.w.seen(epoch))
	r.settleStep()
	r.follow(time.Minute, "the mark is back", func(quarantine.Case) bool { return r.w.mark != nil && r.w.mark.Epoch == epoch })
	if r.c.Mark.Restored != 1 || r.c.Phase != quarantine.PhaseRecovering {
		t.Errorf("the case is %s", encode(t, r.c))
	}
	r.comesBack(time.Hour)
}

// R7: what can't be removed of an attempt keeps the device out under a name, and somebody
// is told.
func TestWhatCannotBeRemovedIsTold(t *testing.T) {
	r := keptOut(t, majorFault)
	r.w.proof.stuck = true
	var told []string
	r.follow(3*time.Hour, "somebody is told", func(c quarantine.Case) bool {
		return c.Waiting == quarantine.WaitingForCleanUp && c.CleanTries > 4
	})
	if r.w.mark == nil || r.c.Phase == quarantine.PhaseReleased {
		t.Fatalf("it was given back: %v", strings.Join(told, "; "))
	}
	r.w.proof.stuck = false
	r.comesBack(4 * time.Hour)
}

// Q10, R1, case 25, row t=24:02: another card behind the name of one that is out goes through all gates like any
// other; one that goes missing in the middle of an attempt ends it, uncounted, and is tried
// anew when it is back.
func TestAReplacedOrReturnedDeviceGoesThroughAllGates(t *testing.T) {
	r := keptOut(t, fatalFault) // takes a repair
	r.passes(time.Hour)
	r.settle()
	if r.c.Phase != quarantine.PhaseRetired {
		t.Fatalf("the case is %s", encode(t, r.c))
	}
	old := r.c.Epoch
	r.w.hardware = newCard
	r.watch = append(r.watch, r.w.inventory())
	r.settle()
	if r.c.Epoch <= old || r.c.Reason.Code != reason.HardwareReplaced || r.w.mark == nil {
		t.Fatalf("the case is %s", encode(t, r.c))
	}
	r.follow(time.Hour, "the canary", atGate(quarantine.GateCanary))
	r.w.listed, r.w.why = false, device.MissingFromPool
	r.watch = append(r.watch, r.w.inventory())
	r.follow(time.Hour, "it is gone", inPhase(quarantine.PhaseGone))
	if r.c.Last == nil || r.c.Last.Counted || r.w.mark == nil {
		t.Errorf("last attempt %+v, mark %+v", r.c.Last, r.w.mark)
	}
	r.w.listed = true
	r.watch = append(r.watch, r.w.inventory())
	r.comesBack(2 * time.Hour)
}
