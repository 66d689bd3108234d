package quarantine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// stages are cases in each phase, by the steps that lead there.
var stages = map[string][]step{
	"no case": {{0, observed(MakeReading("train-0").Healthy())}},
	"suspect": {{0, lost(MakeReading("train-0").Unknown())}},
	"held":    marked(),
	"unheld":  unheld(),
	"retired": unheld(step{minute, says(quarantine.VerbRetire)}),
	"gone":    gone(),
	"closed": {
		{0, missing(device.MissingFromPool)},
		{sec, listed(oldCard)},
	},
}

// R4: what each of an operator's words does in each phase: the text is what
// whoever sent it reads. An empty one means that it is accepted.
func TestAnOperatorsWordIsAcceptedOrRefusedWithItsReason(t *testing.T) {
	const name = "gpu.example.com/anvil-07/gpu-3"
	answers := map[quarantine.Verb]map[string]string{
		quarantine.VerbRelease: {
			"no case": "release refused for " + name + ": the device has no open case",
			"suspect": "release refused for " + name + ": it is only suspected and nothing keeps it out; the case ends when its health is back",
			"held":    "",
			"unheld":  "",
			"retired": "release refused for " + name + ": it is retired; send repaired once it is",
			"gone":    "release refused for " + name + ": it is gone; the case goes on when it is listed again",
			"closed":  "release refused for " + name + ": the device has no open case",
		},
		quarantine.VerbRepaired: {
			"no case": "repaired refused for " + name + ": the device has no open case",
			"suspect": "repaired refused for " + name + ": it is only suspected; there is nothing to repair yet",
			"held":    "",
			"unheld":  "",
			"retired": "",
			"gone":    "",
			"closed":  "repaired refused for " + name + ": the device has no open case",
		},
		quarantine.VerbRetire: {
			"no case": "retire refused for " + name + ": the device has no open case",
			"suspect": "retire refused for " + name + ": it is Suspect; only a quarantined or restricted device can be retired",
			"held":    "",
			"unheld":  "",
			"retired": "retire refused for " + name + ": it is Retired; only a quarantined or restricted device can be retired",
			"gone":    "retire refused for " + name + ": it is Gone; only a quarantined or restricted device can be retired",
			"closed":  "retire refused for " + name + ": the device has no open case",
		},
		quarantine.VerbExtend: {
			"no case": "extend refused for " + name + ": the device has no open case",
			"suspect": "extend refused for " + name + ": it is Suspect and its record has no lease",
			"held":    "",
			"unheld":  "",
			"retired": "",
			"gone":    "extend refused for " + name + ": it is Gone and its record has no lease",
			"closed":  "extend refused for " + name + ": the device has no open case",
		},
		quarantine.VerbEvict: {
			"no case": "evict refused for " + name + ": the device has no open case",
			"suspect": "evict refused for " + name + ": this version evicts nobody; nobody is known to hold the device",
			"held":    "evict refused for " + name + ": this version evicts nobody; delete its holders yourself: team-kestrel/train-0",
			"unheld":  "evict refused for " + name + ": this version evicts nobody; nobody is known to hold the device",
			"retired": "evict refused for " + name + ": this version evicts nobody; nobody is known to hold the device",
			"gone":    "evict refused for " + name + ": this version evicts nobody; nobody is known to hold the device",
			"closed":  "evict refused for " + name + ": the device has no open case",
		},
		quarantine.VerbWait: {
			"no case": "wait refused for " + name + ": the device has no open case",
			"suspect": "wait refused for " + name + ": nothing waits for a holder; the case is Suspect",
			"held":    "",
			"unheld":  "wait refused for " + name + ": nothing waits for a holder; the case is Quarantined, WaitingForCoolDown",
			"retired": "wait refused for " + name + ": nothing waits for a holder; the case is Retired, WaitingForOperator",
			"gone":    "wait refused for " + name + ": nothing waits for a holder; the case is Gone, WaitingForReturn",
			"closed":  "wait refused for " + name + ": the device has no open case",
		},
		"destroy": {
			"held": "destroy refused for " + name + ": no such message; want one of [release repaired retire quarantine extend evict wait]",
		},
		"": {
			"held": "a message without a name refused for " + name + ": no such message; want one of [release repaired retire quarantine extend evict wait]",
		},
	}
	for verb, phases := range answers {
		for stage, want := range phases {
			t.Run(fmt.Sprintf("%s, %s", verb, stage), func(t *testing.T) {
				l := live(t, gpu, enforce())
				l.run(stages[stage])
				l.heard = nil
				m := quarantine.Message{Verb: verb, Actor: "oncall@example.com", Reason: "replaced the riser"}
				got := ""
				if err := quarantine.Refuse(l.c, m); err != nil {
					got = err.Error()
				}
				if got != want {
					t.Fatalf("the sender reads\n%q, want\n%q", got, want)
				}
				before := l.c
				l.tell(always(m))
				checkHeard(t, l, m, want)
				if want != "" && string(encode(t, withoutBookkeeping(before))) != string(encode(t, withoutBookkeeping(l.c))) {
					t.Errorf("a refused message changed the case\nfrom %s\nto   %s", encode(t, before), encode(t, l.c))
				}
			})
		}
	}
}

