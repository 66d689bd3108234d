package show

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

func trailDecisions() []listing.Decision {
	key, _ := device.NewDRA("gpu.example.com", "node-0", "gpu-0")
	at := time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC)
	decision := func(n quarantine.Notice) listing.Decision {
		return listing.Decision{Name: key.String(), Decision: directory.Decision{Device: key, Node: "node-0", Notice: n}}
	}
	return []listing.Decision{
		decision(quarantine.Notice{Seq: 1, At: at, Kind: quarantine.NoticeOpened, Alert: true, Epoch: 9, Phase: quarantine.PhaseQuarantined, Reason: "XidFallenOffBus", Severity: "fatal", Actor: "sickbay", Seen: "train-0\x1b[31m", Text: "case opened"}),
		decision(quarantine.Notice{Seq: 2, At: at.Add(time.Second), Kind: quarantine.NoticeMessage, Epoch: 9, Phase: quarantine.PhaseQuarantined, Actor: "oncall@example.com", Seen: "extend: a spare", Text: "lease extended"}),
	}
}

func TestATrailShowsWhoSawAndDecidedWhat(t *testing.T) {
	trail := listing.Trail{Decisions: trailDecisions()}
	var out strings.Builder
	if err := PrintTrail(&out, trail, Table, true); err != nil {
		t.Fatal(err)
	}
	want := bold + "TIME (UTC)           DEVICE                        DECISION         BY                  SEEN             WHAT" + reset + "\n" +
		yellow + "2026-11-30 01:02:03  gpu.example.com/node-0/gpu-0  CaseOpened       sickbay             train-0 [31m     case opened" + reset + "\n" +
		"2026-11-30 01:02:04  gpu.example.com/node-0/gpu-0  OperatorMessage  oncall@example.com  extend: a spare  lease extended\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	out.Reset()
	if err := PrintTrail(&out, listing.Trail{Since: time.Unix(0, 0)}, Table, false); err != nil || out.String() != "Nothing was decided since 1970-01-01 00:00:00 UTC.\n" {
		t.Errorf("an empty trail says %q, %v", out.String(), err)
	}
	out.Reset()
	if err := PrintTrail(&out, trail, Name, false); err != nil || out.String() != "gpu.example.com/node-0/gpu-0\n" {
		t.Errorf("names are %q, %v; want the device once", out.String(), err)
	}
	out.Reset()
	if err := PrintTrail(&out, trail, JSON, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"kind": "OperatorMessage"`, `"actor": "oncall@example.com"`, `"node": "node-0"`, `"name": "gpu.example.com/node-0/gpu-0"`, `"seq": 2`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the JSON lacks %s:\n%s", want, out.String())
		}
	}
}

func TestAFollowedTrailGoesOnBelowItsHeader(t *testing.T) {
	all := trailDecisions()
	var once, followed strings.Builder
	if err := PrintTrail(&once, listing.Trail{Decisions: all}, Wide, false); err != nil {
		t.Fatal(err)
	}
	table := NewTrailWriter(&followed, Wide, false)
	for i := range 3 {
		if err := table.Write(all[min(i, 2):min(i+1, 2)]); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(followed.String(), "TIME (UTC)"); got != 1 || strings.Count(followed.String(), "\n") != 3 {
		t.Errorf("%d headers in\n%s", got, followed.String())
	}
	if a, b := strings.Fields(once.String()), strings.Fields(followed.String()); strings.Join(a, " ") != strings.Join(b, " ") {
		t.Errorf("followed:\n%sat once:\n%s", followed.String(), once.String())
	}
	var lines strings.Builder
	if err := NewTrailWriter(&lines, JSON, false).Write(all); err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(lines.String()), "\n") {
		var d listing.Decision
		if err := json.Unmarshal([]byte(line), &d); err != nil || d != all[i] {
			t.Errorf("line %d reads as %+v, %v", i, d, err)
		}
	}
}
