package budget_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/budget"
)

func (d *desk) say(verb budget.Verb, scope string, actor string, wait time.Duration) error {
	d.t.Helper()
	s, err := budget.ParseScope(scope)
	if err != nil {
		d.t.Fatal(err)
	}
	return d.decide(budget.Message{Verb: verb, Scope: s, Actor: actor, Reason: "maintenance", For: wait}).Refusal
}

// B4 in part. In a paused scope nothing is granted, elsewhere all goes on; the pause ends
// by itself, and then those who waited are let in one by one, as ever.
func TestAPauseHoldsItsScopeAndEndsByItself(t *testing.T) {
	for _, scope := range []string{"cluster", "driver/gpu.example.com", "class/gpu.example.com", "node/node-0", "device/gpu.example.com/node-0/gpu-0"} {
		d := newDesk(t, 100, only(budget.Limit{Percent: 100}))
		if err := d.say(budget.VerbPause, scope, "ann", time.Hour); err != nil {
			t.Fatal(err)
		}
		elsewhere := gpu(90)
		elsewhere.Scopes = []budget.Scope{{Kind: budget.Driver, Name: "nic.example.com"}, {Kind: budget.Node, Name: "node-45"}}
		a := d.ask(gpu(0), elsewhere)
		if a[0].Granted || !strings.Contains(a[0].Why, scope+" is paused until 2026-11-02T09:00:00Z by ann (maintenance)") {
			t.Errorf("%s: %+v", scope, a[0])
		}
		if a[1].Granted == (scope == "cluster") {
			t.Errorf("%s: elsewhere %+v", scope, a[1])
		}
		d.after(50*time.Minute).ask(gpu(0), gpu(1))
		out := d.after(10 * time.Minute).decide(budget.Woke{})
		if len(d.book.Pauses) != 0 || len(out.Offers) == 0 {
			t.Errorf("%s: at its end %+v, offers %+v", scope, d.book.Pauses, out.Offers)
		}
		if len(notices(d.book, budget.NoticePaused)) != 1 || len(notices(d.book, budget.NoticeResumed)) != 1 {
			t.Errorf("%s: on record %+v", scope, d.book.Notices)
		}
	}
}