// attempted is a case that has been at its gates.
func attempted(change func(*quarantine.Case)) quarantine.Case {
	c := quarantine.Case{
		Device: gpu, Phase: quarantine.PhaseRecovering, Waiting: quarantine.WaitingForGates, Epoch: 1772352000000, Attempt: 2,
		Reason: reason.Match{Code: "XidFallenOffBus", Closes: reason.ClosesByGates}, LeaseUntil: start.Add(hour),
		Mark: quarantine.Mark{State: quarantine.MarkInForce, Name: "sickbay-gpu-3"},
		Recovery: &quarantine.Recovery{
			Gate: quarantine.GateCanary, GateBegan: start, Job: quarantine.JobRunning, Health: device.Healthy, HealthAt: start,
		},
		Last: &quarantine.Attempted{Attempt: 1, Counted: true, Result: quarantine.GateResult{
			Gate: quarantine.GateProbe, Verdict: quarantine.VerdictFailed, Ended: start.Add(-hour), Evidence: "exit code 1: 7 of 8 links are up",
		}},
	}
	change(&c)
	return c
}

// Proves a part of R4. However an operator asks for it, a release skips no gate: who asks
// is told which one is under way or failed, and what it found. Only where the reason waits
// for an operator's word is it taken, as that word. Another epoch's is refused, with both.
func TestWhoAsksForAReleaseIsToldWhichGateItWouldSkip(t *testing.T) {
	const (
		name   = "gpu.example.com/anvil-07/gpu-3"
		failed = "gate Probe failed in attempt 1 at 2026-03-01T07:00:00Z: exit code 1: 7 of 8 links are up"
		under  = "gate Canary is under way since 2026-03-01T08:00:00Z: its program is Running; before that, " + failed
	)
	release := quarantine.Message{Verb: quarantine.VerbRelease}
	forced := quarantine.Message{Verb: quarantine.VerbRelease, Force: true}
	repaired := quarantine.Message{Verb: quarantine.VerbRepaired, Ticket: "RMA-7"}
	as := func() quarantine.Case { return attempted(func(*quarantine.Case) {}) }
	quarantined := func(c *quarantine.Case) {
		c.Phase, c.Waiting, c.Recovery = quarantine.PhaseQuarantined, quarantine.WaitingForCoolDown, nil
	}
	byWord := func(closes reason.Closes) quarantine.Case {
		return attempted(func(c *quarantine.Case) {
			c.Reason.Closes, c.Recovery.Gate, c.Last = closes, quarantine.GateReason, nil
		})
	}
	gate := func(change func(*quarantine.Recovery)) quarantine.Case {
		return attempted(func(c *quarantine.Case) { c.Last = nil; change(c.Recovery) })
	}
	rows := map[string]struct {
		c    quarantine.Case
		m    quarantine.Message
		want string
		gate quarantine.Gate
	}{
		"a release while a gate is under way":  {as(), release, "an attempt is under way, and release skips no gate: " + under, quarantine.GateCanary},
		"a forced one":                         {as(), forced, "release skips no gate, forced or not: " + under, quarantine.GateCanary},
		"a forced one after an attempt failed": {attempted(quarantined), forced, "release skips no gate, forced or not: " + failed, quarantine.GateProbe},
		"a release after an attempt failed":    {attempted(quarantined), release, "", ""},
		"a forced one before any attempt": {
			attempted(func(c *quarantine.Case) { quarantined(c); c.Last = nil }), forced,
			"release skips no gate, forced or not: gate Evidence is the first, and no attempt was made yet; the case is Quarantined, WaitingForCoolDown", quarantine.GateEvidence,
		},
		"a forced one while a gate can't be tried": {
			gate(func(r *quarantine.Recovery) {
				r.Gate, r.Job, r.Trouble = quarantine.GateProbe, quarantine.JobStarting, "its image can't be pulled"
			}), forced,
			"release skips no gate, forced or not: gate Probe is under way since 2026-03-01T08:00:00Z: it can't be tried: its image can't be pulled", quarantine.GateProbe,
		},
		"a forced one while its driver says Unknown": {
			gate(func(r *quarantine.Recovery) {
				r.Gate, r.Job, r.Health, r.Message = quarantine.GateEvidence, quarantine.JobNone, device.Unknown, "no answer"
			}), forced,
			"release skips no gate, forced or not: gate Evidence is under way since 2026-03-01T08:00:00Z: its driver says Unknown at 2026-03-01T08:00:00Z (no answer)", quarantine.GateEvidence,
		},
		"a forced one in the stability window": {
			gate(func(r *quarantine.Recovery) { r.Gate, r.Stable = quarantine.GateStability, sec }), forced,
			"release skips no gate, forced or not: gate Stability is under way since 2026-03-01T08:00:00Z: healthy and fresh for 1s so far", quarantine.GateStability,
		},
		"a release that the reason waits for": {byWord(reason.ClosesByOperator), release, "", ""},
		"a release that the reason waited for": {
			attempted(func(c *quarantine.Case) { c.Reason.Closes, c.ReasonClosed = reason.ClosesByOperator, true }), release,
			"an attempt is under way, and release skips no gate: " + under, quarantine.GateCanary,
		},
		"a forced one where it is the word":         {byWord(reason.ClosesByOperator), forced, "release skips no gate, forced or not: gate Reason is under way since 2026-03-01T08:00:00Z: it waits for release; its reason is closed by this word: send it without force", quarantine.GateReason},
		"a release where a repair is what is asked": {byWord(reason.ClosesByRepair), release, "an attempt is under way, and release skips no gate: gate Reason is under way since 2026-03-01T08:00:00Z: it waits for repaired", quarantine.GateReason},
		"repaired where it is what is asked":        {byWord(reason.ClosesByRepair), repaired, "", ""},
		"repaired during an attempt":                {as(), repaired, "", ""},
		"retire during an attempt":                  {as(), quarantine.Message{Verb: quarantine.VerbRetire}, "", ""},
		"extend during an attempt":                  {as(), quarantine.Message{Verb: quarantine.VerbExtend}, "", ""},
		"for this epoch":                            {attempted(quarantined), quarantine.Message{Verb: quarantine.VerbRelease, Epoch: 1772352000000}, "", ""},
		"for another epoch": {
			attempted(quarantined), quarantine.Message{Verb: quarantine.VerbRelease, Epoch: 1772351999999},
			"it is for epoch 1772351999999, and the open case is of epoch 1772352000000; look at that one, and send it again if it is meant", "",
		},
		"for an epoch of a device without a case": {
			quarantine.Case{Device: gpu}, quarantine.Message{Verb: quarantine.VerbQuarantine, Epoch: 7},
			"it is for epoch 7, and the device has no open case; leave the epoch out to open one", "",
		},
		"after the release":            {attempted(func(c *quarantine.Case) { c.Phase = quarantine.PhaseReleased }), release, "the device has no open case", ""},
		"repaired after the release":   {attempted(func(c *quarantine.Case) { c.Phase = quarantine.PhaseReleased }), repaired, "the device has no open case", ""},
		"a ticket with another word":   {attempted(quarantined), quarantine.Message{Verb: quarantine.VerbExtend, Ticket: "RMA-7"}, "ticket goes with repaired; say it in the reason", ""},
		"force with another word":      {attempted(quarantined), quarantine.Message{Verb: quarantine.VerbRetire, Force: true}, "force goes with release, and even that skips no gate", ""},
		"a ticket that is a long text": {attempted(quarantined), quarantine.Message{Verb: quarantine.VerbRepaired, Ticket: strings.Repeat("x", 257)}, "ticket is 257 bytes long; want at most 256", ""},
	}
	for sentence, r := range rows {
		t.Run(sentence, func(t *testing.T) {
			r.m.Actor, r.m.Reason = "oncall@example.com", "reseated the card"
			want := r.want
			if want != "" {
				want = fmt.Sprintf("%s refused for %s: %s", r.m.Verb, name, want)
			}
			got := ""
			if err := quarantine.Refuse(r.c, r.m); err != nil {
				got = err.Error()
			}
			if got != want {
				t.Fatalf("the sender reads\n%q, want\n%q", got, want)
			}
			if !r.c.Open() || want == "" {
				return
			}
			p := enforce()
			p.Recover = true
			after, _ := quarantine.Decide(r.c, r.m, start, p)
			refused, shown := after.Notices[len(after.Notices)-1], after.RefusedWords[len(after.RefusedWords)-1]
			if refused.Kind != quarantine.NoticeRefused || refused.Gate != r.gate || !refused.Alert || refused.Actor != r.m.Actor {
				t.Errorf("on record as %+v", refused)
			}
			if shown.Verb != r.m.Verb || shown.Actor != r.m.Actor || shown.Text != refused.Text {
				t.Errorf("the case shows %+v", shown)
			}
			if after.Mark != r.c.Mark || after.Phase != r.c.Phase {
				t.Errorf("a refused message changed the case: %s, mark %s", after.Phase, after.Mark.State)
			}
		})
	}
}

