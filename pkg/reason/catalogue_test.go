package reason_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

const nvidia = "gpu.nvidia.com"

// policyCase is testdata/cases/10-xid-policy-table.json.
type policyCase struct {
	Driver string
	Rows   []struct {
		AtSeconds int
		Device    string
		Xid       int
		reason.Match
	}
	NeverQuarantinedOnFirstSight []int
	Contained                    []int
	QuarantinedUntilReset        []int
	QuarantinedNow               []int
}

func readPolicyCase(t *testing.T) policyCase {
	t.Helper()
	text, err := os.ReadFile("testdata/cases/10-xid-policy-table.json")
	if err != nil {
		t.Fatal(err)
	}
	var c policyCase
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// Q7. Case 10, each row of its table: 31, 94, 109, 79 and 9999 are judged as the
// case says, whichever way a driver writes them down, and the match carries the
// rule and the catalogue's version.
func TestEachXidOfThePolicyCaseGetsItsVerdictHoweverItIsWritten(t *testing.T) {
	c := readPolicyCase(t)
	if len(c.Rows) != 5 {
		t.Fatalf("the case has %d rows, want 5", len(c.Rows))
	}
	for _, row := range c.Rows {
		for _, message := range []string{
			fmt.Sprintf("critical XID %d reported by NVML", row.Xid),
			fmt.Sprintf("NVRM: Xid (PCI:0000:5e:00): %d, pid=1234, name=python", row.Xid),
			fmt.Sprintf("XidCriticalError: Xid=%d on Device=GPU-1", row.Xid),
		} {
			t.Run(fmt.Sprintf("t=%d %s", row.AtSeconds, message), func(t *testing.T) {
				want := row.Match
				want.Catalogue = reason.Version
				if got := reason.Builtin().Match(c.Driver, message); got != want {
					t.Errorf("got  %+v\nwant %+v", got, want)
				}
			})
		}
	}
}

// Q7. Case 10's lists: no GPU is quarantined for an application's error on first
// sight; contained errors are watched; the others are out at once.
func TestTheListsOfThePolicyCaseHold(t *testing.T) {
	c := readPolicyCase(t)
	catalogue := reason.Builtin()
	for action, xids := range map[reason.Action][]int{
		reason.ActionBlameWorkload: c.NeverQuarantinedOnFirstSight,
		reason.ActionWatch:         c.Contained,
		reason.ActionQuarantine:    slices.Concat(c.QuarantinedUntilReset, c.QuarantinedNow),
	} {
		if len(xids) == 0 {
			t.Fatalf("the case lists no Xid for %s", action)
		}
		for _, xid := range xids {
			m := catalogue.Match(nvidia, fmt.Sprintf("XID %d", xid))
			if m.Action != action {
				t.Errorf("Xid %d: action %s, want %s", xid, m.Action, action)
			}
			if wantFault := action == reason.ActionQuarantine; m.DeviceFault() != wantFault {
				t.Errorf("Xid %d: device fault %t, want %t", xid, m.DeviceFault(), wantFault)
			}
		}
	}
	for _, xid := range c.QuarantinedUntilReset {
		if m := catalogue.Match(nvidia, fmt.Sprintf("XID %d", xid)); m.Closes != reason.ClosesByReset {
			t.Errorf("Xid %d closes by %s, want reset", xid, m.Closes)
		}
	}
}

// Q7. The whole builtin table of Xids, written down a second time, so that a
// changed verdict is seen. Scope is that of the hardware: what hits the chip
// hits its partitions.
func TestEveryXidOfTheBuiltinTableKeepsItsVerdict(t *testing.T) {
	verdicts := map[string][]int{
		"note/ignore/gates/instance":        {14, 106, 107},
		"note/blameWorkload/gates/instance": {11, 13, 25, 31, 32, 43, 45, 68, 69, 80},
		"minor/watch/gates/instance": {8, 37, 38, 39, 40, 41, 44, 60, 66, 67, 70, 71, 72, 75, 76, 77, 82, 83, 84, 85, 86, 88, 89, 94,
			96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 139, 141},
		"minor/watch/gates/chip":         {92, 93, 108, 121, 137, 157, 160, 161, 162, 163, 164, 165, 168},
		"minor/quarantine/reset/chip":    {63},
		"major/quarantine/reset/chip":    {46, 48, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, 151, 155, 156, 158},
		"major/quarantine/operator/chip": {78, 142},
		"major/quarantine/repair/chip":   {54},
		"fatal/quarantine/repair/chip":   {79},
		"major/suspect/reset/chip":       {61, 122, 123, 124, 125, 144, 145, 146, 147, 148, 149, 150, 154, 159, 166, 167, 169, 170, 171, 172},
	}
	listed := map[int]string{}
	for verdict, xids := range verdicts {
		for _, xid := range xids {
			listed[xid] = verdict
		}
	}
	catalogue := reason.Builtin()
	for xid := 1; xid <= 300; xid++ {
		m := catalogue.Match(nvidia, fmt.Sprintf("critical XID %d reported by NVML", xid))
		got := fmt.Sprintf("%s/%s/%s/%s", m.Severity, m.Action, m.Closes, m.Scope)
		want, ok := listed[xid]
		if !ok {
			if m.Code != reason.XidUnrecognized || m.Action != reason.ActionSuspect {
				t.Errorf("Xid %d isn't listed: got %+v, want a suspicion of XidUnrecognized", xid, m)
			}
			continue
		}
		if got != want || m.Code == reason.XidUnrecognized {
			t.Errorf("Xid %d: got %s (%s), want %s", xid, got, m.Code, want)
		}
	}
}

// Q7. What the driver says without an Xid, and what no rule knows.
func TestMessagesWithoutAnXidGetAVerdictToo(t *testing.T) {
	tests := map[string]struct {
		driver, message string
		code            reason.Code
		action          reason.Action
		closes          reason.Closes
		severity        reason.Severity
	}{
		"no message at all, as from every device plugin, is believed": {"example.com/gpu", "", reason.UnhealthyWithoutMessage, reason.ActionQuarantine, reason.ClosesByGates, reason.SeverityMajor},
		"blanks are no message": {nvidia, " ; ", reason.UnhealthyWithoutMessage, reason.ActionQuarantine, reason.ClosesByGates, reason.SeverityMajor},
		"a text that nobody knows is believed, since the driver calls the device Unhealthy": {"gpu.example.com", "flux capacitor", reason.UnrecognizedMessage, reason.ActionQuarantine, reason.ClosesByGates, reason.SeverityMajor},
		"NVIDIA's driver says that a GPU is lost":                                           {nvidia, "GPU is lost", "GpuLost", reason.ActionQuarantine, reason.ClosesByGates, reason.SeverityMajor},
		"the same words from another driver are just a text":                                {"gpu.example.com", "GPU is lost", reason.UnrecognizedMessage, reason.ActionQuarantine, reason.ClosesByGates, reason.SeverityMajor},
		"a switch's SXid is no Xid":                                                         {nvidia, "SXid (PCI:0000:c3:00.0): 12028, Non-fatal", reason.UnrecognizedMessage, reason.ActionQuarantine, reason.ClosesByGates, reason.SeverityMajor},
		"the driver asks for a reset":                                                       {nvidia, "Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "XidRecoveryActionReset", reason.ActionQuarantine, reason.ClosesByReset, reason.SeverityMajor},
		"the driver asks for a drain and a reset":                                           {nvidia, "Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", "XidRecoveryActionReset", reason.ActionQuarantine, reason.ClosesByReset, reason.SeverityMajor},
		"the driver asks for a reboot":                                                      {nvidia, "Xid (PCI:0000:02:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "XidRecoveryActionReboot", reason.ActionQuarantine, reason.ClosesByRepair, reason.SeverityMajor},
		"the driver asks for nothing any more":                                              {nvidia, "Xid (PCI:0000:02:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "XidRecoveryActionNone", reason.ActionIgnore, reason.ClosesByGates, reason.SeverityNote},
		"the driver asks for something, and the text is missing":                            {nvidia, "critical XID 154 reported by NVML", "XidRecoveryActionChanged", reason.ActionSuspect, reason.ClosesByReset, reason.SeverityMajor},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := reason.Builtin().Match(test.driver, test.message)
			if m.Code != test.code || m.Action != test.action || m.Closes != test.closes || m.Severity != test.severity {
				t.Errorf("got %+v", m)
			}
		})
	}
}

// Q7, Q6. One message may say several things: the strongest counts, in whatever
// order they stand, so that a mild one never hides another.
func TestTheStrongestOfSeveralStatementsCounts(t *testing.T) {
	tests := map[string]struct {
		messages []string
		code     reason.Code
	}{
		"fatal beats an application's error":        {[]string{"Xid 31; Xid 79", "Xid 79; Xid 31", "XIDs 31, 79", "xid=79 after xid=31"}, "XidFallenOffBus"},
		"fatal beats another quarantine":            {[]string{"Xids 48 and 79", "XID 79: GPU has fallen off the bus; XID 48"}, "XidFallenOffBus"},
		"45 only follows another":                   {[]string{"xid 45, xid 95", "xid 95; xid 45"}, "XidUncontainedMemoryError"},
		"out at once beats a suspicion":             {[]string{"xid 9999; xid 63", "xid63; xid9999"}, "XidRowRemapPending"},
		"an unknown one isn't hidden by a mild one": {[]string{"xid 31; xid 9999", "xids 9999, 31"}, reason.XidUnrecognized},
		"an unknown text beside a mild one counts":  {[]string{"xid 31; ecc", "ecc; xid 31"}, reason.UnrecognizedMessage},
		"the same twice is that one":                {[]string{"xid 94; xid 94"}, "XidContainedMemoryError"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			first := reason.Builtin().Match(nvidia, test.messages[0])
			for _, message := range test.messages {
				m := reason.Builtin().Match(nvidia, message)
				if m.Code != test.code || m != first {
					t.Errorf("%q: got %+v, want %s", message, m, test.code)
				}
			}
		})
	}
}

// Q7. Every rule of the table can be documented, shown and recorded: its name is
// its own, its code is a label value, its verdict says what closes it.
func TestEveryBuiltinRuleIsCompleteAndReachable(t *testing.T) {
	label := regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)
	own := []reason.Code{reason.HealthUnknown, reason.DeviceMissing, reason.HardwareReplaced, reason.Adopted, reason.ByHand}
	names := map[string]bool{}
	for _, r := range reason.Builtin().Rules() {
		if names[r.Name] {
			t.Errorf("rule %s is there twice", r.Name)
		}
		names[r.Name] = true
		if !label.MatchString(string(r.Code)) || slices.Contains(own, r.Code) {
			t.Errorf("rule %s: code %q can't be given", r.Name, r.Code)
		}
		if r.Meaning == "" || r.Source == "" || r.Severity < reason.SeverityNote || r.Action == "" || r.Closes == "" ||
			r.Scope != device.ScopeChip && r.Scope != device.ScopeInstance {
			t.Errorf("rule %s is incomplete: %+v", r.Name, r)
		}
		if len(r.Xids) == 1 && r.Message == "" {
			if m := reason.Builtin().Match(nvidia, fmt.Sprintf("xid %d", r.Xids[0])); m.Rule != r.Name {
				t.Errorf("Xid %d is caught by %s before %s", r.Xids[0], m.Rule, r.Name)
			}
		}
	}
	if len(names) < 100 {
		t.Errorf("only %d rules", len(names))
	}
}

// Q7. A recorded decision tells by which catalogue and rule it was made, in the
// form in which it is kept.
func TestAMatchSurvivesTheRecordUnchanged(t *testing.T) {
	m := reason.Builtin().Match(nvidia, "XID 79: GPU has fallen off the bus")
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"code":"XidFallenOffBus","severity":"fatal","action":"quarantine","closes":"repair","scope":"chip","rule":"nvidia/xid-79","catalogue":"` + reason.Version + `"}`
	if string(text) != want {
		t.Errorf("recorded as %s\nwant        %s", text, want)
	}
	var back reason.Match
	if err := json.Unmarshal(text, &back); err != nil || back != m {
		t.Errorf("read back as %+v (%v), want %+v", back, err, m)
	}
}
