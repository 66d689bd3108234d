package quarantine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
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
