package budget_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sickbay-dev/sickbay/pkg/budget"
)

// turn asks for device n's turn, four of which are on each node.
func turn(n int) budget.AskTurn { return turnOn(n, fmt.Sprintf("node-%d", n/4)) }

func turnOn(n int, node string) budget.AskTurn {
	return budget.AskTurn{
		Device: fmt.Sprintf("gpu.example.com/%s/gpu-%d", node, n), Epoch: 7, Token: int64(100 + n),
		Scopes: []budget.Scope{{Kind: budget.Driver, Name: class}, {Kind: budget.Class, Name: class}, {Kind: budget.Node, Name: node}},
	}
}

// returning is a desk where so many come back at once; nothing is known of its marks.
func returning(t *testing.T, node, class, cluster int) *desk {
	t.Helper()
	return &desk{t: t, now: start, limits: budget.Limits{Returns: budget.ReturnLimits{Node: node, Class: class, Cluster: cluster, Settle: 600}}}
}

// turns asks, and gives the numbers of those whose turn it is.
func (d *desk) turns(asks ...budget.AskTurn) string {
	d.t.Helper()
	var granted []string
	for _, a := range d.decide(budget.TurnsAsked{Asks: asks}).Turns {
		switch {
		case a.Granted:
			granted = append(granted, a.Device[strings.LastIndex(a.Device, "-")+1:])
		case a.Why == "" || a.Again <= 0 || a.Again > 15*time.Minute:
			d.t.Errorf("no turn for %s, and no word on why and when to ask again: %+v", a.Device, a)
		}
	}
	return strings.Join(granted, " ")
}

// wants checks whose turn it is.
func (d *desk) wants(what, want string, asks ...budget.AskTurn) {
	d.t.Helper()
	if got := d.turns(asks...); got != want {
		d.t.Errorf("%s: it is the turn of %q, want %q; %+v", what, got, want, d.book.Returns)
	}
}

// Devices of one node come back one after the other, each when the one before has settled;
// other nodes aren't kept waiting by it, up to what a class and the cluster allow. Proves a
// part of R3.
func TestDevicesComeBackInStages(t *testing.T) {
	d := returning(t, 1, 3, 4)
	d.wants("at first", "0 4 8", turn(0), turn(1), turn(4), turn(8), turn(12))
	other := turnOn(20, "node-9")
	other.Scopes[1].Name = "other.example.com"
	d.wants("another class", "20", other)
	another := turnOn(21, "node-8")
	another.Scopes[1].Name = "other.example.com"
	d.wants("the cluster is full", "", another)
	answers := d.decide(budget.TurnsAsked{Asks: []budget.AskTurn{turn(1), turn(12), another}}).Turns
	for i, want := range []string{"4 of cluster may be coming back at once, and 4 are", "4 of cluster may be", "4 of cluster may be"} {
		if !strings.Contains(answers[i].Why, want) {
			t.Errorf("%s waits because %q, want %q", answers[i].Device, answers[i].Why, want)
		}
	}
	d.after(10*time.Minute-time.Second).wants("a second too early", "", turn(1), turn(12), another)
	d.after(time.Second).wants("once they have settled", "1 12 21", turn(1), turn(12), another)
}

// Whoever passed all gates first comes back first, and keeps its turn while it doesn't ask;
// one that asks no more doesn't hold up the others for long. Proves a part of R3.
func TestTurnsGoByAge(t *testing.T) {
	d := returning(t, 4, 1, 8)
	d.wants("the first", "1", turn(1))
	d.wants("the others wait", "", turn(3), turn(2))
	if first := d.book.Returns.Line[0].Device; first != turn(2).Device {
		t.Errorf("first in line is %s", first)
	}
	d.after(10*time.Minute).wants("a younger one asks first", "", turn(3))
	if why := d.book.Returns.Line[1].Why; !strings.Contains(why, turn(2).Device+" comes before it") {
		t.Errorf("it waits because %q", why)
	}
	d.wants("the older one", "2", turn(2))
	d.after(10*time.Minute).wants("and the younger one", "3", turn(3))

	d = returning(t, 4, 1, 8)
	d.wants("the first", "1", turn(1))
	d.wants("the others wait", "", turn(2), turn(3))
	d.after(10*time.Minute).wants("the older one says nothing", "", turn(3))
	d.after(2*time.Minute+time.Second).wants("and has lost its place", "3", turn(3))
}

