package device_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// epoch is the time at which the tests' stories begin.
var epoch = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func after(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

// report makes a report of the Pod with that UID.
func report(uid string, version device.Version, health device.Health, message string) device.Report {
	return device.Report{Pod: device.PodRef{Namespace: "n", Name: uid, UID: uid}, Version: version, Health: health, Message: message, Observed: epoch}
}

func ended(r device.Report) device.Report { r.Ended = true; return r }

func monitor(r device.Report) device.Report { r.Monitor = true; return r }

// O5. One device, several holders: the worst health and all its messages count,
// all holders are known, and what the dead ones said is kept.
func TestSeveralHoldersGiveOneEvidence(t *testing.T) {
	const healthy, unknown, unhealthy = device.Healthy, device.Unknown, device.Unhealthy
	tests := map[string]struct {
		reports []device.Report
		value   device.Health
		message string
		held    bool
		live    bool
	}{
		"nobody ever had it": {nil, "", "", false, false},
		"one holder":         {[]device.Report{report("a", "1", healthy, "")}, healthy, "", true, true},
		"the worst of two holders counts, whichever reported first": {
			[]device.Report{report("a", "9", healthy, "fine"), report("b", "1", unhealthy, "xid 79")}, unhealthy, "xid 79", true, true},
		"Unknown is worse than Healthy": {
			[]device.Report{report("a", "9", unknown, "probe timeout"), report("b", "1", healthy, "fine")}, unknown, "probe timeout", true, true},
		"a milder message of one Pod doesn't hide the graver one of another": {
			[]device.Report{report("a", "1", unhealthy, "xid 31"), report("b", "1", unhealthy, "xid 79")}, unhealthy, "xid 31; xid 79", true, true},
		"the same message twice is said once": {
			[]device.Report{report("a", "1", unhealthy, "xid 79"), report("b", "2", unhealthy, "xid 79")}, unhealthy, "xid 79", true, true},
		"the fault outlives its only Pod": {
			[]device.Report{ended(report("a", "1", unhealthy, "xid 79"))}, unhealthy, "xid 79", false, false},
		"the worst of all dead Pods stands": {
			[]device.Report{ended(report("a", "1", healthy, "")), ended(report("b", "1", unhealthy, "ecc"))}, unhealthy, "ecc", false, false},
		"live Pods decide over dead ones": {
			[]device.Report{ended(report("a", "1", unhealthy, "xid 79")), report("b", "5", healthy, "")}, healthy, "", true, true},
		"a monitor's reading is evidence, and it holds nothing": {
			[]device.Report{monitor(report("w", "1", unhealthy, "ecc"))}, unhealthy, "ecc", false, true},
		"a tenant beside a monitor holds": {
			[]device.Report{monitor(report("w", "1", unhealthy, "ecc")), report("t", "1", healthy, "")}, unhealthy, "ecc", true, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := device.Fuse(test.reports)
			if e.Value != test.value || e.Message != test.message || e.Held != test.held || e.Live() != test.live {
				t.Errorf("got %s %q held=%t live=%t, want %s %q held=%t live=%t", e.Value, e.Message, e.Held, e.Live(), test.value, test.message, test.held, test.live)
			}
			if len(e.Reports) != len(test.reports) {
				t.Errorf("%d of %d holders are known", len(e.Reports), len(test.reports))
			}
		})
	}
}

