package listing

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	workflow "github.com/sickbay-dev/sickbay/workflows/device"
)

func TestADeviceIsFoundByWhatPeopleCallIt(t *testing.T) {
	cluster := twoGPUs(t, device.Healthy, "")
	plugin := device.Key{Node: "node-2", Resource: "example.com/gpu", ID: "GPU-7"}
	cluster.Pods = append(cluster.Pods, device.Pod{
		Ref: device.PodRef{Namespace: "b", Name: "p", UID: "u"}, Node: "node-2",
		Containers: []device.Container{{Name: "main", Entries: []device.Entry{{Name: plugin.Resource, ResourceID: plugin.ID, Health: device.Healthy}}}},
	})
	survey := NewSurvey(cluster)
	const want = `lacks a part: want driver/pool/device, or 'node|resource|ID' for a device plugin's; did you mean `
	for name, tc := range map[string]struct {
		typed string
		key   string
		err   string
	}{
		"its key":                           {"gpu.example.com/node-1/gpu-0", "gpu.example.com/node-1/gpu-0", ""},
		"its workflow":                      {"device/gpu.example.com/node-1/gpu-0", "gpu.example.com/node-1/gpu-0", ""},
		"a plugin's key":                    {"node-2|example.com/gpu|GPU-7", plugin.String(), ""},
		"a plugin's workflow":               {"device/node-2/example.com/gpu/GPU-7", plugin.String(), ""},
		"a plugin's parts, without quoting": {"node-2/example.com/gpu/GPU-7", plugin.String(), ""},
		"one that isn't there":              {"gpu.example.com/node-1/gpu-9", "gpu.example.com/node-1/gpu-9", ""},
		"its last part alone":               {"gpu-0", "", `not a device: "gpu-0" ` + want + `gpu.example.com/node-1/gpu-0?`},
		"without its driver":                {"node-1/gpu-1", "", `not a device: "node-1/gpu-1" ` + want + `gpu.example.com/node-1/gpu-1?`},
		"without its device":                {"gpu.example.com/node-1", "", `not a device: "gpu.example.com/node-1" ` + want + `gpu.example.com/node-1/gpu-0 or gpu.example.com/node-1/gpu-1?`},
		"a node":                            {"node-2", "", `not a device: "node-2" ` + want + `node-2|example.com/gpu|GPU-7?`},
		"a plugin's without its ID":         {"node-2|example.com/gpu", "", `not a device: "node-2|example.com/gpu" ` + want + `node-2|example.com/gpu|GPU-7?`},
		"nothing that could be one":         {"banana", "", "not a device: \"banana\", want driver/pool/device; `sickbay devices -o name` lists all"},
		"nothing at all":                    {"", "", "not a device: \"\", want driver/pool/device; `sickbay devices -o name` lists all"},
	} {
		t.Run(name, func(t *testing.T) {
			key, err := survey.Resolve(tc.typed)
			if text(err) != tc.err || err == nil && key.String() != tc.key {
				t.Errorf("%q leads to %s and says %q, want %s and %q", tc.typed, key, text(err), tc.key, tc.err)
			}
			if err != nil && !errors.Is(err, device.ErrKey) {
				t.Error("the error doesn't say that it is one of the key")
			}
		})
	}
	key := gpu(t, "9")
	if err := survey.Unknown(key, false); !errors.Is(err, ErrNotFound) || !strings.HasSuffix(err.Error(), "and it has no case; did you mean gpu.example.com/node-1/gpu-0 or gpu.example.com/node-1/gpu-1?") {
		t.Errorf("of a device that isn't there it says %q", err)
	}
	if err := survey.Unknown(key, true); !strings.Contains(err.Error(), "can't be told without Temporal") {
		t.Errorf("without Temporal it says %q", err)
	}
}