// A turn that was granted is granted however often the same attempt asks, takes one place
// only, and ends by itself, also where the case is no more. A later attempt of the same
// device asks anew; an earlier one gets nothing. Proves a part of R3.
func TestATurnIsALease(t *testing.T) {
	d := returning(t, 4, 2, 8)
	d.wants("at first", "0", turn(0))
	d.after(time.Minute).wants("again", "0 1", turn(0), turn(1))
	d.wants("both places are taken", "", turn(2))
	if back := d.book.Returns.Back(budget.Everything); back != 2 {
		t.Errorf("%d come back", back)
	}
	if until := d.book.Returns.Coming[0].Until; !until.Equal(start.Add(10 * time.Minute)) {
		t.Errorf("asking again moved the end to %s", until)
	}
	again := turn(0)
	again.Token += 1000
	d.wants("a later attempt stands behind who waits", "2", again, turn(2))
	d.wants("an earlier attempt", "", turn(0))
	d.after(time.Hour)
	if next := d.book.NextWake(start); !next.Equal(start.Add(11 * time.Minute)) {
		t.Errorf("wakes at %s", next)
	}
	d.decide(budget.Woke{})
	if len(d.book.Returns.Coming)+len(d.book.Returns.Line) != 0 || !d.book.NextWake(d.now).IsZero() {
		t.Errorf("an hour later there are %+v", d.book.Returns)
	}
}

// What fails again soon after it came back stops the returns of its class until the end of
// its settling time, which is told once. Other classes come back. Proves a part of R3.
func TestARelapseStopsTheReturnsOfItsClass(t *testing.T) {
	d := returning(t, 1, 4, 8)
	d.wants("at first", "0", turn(0))
	relapse := budget.Ask{Device: turn(0).Device, Epoch: 8, Purpose: budget.Mark, Scopes: turn(0).Scopes}
	same := relapse
	same.Epoch = 7
	d.after(time.Minute).ask(same)
	d.wants("its own mark is brought up to date", "4", turn(4))
	d.after(time.Minute).ask(relapse)
	d.ask(relapse)
	other := turnOn(20, "node-9")
	other.Scopes[1].Name = "other.example.com"
	d.wants("after a relapse", "20", turn(8), other)
	if why := d.book.Returns.Line[0].Why; !strings.Contains(why, "gpu-0 failed again soon after it was given back: nothing of class/gpu.example.com comes back until 2026-11-02T08:10:00Z") {
		t.Errorf("it waits because %q", why)
	}
	stopped := 0
	for _, n := range d.book.Story {
		if n.Kind == budget.NoticeReturnsStopped {
			stopped++
			if !n.Alert || !strings.Contains(n.Text, "gpu-0 failed again 2m0s after it was given back") {
				t.Errorf("%+v", n)
			}
		}
	}
	if stopped != 1 {
		t.Errorf("told %d times", stopped)
	}
	d.after(7*time.Minute+59*time.Second).wants("a second too early", "", turn(8))
	d.after(time.Second).wants("once its time is over", "8", turn(8))
}

