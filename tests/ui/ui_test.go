package ui

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/browser"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

const (
	unhealthy = corev1.ResourceHealthStatusUnhealthy
	nic       = corev1.ResourceName("example.com/nic")
)

// moment is how the page writes a time.
const moment = "2006-01-02 15:04:05 MST"

// told is a device, and what its case's page has to say of it.
type told struct {
	key device.Key
	// says are what can be read on the page.
	says []string
	// takes are the messages that the page offers.
	takes []quarantine.Verb
	// picture is the name of the page's picture.
	picture string
}

// An operator who knows neither the code nor the documentation reads in Temporal's
// UI which devices have a case, and of each: which device it is and where, what is
// wrong, since when, whether anything keeps it out, who has it, what happens next
// and when, and what to do. No page asks for anything from elsewhere.
func TestAnOperatorReadsOffThePageWhatIsWrongAndWhatHappensNext(t *testing.T) {
	browser.Need(t, *pictures != "")
	s := newSite(t,
		simnode.MakeNode("node-0", 7),
		simnode.Node{
			Name: "node-1", Pools: []simnode.Pool{{Devices: simnode.MakeDevices(1)}},
			Plugins: []simnode.Plugin{{Resource: nic, IDs: []string{"nic-0"}}},
		},
		simnode.MakeNode("node-2", 2),
	)
	cases := s.stage()

	for name, c := range cases {
		t.Run(name, func(t *testing.T) { s.readCase(t, c) })
	}
	t.Run("the list", func(t *testing.T) { s.readLists(t, cases) })
	t.Run("the timeline", func(t *testing.T) { s.readTimeline(t, cases["waiting for recovery"].key) })
}

