package quarantine_test

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// proof is what becomes of attempts at recovery in a world.
type proof struct {
	// health and message are what the driver says of the device on our claim.
	health  device.Health
	message string
	// ends is how programs end on the device: JobRunning is one that never does.
	ends quarantine.JobState
	// under is how canaries end, where that is another way than probes do.
	under quarantine.JobState
	// trouble and blocked keep gates from being tried, elsewhere has our claim given
	// something else, and waiting says that it isn't the device's turn.
	trouble   string
	blocked   bool
	elsewhere bool
	waiting   bool
	// unheard has the kubelet not answer when it is asked for a reading of now.
	unheard bool
	// stuck keeps what was made from going away.
	stuck bool
	// made is what is there of attempts, by token: the number of its Pod, and how far its
	// programs are.
	made map[int64]*made
}

type made struct {
	pod  int
	jobs map[quarantine.Gate]quarantine.JobState
}

func soundProof() proof {
	return proof{health: device.Healthy, ends: quarantine.JobPassed, made: map[int64]*made{}}
}

// tend does what pkg/kube does with a Tend. A program runs at the first sight of it, and
// has ended at the next.
func (w *world) tend(c quarantine.Tend, now time.Time) quarantine.Tended {
	t := quarantine.Tended{Token: c.Token, Gate: c.Gate, Asked: c.Asked}
	p := &w.proof
	switch {
	case w.out():
		t.NodeOut = "its kubelet isn't ready"
		return t
	case p.trouble != "":
		t.Trouble = p.trouble
		return t
	case p.blocked:
		t.Blocked = []string{"gpu.example.com/maintenance"}
		return t
	case w.held() || !w.listed:
		t.Trouble = "claim sickbay-1 waits for the device"
		return t
	}
	m := p.made[c.Token]
	if m == nil {
		m = &made{pod: w.start("attempt-"+itoa(int(c.Token)), true, p.health, p.message, now), jobs: map[quarantine.Gate]quarantine.JobState{}}
		p.made[c.Token] = m
	}
	t.Claim, t.Pod = "sickbay-1", w.reading(w.pods[m.pod]).Pod
	if p.elsewhere {
		t.Elsewhere = "gpu-5 of pool anvil-07"
		return t
	}
	reading := w.reading(w.pods[m.pod])
	reading.Observed, reading.Acknowledged = now, !p.unheard
	t.Reading = &reading
	if c.Gate == quarantine.GateProbe || c.Gate == quarantine.GateCanary {
		switch m.jobs[c.Gate] {
		case quarantine.JobNone:
			m.jobs[c.Gate] = quarantine.JobRunning
		case quarantine.JobRunning:
			m.jobs[c.Gate] = p.ends
			if p.under != "" && c.Gate == quarantine.GateCanary {
				m.jobs[c.Gate] = p.under
			}
		}
		t.Job, t.Report = m.jobs[c.Gate], "exit code 0"
	}
	return t
}

// cleanUp does what pkg/kube does with a CleanUp.
func (w *world) cleanUp(c quarantine.CleanUp, now time.Time) quarantine.Cleaned {
	if w.proof.stuck && len(w.proof.made) > 0 {
		return quarantine.Cleaned{UpTo: c.UpTo, Failed: "Pod sickbay-1 is still there"}
	}
	for token, m := range w.proof.made {
		if token <= c.UpTo {
			w.pods[m.pod].running = false
			w.version++
			w.pods[m.pod].version = w.version
			delete(w.proof.made, token)
		}
	}
	return quarantine.Cleaned{UpTo: c.UpTo}
}

// tendAnswers answers everything about the attempt under way that was asked.
func (r *run) tendAnswers() {
	if r.tend != nil {
		answer := r.w.tend(*r.tend, r.now)
		if said := answer.Reading; said != nil && said.Health == r.tend.Health && answer.Job == r.tend.Job {
			// The answer waits for news.
			r.now = r.now.Add(20 * time.Second)
		}
		r.tend = nil
		r.tell(answer)
	}
	if r.clean != nil {
		answer := r.w.cleanUp(*r.clean, r.now)
		r.clean = nil
		r.tell(answer)
	}
	if r.turn != nil {
		answer := quarantine.ReturnAnswered{Token: r.turn.Token, Granted: !r.w.proof.waiting}
		if r.w.proof.waiting {
			answer.Again, answer.Why = time.Minute, "2 devices of its node come back"
		}
		r.turn = nil
		r.tell(answer)
	}
}

func (r *run) tendFails() {
	if r.tend == nil {
		return
	}
	failed := quarantine.Tended{Token: r.tend.Token, Gate: r.tend.Gate, Asked: r.tend.Asked, Failed: "the API server is away"}
	r.tend = nil
	r.tell(failed)
}