// Whose turn it is has nothing to do with marks: no pause holds it, no budget that is full
// and none that knows nothing yet, and no mark has to wait for it. A case that needs no turn
// any more leaves the line.
func TestReturnsAndMarksKeepNothingFromEachOther(t *testing.T) {
	d := newDesk(t, 4, only(budget.Limit{Max: 1}))
	d.limits.Returns = budget.ReturnLimits{Node: 1, Class: 1, Cluster: 1, Settle: 600}
	if granted(d.ask(gpus(0, 2)...)) != 1 {
		t.Fatal("one mark has a permit")
	}
	d.decide(budget.Message{Verb: budget.VerbPause, Scope: budget.Everything, For: time.Hour, Actor: "x", Reason: "x"})
	d.wants("paused, and the budget is used up", "0", turn(0), turn(1))
	d.decide(budget.Message{Verb: budget.VerbResume, Scope: budget.Everything, Actor: "x", Reason: "x"})
	if used := d.book.Marks.Used(budget.Everything); used != 1 {
		t.Errorf("%d marks are counted", used)
	}
	d.decide(budget.Returned{Permits: []budget.Permit{{Device: turn(1).Device, Epoch: 6, Purpose: budget.Mark}}})
	if len(d.book.Returns.Line) != 1 {
		t.Error("an earlier epoch's end takes it out of the line")
	}
	d.decide(budget.Returned{Permits: []budget.Permit{{Device: turn(1).Device, Epoch: 7, Purpose: budget.Mark}, {Device: turn(0).Device, Epoch: 7, Purpose: budget.Mark}}})
	if len(d.book.Returns.Line) != 0 || len(d.book.Returns.Coming) != 1 {
		t.Errorf("%+v", d.book.Returns)
	}
}

// What may be coming back at once is one at least, and what is told of it is bounded.
func TestLimitsOfReturns(t *testing.T) {
	limits := budget.ReturnLimits{Cluster: 1 << 20}
	for scope, want := range map[budget.Scope]int{budget.Everything: 1000, {Kind: budget.Class, Name: "a"}: 1, {Kind: budget.Node, Name: "a"}: 1} {
		if n, limited := limits.Of(scope); n != want || !limited {
			t.Errorf("%s: %d, %t; want %d", scope, n, limited, want)
		}
	}
	if _, limited := limits.Of(budget.Scope{Kind: budget.Pool, Name: "a/b"}); limited {
		t.Error("a pool has a limit")
	}
	wrong := budget.DefaultLimits()
	wrong.Returns = budget.ReturnLimits{Node: -1, Settle: -1}
	if err := wrong.Validate(); err == nil || !strings.Contains(err.Error(), "returns per node -1") || !strings.Contains(err.Error(), "settle -1 s") {
		t.Errorf("%v", err)
	}
	if err := budget.DefaultLimits().Validate(); err != nil {
		t.Error(err)
	}
}

// Whoever asks, relapses and dies, in whatever order: never do more come back at once than
// may in any scope, nothing of a class in which something failed again, and nobody before
// an older one that waits for the same. And in the end everybody that goes on asking comes
// back. Proves a part of R3.
func TestNeverDoMoreComeBackThanMayAndAllDoInTheEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{now: start, limits: budget.Limits{Returns: budget.ReturnLimits{
			Node: rapid.IntRange(0, 3).Draw(rt, "node"), Class: rapid.IntRange(0, 4).Draw(rt, "class"),
			Cluster: rapid.IntRange(0, 5).Draw(rt, "cluster"), Settle: rapid.IntRange(0, 900).Draw(rt, "settle"),
		}}}
		// Who waits is to ask again at these times; some never do.
		asks, back := map[string]time.Time{}, map[string]bool{}
		all, dead := map[string]budget.AskTurn{}, map[string]bool{}
		for i, n := range rapid.SliceOfNDistinct(rapid.IntRange(0, 23), 1, 24, rapid.ID).Draw(rt, "devices") {
			node := fmt.Sprintf("node-%d", n/4)
			a := budget.AskTurn{Device: fmt.Sprintf("d/%s/gpu-%d", node, n), Epoch: 1, Token: int64(rapid.IntRange(1, 5).Draw(rt, "token")), Scopes: []budget.Scope{
				{Kind: budget.Class, Name: []string{"a", "b"}[n%2]}, {Kind: budget.Node, Name: node},
			}}
			all[a.Device], asks[a.Device] = a, start.Add(time.Duration(rapid.IntRange(0, 3600).Draw(rt, "asks"))*time.Second)
			dead[a.Device] = i > 0 && rapid.IntRange(0, 4).Draw(rt, "dies") == 0
		}
		end := start.Add(3*time.Hour + time.Duration(len(all))*(time.Duration(w.limits.Returns.Settle)*time.Second+20*time.Minute))
		for {
			var next []string
			for device, at := range asks {
				if len(next) == 0 || at.Before(asks[next[0]]) {
					next = []string{device}
				} else if at.Equal(asks[next[0]]) {
					next = append(next, device)
				}
			}
			if len(next) == 0 {
				break
			}
			slices.Sort(next)
			w.now = asks[next[0]]
			if w.now.After(end) {
				rt.Fatalf("these never come back: %v; %s", asks, toJSON(rt, w.book.Returns))
			}
			var ask []budget.AskTurn
			for _, device := range next {
				ask = append(ask, all[device])
			}
			out := w.decide(rt, budget.TurnsAsked{Asks: ask})
			for i, a := range out.Turns {
				switch device := ask[i].Device; {
				case a.Device != device || !a.Granted && (a.Why == "" || a.Again < time.Second || a.Again > 15*time.Minute):
					rt.Fatalf("asked %+v, answered %+v", ask[i], a)
				case a.Granted:
					w.comesFirst(rt, ask[i], all)
					delete(asks, device)
					back[device] = true
				case dead[device]:
					delete(asks, device)
				default:
					asks[device] = w.now.Add(a.Again + time.Duration(rapid.IntRange(0, 30).Draw(rt, "late"))*time.Second)
				}
			}
			w.checkReturns(rt)
			if len(w.book.Returns.Coming) > 0 && rapid.IntRange(0, 5).Draw(rt, "relapses") == 0 {
				c := rapid.SampledFrom(w.book.Returns.Coming).Draw(rt, "which")
				w.decide(rt, budget.Asked{Asks: []budget.Ask{{Device: c.Device, Epoch: c.Epoch + 1, Purpose: budget.Mark, Scopes: c.Scopes}}})
			}
		}
		for device := range all {
			if !dead[device] && !back[device] {
				rt.Fatalf("%s never came back", device)
			}
		}
	})
}