func TestRelativesAreNamedByHowTheyStandToTheDevice(t *testing.T) {
	cluster := Cluster{Slices: []device.Slice{{
		Driver: "gpu.example.com", Pool: "node-1", Node: "node-1", Generation: 1, SliceCount: 1,
		Devices: []device.Listed{
			{Name: "gpu-0", Attributes: map[string]string{"uuid": "GPU-0"}}, {Name: "gpu-0-vfio", Attributes: map[string]string{"uuid": "GPU-0"}},
			{Name: "mig-0", Attributes: map[string]string{"uuid": "MIG-0", "parentUUID": "GPU-0"}},
			{Name: "mig-1", Attributes: map[string]string{"uuid": "MIG-1", "parentUUID": "GPU-0"}},
			{Name: "gpu-1", Attributes: map[string]string{"uuid": "GPU-1"}},
		},
	}}}
	replica := func(id string) device.Key { return device.Key{Node: "node-2", Resource: "example.com/gpu", ID: id} }
	for _, id := range []string{"GPU-7::0", "GPU-7::1", "GPU-8::0"} {
		cluster.Pods = append(cluster.Pods, device.Pod{
			Ref: device.PodRef{Namespace: "a", Name: id, UID: id}, Node: "node-2",
			Containers: []device.Container{{Name: "main", Entries: []device.Entry{{Name: "example.com/gpu", ResourceID: id, Health: device.Healthy}}}},
		})
	}
	dra := func(name string) device.Key {
		return device.Key{Driver: "gpu.example.com", Pool: "node-1", Device: name}
	}
	for name, tc := range map[string]struct {
		of   device.Key
		want map[device.Key]Relation
	}{
		"a chip":         {dra("gpu-0"), map[device.Key]Relation{dra("mig-0"): Child, dra("mig-1"): Child, dra("gpu-0-vfio"): Twin}},
		"a part":         {dra("mig-0"), map[device.Key]Relation{dra("gpu-0"): Parent, dra("gpu-0-vfio"): Parent, dra("mig-1"): Sibling}},
		"one on its own": {dra("gpu-1"), map[device.Key]Relation{}},
		"a replica":      {replica("GPU-7::0"), map[device.Key]Relation{replica("GPU-7::1"): Replica}},
	} {
		t.Run(name, func(t *testing.T) {
			got := NewSurvey(cluster).Relatives(tc.of)
			if len(got) != len(tc.want) {
				t.Fatalf("relatives %v, want %v", got, tc.want)
			}
			for key, relation := range tc.want {
				if got[key] != relation {
					t.Errorf("%s is %q, want %q", key, got[key], relation)
				}
			}
		})
	}
}

// quarantined is a case of gpu-0 as its workflow tells it.
func quarantined(t *testing.T, change func(*quarantine.Case)) []Case {
	t.Helper()
	c := quarantine.Case{
		Device: gpu(t, "0"), Phase: quarantine.PhaseQuarantined, Waiting: quarantine.WaitingForHolder, Since: now.Add(-time.Minute), Epoch: 7,
		Mark: quarantine.Mark{State: quarantine.MarkInForce, Name: "sickbay-node-1-gpu-0"},
	}
	change(&c)
	return []Case{{Workflow: workflow.ID(c.Device), State: &workflow.State{Case: c}}}
}

// A reading's age and status version are those that the case keeps, as long as
// the Pod still says the same.
func TestEvidenceIsDatedByTheCaseAndNeverByAGuess(t *testing.T) {
	seen := now.Add(-10 * time.Minute)
	remembered := quarantined(t, func(c *quarantine.Case) {
		c.Reports = []device.Report{
			{Pod: device.PodRef{Namespace: "team-a", Name: "train", UID: "uid-train"}, Health: device.Unhealthy, Message: "Xid 79", Version: "3", Observed: seen},
			{Pod: device.PodRef{Namespace: "team-a", Name: "former", UID: "uid-former"}, Health: device.Healthy, Version: "1", Observed: seen, Ended: true},
		}
	})
	for name, tc := range map[string]struct {
		message string
		cases   []Case
		version device.Version
		dated   bool
		all     int
	}{
		"the case knows it":          {"Xid 79", remembered, "3", true, 2},
		"the Pod says something new": {"Xid 48", remembered, "7", false, 2},
		"there is no case":           {"Xid 79", nil, "7", false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			told := Tell(gpu(t, "0"), Sources{Cluster: twoGPUs(t, device.Unhealthy, tc.message), Cases: tc.cases}, now)
			if len(told.Evidence) != tc.all {
				t.Fatalf("evidence %+v, want %d", told.Evidence, tc.all)
			}
			last := told.Evidence[len(told.Evidence)-1]
			if last.Version != tc.version || (last.Observed != nil) != tc.dated || last.Message != tc.message {
				t.Errorf("evidence %+v, want version %s, dated %v", last, tc.version, tc.dated)
			}
		})
	}
}

