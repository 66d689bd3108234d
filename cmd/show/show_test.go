package show

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

var now = time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)

func sample() listing.Listing {
	since := now.Add(-90 * time.Second)
	return listing.Listing{
		At: now,
		Devices: []listing.Device{
			{
				Name: "gpu.example.com/node-1/gpu-0", Node: "node-1", Listed: true,
				Health: device.Unhealthy, Message: "Xid 79\n\x1b[2Jgone",
				Phase: quarantine.PhaseQuarantined, Waiting: quarantine.WaitingForHolder, Reason: "XidFallenOffTheBus",
				Severity: "fatal", Epoch: since.UnixMilli(), Since: &since, Source: listing.SourceCase, Workflow: "device/gpu.example.com/node-1/gpu-0",
				Mark: &listing.Mark{State: "InForce", Name: "sickbay-node-1-gpu-0"},
				Holders: []listing.Holder{
					{Namespace: "a", Name: "one"}, {Namespace: "a", Name: "two"}, {Namespace: "b", Name: "three"},
				},
			},
			{Name: "gpu.example.com/node-1/gpu-1", Node: "node-1", Listed: true},
			{Name: "gpu.example.com/node-1/gpu-2", Node: "node-1", Phase: quarantine.PhaseQuarantined, Source: listing.SourceMark},
		},
		Unmapped: []device.Unmapped{{
			Node: "node-1", Pod: device.PodRef{Namespace: "a", Name: "one"}, Container: "main", Entry: "claim:gpus",
			ID: "k8s.gpu.example.com/claim=x", Health: device.Unhealthy, Reason: device.SeveralDevices,
		}},
		Problems: []string{"Temporal is away"},
	}
}

func TestTheTableSaysOnEachLineWhatIsKnownOfADevice(t *testing.T) {
	var out strings.Builder
	if err := Print(&out, sample(), Table, false); err != nil {
		t.Fatal(err)
	}
	want := `DEVICE                        NODE    HEALTH     PHASE        WAITING  REASON              MARK     HOLDERS         SINCE
gpu.example.com/node-1/gpu-0  node-1  Unhealthy  Quarantined  Holder   XidFallenOffTheBus  InForce  a/one,a/two,+1  90s
gpu.example.com/node-1/gpu-1  node-1  NotSeen    -            -        -                   -        -               -
gpu.example.com/node-1/gpu-2  node-1  NotListed  Quarantined  ?        -                   -        -               -

3 devices: 2 Quarantined, 1 without a case
1 unmapped fault: health entries that lead to no one device; --unmapped lists them
`
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
}

func TestUnmappedFaultsHaveAListingOfTheirOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		format Format
		none   bool
		want   string
	}{
		"as a table": {Table, false, `1 health entry that isn't Healthy leads to no one device:

POD    CONTAINER  NODE    ENTRY       ID                           HEALTH     WHY             CANDIDATES
a/one  main       node-1  claim:gpus  k8s.gpu.example.com/claim=x  Unhealthy  SeveralDevices  -
`},
		"by the names of their Pods": {Name, false, "a/one\n"},
		"none":                       {Table, true, "No unmapped faults: every health entry that isn't Healthy leads to one device.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			l := sample()
			if tc.none {
				l.Unmapped = nil
			}
			var out strings.Builder
			if err := PrintUnmapped(&out, l, tc.format, false); err != nil {
				t.Fatal(err)
			}
			if out.String() != tc.want {
				t.Errorf("printed\n%s\nwant\n%s", out.String(), tc.want)
			}
		})
	}
}

func TestCountsSayHowManyDevicesStandWhere(t *testing.T) {
	var table, machine strings.Builder
	if err := PrintCounts(&table, sample(), Table, false); err != nil {
		t.Fatal(err)
	}
	want := `PHASE        DEVICES
Quarantined  2
None         1

3 devices, 2 faulty; 1 unmapped fault
`
	if table.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", table.String(), want)
	}
	if err := PrintCounts(&machine, sample(), JSON, false); err != nil {
		t.Fatal(err)
	}
	var counts listing.Counts
	if err := json.Unmarshal([]byte(machine.String()), &counts); err != nil || counts.Devices != 3 || counts.Faulty != 2 || len(counts.Phases) != 2 {
		t.Errorf("as JSON %+v, %v", counts, err)
	}
}

