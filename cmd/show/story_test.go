package show

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	workflow "github.com/sickbay-dev/sickbay/workflows/device"
)

const name = "gpu.example.com/node-1/gpu-0"

func key(t *testing.T, name string) device.Key {
	t.Helper()
	k, err := device.ParseKey(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// world is a chip with a partition, held by one Pod.
func world(t *testing.T, health device.Health, message string) listing.Sources {
	t.Helper()
	ref := device.PodRef{Namespace: "team-a", Name: "train-0", UID: "u-1"}
	return listing.Sources{
		Cluster: listing.Cluster{
			Slices: []device.Slice{{
				Driver: "gpu.example.com", Pool: "node-1", Node: "node-1", Generation: 1, SliceCount: 1,
				Devices: []device.Listed{
					{Name: "gpu-0", Attributes: map[string]string{"uuid": "GPU-0"}},
					{Name: "gpu-0-part-0", Attributes: map[string]string{"uuid": "PART-0", "parentUUID": "GPU-0"}},
				},
			}},
			Nodes:   []listing.Node{{Name: "node-1", Ready: corev1.ConditionTrue, Since: now.Add(-time.Hour)}},
			Delays:  func(string) time.Duration { return 2 * time.Minute },
			Classes: []device.Class{device.ReadClass("gpus", []string{`device.driver == "gpu.example.com"`})},
			Claims: []device.Claim{{
				Namespace: "team-a", Name: "claim-0", UID: "c-1", ReservedFor: []device.PodRef{ref},
				Results: []device.Allocated{{Request: "gpu", Device: key(t, name), Class: "big-gpus"}},
			}},
			Pods: []device.Pod{{
				Ref: ref, Node: "node-1", ResourceVersion: "812", Claims: []device.PodClaim{{Name: "gpu", Claim: "claim-0"}},
				Containers: []device.Container{{Name: "main", Entries: []device.Entry{
					{Name: "claim:gpu", ResourceID: name, Health: health, Message: message},
				}}},
			}},
		},
		Pods: []listing.PodStatus{{
			Namespace: "team-a", Name: "train-0", UID: "u-1", Node: "node-1", Phase: "Running",
			Containers: []listing.ContainerStatus{{Name: "main", Ready: true, Restarts: 3, State: "Running"}},
		}},
	}
}

// withCase adds an open case with its mark, and what it decided so far.
func withCase(t *testing.T, from listing.Sources) listing.Sources {
	t.Helper()
	since := now.Add(-90 * time.Second)
	c := quarantine.Case{
		Device: key(t, name), Node: "node-1", Phase: quarantine.PhaseQuarantined, Waiting: quarantine.WaitingForHolder,
		Epoch: since.UnixMilli(), Actor: "sickbay", Since: since, FirstNotGood: since.Add(-time.Second),
		Reason:  reason.Match{Code: "XidFallenOffBus", Closes: reason.ClosesByRepair, Rule: "nvidia/xid-79", Catalogue: "2026-11"},
		Message: "Xid 79", Severity: reason.SeverityFatal, Incarnation: device.Incarnation{UUID: "GPU-0"},
		Reports: []device.Report{
			{Pod: device.PodRef{Namespace: "team-a", Name: "train-0", UID: "u-1"}, Container: "main", Health: device.Unhealthy, Message: "Xid 79", Version: "711", Observed: since},
			{Pod: device.PodRef{Namespace: "team-a", Name: "train-9", UID: "u-9"}, Health: device.Unknown, Version: "600", Observed: since.Add(-time.Hour), Ended: true},
		},
		Mark:     quarantine.Mark{State: quarantine.MarkInForce, Name: "sickbay-node-1-gpu-0-1f", InForceSince: since, Revision: 1, Written: 1},
		LookedAt: now.Add(-10 * time.Second), LeaseUntil: since.Add(time.Hour),
		Words: []quarantine.Word{{Verb: quarantine.VerbExtend, Actor: "oncall@example.com", Reason: "a spare is on its way", At: now.Add(-time.Minute)}},
	}
	from.Cluster.Marks = []kube.Mark{{
		Device: c.Device, Node: "node-1", Intact: true, Found: quarantine.MarkFound{Name: c.Mark.Name, Epoch: c.Epoch, Since: since.UnixMilli()},
	}}
	from.Cases = []listing.Case{{Workflow: workflow.ID(c.Device), State: &workflow.State{Case: c}}}
	from.Timeline = []quarantine.Notice{
		{Seq: 1, At: since, Kind: quarantine.NoticeOpened, Alert: true, Epoch: c.Epoch, Actor: "sickbay", Seen: "Unhealthy", Text: "opened for Xid 79"},
		{Seq: 2, At: since.Add(time.Second), Kind: quarantine.NoticeMarkInForce, Epoch: c.Epoch, Actor: "sickbay", Text: "the mark is in force"},
	}
	return from
}

// Each story is told as an operator reads it: the first line says how it is, the
// last what happens next.
func TestADevicesStoryBeginsWithWhatIsWrongAndEndsWithWhatIsNext(t *testing.T) {
	for title, tc := range map[string]struct {
		from func(*testing.T) listing.Sources
		want string
	}{
		"a case with everything": {func(t *testing.T) listing.Sources { return withCase(t, world(t, device.Unhealthy, "Xid 79")) }, `
gpu.example.com/node-1/gpu-0 is out of service: XidFallenOffBus (fatal), Quarantined, not good for 91s; team-a/train-0 has it.

Signals (none stands in for another)
  allocation          by claim team-a/claim-0 (class big-gpus), used by team-a/train-0
  device health       Unhealthy: Xid 79
  container ready     team-a/train-0: main ready (Running, 3 restarts)
  business objective  not configured

Case
  phase           Quarantined, waiting for Holder
  reason          XidFallenOffBus (fatal), closed by repair; rule nvidia/xid-79 of catalogue 2026-11
  driver says     Xid 79
  opened          2026-11-02 09:58:30 UTC (90s ago) by sickbay
  first not good  2026-11-02 09:58:29 UTC (91s ago)
  record          epoch 1793613510000, attempt 0, lease until 2026-11-02 10:58:30 UTC (in 58m)
  last look       2026-11-02 09:59:50 UTC (10s ago)
  mark            sickbay-node-1-gpu-0-1f in force since 2026-11-02 09:58:30 UTC, lease until 2026-11-02 10:58:30 UTC
  operators said  extend by oncall@example.com, 2026-11-02 09:59:00 UTC (60s ago): a spare is on its way
  hardware        uuid GPU-0
  workflow        device/gpu.example.com/node-1/gpu-0

Evidence
  POD             CONTAINER  HEALTH     AGE  STATUS VERSION  ROLE    MESSAGE
  team-a/train-0  main       Unhealthy  90s  711             holder  Xid 79
  team-a/train-9  -          Unknown    61m  600             gone    -
  Held within the last 10s; the driver's own word may be up to 2m0s older

On the same chip
  RELATION  DEVICE                               HEALTH   PHASE  REASON  MARK  HOLDERS
  child     gpu.example.com/node-1/gpu-0-part-0  NotSeen  -      -       -     -

Timeline (the last 1 of 2 decisions; --timeline 0 shows all)
  TIME (UTC)           AGE  DECISION   BY       WHAT
  2026-11-02 09:58:31  89s  MarkInForce  sickbay  the mark is in force

Next: a holder has to leave; an operator may delete its Pod (lease runs out, look again at 2026-11-02 10:58:30 UTC)
`},
		"nothing is wrong": {func(t *testing.T) listing.Sources { return world(t, device.Healthy, "") }, `
gpu.example.com/node-1/gpu-0 is well: reported Healthy, and without a case.

Signals (none stands in for another)
  allocation          by claim team-a/claim-0 (class big-gpus), used by team-a/train-0
  device health       Healthy
  container ready     team-a/train-0: main ready (Running, 3 restarts)
  business objective  not configured

Case
  phase  no case
  mark   none

Evidence
  POD             CONTAINER  HEALTH   AGE  STATUS VERSION  ROLE    MESSAGE
  team-a/train-0  main       Healthy  ?    ≤ 812           holder  -
  Held within the last 55s; the driver's own word may be up to 2m0s older

On the same chip
  RELATION  DEVICE                               HEALTH   PHASE  REASON  MARK  HOLDERS
  child     gpu.example.com/node-1/gpu-0-part-0  NotSeen  -      -       -     -

Next: nothing; it is nobody's turn
`},
		"its node is out": {func(t *testing.T) listing.Sources {
			from := world(t, device.Healthy, "")
			from.Cluster.Nodes[0].Ready, from.Cluster.Nodes[0].Since = corev1.ConditionUnknown, now.Add(-5*time.Minute)
			return from
		}, `
gpu.example.com/node-1/gpu-0 can't be judged now: its node node-1 is out (NodeSilent), and what was read there is old; it has no case.

Signals (none stands in for another)
  allocation          by claim team-a/claim-0 (class big-gpus), used by team-a/train-0
  device health       Unknown, although Healthy is what its node's kubelet last wrote (NodeSilent: the node gives no sign of life)
  container ready     team-a/train-0: main ready (Running, 3 restarts)
  business objective  not configured

Case
  phase  no case
  mark   none

Evidence
  POD             CONTAINER  HEALTH                AGE  STATUS VERSION  ROLE    MESSAGE
  team-a/train-0  main       Healthy (NodeSilent)  ?    ≤ 812           holder  -
  Last known to hold at 2026-11-02 09:54:05 UTC (5m55s ago), before the node was out; the driver's own word may be up to 2m0s older

On the same chip
  RELATION  DEVICE                               HEALTH   PHASE  REASON      MARK  HOLDERS
  child     gpu.example.com/node-1/gpu-0-part-0  NotSeen  -      NodeSilent  -     -

Next: its node has to come back; then its devices are read anew. Nothing is concluded about them meanwhile
`},
		"nobody has it, and Temporal is away": {func(t *testing.T) listing.Sources {
			from := withCase(t, world(t, device.Unhealthy, "Xid 79"))
			from.Cluster.Claims, from.Cluster.Pods, from.Pods, from.Cases, from.Timeline = nil, nil, nil, nil, nil
			from.CasesMissing = true
			mark := &from.Cluster.Marks[0].Found
			mark.Reason, mark.Severity, mark.Closes = "XidFallenOffBus", reason.SeverityFatal, reason.ClosesByRepair
			mark.Message, mark.Actor = "Xid 79", "sickbay"
			return from
		}, `
gpu.example.com/node-1/gpu-0 is out of service: XidFallenOffBus (fatal), Quarantined, not good for 90s.

Signals (none stands in for another)
  allocation          to nobody
  device health       not reported: nobody holds the device
  container ready     no holder, so no container
  business objective  not configured

Case
  phase   Quarantined, waiting for ? (told by its mark)
  reason  XidFallenOffBus (fatal), closed by repair
  driver says Xid 79
  opened  2026-11-02 09:58:30 UTC (90s ago) by sickbay
  record  epoch 1793613510000, attempt 0
  mark    sickbay-node-1-gpu-0-1f is in the cluster as Sickbay wrote it

On the same chip
  RELATION  DEVICE                               HEALTH   PHASE  REASON  MARK  HOLDERS
  child     gpu.example.com/node-1/gpu-0-part-0  NotSeen  -      -       -     -

Next: not known without Temporal; the mark keeps the device out until its case lifts it
`},
	} {
		t.Run(title, func(t *testing.T) {
			var out strings.Builder
			if err := PrintStory(&out, listing.Tell(key(t, name), tc.from(t), now), Table, false, 1); err != nil {
				t.Fatal(err)
			}
			// Where columns stand depends on the longest cell, which isn't the point.
			if got, want := words(out.String()), words(strings.TrimPrefix(tc.want, "\n")); got != want {
				t.Errorf("told\n%s\nwant\n%s", out.String(), tc.want)
			}
		})
	}
}

// words leaves one space between two words of a line.
func words(text string) string {
	var all []string
	for line := range strings.Lines(text) {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(all, "\n")
}

func TestAPodsDevicesAreShownWithWhatIsWrongFirst(t *testing.T) {
	from := withCase(t, world(t, device.Unhealthy, "Xid 79"))
	from.Cluster.Claims[0].Results = append(from.Cluster.Claims[0].Results,
		device.Allocated{Request: "more", Device: key(t, "gpu.example.com/node-1/gpu-0-part-0"), Class: "parts"})
	entries := &from.Cluster.Pods[0].Containers[0].Entries
	*entries = append(*entries, device.Entry{Name: "claim:other", ResourceID: "k8s.example.com/claim=x", Health: device.Healthy})
	var out strings.Builder
	if err := PrintPod(&out, listing.TellPod(from.Pods[0], from, now), Table, false); err != nil {
		t.Fatal(err)
	}
	want := `team-a/train-0 has 2 devices, of which 1 faulty: gpu.example.com/node-1/gpu-0 is out of service, XidFallenOffBus (fatal), Quarantined, not good for 91s.

Pod
  node             node-1
  container ready  main ready (Running, 3 restarts)

Devices
  CONTAINER  DEVICE                               HEALTH     PHASE        WAITING  REASON           MARK     SINCE  MESSAGE
  main       gpu.example.com/node-1/gpu-0         Unhealthy  Quarantined  Holder   XidFallenOffBus  InForce  91s    Xid 79
  -          gpu.example.com/node-1/gpu-0-part-0  -          -            -        -                -        -      -

Health entries that lead to no one device
  POD             CONTAINER  NODE    ENTRY        ID                       HEALTH   WHY           CANDIDATES  MESSAGE
  team-a/train-0  main       node-1  claim:other  k8s.example.com/claim=x  Healthy  ClaimUnknown  -           -

Next: gpu.example.com/node-1/gpu-0: a holder has to leave; an operator may delete its Pod (lease runs out, look again at 2026-11-02 10:58:30 UTC)
`
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	if err := PrintPod(&out, listing.TellPod(from.Pods[0], from, now), Name, false); err != nil {
		t.Fatal(err)
	}
	if want := "gpu.example.com/node-1/gpu-0\ngpu.example.com/node-1/gpu-0-part-0\n"; out.String() != want {
		t.Errorf("names %q, want %q", out.String(), want)
	}
}

func TestNobodysTextDrivesTheTerminalOfAStory(t *testing.T) {
	from := withCase(t, world(t, device.Unhealthy, "Xid 79\x1b[2J\nboo"))
	from.Cases[0].State.Case.Message = "\x1b]0;owned\a"
	from.Cases[0].State.Case.Words[0].Reason = "because\x1b[1m"
	from.Timeline[0].Text = "opened\x1b[31m"
	var out strings.Builder
	if err := PrintStory(&out, listing.Tell(key(t, name), from, now), Wide, false, 0); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out.String(), "\x1b\a") {
		t.Errorf("a control character reaches the terminal:\n%q", out.String())
	}
	out.Reset()
	if err := PrintPod(&out, listing.TellPod(from.Pods[0], from, now), Wide, false); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out.String(), "\x1b\a") {
		t.Errorf("a control character reaches the terminal:\n%q", out.String())
	}
}

func TestColourInAStoryMovesNothing(t *testing.T) {
	story := listing.Tell(key(t, name), withCase(t, world(t, device.Unhealthy, "Xid 79")), now)
	var plain, coloured strings.Builder
	if err := PrintStory(&plain, story, Table, false, 0); err != nil {
		t.Fatal(err)
	}
	if err := PrintStory(&coloured, story, Table, true, 0); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(coloured.String(), red+name) {
		t.Errorf("the first line isn't red: %q", coloured.String()[:80])
	}
	stripped := strings.NewReplacer(bold, "", red, "", yellow, "", grey, "", reset, "").Replace(coloured.String())
	if stripped != plain.String() {
		t.Error("colour moves the columns")
	}
}

// U3: of a device of which nothing was found but that its health isn't known, its page asks
// for no gates, whoever tells of its case.
func TestARestrictedDevicesPageSaysTheShortWayBack(t *testing.T) {
	unknown := reason.Match{Code: reason.HealthUnknown, Severity: reason.SeverityMinor, Closes: reason.ClosesByGates, Rule: "sickbay/unknown"}
	for title, tc := range map[string]struct {
		phase    quarantine.Phase
		temporal bool
		want     string
	}{
		"suspect":                      {quarantine.PhaseSuspect, true, "closed by health that comes back and lasts; rule sickbay/unknown"},
		"restricted":                   {quarantine.PhaseRestricted, true, "closed by health that comes back and lasts; rule sickbay/unknown"},
		"restricted, told by its mark": {quarantine.PhaseRestricted, false, "closed by health that comes back and lasts\n"},
		"quarantined":                  {quarantine.PhaseQuarantined, true, "closed by gates; rule sickbay/unknown"},
	} {
		t.Run(title, func(t *testing.T) {
			from := withCase(t, world(t, device.Unknown, ""))
			c := &from.Cases[0].State.Case
			c.Phase, c.Reason, c.Severity = tc.phase, unknown, unknown.Severity
			found := &from.Cluster.Marks[0].Found
			found.Restricted, found.Reason, found.Severity, found.Closes = tc.phase == quarantine.PhaseRestricted, unknown.Code, unknown.Severity, unknown.Closes
			if !tc.temporal {
				from.Cases, from.CasesMissing = nil, true
			}
			story := listing.Tell(key(t, name), from, now)
			var out strings.Builder
			if err := PrintStory(&out, story, Table, false, 0); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), tc.want) {
				t.Errorf("want %q in\n%s", tc.want, out.String())
			}
		})
	}
}