func TestWhatIsSaidOfADeviceFitsWhatIsKnown(t *testing.T) {
	marked := func(c *Cluster) {
		c.Marks = []kube.Mark{{Device: gpu(t, "0"), Node: "node-1", Intact: true, Found: quarantine.MarkFound{Name: "sickbay-node-1-gpu-0", Epoch: 7, Reason: "XidFallenOffBus"}}}
	}
	same := func(*quarantine.Case) {}
	for name, tc := range map[string]struct {
		health        device.Health
		cluster       func(*Cluster)
		cases         []Case
		away          bool
		summary, next string
		mark          string
	}{
		"well": {device.Healthy, nil, nil, false, "is well: reported Healthy, and without a case.", "nothing; it is nobody's turn", "none"},
		"unhealthy, and nobody took it up": {device.Unhealthy, nil, nil, false, "is reported Unhealthy, and has no case.",
			"the starter opens a case, unless the catalogue says that this is no fault of the device; if none comes, see whether a starter runs", "none"},
		"quarantined": {device.Unhealthy, marked, quarantined(t, same), false, "is out of service: no reason known (none), Quarantined, not good for 60s; team-a/train has it.",
			"a holder has to leave; an operator may delete its Pod", "sickbay-node-1-gpu-0 in force since never"},
		"quarantined, and its mark isn't there": {device.Unhealthy, nil, quarantined(t, same), false, "is out of service",
			"a holder has to leave", "; it was not in the cluster when that was read"},
		"quarantined, and its mark changed": {device.Unhealthy, func(c *Cluster) { marked(c); c.Marks[0].Intact = false }, quarantined(t, same), false,
			"is faulty, and NOT kept out yet", "a holder has to leave", "somebody changed it"},
		"mode observe": {device.Unhealthy, nil, quarantined(t, func(c *quarantine.Case) { c.Mark.State = quarantine.MarkObserved }), false,
			"is faulty, and not kept out because the mode is observe", "a holder has to leave", "none: mode observe"},
		"advisory": {device.Unhealthy, nil, quarantined(t, func(c *quarantine.Case) { c.Mark = quarantine.Mark{State: quarantine.MarkAdvisory, Detail: "no API"} }), false,
			"is faulty, and can't be kept out", "", "none: advisory only, no API"},
		"suspect": {device.Unknown, nil, quarantined(t, func(c *quarantine.Case) {
			c.Phase, c.Waiting, c.Mark, c.GraceUntil = quarantine.PhaseSuspect, "", quarantine.Mark{}, now.Add(time.Minute)
		}), false, "is suspect, and not kept out: no reason known (none), not good for 60s; team-a/train has it.",
			"its health comes back, or the grace window ends at 2026-11-02 10:01:00 UTC and new Pods are kept from it", "none"},
		"a mark without its case": {device.Unhealthy, marked, nil, false, "is out of service: XidFallenOffBus, Quarantined",
			"the starter gives the mark its case back", "is in the cluster as Sickbay wrote it"},
		"a mark, and Temporal is away": {device.Unhealthy, marked, nil, true, "is out of service", "not known without Temporal; the mark keeps the device out", ""},
		"Temporal is away":             {device.Unknown, nil, nil, true, "is reported Unknown, and has no case", "whether there is a case can't be told", "none"},
		"no worker answers": {device.Unhealthy, nil, []Case{{Workflow: "device/gpu.example.com/node-1/gpu-0", Phase: quarantine.PhaseQuarantined}}, false,
			"is faulty, and NOT kept out yet", "no worker answers; start one", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := twoGPUs(t, tc.health, "")
			if tc.cluster != nil {
				tc.cluster(&cluster)
			}
			told := Tell(gpu(t, "0"), Sources{Cluster: cluster, Cases: tc.cases, CasesMissing: tc.away}, now)
			if !strings.Contains(told.Summary, tc.summary) || !strings.Contains(told.Next, tc.next) || !strings.Contains(told.MarkText, tc.mark) {
				t.Errorf("says\n%s\n%s\n%s\nwant\n%s\n%s\n%s", told.Summary, told.Next, told.MarkText, tc.summary, tc.next, tc.mark)
			}
			if told.Signals.Objective != "not configured" {
				t.Errorf("the tenant's objective is %q; nobody told", told.Signals.Objective)
			}
		})
	}
}