func TestADriversTextCannotDriveTheTerminal(t *testing.T) {
	var out strings.Builder
	if err := Print(&out, sample(), Wide, false); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsRune(out.String(), '\x1b') {
		t.Error("an escape sequence of the driver's message reaches the terminal")
	}
	if !strings.Contains(out.String(), "Xid 79  [2Jgone") || !strings.Contains(out.String(), "a/one,a/two,b/three") {
		t.Errorf("the wide table lacks the message or a holder:\n%s", out.String())
	}
}

func TestColourMarksWholeLinesAndOnlyWhereAsked(t *testing.T) {
	var plain, coloured strings.Builder
	if err := Print(&plain, sample(), Table, false); err != nil {
		t.Fatal(err)
	}
	if err := Print(&coloured, sample(), Table, true); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plain.String(), "\x1b") {
		t.Error("colour where none was asked for")
	}
	if !strings.Contains(coloured.String(), red+"gpu.example.com/node-1/gpu-0") || strings.Contains(coloured.String(), red+"gpu.example.com/node-1/gpu-1") {
		t.Errorf("want the quarantined device red and the free one not:\n%q", coloured.String())
	}
	stripped := coloured.String()
	for _, code := range []string{bold, red, yellow, grey, reset} {
		stripped = strings.ReplaceAll(stripped, code, "")
	}
	if stripped != plain.String() {
		t.Error("colour moves the columns")
	}
}

func TestMachinesGetEverythingInJSONAndYAML(t *testing.T) {
	var fromJSON, fromYAML listing.Listing
	var out strings.Builder
	if err := Print(&out, sample(), JSON, true); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out.String()), &fromJSON); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := Print(&out, sample(), YAML, true); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(out.String()), &fromYAML); err != nil {
		t.Fatal(err)
	}
	for form, read := range map[string]listing.Listing{"JSON": fromJSON, "YAML": fromYAML} {
		if len(read.Devices) != 3 || read.Devices[0].Message != sample().Devices[0].Message || !read.Devices[0].Since.Equal(*sample().Devices[0].Since) || len(read.Unmapped) != 1 || len(read.Problems) != 1 {
			t.Errorf("%s lost something: %+v", form, read)
		}
	}
}

func TestNamesAloneCanBePiped(t *testing.T) {
	var out strings.Builder
	if err := Print(&out, sample(), Name, false); err != nil {
		t.Fatal(err)
	}
	if want := "gpu.example.com/node-1/gpu-0\ngpu.example.com/node-1/gpu-1\ngpu.example.com/node-1/gpu-2\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

func TestATerminalIsNeverWrittenBeyondItsEdges(t *testing.T) {
	var out strings.Builder
	screen := NewScreen(&out, Table, true, func() (int, int, error) { return 20, 5, nil })
	if err := screen.Show(sample(), "a heading that is longer than the terminal is wide"); err != nil {
		t.Fatal(err)
	}
	all := strings.Split(strings.TrimSuffix(out.String(), "\x1b[J"), "\r\n")
	if got := len(all) - 1; got != 4 {
		t.Errorf("%d lines on a terminal of 5, want 4 and the cursor's:\n%q", got, out.String())
	}
	for _, line := range all {
		text := line
		for _, code := range []string{"\x1b[H", "\x1b[K", bold, red, yellow, grey, reset} {
			text = strings.ReplaceAll(text, code, "")
		}
		if len([]rune(text)) > 20 {
			t.Errorf("line of %d characters on a terminal of 20: %q", len([]rune(text)), text)
		}
	}
	if !strings.Contains(out.String(), "more lines") {
		t.Error("nothing says that lines are missing")
	}
}

func TestTheCountsStayOnASmallScreen(t *testing.T) {
	var out strings.Builder
	screen := NewScreen(&out, Table, false, func() (int, int, error) { return 200, 8, nil })
	l := sample()
	for range 20 {
		l.Devices = append(l.Devices, l.Devices[1])
	}
	l.Problems = nil
	if err := screen.Show(l); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"… 21 more lines", "23 devices: 2 Quarantined, 21 without a case", "1 unmapped fault"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("a screen of 8 lines doesn't show %q:\n%q", want, out.String())
		}
	}
	if got := strings.Count(out.String(), "\r\n"); got != 7 {
		t.Errorf("%d lines on a screen of 8, want 7 and the cursor's", got)
	}
}

