package incident_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/incident"
)

var start = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

const driver = "gpu.example.com"

// life is an incident and the clock beside it.
type life struct {
	t *testing.T
	incident.Incident
	now    time.Time
	policy incident.Policy
}

func newLife(t *testing.T, scope incident.Scope) *life {
	return &life{t: t, Incident: incident.Incident{Scope: scope}, now: start, policy: incident.DefaultPolicy()}
}

func (l *life) pass(d time.Duration) *life {
	l.now = l.now.Add(d)
	return l
}

func (l *life) take(event incident.Event) incident.Answer {
	var answer incident.Answer
	l.Incident, answer = incident.Decide(l.Incident, event, l.now, l.policy)
	return answer
}

// report counts so many devices of 100, 16 of which make an incident.
func (l *life) report(now, held int) incident.Answer {
	return l.take(incident.Reported{Levels: incident.Levels{Now: now, Held: held, Total: 100, Enough: 16, Nodes: 4, Begins: true, Oldest: start, By: "a"}})
}

func (l *life) say(verb incident.Verb, lasts time.Duration) {
	l.take(incident.Message{Verb: verb, Actor: "oncall@example.com", Reason: "the driver is being upgraded", For: lasts})
}

// alerts counts the alerts of a kind that the incident ever raised.
func (l *life) alerts(kind incident.NoticeKind) int {
	n := 0
	for _, notice := range l.Story {
		if notice.Kind == kind && notice.Alert {
			n++
		}
	}
	return n
}