// A Pod that isn't there, or that has no devices, is an error with what to do.
func TestAPodWithoutDevicesIsAnErrorThatNamesOthers(t *testing.T) {
	cluster := twoGPUs(t, device.Healthy, "")
	cluster.Pods = append(cluster.Pods,
		device.Pod{Ref: device.PodRef{Namespace: "team-a", Name: "web", UID: "uid-web"}, Node: "node-1"},
		device.Pod{Ref: device.PodRef{Namespace: "team-a", Name: "late", UID: "uid-late"}, Claims: []device.PodClaim{{Name: "gpu"}}},
		device.Pod{Ref: device.PodRef{Namespace: "team-a", Name: "done", UID: "uid-done"}, Node: "node-1", Terminal: true},
		device.Pod{Ref: device.PodRef{Namespace: "team-b", Name: "web", UID: "uid-b"}, Node: "node-1"})
	for name, tc := range map[string]struct {
		pod  PodStatus
		want string
	}{
		"without any":     {PodStatus{Namespace: "team-a", Name: "web", UID: "uid-web"}, "Pod team-a/web has no devices: it has no ResourceClaim, and its status has no health entry; Pods with devices in team-a: train"},
		"not scheduled":   {PodStatus{Namespace: "team-a", Name: "late", UID: "uid-late"}, "Pod team-a/late has no devices: it isn't scheduled yet; kubectl describe pod says why; Pods with devices in team-a: train"},
		"ended":           {PodStatus{Namespace: "team-a", Name: "done", UID: "uid-done"}, "Pod team-a/done has no devices: it has ended, and given back what it had; Pods with devices in team-a: train"},
		"nor its friends": {PodStatus{Namespace: "team-b", Name: "web", UID: "uid-b"}, "Pod team-b/web has no devices: it has no ResourceClaim, and its status has no health entry; see `sickbay devices` for who holds what"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := PodDevices(cluster, tc.pod); text(err) != tc.want || !errors.Is(err, ErrNotFound) {
				t.Errorf("says %q, want %q", text(err), tc.want)
			}
		})
	}
	for asked, want := range map[[2]string]string{
		{"team-a", "trian"}:  "there is no Pod team-a/trian; Pods with devices in team-a: train",
		{"team-a", "train2"}: "there is no Pod team-a/train2; did you mean train?",
		{"team-b", "train"}:  "there is no Pod team-b/train; did you mean team-a/train?",
		{"team-c", "x"}:      "there is no Pod team-c/x; namespace team-c has no Pods at all",
	} {
		if got := text(NoPod(cluster, asked[0], asked[1])); got != want {
			t.Errorf("says %q, want %q", got, want)
		}
	}
	if keys, err := PodDevices(cluster, PodStatus{UID: "uid-train"}); err != nil || len(keys) != 1 {
		t.Errorf("train has %v, %v; want its one device", keys, err)
	}
}

func TestAPodThatOnlyHasUnmappedEntriesIsNoPodWithoutDevices(t *testing.T) {
	cluster := twoGPUs(t, device.Healthy, "")
	cluster.Claims = nil
	cluster.Pods[0].Containers[0].Entries = []device.Entry{{Name: "claim:gpu", ResourceID: "k8s.gpu.example.com/claim=a", Health: device.Unhealthy}}
	pod := PodStatus{Namespace: "team-a", Name: "train", UID: "uid-train"}
	if _, err := PodDevices(cluster, pod); err != nil {
		t.Fatal(err)
	}
	told := TellPod(pod, Sources{Cluster: cluster}, now)
	if want := "team-a/train has health entries, and none leads to one device; 1 faulty health entry can't be attributed to one device."; told.Summary != want {
		t.Errorf("says %q, want %q", told.Summary, want)
	}
	if !strings.HasPrefix(told.Next, "unmapped entries: your turn; find out from the driver") {
		t.Errorf("next %q, want that it is the reader's turn", told.Next)
	}
}

