package directory

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

func key(t interface{ Fatal(...any) }, text string) device.Key {
	k, err := device.ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Other programs find a device by this rule, so it never changes.
func TestADeviceIsInTheShardThatOtherProgramsLookIn(t *testing.T) {
	for name, want := range map[string]string{
		"gpu.example.com/node-0/gpu-0":   "{sickbay-18}:device:gpu.example.com/node-0/gpu-0",
		"node-0|example.com/gpu|GPU-{a}": "{sickbay-17}:device:node-0|example.com/gpu|GPU-{a}",
	} {
		if got := (names{"sickbay"}).device(key(t, name)); got != want {
			t.Errorf("%s is at %s, want %s", name, got, want)
		}
	}
}

// A cluster takes what stands in the first braces for the slot; a script's keys
// have to share it.
func TestAllKeysOfAShardShareOneSlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := names{rapid.StringMatching(`[a-z][a-z0-9-]{0,10}`).Draw(t, "prefix")}
		k, err := device.NewPlugin("node-0", "example.com/gpu", rapid.StringN(1, 20, -1).Draw(t, "ID"))
		if err != nil {
			t.Fatal(err)
		}
		shard := ShardOf(k)
		value := rapid.String().Draw(t, "value")
		for _, name := range []string{
			n.meta(shard), n.devices(shard), n.transitions(shard), n.snapshot(shard), n.making(shard), n.cases(shard),
			n.device(k), n.index(shard, IndexNode, value),
		} {
			_, rest, _ := strings.Cut(name, "{")
			tag, _, _ := strings.Cut(rest, "}")
			if "{"+tag+"}:" != n.tag(shard) {
				t.Fatalf("%q hashes %q, want %q", name, tag, n.tag(shard))
			}
		}
		if strings.Contains(n.index(shard, IndexNode, value), "\n") {
			t.Fatal("the name of an index set has a line break, by which the entry separates them")
		}
	})
}

func TestTheRecordOfACaseSaysWhatTheCaseIs(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	k := key(t, "gpu.example.com/node-0/gpu-0")
	c := quarantine.Case{
		Device: k, Node: "node-0", Phase: quarantine.PhaseQuarantined, Waiting: quarantine.WaitingForHolder, Epoch: 7, Attempt: 2,
		Reason:  reason.Match{Code: "XidFallenOffBus", Severity: reason.SeverityFatal, Closes: reason.ClosesByRepair},
		Message: "XID 79", Severity: reason.SeverityFatal, Actor: "sickbay", Since: now.Add(-time.Hour),
		Reports:    []device.Report{{Pod: device.PodRef{UID: "a"}, Health: device.Unhealthy}},
		Mark:       quarantine.Mark{State: quarantine.MarkInForce, Name: "sickbay-x"},
		LeaseUntil: now.Add(time.Hour), LookAt: now.Add(time.Minute),
	}
	record := CaseOf(c, "device/x", now)
	if record.Epoch != 7 || record.Attempt != 2 || record.Reason != "XidFallenOffBus" || record.Closes != reason.ClosesByRepair ||
		record.Mark.State != quarantine.MarkInForce || record.Evidence != device.Unhealthy || record.Source != SourceWorkflow ||
		!record.Next.Equal(now.Add(time.Minute)) {
		t.Errorf("record %+v", record)
	}
	var back Case
	if err := json.Unmarshal([]byte(encode(record)), &back); err != nil || !reflect.DeepEqual(&back, record) {
		t.Errorf("reads back as %+v, error %v; want %+v", back, err, record)
	}
	if got := record.indexes(); !slices.Equal(got, []string{"by:phase:Quarantined", "by:reason:XidFallenOffBus", "cases"}) {
		t.Errorf("indexed as %v", got)
	}
	if CaseOf(quarantine.Case{Device: k}, "", now) != nil {
		t.Error("a device without a case has a record of one")
	}
}