// U4. What becomes of an incident, and what whoever waits for it is told.
func TestWhatBecomesOfAnIncident(t *testing.T) {
	storm, onNode := incident.OfDriver(driver), incident.OfNode("node-7")
	crowd, crowdOnNode := incident.CrowdOfDriver(driver, "580.1"), incident.CrowdOfNode("node-7")
	for name, tc := range map[string]struct {
		scope incident.Scope
		do    func(*life) incident.Answer
		phase incident.Phase
		holds bool
		says  string
	}{
		"a storm holds everything from its beginning": {storm,
			func(l *life) incident.Answer { return l.report(40, 40) }, incident.Holding, true, "until 2026-11-29T13:00:00Z"},
		"one on a node holds for a shorter time": {onNode,
			func(l *life) incident.Answer { return l.report(8, 8) }, incident.Holding, true, "until 2026-11-29T12:15:00Z"},
		"past its maximum it asks and lets one through": {storm, func(l *life) incident.Answer {
			l.report(40, 40)
			return l.pass(time.Hour).report(40, 40)
		}, incident.Pacing, true, "one through every 30s"},
		"it ends when its levels were low for long enough": {storm, func(l *life) incident.Answer {
			l.report(40, 40)
			l.pass(time.Minute).report(7, 7)
			return l.pass(2*time.Minute).report(0, 0)
		}, incident.Closed, false, ""},
		"half of what makes an incident is not low": {storm, func(l *life) incident.Answer {
			l.report(40, 40)
			l.pass(time.Minute).report(8, 8)
			return l.pass(2*time.Minute).report(8, 8)
		}, incident.Holding, true, ""},
		"levels that are low at its maximum ask nobody": {storm, func(l *life) incident.Answer {
			l.report(40, 40)
			l.pass(time.Hour-time.Minute).report(1, 1)
			l.pass(time.Minute).take(incident.Woke{})
			l.pass(30*time.Second).report(1, 1)
			return l.pass(30*time.Second).report(1, 1)
		}, incident.Closed, false, ""},
		"levels that are low first at its maximum ask nobody": {storm, func(l *life) incident.Answer {
			l.report(40, 40)
			return l.pass(time.Hour).report(1, 1)
		}, incident.Holding, true, "until 2026-11-29T13:03:00Z"},
		"levels that are high again after its maximum ask at once": {storm, func(l *life) incident.Answer {
			l.report(40, 40)
			l.pass(time.Hour-time.Minute).report(1, 1)
			return l.pass(90*time.Second).report(40, 40)
		}, incident.Pacing, true, "one through every 30s"},
		"a starter that falls silent when levels are low holds nothing for ever": {storm, func(l *life) incident.Answer {
			l.report(40, 40)
			l.pass(time.Hour-time.Minute).report(1, 1)
			return l.pass(3 * time.Minute).take(incident.Woke{})
		}, incident.Pacing, true, "one through every 30s"},
		"low levels of a starter that isn't sure of them don't end it": {storm, func(l *life) incident.Answer {
			l.report(40, 40)
			for range 3 {
				l.pass(2 * time.Minute).take(incident.Reported{Levels: incident.Levels{Total: 100, Enough: 16, Unsure: "it has just begun", By: "b"}})
			}
			return l.take(incident.Woke{})
		}, incident.Holding, true, ""},
		"a new wave after an operator's admit is let through at the pace": {storm, func(l *life) incident.Answer {
			l.report(40, 40)
			l.say(incident.VerbAdmit, 0)
			l.pass(10*time.Minute).report(20, 0)
			l.pass(10*time.Minute).report(35, 15)
			return l.pass(time.Minute).report(60, 40)
		}, incident.Pacing, true, "one through every 30s"},
		"a few more after an operator's admit are let through as the others": {storm, func(l *life) incident.Answer {
			l.report(40, 40)
			l.say(incident.VerbAdmit, 0)
			return l.pass(10*time.Minute).report(55, 15)
		}, incident.Admitted, false, ""},
		"levels that come and go don't end it": {storm, func(l *life) incident.Answer {
			var last incident.Answer
			for i := range 40 {
				last = l.report(40*(i%2), 40*(i%2))
				l.pass(time.Minute)
			}
			return last
		}, incident.Holding, true, ""},
		"an operator's wait holds longer": {storm, func(l *life) incident.Answer {
			l.report(40, 40)
			l.pass(time.Hour).say(incident.VerbWait, 4*time.Hour)
			return l.pass(3*time.Hour).report(40, 40)
		}, incident.Holding, true, "until 2026-11-29T17:00:00Z"},
		"an operator's admit lets all through": {storm, func(l *life) incident.Answer {
			l.report(40, 40)
			l.say(incident.VerbAdmit, 0)
			return l.report(40, 40)
		}, incident.Admitted, false, ""},
		"an incident that was admitted still ends with its levels": {storm, func(l *life) incident.Answer {
			l.report(40, 40)
			l.say(incident.VerbAdmit, 0)
			l.report(0, 0)
			return l.pass(2*time.Minute).report(0, 0)
		}, incident.Closed, false, ""},
		"a crowd of a driver lets the next one through after its pace": {crowd, func(l *life) incident.Answer {
			if l.report(30, 14).Granted() {
				l.t.Error("one was let through at once")
			}
			return l.pass(10*time.Second).report(30, 14)
		}, incident.Pacing, true, "one through every 10s"},
		"a crowd of a driver is not over while one waits": {crowd, func(l *life) incident.Answer {
			l.report(30, 14)
			l.pass(time.Minute).report(1, 1)
			return l.pass(2*time.Minute).report(1, 1)
		}, incident.Pacing, true, ""},
		"a crowd on a node is told, and holds nothing": {crowdOnNode,
			func(l *life) incident.Answer { return l.report(8, 0) }, incident.Noted, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t, tc.scope)
			answer := tc.do(l)
			if l.Phase != tc.phase || answer.Phase != tc.phase || answer.Holds != tc.holds || !strings.Contains(answer.Why, tc.says) {
				t.Errorf("%s, answered %+v; want %s, holds %t, saying %q", l.Phase, answer, tc.phase, tc.holds, tc.says)
			}
			if n := l.alerts(incident.NoticeBegan); n != 1 {
				t.Errorf("%d alerts at its beginning, want one", n)
			}
		})
	}
}

// U4. Another starter goes on with the incident that it finds: it keeps its own
// beginning, its maximum, and its one alert.
func TestAStarterThatTakesOverGoesOnWithTheIncident(t *testing.T) {
	l := newLife(t, incident.OfDriver(driver))
	l.report(40, 40)
	l.pass(30 * time.Minute)
	answer := l.take(incident.Reported{Levels: incident.Levels{Now: 41, Held: 41, Total: 100, Enough: 16, By: "b"}})
	if !answer.Since.Equal(start) || !answer.Until.Equal(start.Add(time.Hour)) || l.alerts(incident.NoticeBegan) != 1 {
		t.Errorf("since %s until %s with %d alerts", answer.Since, answer.Until, l.alerts(incident.NoticeBegan))
	}
	if last := l.Story[len(l.Story)-1]; last.Kind != incident.NoticeTakenOver || last.Alert {
		t.Errorf("told as %+v", last)
	}
}

