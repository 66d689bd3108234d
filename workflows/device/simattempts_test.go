package device_test

// Attempts at recovery in a simulated life: what is made for them in the cluster, by the
// rules of pkg/kube, what becomes of them, and that nothing is given back but by all gates.

import (
	"fmt"
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// simProof is what becomes of attempts.
type simProof struct {
	// health and message are what the driver says of the device on our claim, ends how
	// programs end on it: JobRunning is one that never does.
	health  device.Health
	message string
	ends    quarantine.JobState
	// trouble and blocked keep gates from being tried, waiting says that it isn't the
	// device's turn, stuck keeps what was made from going away.
	trouble, blocked, waiting, stuck bool
	// made is what is there of attempts, by token.
	made map[int64]*simMade
}

type simMade struct {
	pod  *simPod
	jobs map[quarantine.Gate]quarantine.JobState
}

func newSimProof() simProof {
	return simProof{health: device.Healthy, ends: quarantine.JobPassed, made: map[int64]*simMade{}}
}

// tend does what pkg/kube does with a Tend: nothing for an attempt that a later one came
// after, or that another mark than its own keeps out.
func (c *cluster) tend(ask quarantine.Tend, now time.Time) (quarantine.Tended, error) {
	t := quarantine.Tended{Token: ask.Token, Gate: ask.Gate, Asked: ask.Asked}
	p := &c.proof
	for token := range p.made {
		if token > ask.Token {
			t.Trouble = "a later attempt is under way"
			return t, nil
		}
	}
	switch {
	case c.down:
		return t, errAway
	case c.mark == nil || c.mark.Epoch != ask.Epoch:
		t.Trouble = "its mark isn't there"
		return t, nil
	case c.out():
		t.NodeOut = "its kubelet isn't ready"
		return t, nil
	case p.trouble:
		t.Trouble = "its image can't be pulled"
		return t, nil
	case p.blocked:
		t.Blocked = []string{"gpu.example.com/maintenance"}
		return t, nil
	case c.held() || !c.listed:
		t.Trouble = "its claim waits for the device"
		return t, nil
	}
	c.clear(ask.Token - 1)
	m := p.made[ask.Token]
	if m == nil {
		m = &simMade{pod: c.start(true, p.health, p.message, now), jobs: map[quarantine.Gate]quarantine.JobState{}}
		p.made[ask.Token] = m
	}
	t.Claim, t.Pod = "sickbay-claim", m.pod.ref
	reading := c.reading(m.pod)
	reading.Observed, reading.Acknowledged = now, true
	t.Reading = &reading
	if ask.Gate == quarantine.GateProbe || ask.Gate == quarantine.GateCanary {
		switch m.jobs[ask.Gate] {
		case quarantine.JobNone:
			m.jobs[ask.Gate] = quarantine.JobRunning
		case quarantine.JobRunning:
			m.jobs[ask.Gate] = p.ends
		}
		t.Job, t.Report = m.jobs[ask.Gate], "exit code 0"
	}
	return t, nil
}

// clear removes what was made for attempts up to a token.
func (c *cluster) clear(upTo int64) {
	for token, m := range c.proof.made {
		if token <= upTo {
			c.end(m.pod)
			delete(c.proof.made, token)
		}
	}
}

func (c *cluster) cleanUp(ask quarantine.CleanUp) (quarantine.Cleaned, error) {
	switch {
	case c.down:
		return quarantine.Cleaned{}, errAway
	case c.proof.stuck && len(c.proof.made) > 0:
		return quarantine.Cleaned{UpTo: ask.UpTo, Failed: "Pod sickbay-holder is still there"}, nil
	}
	c.clear(ask.UpTo)
	return quarantine.Cleaned{UpTo: ask.UpTo}, nil
}

func (c *cluster) turn(ask quarantine.AskReturn) (quarantine.ReturnAnswered, error) {
	switch {
	case c.down:
		return quarantine.ReturnAnswered{}, errAway
	case c.proof.waiting:
		return quarantine.ReturnAnswered{Token: ask.Token, Again: time.Minute, Why: "another device of its node comes back"}, nil
	}
	return quarantine.ReturnAnswered{Token: ask.Token, Granted: true}, nil
}

// waits tells whether the answer to a Tend waits for news.
func (c *cluster) waits(ask quarantine.Tend) bool {
	m := c.proof.made[ask.Token]
	return m != nil && m.pod.health == ask.Health && (ask.Job == quarantine.JobRunning && c.proof.ends == quarantine.JobRunning || ask.Gate == quarantine.GateEvidence)
}

// attemptSteps are what may happen to attempts.
var attemptSteps = []step{
	{"the hardware is what it is", 4, true, func(l *life) {
		p := &l.cluster.proof
		p.health, p.message = l.health()
		if l.rng.IntN(3) > 0 {
			p.health, p.message = device.Healthy, ""
		}
		p.ends = []quarantine.JobState{quarantine.JobPassed, quarantine.JobPassed, quarantine.JobPassed, quarantine.JobFailed, quarantine.JobLost, quarantine.JobRunning}[l.rng.IntN(6)]
	}},
	{"gates can be tried or not", 3, false, func(l *life) {
		l.cluster.proof.trouble, l.cluster.proof.blocked = l.rng.IntN(4) == 0, l.rng.IntN(6) == 0
	}},
	{"it is its turn or not", 2, false, func(l *life) { l.cluster.proof.waiting = l.rng.IntN(3) == 0 }},
	{"what was made can go or not", 2, false, func(l *life) { l.cluster.proof.stuck = l.rng.IntN(3) == 0 }},
	{"attempts can be made or not", 1, false, func(l *life) { l.knobs.Policy.Recover = l.rng.IntN(6) > 0 }},
}

// givenBack checks that a device is given back by all gates, in one attempt and no other way.
func (l *life) givenBack(before, now quarantine.Case) {
	if now.Phase != quarantine.PhaseReleased || before.Phase == quarantine.PhaseReleased {
		return
	}
	gates := []quarantine.Gate{}
	for _, passed := range now.Last.Passed {
		if passed.Verdict != quarantine.VerdictPassed {
			l.fail("given back although gate %s was %s", passed.Gate, passed.Verdict)
		}
		gates = append(gates, passed.Gate)
	}
	if !slices.Equal(gates, quarantine.Gates[:]) {
		l.fail("given back by %v: %s", gates, brief(now))
	}
	l.released++
}

// attempted checks a command about an attempt when the workflow gives it.
func (l *life) attempted(t *task) {
	if l.tasks[devicewf.ActivityTend] != nil && l.tasks[devicewf.ActivityCleanUp] != nil {
		l.fail("what was made is to be removed while it is being made")
	}
	if l.knobs.Policy.Mode == quarantine.ModeObserve && t.name == devicewf.ActivityTend {
		l.fail("an attempt is tended to in mode observe")
	}
}

// restsToTry is where a device rests whose mark is in force and that nobody holds, and one
// that is tried.
func (l *life) restsToTry(c quarantine.Case) []quarantine.Waiting {
	w := l.cluster
	p := &w.proof
	needs := func(waits ...quarantine.Waiting) []quarantine.Waiting {
		if p.stuck {
			waits = append(waits, quarantine.WaitingForCleanUp)
		}
		if w.forbidden || w.foreign || w.mark != nil && (!w.intact || w.mark.Epoch != c.Epoch) {
			waits = append(waits, quarantine.WaitingForMark)
		}
		return waits
	}
	switch {
	case l.knobs.Policy.Mode == quarantine.ModeObserve || !l.knobs.Policy.Recover:
		return needs(quarantine.WaitingForRecovery)
	case w.out(), p.trouble, p.ends == quarantine.JobLost:
		return needs(quarantine.WaitingForProbe, quarantine.WaitingForDriver, quarantine.WaitingForGates)
	case p.blocked, p.health == device.Unknown, w.faulty(), slices.ContainsFunc(w.running(), func(pod *simPod) bool { return pod.health != device.Healthy }):
		return needs(quarantine.WaitingForDriver, quarantine.WaitingForGates, quarantine.WaitingForCoolDown)
	case c.Phase == quarantine.PhaseQuarantined && !c.ReasonClosed && c.Reason.Closes == "operator":
		return needs(quarantine.WaitingForOperator)
	case p.health == device.Unhealthy:
		return needs(quarantine.WaitingForCoolDown, quarantine.WaitingForGates) // an application's error, and no proof
	case p.waiting:
		return needs(quarantine.WaitingForTurn)
	}
	return needs()
}

func (p simProof) String() string {
	return fmt.Sprintf("%s %q, programs %s, trouble %t, blocked %t, waiting %t, stuck %t, %d made", p.health, p.message, p.ends, p.trouble, p.blocked, p.waiting, p.stuck, len(p.made))
}