func TestOfAMarkWithoutACaseTheRecordSaysWhereItComesFrom(t *testing.T) {
	since := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	record := CaseOfMark(key(t, "gpu.example.com/node-0/gpu-0"), "node-0", quarantine.MarkFound{
		Name: "sickbay-x", Epoch: 7, Severity: reason.SeverityMajor, Reason: "XidEcc", Since: since.UnixMilli(),
	})
	if record.Source != SourceMark || record.Phase != quarantine.PhaseQuarantined || record.Epoch != 7 || !record.Since.Equal(since) ||
		record.Mark.State != quarantine.MarkInForce || record.Waiting != "" {
		t.Errorf("record %+v", record)
	}
}

func TestWhatIsSeenIsTheWorstThatLivePodsReport(t *testing.T) {
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	pod := func(name string) device.PodRef {
		return device.PodRef{Namespace: "default", Name: name, UID: name + "-uid"}
	}
	var s Seen
	s.Observe([]device.Report{
		{Pod: pod("a"), Health: device.Healthy, Version: "1", Observed: at},
		{Pod: pod("b"), Health: device.Unknown, Message: "silent", Version: "5", Observed: at.Add(time.Minute)},
		{Pod: pod("c"), Health: device.Unhealthy, Message: "XID 79", Version: "9", Observed: at, Ended: true},
	})
	if s.Health != device.Unknown || s.Message != "silent" || s.Pod != "default/b" || s.Version != "5" || !s.Observed.Equal(at.Add(time.Minute)) {
		t.Errorf("seen %+v; want what the live Pod b says", s)
	}
	s = Seen{}
	s.Observe([]device.Report{{Pod: pod("c"), Health: device.Unhealthy, Ended: true}})
	if s.Health != "" || s.Pod != "" {
		t.Errorf("seen %+v of a device that nobody reports on", s)
	}
	for _, name := range []string{"b", "a", "c", "a"} {
		s.Hold(Holder{Pod: pod(name)})
	}
	if len(s.Holders) != 3 || s.Holders[0].Pod.Name != "a" || s.Holders[2].Pod.Name != "c" {
		t.Errorf("holders %+v, want a, b and c once each", s.Holders)
	}
}

func TestOnlyWhatIsSaidIsCompared(t *testing.T) {
	k := key(t, "gpu.example.com/node-0/gpu-0")
	base := Seen{Device: k, Node: "node-0", Listed: true, Health: device.Unhealthy, Message: "XID 79", Pod: "default/a", Version: "5", Observed: time.Unix(1, 0)}
	other := func(change func(*Seen)) string {
		s := base
		change(&s)
		return encode(s)
	}
	for name, tc := range map[string]struct {
		with string
		want bool
	}{
		"itself":                               {encode(base), true},
		"when it was first seen":               {other(func(s *Seen) { s.Observed, s.Version, s.Pod = time.Unix(2, 0), "6", "default/b" }), true},
		"another health":                       {other(func(s *Seen) { s.Health = device.Unknown }), false},
		"another message":                      {other(func(s *Seen) { s.Message = "XID 48" }), false},
		"a holder":                             {other(func(s *Seen) { s.Hold(Holder{}) }), false},
		"nothing":                              {"", false},
		"what another version wrote":           {`{"health":7}`, false},
		"a field that this version lacks":      {strings.Replace(encode(base), "{", `{"later":1,`, 1), true},
		"the value that can't be believed now": {other(func(s *Seen) { s.Stale = device.NodeSilent }), false},
	} {
		if got := same(FieldSeen, encode(base), tc.with); got != tc.want {
			t.Errorf("%s: the same %t, want %t", name, got, tc.want)
		}
	}
}

func TestIDsOfAStreamAreOrderedByNumber(t *testing.T) {
	for _, tc := range [][2]string{{"0-0", "1-0"}, {"9-5", "10-0"}, {"10-9", "10-10"}} {
		if !before(tc[0], tc[1]) || before(tc[1], tc[0]) || before(tc[0], tc[0]) {
			t.Errorf("%s isn't before %s", tc[0], tc[1])
		}
	}
}