// U4. A wave of devices that comes while others are let through one by one is told, once
// for each maximum's time, and held no longer than they are.
func TestANewWaveAfterTheMaximumIsAskedAbout(t *testing.T) {
	l := newLife(t, incident.OfDriver(driver))
	l.report(40, 40)
	l.pass(time.Hour).report(40, 40)
	for _, now := range []int{50, 56, 30, 80, 20, 90} {
		if a := l.pass(time.Minute).report(now, now); a.Phase != incident.Pacing {
			t.Errorf("%s with %d devices", a.Phase, now)
		}
	}
	if n := l.alerts(incident.NoticeGrew); n != 1 {
		t.Errorf("%d alerts of new waves within minutes, want one", n)
	}
	l.pass(time.Hour).report(90, 90)
	if n := l.alerts(incident.NoticeGrew); n != 2 {
		t.Errorf("%d alerts of new waves, want another an hour later", n)
	}
}

// U4. What a starter goes on telling of an incident whose record is gone, because
// Temporal was emptied, begins one only if there still is one.
func TestAnIncidentWhoseRecordIsGone(t *testing.T) {
	of := func(now int) incident.Levels {
		return incident.Levels{Now: now, Held: now, Total: 48, Enough: 8, Nodes: 4, Oldest: start, By: "a"}
	}
	l := newLife(t, incident.OfDriver(driver))
	if a := l.take(incident.Reported{Levels: of(0)}); a.Phase != incident.Closed || a.Holds || len(l.Story) > 0 {
		t.Errorf("of no devices: answered %+v, told %+v", a, l.Story)
	}
	l = newLife(t, incident.OfDriver(driver))
	if a := l.take(incident.Reported{Levels: of(20)}); a.Phase != incident.Holding || l.alerts(incident.NoticeBegan) != 1 || !strings.Contains(l.Story[0].Text, "its record is gone") {
		t.Errorf("of twenty: answered %+v, told %+v", a, l.Story)
	}
	// One that was found just now began, although hardly any of its devices is left.
	few := of(1)
	few.Begins, few.Lately = true, 9
	l = newLife(t, incident.OfDriver(driver))
	if a := l.take(incident.Reported{Levels: few}); a.Phase != incident.Holding || !strings.Contains(l.Story[0].Text, "9 of 48 devices in driver/gpu.example.com became Unknown within minutes, on 4 nodes, and 1 device is now") {
		t.Errorf("of one that is left: answered %+v, told %+v", a, l.Story)
	}
}

// U4. Cases are let through in the order in which their devices stopped being well,
// whoever asks first; one that doesn't come back holds nobody up for long.
func TestTheOldestCaseIsLetThroughFirst(t *testing.T) {
	l := newLife(t, incident.Cluster())
	l.report(40, 0)
	ages := map[string]time.Duration{"c": 3, "a": 9, "e": 1, "b": 7, "d": 2}
	again := map[string]time.Time{}
	l.pass(time.Hour).report(40, 0)
	for name := range ages {
		again[name] = l.now
	}
	var order []string
	for range 60 {
		for _, name := range []string{"c", "a", "e", "b", "d"} {
			at, waits := again[name]
			if !waits || l.now.Before(at) {
				continue
			}
			a := l.take(incident.Asked{Device: name, Since: start.Add(-ages[name] * time.Minute)})
			if again[name] = l.now.Add(a.Again); a.Granted() {
				order = append(order, name)
				delete(again, name)
			}
			if name == "b" {
				delete(again, name) // it is well, and never comes back
			}
		}
		l.pass(5 * time.Second)
	}
	if want := []string{"a", "c", "d", "e"}; !slices.Equal(order, want) {
		t.Errorf("let through %v, want %v", order, want)
	}
	if l.now.Sub(start) > time.Hour+6*time.Minute || l.Granted != 4 {
		t.Errorf("%d within %s", l.Granted, l.now.Sub(start))
	}
}

// U4. Cases that want to restrict and devices that wait for a case share one pace,
// and neither starves the other.
func TestCasesAndDevicesTakeTurnsAtOnePace(t *testing.T) {
	l := newLife(t, incident.Cluster())
	l.report(40, 40)
	l.pass(time.Hour)
	var order []string
	for range 20 {
		if l.report(40, 40).Granted() {
			order = append(order, "device")
		}
		if l.take(incident.Asked{Device: "x"}).Granted() {
			order = append(order, "case")
		}
		l.pass(15 * time.Second)
	}
	want := []string{"case", "device", "case", "device", "case", "device", "case", "device", "case", "device"}
	if !slices.Equal(order, want) {
		t.Errorf("let through %v, want them to take turns: %v", order, want)
	}
	if l.Opened != 5 || l.Granted != 5 {
		t.Errorf("counted %d devices and %d cases", l.Opened, l.Granted)
	}
}