// Proves a part of R4. What earlier rules refused because they didn't know it is refused
// by them still: a recorded run goes on as it did.
func TestEarlierRulesRefuseWhatTheyDidNotKnow(t *testing.T) {
	for rules, want := range map[int]quarantine.NoticeKind{4: quarantine.NoticeRefused, quarantine.Rules: quarantine.NoticeMessage} {
		l := live(t, gpu, enforce())
		l.run(unheld(step{minute, says(quarantine.VerbRetire)}))
		l.p.Rules = rules
		l.heard = nil
		l.tell(always(quarantine.Message{
			Verb: quarantine.VerbRepaired, Actor: "oncall@example.com", Reason: "replaced the riser", Ticket: "RMA-7", Before: `unknown field "ticket"`,
		}))
		if len(l.heard) != 1 || l.heard[0].Kind != want {
			t.Errorf("by rules %d it is on record as %+v, want %s", rules, l.heard, want)
		}
	}
}

// Proves a part of R4. The ticket of a repair is in the case and in the trail.
func TestTheTicketOfARepairIsOnRecord(t *testing.T) {
	l := live(t, gpu, enforce())
	l.run(unheld(step{minute, says(quarantine.VerbRetire)}))
	l.heard = nil
	l.tell(always(quarantine.Message{Verb: quarantine.VerbRepaired, Actor: "oncall@example.com", Reason: "replaced the riser", Ticket: "RMA-7"}))
	if word := l.c.Words[len(l.c.Words)-1]; word.Ticket != "RMA-7" {
		t.Errorf("the case remembers %+v", word)
	}
	if len(l.heard) != 1 || !strings.Contains(l.heard[0].Text, "RMA-7") || !strings.Contains(l.heard[0].Seen, "RMA-7") {
		t.Errorf("on record: %+v", l.heard)
	}
}