func TestADevicesStoryTellsOfUnmappedFaultsThatMayBeAboutIt(t *testing.T) {
	cluster := twoGPUs(t, device.Healthy, "")
	cluster.Claims[0].Results = append(cluster.Claims[0].Results, device.Allocated{Request: "gpu", Device: gpu(t, "1")})
	cluster.Pods[0].Containers[0].Entries = []device.Entry{
		{Name: "claim:gpu", ResourceID: "k8s.gpu.example.com/claim=a", Health: device.Unhealthy},
		{Name: "claim:gpu", ResourceID: "k8s.gpu.example.com/claim=b", Health: device.Healthy},
	}
	for number, want := range map[string]int{"0": 1, "1": 1, "2": 0} {
		if told := Tell(gpu(t, number), Sources{Cluster: cluster}, now); len(told.Unmapped) != want || told.Device.Health != "" {
			t.Errorf("gpu-%s is told of with %d unmapped faults and health %q, want %d and none", number, len(told.Unmapped), told.Device.Health, want)
		} else if want > 0 && (!strings.HasSuffix(told.Summary, "; 1 unmapped fault may be about it.") || !strings.HasPrefix(told.Next, "unmapped entries: your turn;")) {
			t.Errorf("gpu-%s is told of as %q, next %q; want the unmapped fault in both", number, told.Summary, told.Next)
		}
	}
}

// O4: what a case doesn't believe isn't shown as if it were so: the table counts it
// for Unknown, the story says what is said and why it isn't believed.
func TestAHealthyThatItsCaseDoesNotBelieveIsShownWithWhy(t *testing.T) {
	seen := now.Add(-10 * time.Minute)
	key := device.Key{Node: "node-2", Resource: "example.com/gpu", ID: "GPU-7"}
	ref := device.PodRef{Namespace: "team-a", Name: "train", UID: "uid-train"}
	cluster := Cluster{Pods: []device.Pod{{
		Ref: ref, Node: "node-2", ResourceVersion: "7",
		Containers: []device.Container{{Name: "main", Entries: []device.Entry{{Name: key.Resource, ResourceID: key.ID, Health: device.Healthy}}}},
	}}}
	suspect := quarantine.Case{
		Device: key, Node: "node-2", Phase: quarantine.PhaseSuspect, Waiting: quarantine.WaitingForRestriction, Since: now.Add(-time.Hour), Epoch: 7,
		Reports: []device.Report{{Pod: ref, Node: "node-2", Health: device.Healthy, Stale: device.PluginAbsent, Version: "6", Observed: seen}},
	}
	fault := suspect
	fault.Phase, fault.Waiting, fault.Mark = quarantine.PhaseQuarantined, quarantine.WaitingForHealth, quarantine.Mark{State: quarantine.MarkAdvisory, Detail: "no API"}
	fault.Reports = []device.Report{{Pod: ref, Node: "node-2", Health: device.Unhealthy, Version: "6", Observed: seen}}
	for name, tc := range map[string]struct {
		open     *quarantine.Case
		health   device.Health
		stale    device.Staleness
		believed string
		mark     string
		next     string
	}{
		"without a case": {nil, device.Healthy, device.Fresh, "Healthy", "none: Kubernetes can't keep one device of a device plugin out", "nothing"},
		"its plugin is away": {&suspect, device.Unknown, device.PluginAbsent, "Unknown, although the kubelet goes on saying Healthy (PluginAbsent",
			"none: Kubernetes can't keep one device of a device plugin out", "bring the plugin of example.com/gpu back on node node-2"},
		"the case knows another word of its Pod": {&fault, device.Healthy, device.Fresh, "Healthy", "none: advisory only, no API", "an operator may cordon the node"},
	} {
		t.Run(name, func(t *testing.T) {
			var cases []Case
			if tc.open != nil {
				cases = []Case{{Workflow: workflow.ID(key), State: &workflow.State{Case: *tc.open}}}
			}
			told := Tell(key, Sources{Cluster: cluster, Cases: cases}, now)
			if told.Device.Health != tc.health || told.Device.Stale != tc.stale || !strings.HasPrefix(told.Signals.Believed(), tc.believed) {
				t.Errorf("shown as %s (%q), %q; want %s (%q), %q", told.Device.Health, told.Device.Stale, told.Signals.Believed(), tc.health, tc.stale, tc.believed)
			}
			if r := told.Evidence[0]; r.Health != device.Healthy || r.Stale != tc.stale {
				t.Errorf("evidence %+v, want what the Pod says, and %q", r, tc.stale)
			}
			if !strings.HasPrefix(told.MarkText, tc.mark) || !strings.Contains(told.Next, tc.next) {
				t.Errorf("mark %q, next %q; want %q, %q", told.MarkText, told.Next, tc.mark, tc.next)
			}
		})
	}
}