// stage brings a device into every phase that there is.
func (s *site) stage() map[string]told {
	t := s.t
	held, rested, retired := s.hold("train-0", "node-0", "gpu-0"), s.hold("train-1", "node-0", "gpu-1"), s.hold("train-2", "node-0", "gpu-2")
	refused, over := s.hold("train-4", "node-0", "gpu-4"), s.hold("train-5", "node-0", "gpu-5")
	suspect := s.hold("serve-0", "node-1", "gpu-0")
	silent, left := s.hold("eval-0", "node-2", "gpu-0"), s.hold("eval-1", "node-2", "gpu-1")
	gone := s.key("node-0", "gpu-3")
	advisory, err := device.NewPlugin("node-1", string(nic), "nic-0")
	s.must(err)
	_, err = s.kube.CoreV1().Pods("default").Create(t.Context(), simnode.MakePod("default", "serve-1").Resource(nic, 1).OnNode("node-1").Obj(), metav1.CreateOptions{})
	s.must(err)
	_, err = s.nodes.AwaitPod(t.Context(), "default", "serve-1", simnode.Running)
	s.must(err)

	// What is Unknown for longer than its window, under a worker whose window is short.
	s.work("worker-hasty", time.Second)
	_, err = s.nodes.Silence(t.Context(), "node-2")
	s.must(err)
	s.set(over, corev1.ResourceHealthStatusUnknown, "")
	s.await(left, phase(quarantine.PhaseSuspect))
	s.end("eval-1")
	s.await(over, phase(quarantine.PhaseSuspect))
	s.set(over, corev1.ResourceHealthStatusHealthy, "")
	s.await(silent, func(c quarantine.Case) bool {
		return c.Phase == quarantine.PhaseRestricted && c.Mark.State == quarantine.MarkInForce && c.Waiting == quarantine.WaitingForHealth
	})
	s.await(left, waiting(quarantine.WaitingForEvidence))
	s.await(over, phase(quarantine.PhaseClosed))
	s.must(s.stack.StopPart(t.Context(), "worker-hasty"))

	s.work("worker", 10*time.Minute)
	_, err = s.nodes.Silence(t.Context(), "node-1")
	s.must(err)
	s.occupy(kube.MarkName(refused))
	for key, message := range map[device.Key]string{
		held: "critical XID 79 reported by NVML", rested: "critical XID 48 reported by NVML",
		retired: "critical XID 95 reported by NVML", refused: "critical XID 119 reported by NVML",
	} {
		s.set(key, unhealthy, message)
	}
	_, err = s.nodes.RemoveDevice(t.Context(), "node-0", gone.Device)
	s.must(err)
	_, err = s.nodes.SetPlugin(t.Context(), "node-1", nic, "nic-0", unhealthy)
	s.must(err)
	s.await(rested, phase(quarantine.PhaseQuarantined))
	s.end("train-1")
	s.await(retired, waiting(quarantine.WaitingForHolder))
	s.retire(retired)
	s.await(rested, waiting(quarantine.WaitingForRecovery))
	s.await(gone, phase(quarantine.PhaseGone))

	return map[string]told{
		"suspected": {key: suspect, picture: "suspect", says: []string{
			"Suspected: inside its grace window, and nothing keeps it out",
			"Phase: Suspect", "HealthUnknown (minor): The device’s health was known and isn’t any more.", "Unknown by 1 reading",
			"Kept out: no; nothing is done on a suspicion", "Held by: default/serve-0",
			"its health comes back, or the grace window ends at", "looks at the driver of gpu.example.com on node node-1",
		}, takes: []quarantine.Verb{quarantine.VerbQuarantine}},
		"unknown for too long": {key: silent, picture: "restricted", says: []string{
			"Restricted: kept from new Pods, because its health isn’t known",
			"Phase: Restricted, waiting for Health", "Held by: default/eval-0", "its driver has to report it healthy again, and that has to last",
			"Look at the driver of gpu.example.com on node node-2", "it is given back by itself", "no fault was found",
		}, takes: []quarantine.Verb{quarantine.VerbRetire, quarantine.VerbQuarantine, quarantine.VerbExtend}},
		"unknown, and its holder left": {key: left, says: []string{
			"Phase: Suspect, waiting for Evidence", "Held by: nobody", "nobody holds the device, so nobody reports on it",
			"Let a Pod use the device",
		}, takes: []quarantine.Verb{quarantine.VerbQuarantine}},
		"waiting for its holder": {key: held, picture: "quarantined", says: []string{
			"Out of service, and a Pod still has it", "Phase: Quarantined, waiting for Holder",
			"XidFallenOffBus (fatal): The GPU has fallen off the bus.", "Driver says: critical XID 79 reported by NVML", "Unhealthy by 1 reading",
			"Kept out: yes, since", "Mark: " + kube.MarkName(held) + " in force since", "Held by: default/train-0",
			"a holder has to leave", "Delete the Pod that has it, if it has to go: default/train-0",
		}, takes: []quarantine.Verb{quarantine.VerbRelease, quarantine.VerbRepaired, quarantine.VerbRetire, quarantine.VerbExtend, quarantine.VerbWait}},
		"waiting for recovery": {key: rested, says: []string{
			"Out of service, and due to be proven healthy", "Phase: Quarantined, waiting for Recovery", "XidDoubleBitEcc (major)",
			"Kept out: yes, since", "Mark: " + kube.MarkName(rested), "Held by: nobody", "the device stays out", "one that is deleted is put back",
		}, takes: []quarantine.Verb{quarantine.VerbRelease, quarantine.VerbRepaired, quarantine.VerbRetire, quarantine.VerbExtend}},
		"advisory": {key: advisory, says: []string{
			"Faulty, and nothing can keep it out", "Phase: Quarantined, waiting for Health", "UnhealthyWithoutMessage (major)",
			"Kept out: NO:", "Mark: none: advisory only", "Held by: default/serve-1", "Cordon the node",
			"its device plugin calls it Healthy for the stability window",
		}, takes: []quarantine.Verb{quarantine.VerbRelease, quarantine.VerbRepaired, quarantine.VerbRetire, quarantine.VerbExtend}},
		"its mark refused": {key: refused, picture: "refused", says: []string{
			"Faulty, and NOT kept out: its mark was refused", "Phase: Quarantined, waiting for Mark", "XidGspError (major)",
			"Kept out: NO:", "Mark: refused:", "the mark was refused, and is tried again at", "Put right what was refused", "Held by: default/train-4",
		}, takes: []quarantine.Verb{quarantine.VerbRelease, quarantine.VerbRepaired, quarantine.VerbRetire, quarantine.VerbExtend}},
		"retired": {key: retired, says: []string{
			"Out of service until it is repaired or replaced", "Phase: Retired, waiting for Operator", "XidUncontainedMemoryError (major)",
			"Kept out: yes, since", "Mark: " + kube.MarkName(retired), "Held by: default/train-2", "Repair or replace the device.",
			"by oncall@example.com: third time this week",
		}, takes: []quarantine.Verb{quarantine.VerbRepaired, quarantine.VerbExtend}},
		"gone": {key: gone, picture: "gone", says: []string{
			"Gone: the device isn’t listed any more", "Phase: Gone, waiting for Return",
			"DeviceMissing (major): A complete pool doesn’t list the device any more.", "Kept out: yes, since", "Mark: " + kube.MarkName(gone),
			"Held by: nobody", "it comes back, or is forgotten at", "Find out why it isn’t listed",
		}, takes: []quarantine.Verb{quarantine.VerbRepaired}},
		"over": {key: over, says: []string{
			"Over: its health came back and lasted, and nothing was ever found but that it was unknown", "Remembered: until", "Phase: Closed", "HealthUnknown (minor)",
		}},
	}
}