// O3. What the watch and live reads may change of what is known.
func TestWorseIsBelievedAtOnceAndBetterOnlyFromALiveRead(t *testing.T) {
	const healthy, unknown, unhealthy = device.Healthy, device.Unknown, device.Unhealthy
	relisted := func(r device.Report) device.Report { r.Relisted = true; return r }
	known := []device.Report{report("a", "10", unhealthy, "xid 79"), report("b", "10", healthy, "")}
	tests := map[string]struct {
		known   []device.Report
		offered device.Report
		live    bool
		belief  device.Belief
		value   device.Health
	}{
		"the first reading is believed":                     {nil, report("a", "1", healthy, ""), false, device.Believed, healthy},
		"the same again changes nothing":                    {known, report("a", "10", unhealthy, "xid 79"), false, device.Repeated, unhealthy},
		"the same at a later version changes nothing":       {known, report("a", "12", unhealthy, "xid 79"), false, device.Repeated, unhealthy},
		"the same from a live read changes nothing":         {known, report("a", "12", unhealthy, "xid 79"), true, device.Repeated, unhealthy},
		"worse is believed from the watch":                  {known, report("b", "11", unhealthy, "xid 48"), false, device.Believed, unhealthy},
		"another message is believed from the watch":        {known, report("a", "11", unhealthy, "xid 48"), false, device.Believed, unhealthy},
		"another holder is believed from the watch":         {known, report("c", "3", healthy, ""), false, device.Believed, unhealthy},
		"better is doubted from the watch":                  {known, report("a", "11", healthy, ""), false, device.Doubted, unhealthy},
		"Unknown after Unhealthy is doubted from the watch": {known, report("a", "11", unknown, ""), false, device.Doubted, unhealthy},
		"better is believed from a live read":               {known, report("a", "11", healthy, ""), true, device.Believed, healthy},
		"older worse news is late":                          {known, report("b", "9", unhealthy, "xid 48"), false, device.Repeated, unhealthy},
		"older better news is late":                         {known, report("a", "9", healthy, ""), false, device.Repeated, unhealthy},
		"a live read counts even at a lower version":        {known, report("a", "2", healthy, ""), true, device.Believed, healthy},
		"a relist may bring worse news at a lower version":  {known, relisted(report("b", "2", unhealthy, "xid 48")), false, device.Believed, unhealthy},
		"a relist doesn't make better news true":            {known, relisted(report("a", "2", healthy, "")), false, device.Doubted, unhealthy},
		"better for one holder is doubted though another is bad": {
			[]device.Report{report("a", "10", unhealthy, ""), report("b", "10", unhealthy, "")}, report("a", "11", healthy, ""), false, device.Doubted, unhealthy},
		"the last bad holder's end doesn't lift the fault by itself": {known, ended(report("a", "11", unhealthy, "xid 79")), false, device.Doubted, unhealthy},
		"its end counts once it was looked at":                       {known, ended(report("a", "11", unhealthy, "xid 79")), true, device.Believed, healthy},
		"an only holder's end leaves its fault as history": {
			[]device.Report{report("a", "10", unhealthy, "xid 79")}, ended(report("a", "11", unhealthy, "xid 79")), false, device.Believed, unhealthy},
		"a new Pod's Healthy doesn't wipe out history": {
			[]device.Report{ended(report("a", "10", unhealthy, "xid 79"))}, report("b", "11", healthy, ""), false, device.Doubted, unhealthy},
		"a new Pod's Healthy counts once it was looked at": {
			[]device.Report{ended(report("a", "10", unhealthy, "xid 79"))}, report("b", "11", healthy, ""), true, device.Believed, healthy},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(test.known)
			got, belief := device.Believe(test.known, test.offered, test.live)
			if belief != test.belief || device.Fuse(got).Value != test.value {
				t.Errorf("belief %d, value %s, want %d, %s", belief, device.Fuse(got).Value, test.belief, test.value)
			}
			if belief != device.Believed && !slices.Equal(got, before) || !slices.Equal(test.known, before) {
				t.Errorf("what was known changed: %v", got)
			}
		})
	}
}

// readings draws reports of a few Pods.
func readings() *rapid.Generator[device.Report] {
	return rapid.Custom(func(t *rapid.T) device.Report {
		r := report(
			rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "pod"),
			device.Version(fmt.Sprint(rapid.IntRange(1, 30).Draw(t, "version"))),
			rapid.SampledFrom([]device.Health{device.Healthy, device.Unknown, device.Unhealthy}).Draw(t, "health"),
			rapid.SampledFrom([]string{"", "xid 31", "xid 79"}).Draw(t, "message"))
		r.Ended = rapid.IntRange(0, 4).Draw(t, "ended") == 0
		r.Monitor = rapid.IntRange(0, 4).Draw(t, "monitor") == 0
		return r
	})
}