// comesFirst wants nobody older in line who is held in the same scopes. Who isn't held and
// doesn't ask has room kept.
func (w *world) comesFirst(rt *rapid.T, a budget.AskTurn, all map[string]budget.AskTurn) {
	for _, x := range w.book.Returns.Line {
		if x.For.Kind != "" && x.Token < a.Token && x.Scopes[0] == a.Scopes[0] && x.Scopes[1] == a.Scopes[1] {
			rt.Fatalf("%s comes back before %+v", a.Device, x)
		}
	}
}

func (w *world) checkReturns(rt *rapid.T) {
	scopes := []budget.Scope{budget.Everything, {Kind: budget.Class, Name: "a"}, {Kind: budget.Class, Name: "b"}}
	for n := range 6 {
		scopes = append(scopes, budget.Scope{Kind: budget.Node, Name: fmt.Sprintf("node-%d", n)})
	}
	for _, s := range scopes {
		if n, _ := w.limits.Returns.Of(s); w.book.Returns.Back(s) > n {
			rt.Fatalf("%d come back in %s, and %d may: %+v", w.book.Returns.Back(s), s, n, w.book.Returns.Coming)
		}
	}
	for _, c := range w.book.Returns.Coming {
		for _, other := range w.book.Returns.Coming {
			if !c.Relapsed.IsZero() && other.Scopes[0] == c.Scopes[0] && other.At.After(c.Relapsed) {
				rt.Fatalf("%s comes back after %s failed again", other.Device, c.Device)
			}
		}
		if slices.ContainsFunc(w.book.Returns.Line, func(x budget.InLine) bool { return x.Device == c.Device }) {
			rt.Fatalf("%s comes back and waits", c.Device)
		}
	}
}

// A thousand devices that wait fit into one payload many times over.
func TestALongLineStaysSmall(t *testing.T) {
	d := returning(t, 1, 4, 8)
	var asks []budget.AskTurn
	for n := range 1500 {
		asks = append(asks, turn(n))
	}
	d.turns(asks...)
	content, err := json.Marshal(d.book.Returns)
	if err != nil {
		t.Fatal(err)
	}
	if limit := 1 << 19; len(d.book.Returns.Line) != 1000 || len(content) > limit {
		t.Errorf("%d who wait take %d bytes, want 1000 and at most %d", len(d.book.Returns.Line), len(content), limit)
	}
}