// retire sends the message from the page, as it tells an operator to.
func (s *site) retire(key device.Key) {
	s.t.Helper()
	s.browser.Read(s.t, browser.Page{URL: s.details(key), Steps: []browser.Step{
		{See: "Current Details"}, {Click: "More Actions"}, {Click: "Send an Update"}, {Click: "Select an Update"}, {Click: "retire"},
		// The UI would break what is in one line into these, and its form would jump.
		{Into: "Data", Type: "{\n  \"actor\": \"oncall@example.com\",\n  \"reason\": \"third time this week\"\n}"},
		{Click: "Submit"}, {See: "Update successful"}, {Press: "r"},
	}, Until: []string{"Phase: Retired"}})
}

// occupy makes an object of somebody else's under a mark's name, so that the mark
// can't be made.
func (s *site) occupy(name string) {
	s.t.Helper()
	served, err := kube.Discover(s.t.Context(), s.kube.Discovery())
	s.must(err)
	_, err = s.dynamic.Resource(served.TaintRules).Create(s.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": served.TaintRules.GroupVersion().String(), "kind": "DeviceTaintRule",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"deviceSelector": map[string]any{"driver": "other.example.com"},
			"taint":          map[string]any{"key": "example.com/maintenance", "effect": "NoSchedule"},
		},
	}}, metav1.CreateOptions{})
	s.must(err)
}

func phase(want quarantine.Phase) func(quarantine.Case) bool {
	return func(c quarantine.Case) bool { return c.Phase == want }
}

func waiting(want quarantine.Waiting) func(quarantine.Case) bool {
	return func(c quarantine.Case) bool { return c.Waiting == want }
}

// What must not be on a page: words of the code, and values that are none.
var foreign = regexp.MustCompile(`WaitingFor\w*|%!|0001-01-01|<nil>`)

// readCase reads the page of a case.
func (s *site) readCase(t *testing.T, c told) {
	says := append([]string{"Device: " + c.key.String() + " on node", "Since:", "Next:"}, c.says...)
	text := s.open(t, browser.Page{URL: s.details(c.key), Until: says, Height: 1250}, c.picture)
	if found := foreign.FindString(text); found != "" {
		t.Errorf("the page says %q:\n%s", found, text)
	}
	for _, verb := range quarantine.Verbs {
		offered, want := strings.Contains(text, "Send "+string(verb)+":"), false
		for _, taken := range c.takes {
			want = want || taken == verb
		}
		if offered != want {
			t.Errorf("the page offers %s: %t, want %t:\n%s", verb, offered, want, text)
		}
	}
	state, err := s.cases.State(t.Context(), c.key)
	if err != nil {
		t.Fatal(err)
	}
	for what, at := range map[string]time.Time{"Since: ": state.Case.FirstNotGood, "Case: opened ": state.Case.Since} {
		if want := what + at.UTC().Format(moment); !strings.Contains(text, want) {
			t.Errorf("the page doesn't say %q:\n%s", want, text)
		}
	}
}

// columns are those that docs/temporal-ui.md tells an operator to set up.
var columns = []string{"Workflow ID", "SickbayPhase", "SickbayReason", "SickbayNode", "Start"}

// readLists reads the list of all open cases, and one that is narrowed to a phase.
func (s *site) readLists(t *testing.T, cases map[string]told) {
	type column struct {
		Label string `json:"label"`
	}
	var chosen []column
	for _, label := range columns {
		chosen = append(chosen, column{label})
	}
	setUp, err := json.Marshal(map[string][]column{s.stack.TemporalNamespace(): chosen})
	if err != nil {
		t.Fatal(err)
	}
	storage := map[string]string{"namespace-workflow-table-columns": string(setUp)}
	until := append([]string{"Suspect", "Restricted", "Quarantined", "Retired", "Gone", "XidFallenOffBus", "DeviceMissing"}, columns...)
	all := s.open(t, browser.Page{URL: s.list(`WorkflowType="device" AND ExecutionStatus="Running" AND SickbayPhase!="Closed"`), Until: until, Storage: storage, Height: 720}, "cases")
	for name, c := range cases {
		if listed := strings.Contains(all, devicewf.ID(c.key)); listed != (name != "over") {
			t.Errorf("the list of open cases has %s: %t\n%s", name, listed, all)
		}
	}
	retired := s.open(t, browser.Page{URL: s.list(`SickbayPhase="Retired"`), Until: []string{"1 RUNNING", devicewf.ID(cases["retired"].key)}, Storage: storage}, "")
	if strings.Contains(retired, devicewf.ID(cases["gone"].key)) {
		t.Errorf("the list of retired devices has one that is gone:\n%s", retired)
	}
}

// readTimeline reads what each timer and each activity of a case was for.
func (s *site) readTimeline(t *testing.T, key device.Key) {
	s.open(t, browser.Page{URL: s.page(key, "timeline"), Until: []string{
		"keep the device out: XidDoubleBitEcc, epoch", "live read of the device, its Pods, its node and its mark",
		"decisions, the last: mark " + kube.MarkName(key) + " keeps the device out", "lease runs out, look again",
	}, Height: 980}, "timeline")
}

func (s *site) details(key device.Key) string { return s.page(key, "user-metadata") }