func TestAPipeGetsEachStateOnce(t *testing.T) {
	var out strings.Builder
	screen := NewScreen(&out, Table, false, nil)
	l := sample()
	for range 3 {
		l.At = l.At.Add(time.Second)
		if err := screen.Show(l); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(out.String(), "DEVICE "); got != 1 {
		t.Errorf("the same state printed %d times, want once", got)
	}
	l.Devices[1].Health = device.Healthy
	if err := screen.Show(l); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "DEVICE "); got != 2 {
		t.Errorf("after a change printed %d times, want twice", got)
	}
	if !strings.Contains(out.String(), "! Temporal is away") {
		t.Error("the problem isn't shown")
	}
}

func TestAFormatThatThereIsNot(t *testing.T) {
	if _, err := ParseFormat("xml"); err == nil || err.Error() != `output "xml": want table, wide, json, yaml, name` {
		t.Errorf("error %v, want one that names the formats", err)
	}
}

// O6: why the devices of a dead node are Unknown shows without a look at any of them.
// O4: how old evidence may be stands beside it, and never for it.
func TestTheTableNamesTheNodesThatAreOutAndHowOldEvidenceMayBe(t *testing.T) {
	at := func(before time.Duration) *listing.Age {
		confirmed := now.Add(-before)
		return &listing.Age{Confirmed: &confirmed, Lag: "2m0s"}
	}
	l := listing.Listing{At: now, Devices: []listing.Device{
		{Name: "a", Node: "node-1", Listed: true, Health: device.Unknown, Stale: device.NodeSilent, NodeOut: device.NodeSilent, Age: at(5 * time.Minute)},
		{Name: "b", Node: "node-1", Listed: true, NodeOut: device.NodeSilent},
		{Name: "c", Node: "node-2", Listed: true, Health: device.Healthy, Age: at(55 * time.Second)},
		{Name: "d", Node: "node-2", Listed: true, Health: device.Unknown, Stale: device.PluginAbsent, Age: &listing.Age{Lag: listing.Unbounded}},
	}}
	for format, want := range map[Format]string{
		Table: `DEVICE  NODE    HEALTH   PHASE  WAITING  REASON        MARK  HOLDERS  SINCE
a       node-1  Unknown  -      -        NodeSilent    -     -        -
b       node-1  NotSeen  -      -        NodeSilent    -     -        -
c       node-2  Healthy  -      -        -             -     -        -
d       node-2  Unknown  -      -        PluginAbsent  -     -        -

4 devices: 4 without a case
1 node is out: node-1 (NodeSilent, 2 devices); nothing is concluded about devices there until it is back
`,
		Wide: `DEVICE  NODE    HEALTH   PHASE  WAITING  REASON        MARK  HOLDERS  SINCE  CLASS  SEVERITY  EPOCH  ATTEMPT  SOURCE  WORKFLOW  CONFIRMED  LAG        MESSAGE
a       node-1  Unknown  -      -        NodeSilent    -     -        -      -      -         -      -        -       -         ≤5m        2m0s       -
b       node-1  NotSeen  -      -        NodeSilent    -     -        -      -      -         -      -        -       -         -          -          -
c       node-2  Healthy  -      -        -             -     -        -      -      -         -      -        -       -         ≤55s       2m0s       -
d       node-2  Unknown  -      -        PluginAbsent  -     -        -      -      -         -      -        -       -         ?          unbounded  -

4 devices: 4 without a case
1 node is out: node-1 (NodeSilent, 2 devices); nothing is concluded about devices there until it is back
`,
	} {
		var out strings.Builder
		if err := Print(&out, l, format, false); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("-o %s printed\n%s\nwant\n%s", format, out.String(), want)
		}
	}
}

// O7: that nobody watches stands above a table that goes on showing, and is news.
func TestWhatSickbayCannotSeeStandsAboveTheTable(t *testing.T) {
	var out strings.Builder
	screen := NewScreen(&out, Table, false, nil)
	l := sample()
	for _, blind := range [][]string{nil, {"no starter leads"}, {"no starter leads"}, nil} {
		l.Blind = blind
		if err := screen.Show(l); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(out.String(), "\n10:00:00 UTC\n"); n != 2 {
		t.Errorf("it was drawn %d times, want thrice: whenever that changes", n+1)
	}
	if want := "10:00:00 UTC\n! Sickbay itself can't see: no starter leads\nDEVICE "; strings.Count(out.String(), want) != 1 {
		t.Errorf("shown as\n%s\nwant once\n%s…", out.String(), want)
	}
}