// checkHeard checks that a message, accepted or refused, is on record with its
// sender.
func checkHeard(t *testing.T, l *life, m quarantine.Message, refusal string) {
	t.Helper()
	if len(l.heard) != 1 {
		t.Fatalf("%d notices, want one: %+v", len(l.heard), l.heard)
	}
	n := l.heard[0]
	switch {
	case refusal != "" && (n.Kind != quarantine.NoticeRefused || n.Text != refusal || !n.Alert):
		t.Errorf("on record as %s %q, want the refusal", n.Kind, n.Text)
	case refusal == "" && n.Kind != quarantine.NoticeMessage:
		t.Errorf("on record as %s %q, want it accepted", n.Kind, n.Text)
	case n.Actor != m.Actor:
		t.Errorf("on record by %q, want %q", n.Actor, m.Actor)
	}
	if refusal != "" {
		return
	}
	word := quarantine.Word{Verb: m.Verb, Actor: m.Actor, Reason: m.Reason, At: l.now}
	if len(l.c.Words) == 0 || l.c.Words[len(l.c.Words)-1] != word {
		t.Errorf("the case remembers %+v, want %+v last", l.c.Words, word)
	}
}

// R4: what an accepted word comes to. None of them frees the device or skips a
// gate.
func TestWhatAnAcceptedWordComesTo(t *testing.T) {
	later := minute + sec
	check(t, map[string]row{
		"release: the device stays out until the gates are passed": {
			steps: unheld(step{later, says(quarantine.VerbRelease)}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForCoolDown, "", "OperatorMessage"),
		},
		"release, and the cool-down is over": {
			steps: unheld(step{minute, says(quarantine.VerbRelease)}, step{10 * minute, woke()}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForRecovery, "", ""),
		},
		"retire: out until an operator says repaired": {
			steps: unheld(step{later, says(quarantine.VerbRetire)}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForOperator, "PutMark", "OperatorMessage").but(func(w *want) { w.phase = quarantine.PhaseRetired }),
		},
		"retired, and its lease ends: extended, still retired": {
			steps: unheld(step{minute, says(quarantine.VerbRetire)}, step{hour, MakeLooked().Answer()}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForOperator, "PutMark", "LeaseExtended").but(func(w *want) { w.phase = quarantine.PhaseRetired }),
		},
		"retired, and a fault comes: still retired": {
			steps: unheld(step{minute, says(quarantine.VerbRetire)}, step{hour - sec, observed(MakeReading("train-1").Unhealthy(majorFault))}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForOperator, "PutMark", "").but(func(w *want) { w.phase = quarantine.PhaseRetired }),
		},
		"repaired: quarantined again, with the gates before it": {
			steps: unheld(step{minute, says(quarantine.VerbRetire)}, step{later, says(quarantine.VerbRepaired)}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForCoolDown, "PutMark", "OperatorMessage"),
		},
		"extend: the mark says so": {
			steps: unheld(step{later, says(quarantine.VerbExtend)}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForCoolDown, "PutMark", "OperatorMessage"),
		},
		"wait: goes on waiting": {
			steps: marked(step{later, says(quarantine.VerbWait)}),
			want:  standing(quarantine.MarkInForce, quarantine.WaitingForHolder, "", "OperatorMessage"),
		},
	})
}