// O3. Property: reports that come from a watch, shuffled and doubled, never make
// the believed value better; and once each Pod was read live, the same is known
// whatever came before, in whatever order.
func TestShuffledAndDoubledReportsConvergeOnceEachPodIsReadLive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		watched := rapid.SliceOfN(readings(), 0, 12).Draw(t, "watched")
		var final []device.Report
		for _, uid := range []string{"a", "b", "c"} {
			r := readings().Draw(t, "final "+uid)
			r.Pod = report(uid, "", "", "").Pod
			final = append(final, r)
		}
		play := func(seen []device.Report) []device.Report {
			var known []device.Report
			for _, r := range seen {
				before := device.Fuse(known).Value
				next, belief := device.Believe(known, r, false)
				if before.WorseThan(device.Fuse(next).Value) {
					t.Fatalf("%+v from the watch made %s better", r, before)
				}
				if belief == device.Believed && len(next) == len(known) && slices.Equal(next, known) {
					t.Fatalf("%+v was believed and changed nothing", r)
				}
				if again, belief := device.Believe(next, r, false); belief == device.Believed || !slices.Equal(again, next) {
					t.Fatalf("%+v counted twice", r)
				}
				known = next
			}
			for _, r := range rapid.Permutation(final).Draw(t, "order of the live reads") {
				known, _ = device.Believe(known, r, true)
			}
			return device.Fuse(known).Reports
		}
		doubled := slices.Concat(watched, rapid.SliceOfN(rapid.SampledFrom(append(watched, final...)), 0, 6).Draw(t, "doubled"))
		one, two := play(watched), play(rapid.Permutation(doubled).Draw(t, "shuffled"))
		if len(one) != len(two) {
			t.Fatalf("%v\nshuffled %v", one, two)
		}
		for i := range one {
			if one[i].Pod != two[i].Pod || !one[i].Says(two[i]) {
				t.Fatalf("%+v\nshuffled %+v", one[i], two[i])
			}
		}
	})
}

// O3. Property: readings older than what is known of their Pod never win.
func TestAnOlderReadingNeverWins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		known := []device.Report{readings().Draw(t, "known")}
		offered := readings().Draw(t, "offered")
		offered.Pod = known[0].Pod
		next, _ := device.Believe(known, offered, false)
		if known[0].Version.Newer(offered.Version) && !slices.Equal(next, known) {
			t.Fatalf("%+v replaced the newer %+v", offered, known[0])
		}
	})
}

// O5. Property: the order in which holders are listed changes nothing, and the
// value is the worst of those that count.
func TestTheOrderOfHoldersChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var reports []device.Report
		for _, uid := range []string{"a", "b", "c", "d"}[:rapid.IntRange(0, 4).Draw(t, "holders")] {
			r := readings().Draw(t, uid)
			r.Pod = report(uid, "", "", "").Pod
			reports = append(reports, r)
		}
		e, again := device.Fuse(reports), device.Fuse(rapid.Permutation(reports).Draw(t, "shuffled"))
		if e.Value != again.Value || e.Message != again.Message || e.Held != again.Held || !slices.Equal(e.Reports, again.Reports) {
			t.Fatalf("%+v\nshuffled %+v", e, again)
		}
		var worst device.Health
		for _, r := range reports {
			if !e.Live() || !r.Ended {
				worst = device.Worst(worst, r.Health)
			}
		}
		if e.Value != worst {
			t.Fatalf("the value is %s, the worst that counts %s", e.Value, worst)
		}
	})
}