// B4 in part. Two operators pause and resume at once: each gets a clear answer, and nobody's
// pause is ended without saying whose it was.
func TestTwoOperatorsPauseOneScope(t *testing.T) {
	d := newDesk(t, 10, only(budget.Limit{Percent: 100}))
	for i, actor := range []string{"ann", "bob"} {
		if err := d.say(budget.VerbPause, "node/node-0", actor, time.Duration(i+1)*time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	d.after(61 * time.Minute).decide(budget.Woke{})
	if a := d.ask(gpu(0)); a[0].Granted || !strings.Contains(a[0].Why, "by bob") {
		t.Errorf("after ann's: %+v", a)
	}
	if err := d.say(budget.VerbResume, "node/node-0", "ann", 0); err != nil {
		t.Fatal(err)
	}
	said := notices(d.book, budget.NoticeResumed)
	if last := said[len(said)-1]; last.Actor != "ann" || !strings.Contains(last.Text, "this ends bob's until 2026-11-02T10:00:00Z") {
		t.Errorf("on record: %+v", said)
	}
	err := d.say(budget.VerbResume, "node/node-0", "bob", 0)
	if err == nil || !strings.Contains(err.Error(), "resume refused for node/node-0: it isn't paused; nothing is") {
		t.Errorf("a second resume: %v", err)
	}
}

func TestAMessageThatMakesNoSenseIsRefusedOnRecord(t *testing.T) {
	node := budget.Scope{Kind: budget.Node, Name: "node-0"}
	for name, row := range map[string]struct {
		m    budget.Message
		want string
	}{
		"no actor":         {budget.Message{Verb: budget.VerbPause, Scope: node, Reason: "x", For: time.Hour}, "say who you are"},
		"no reason":        {budget.Message{Verb: budget.VerbPause, Scope: node, Actor: "x", For: time.Hour}, "say why"},
		"no time":          {budget.Message{Verb: budget.VerbPause, Scope: node, Actor: "x", Reason: "x"}, "want 1s to 168h"},
		"too long":         {budget.Message{Verb: budget.VerbPause, Scope: node, Actor: "x", Reason: "x", For: 8 * 24 * time.Hour}, "what lasts longer is said again"},
		"no scope":         {budget.Message{Verb: budget.VerbPause, Actor: "x", Reason: "x", For: time.Hour}, "refused for no scope: scope \"\": want cluster, driver/NAME"},
		"a verb too many":  {budget.Message{Verb: "stop", Scope: node, Actor: "x", Reason: "x"}, "want one of [pause resume]"},
		"not paused":       {budget.Message{Verb: budget.VerbResume, Scope: node, Actor: "x", Reason: "x"}, "it isn't paused; paused are node/node-7"},
		"upgrade of all":   {budget.Message{Verb: budget.VerbPause, Scope: budget.Everything, Actor: "x", Reason: "x", For: time.Hour, Upgrade: true}, "announced for driver/NAME"},
		"can't be read":    {budget.Message{Verb: budget.VerbPause, Malformed: "it is a number"}, "it is a number; want JSON like"},
		"a resume for how": {budget.Message{Verb: budget.VerbResume, Scope: budget.Scope{Kind: budget.Node, Name: "node-7"}, Actor: "x", Reason: "x", For: time.Hour}, "neither for nor upgrade"},
	} {
		d := newDesk(t, 10, only(budget.Limit{Percent: 100}))
		if err := d.say(budget.VerbPause, "node/node-7", "ann", time.Hour); err != nil {
			t.Fatal(err)
		}
		err := d.decide(row.m).Refusal
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", name, err)
		}
		if said := notices(d.book, budget.NoticeRefused); len(said) != 1 || !said[0].Alert || said[0].Actor == "" {
			t.Errorf("%s: on record %+v", name, said)
		}
	}
}

func TestAScopeIsReadAsItIsWritten(t *testing.T) {
	for _, text := range []string{"cluster", "driver/gpu.example.com", "class/a", "tenant/ml", "pool/gpu.example.com/node-1", "node/n", "device/d/p/x", "device/node-1/example.com/gpu/GPU-1"} {
		s, err := budget.ParseScope(text)
		if err != nil || s.String() != text {
			t.Errorf("%s: %v, %v", text, s, err)
		}
		content, err := json.Marshal(s)
		var back budget.Scope
		if err != nil || string(content) != `"`+text+`"` || json.Unmarshal(content, &back) != nil || back != s {
			t.Errorf("%s: written as %s, read as %v", text, content, back)
		}
	}
	for text, want := range map[string]string{
		"":                                   "want cluster, driver/NAME",
		"cluster/a":                          "the cluster has no name",
		"rack/7":                             "want cluster, driver/NAME",
		"node":                               "want a name behind node/",
		"node/":                              "want a name behind node/",
		"node/a b":                           "want a name behind node/",
		"pool/p":                             "want pool/DRIVER/POOL",
		"device/gpu-0":                       "want device/DRIVER/POOL/DEVICE",
		"tenant/" + strings.Repeat("x", 401): "want a name",
	} {
		if _, err := budget.ParseScope(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestALimitIsReadAsPeopleWriteIt(t *testing.T) {
	for text, want := range map[string]budget.Limit{
		"10%":             {Percent: 10},
		"0.5% min 2":      {Percent: 0.5, Min: 2},
		"5% max 40 min 1": {Percent: 5, Min: 1, Max: 40},
		"0% min 3":        {Min: 3},
		" none ":          {None: true},
	} {
		if got, err := budget.ParseLimit(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                "want a percentage",
		"10":              `"10" is no percentage`,
		"ten%":            `"ten%" is no percentage`,
		"101%":            "want 0 to 100",
		"NaN%":            "want 0 to 100",
		"10% min":         "want a percentage",
		"10% min 0":       "want a whole number above zero",
		"10% min 2 min 3": `"min": want`,
		"10% least 2":     `"least": want`,
		"10% min 5 max 4": "min 5 is more than max 4",
	} {
		if _, err := budget.ParseLimit(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestLimitsThatMakeNoSenseAreNamed(t *testing.T) {
	bad := budget.DefaultLimits()
	bad.Cluster.Percent, bad.Class.Min, bad.Node = 101, -1, budget.Limit{Min: 3, Max: 2}
	bad.Classes = map[string]budget.Limit{"rare": {Percent: -0.1}}
	bad.Pace = -1
	err := bad.Validate()
	for _, want := range []string{"cluster: percent 101: want 0 to 100", "class: min -1", "node: min 3 is more than max 2", "class rare: percent -0.1", "pace -1 s"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: doesn't name %q", err, want)
		}
	}
	if err := budget.DefaultLimits().Validate(); err != nil {
		t.Error(err)
	}
}