// Q4: an extension is as long as it says, or a lease, and never shortens.
func TestAnExtensionIsAsLongAsItSays(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{0: hour, 4 * hour: 4 * hour, 61 * minute: 61 * minute} {
		l := live(t, gpu, enforce())
		l.run(unheld(step{minute, always(quarantine.Message{Verb: quarantine.VerbExtend, Actor: "oncall", Reason: "waiting for parts", For: given})}))
		before := l.c.LeaseUntil
		if got := l.c.LeaseUntil.Sub(l.now); got != want {
			t.Errorf("extended for %s by %s, want %s", got, given, want)
		}
		l.run([]step{{2 * minute, always(quarantine.Message{Verb: quarantine.VerbExtend, Actor: "oncall", Reason: "a moment more", For: time.Second})}})
		if l.c.LeaseUntil.Before(before) {
			t.Errorf("extended once more, from %s to %s", before, l.c.LeaseUntil)
		}
	}
}

// R4: messages that say too little, too much, or nothing that can be read are
// refused on record.
func TestMessagesThatCannotBeTakenAreRefusedOnRecord(t *testing.T) {
	const head = "release refused for gpu.example.com/anvil-07/gpu-3: "
	full := quarantine.Message{Verb: quarantine.VerbRelease, Actor: "oncall@example.com", Reason: "replaced the riser"}
	rows := map[string]struct {
		change func(*quarantine.Message)
		want   string
		actor  string
	}{
		"unreadable": {
			func(m *quarantine.Message) {
				*m = quarantine.Message{Verb: m.Verb, Malformed: "the payload can't be read: unexpected end of JSON input"}
			},
			head + `the payload can't be read: unexpected end of JSON input; want JSON like {"actor":"you@example.com","reason":"why"}`, "unnamed",
		},
		"without an actor":  {func(m *quarantine.Message) { m.Actor = "" }, head + "actor is empty; say who you are", "unnamed"},
		"without a reason":  {func(m *quarantine.Message) { m.Reason = "" }, head + "reason is empty; say why", "oncall@example.com"},
		"a reason too long": {func(m *quarantine.Message) { m.Reason = strings.Repeat("x", 513) }, head + "reason is 513 bytes long; want at most 512", "oncall@example.com"},
		"a reason that grows in JSON": {
			func(m *quarantine.Message) { m.Reason = strings.Repeat("<", 100) }, head + "reason is 600 bytes long; want at most 512", "oncall@example.com",
		},
		"an actor too long": {
			func(m *quarantine.Message) { m.Actor = strings.Repeat("a", 257) }, head + "actor is 257 bytes long; want at most 256", strings.Repeat("a", 253) + "…",
		},
		"an extension into the past": {
			func(m *quarantine.Message) { m.Verb, m.For = quarantine.VerbExtend, -minute },
			"extend refused for gpu.example.com/anvil-07/gpu-3: for is -1m0s; want a positive duration, at most 720h0m0s; what lasts longer is extended again, or retired", "oncall@example.com",
		},
	}
	for name, r := range rows {
		t.Run(name, func(t *testing.T) {
			l := live(t, gpu, enforce())
			l.run(unheld())
			l.heard = nil
			m := full
			r.change(&m)
			l.tell(always(m))
			if len(l.heard) != 1 || l.heard[0].Kind != quarantine.NoticeRefused || l.heard[0].Text != r.want || l.heard[0].Actor != r.actor {
				t.Errorf("on record:\n%+v, want\n%q by %q", l.heard, r.want, r.actor)
			}
			if len(l.c.Words) != 0 {
				t.Errorf("the case remembers %+v", l.c.Words)
			}
		})
	}
}

// Q1, O3: Decide is total: before anything is known it takes every event.
func TestEveryEventCanComeFirst(t *testing.T) {
	for _, e := range []quarantine.Event{
		quarantine.Observed{}, quarantine.Inventory{}, quarantine.Inventory{Present: true}, quarantine.MarkSeen{},
		quarantine.Looked{}, quarantine.Looked{Failed: "x"}, quarantine.MarkReported{}, quarantine.Announced{}, quarantine.Woke{}, quarantine.Message{},
	} {
		c, owed := quarantine.Decide(quarantine.Case{Device: gpu}, e, start, enforce())
		if c.Open() {
			t.Errorf("%T opened a case", e)
		}
		if got := owes(owed); got != "" && got != "Announce" {
			t.Errorf("%T owes %q", e, got)
		}
	}
}