// A case that nobody competes with doesn't wait for devices that don't come.
func TestATurnThatNobodyTakesIsLost(t *testing.T) {
	l := newLife(t, incident.Cluster())
	l.report(40, 40)
	l.pass(time.Hour).report(40, 40)
	l.pass(30 * time.Second)
	if l.report(40, 40).Through != 1 {
		t.Error("the starter's devices waited although no case asked")
	}
	if l.take(incident.Asked{}).Granted() {
		t.Error("a case was let through in the same moment")
	}
	l.pass(30 * time.Second)
	if l.report(40, 40).Granted() {
		t.Error("a device took the turn of a case that asked")
	}
	l.pass(30 * time.Second)
	if !l.report(40, 40).Granted() {
		t.Error("the turn of a case that never came back was kept for ever")
	}
}

// R4 in part: what makes no sense is refused with its reason, on record.
func TestWhatAnOperatorSaysIsTakenOrRefusedWithItsReason(t *testing.T) {
	for name, tc := range map[string]struct {
		scope   incident.Scope
		message incident.Message
		why     string
	}{
		"without an actor":     {incident.Cluster(), incident.Message{Verb: incident.VerbWait, Reason: "x"}, "actor is empty"},
		"without a reason":     {incident.Cluster(), incident.Message{Verb: incident.VerbWait, Actor: "x"}, "reason is empty"},
		"an unreadable one":    {incident.Cluster(), incident.Message{Verb: incident.VerbWait, Malformed: "no JSON"}, `want JSON like {"actor"`},
		"an unknown one":       {incident.Cluster(), incident.Message{Verb: "ignore", Actor: "x", Reason: "x"}, "no such message"},
		"for too long":         {incident.Cluster(), incident.Message{Verb: incident.VerbWait, Actor: "x", Reason: "x", For: 25 * time.Hour}, "want 1m to 24h"},
		"for too short":        {incident.Cluster(), incident.Message{Verb: incident.VerbWait, Actor: "x", Reason: "x", For: time.Nanosecond}, "want 1m to 24h"},
		"close, while it is":   {incident.Cluster(), incident.Message{Verb: incident.VerbClose, Actor: "x", Reason: "x"}, "40 devices are still Unknown; send admit"},
		"wait, on a node":      {incident.CrowdOfNode("n"), incident.Message{Verb: incident.VerbWait, Actor: "x", Reason: "x"}, "it holds nothing"},
		"admit, on a node":     {incident.CrowdOfNode("n"), incident.Message{Verb: incident.VerbAdmit, Actor: "x", Reason: "x"}, "it holds nothing"},
		"a reason without end": {incident.Cluster(), incident.Message{Verb: incident.VerbWait, Actor: "x", Reason: strings.Repeat("x", 600)}, "at most 512"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t, tc.scope)
			l.report(40, 0)
			phase := l.Phase
			err := incident.Refuse(l.Incident, tc.message)
			if err == nil || !strings.Contains(err.Error(), tc.why) || !strings.Contains(err.Error(), tc.scope.String()) {
				t.Fatalf("refused with %v, want %q", err, tc.why)
			}
			l.take(tc.message)
			if last := l.Notices[len(l.Notices)-1]; last.Kind != incident.NoticeRefused || !last.Alert || last.Text != err.Error() || l.Phase != phase {
				t.Errorf("%s, on record as %+v", l.Phase, last)
			}
		})
	}
	l := newLife(t, incident.CrowdOfNode("node-7"))
	l.report(8, 0)
	l.say(incident.VerbClose, 0)
	if l.Phase != incident.Closed || l.End != incident.EndOperator || len(l.Words) != 1 {
		t.Errorf("%s by %s with words %v", l.Phase, l.End, l.Words)
	}
	if err := incident.Refuse(l.Incident, incident.Message{Verb: incident.VerbWait, Actor: "x", Reason: "x"}); err == nil || !strings.Contains(err.Error(), "isn't open") {
		t.Errorf("after its end: %v", err)
	}
}

func TestAScopeIsReadAsItIsWritten(t *testing.T) {
	for _, scope := range []incident.Scope{
		incident.Cluster(), incident.OfDriver(driver), incident.OfDriver("example.com/gpu"), incident.OfNode("node-7"),
		incident.CrowdOfDriver(driver, ""), incident.CrowdOfDriver(driver, "580.1"), incident.CrowdOfNode("node-7"),
	} {
		if got, err := incident.ParseScope(scope.String()); err != nil || got != scope {
			t.Errorf("%s is read as %+v, %v", scope, got, err)
		}
	}
	for _, text := range []string{"", "node/", "driver/", "driver/a@1", "crowd/cluster", "crowd", "rack/7", "node/a b", "cluster/x", "node/" + strings.Repeat("x", 500)} {
		if got, err := incident.ParseScope(text); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