// checkRecovery checks that no mark of a confirmed fault is lifted, and no device given
// back, but by all gates, in their order and in one attempt; and that nothing is tried on
// a device that somebody holds.
func (r *run) checkRecovery(before, after quarantine.Case, owed []quarantine.Command, fail func(string, ...any)) {
	r.t.Helper()
	passed := func(results []quarantine.GateResult, gates []quarantine.Gate) bool {
		return slices.EqualFunc(results, gates, func(got quarantine.GateResult, want quarantine.Gate) bool {
			return got.Gate == want && got.Verdict == quarantine.VerdictPassed && !got.Ended.Before(got.Began)
		})
	}
	for _, command := range owed {
		switch command.(type) {
		case quarantine.LiftMark:
			a := after.Recovery
			if after.Phase == quarantine.PhaseRecovering && (a == nil || !a.Granted || after.Litter != 0 ||
				!passed(a.Results, quarantine.Gates[:len(quarantine.Gates)-1]) || a.Health != device.Healthy) {
				fail("a mark is lifted before all gates are passed, or before what was made is gone")
			}
		case quarantine.Tend:
			if after.Phase != quarantine.PhaseRecovering || after.Mark.State != quarantine.MarkInForce {
				fail("an attempt is tended to in phase %s with its mark %s", after.Phase, after.Mark.State)
			}
		}
	}
	released := func(c quarantine.Case) bool { return c.Phase == quarantine.PhaseReleased }
	if released(after) && !released(before) && before.Mark.State != quarantine.MarkAdopted {
		switch {
		case before.Phase != quarantine.PhaseRecovering:
			fail("released from phase %s", before.Phase)
		case after.Last == nil || !passed(after.Last.Passed, quarantine.Gates[:]):
			fail("released without all gates")
		case after.Last.Passed[0].Began.Before(before.Recovery.Began):
			fail("a gate of another attempt counted")
		}
	}
	if after.Attempt > max(r.p.Attempts, before.Attempt) {
		fail("%d attempts, and no more than %d may be", after.Attempt, r.p.Attempts)
	}
	if (after.Recovery != nil) != (after.Phase == quarantine.PhaseRecovering) {
		fail("an attempt is under way in phase %s", after.Phase)
	}
}

// recoveryActions are what happens to attempts.
func (d *drive) recoveryActions(actions map[string]func(*rapid.T)) {
	p := &d.w.proof
	actions["what is asked of the attempt is answered"] = func(*rapid.T) { d.tendAnswers() }
	actions["nothing of the attempt can be read"] = func(*rapid.T) { d.tendFails() }
	actions["the hardware is what it is"] = func(t *rapid.T) {
		p.health, p.message = fate(t, d.faults...)
		if rapid.Bool().Draw(t, "sound") {
			p.health, p.message = device.Healthy, ""
		}
		p.ends = rapid.SampledFrom([]quarantine.JobState{
			quarantine.JobPassed, quarantine.JobPassed, quarantine.JobFailed, quarantine.JobLost, quarantine.JobRunning,
		}).Draw(t, "ends")
	}
	actions["gates can be tried or not"] = func(t *rapid.T) {
		p.trouble = rapid.SampledFrom([]string{"", "", "its image can't be pulled"}).Draw(t, "trouble")
		p.blocked = rapid.IntRange(0, 4).Draw(t, "blocked") == 0
		p.elsewhere = rapid.IntRange(0, 9).Draw(t, "elsewhere") == 0
	}
	actions["it is its turn or not"] = func(t *rapid.T) { p.waiting = rapid.IntRange(0, 3).Draw(t, "waiting") == 0 }
	actions["what was made can go or not"] = func(t *rapid.T) { p.stuck = rapid.IntRange(0, 3).Draw(t, "stuck") == 0 }
	actions["attempts can be made or not"] = func(t *rapid.T) {
		d.p.Recover = rapid.IntRange(0, 5).Draw(t, "recover") > 0
		d.tell(quarantine.Woke{})
	}
}

// restsToTry is where a quarantined device rests whose mark is in force and that nobody
// holds, and one that is tried.
func (d *drive) restsToTry() []quarantine.Waiting {
	w, c := d.w, d.c
	p := &w.proof
	needs := func(v ...quarantine.Waiting) []quarantine.Waiting {
		if p.stuck {
			v = append(v, quarantine.WaitingForCleanUp)
		}
		if w.forbidden || w.foreign || w.mark != nil && (!w.intact || w.mark.Epoch != c.Epoch) {
			v = append(v, quarantine.WaitingForMark)
		}
		return v
	}
	switch {
	case d.p.Mode == quarantine.ModeObserve || !d.p.Recover:
		return needs(quarantine.WaitingForRecovery)
	case w.out(), p.trouble != "", p.ends == quarantine.JobLost, p.elsewhere:
		// It is tried again and again: between two tries it waits under the same name.
		return needs(quarantine.WaitingForProbe, quarantine.WaitingForDriver, quarantine.WaitingForGates)
	case p.blocked, p.health == device.Unknown, w.faulty():
		return needs(quarantine.WaitingForDriver, quarantine.WaitingForGates)
	case c.Phase == quarantine.PhaseQuarantined && !c.ReasonClosed && c.Reason.Closes == "operator":
		return needs(quarantine.WaitingForOperator)
	case p.waiting:
		return needs(quarantine.WaitingForTurn)
	}
	return needs()
}