// O1, O5. All containers of a Pod together give one report per device.
func TestAPodsContainersGiveOneReportPerDevice(t *testing.T) {
	gpu := plugin(t, "anvil-07", "example.com/gpu", "GPU-1")
	other := dra(t, "gpu.example.com/anvil-07/gpu-3")
	seen := func(k device.Key, container string, health device.Health, message string) device.Observation {
		return device.Observation{Device: k, Node: "anvil-07", Pod: device.PodRef{Namespace: "n", Name: "p", UID: "u"}, Container: container, Health: health, Message: message, ResourceVersion: "7"}
	}
	admin := func(o device.Observation) device.Observation { o.Monitor, o.Claim = true, "admin"; return o }
	frozen := func(o device.Observation) device.Observation { o.Frozen = true; return o }
	tests := map[string]struct {
		seen []device.Observation
		want []string
	}{
		"the worst container counts, with its message": {
			[]device.Observation{seen(gpu, "a", device.Healthy, "fine"), seen(gpu, "b", device.Unhealthy, "xid 79"), seen(gpu, "c", device.Unknown, "late")},
			[]string{"anvil-07|example.com/gpu|GPU-1 b Unhealthy xid 79 monitor=false"}},
		"different messages of one health are all kept, each once": {
			[]device.Observation{seen(gpu, "a", device.Unhealthy, "xid 48"), seen(gpu, "b", device.Unhealthy, "xid 31"), seen(gpu, "c", device.Unhealthy, "xid 48")},
			[]string{"anvil-07|example.com/gpu|GPU-1 a Unhealthy xid 31; xid 48 monitor=false"}},
		"two devices give two reports": {
			[]device.Observation{seen(gpu, "a", device.Healthy, ""), seen(other, "a", device.Unhealthy, "ecc")},
			[]string{"anvil-07|example.com/gpu|GPU-1 a Healthy  monitor=false", "gpu.example.com/anvil-07/gpu-3 a Unhealthy ecc monitor=false"}},
		"a frozen entry says nothing of now": {
			[]device.Observation{frozen(seen(gpu, "a", device.Unhealthy, "")), seen(gpu, "b", device.Healthy, "")},
			[]string{"anvil-07|example.com/gpu|GPU-1 b Healthy  monitor=false"}},
		"only frozen entries give no report": {
			[]device.Observation{frozen(seen(gpu, "a", device.Unhealthy, ""))}, nil},
		"an admin claim alone makes a monitor": {
			[]device.Observation{admin(seen(gpu, "a", device.Unhealthy, ""))},
			[]string{"anvil-07|example.com/gpu|GPU-1 a Unhealthy  monitor=true"}},
		"an ordinary claim beside it makes a holder, whichever is worse": {
			[]device.Observation{admin(seen(gpu, "b", device.Unhealthy, "ecc")), seen(gpu, "a", device.Healthy, "")},
			[]string{"anvil-07|example.com/gpu|GPU-1 b Unhealthy ecc monitor=false"}},
		"nothing seen": {nil, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, d := range device.Digest(test.seen, epoch) {
				r := d.Report
				got = append(got, fmt.Sprintf("%s %s %s %s monitor=%t", d.Device, r.Container, r.Health, r.Message, r.Monitor))
				if r.Version != "7" || r.Observed != epoch || r.Node != "anvil-07" || r.Pod.UID != "u" {
					t.Errorf("the report lost where it is from: %+v", r)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// O3. The status version and the time stay those at which a reading was first
// seen, however often the Pod is written for other reasons.
func TestTheStatusVersionStaysWhereTheReadingWasFirstSeen(t *testing.T) {
	first := report("a", "10", device.Unhealthy, "xid 79")
	read := report("a", "99", device.Unhealthy, "xid 79")
	read.Observed = after(60)
	if got := device.Keep(first, read); got != first {
		t.Errorf("an unrelated write moved it to %+v", got)
	}
	for name, changed := range map[string]device.Report{
		"another health":            report("a", "99", device.Unknown, "xid 79"),
		"another message":           report("a", "99", device.Unhealthy, "xid 48"),
		"the Pod's end":             ended(report("a", "99", device.Unhealthy, "xid 79")),
		"a new Pod of that name":    {Pod: device.PodRef{Namespace: "n", Name: "a", UID: "z"}, Version: "99", Health: device.Unhealthy, Message: "xid 79"},
		"what the catalogue says":   {Pod: first.Pod, Version: "99", Health: device.Unhealthy, Message: "xid 79", Fault: true},
		"a lower version, relisted": report("a", "5", device.Healthy, ""),
	} {
		if got := device.Keep(first, changed); got != changed {
			t.Errorf("%s is no news: %+v", name, got)
		}
	}
}

// A late message about a Pod that a live read found gone doesn't bring the Pod
// back as a holder. Proves O3 and O5 as far as late reports of ended Pods go.
func TestAPodThatIsGoneDoesNotComeBack(t *testing.T) {
	alive := device.Report{Pod: device.PodRef{Namespace: "team-kestrel", Name: "train-0", UID: "u1"}, Health: device.Unhealthy, Version: "41"}
	ended := alive
	ended.Ended = true
	known, belief := device.Believe([]device.Report{alive}, ended, true)
	if belief != device.Believed {
		t.Fatalf("the end: %v, want it believed", belief)
	}
	known, belief = device.Believe(known, alive, false)
	if belief != device.Repeated || !known[0].Ended {
		t.Errorf("the late report: %v, ended %v; want it to change nothing", belief, known[0].Ended)
	}
}
