package quarantine_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// The cases below are distilled from public reports; times are offsets from the
// start, and grace, lease and stability window are those of the cases: 300, 3600
// and 900 seconds, which are the defaults.
func TestTheDefaultsAreThoseOfTheCases(t *testing.T) {
	p := quarantine.DefaultPolicy()
	if p.Grace != 300*sec || p.Lease != 3600*sec || p.Stability != 900*sec {
		t.Errorf("grace %s, lease %s, stability %s; want 5m, 1h and 15m", p.Grace, p.Lease, p.Stability)
	}
}

// at names a moment of a case's table.
func (l *life) at(seconds int, e event) {
	l.t.Helper()
	l.heard = nil
	l.reach(time.Duration(seconds) * sec)
	l.tell(e)
}

func (l *life) must(ok bool, format string, args ...any) {
	l.t.Helper()
	if !ok {
		l.t.Errorf("t=%s: %s\n%s", l.now.Sub(start), fmt.Sprintf(format, args...), encode(l.t, l.c))
	}
}

// U1, O4. Case 01, a health report expires but the Pod keeps saying Healthy
// (kubernetes/kubernetes#140819, PR #140883): the window starts when Unknown
// becomes visible, is not dated back to an invented time, and an unchanged Healthy
// counts for nothing.
func TestCase01AReportThatExpiredSilently(t *testing.T) {
	l := live(t, gpu, enforce())
	healthy := MakeReading("train-0").Healthy().Version("88123")
	l.at(0, lost(healthy))
	l.must(!l.c.Open(), "Healthy opens nothing")
	// t=10, t=40: the driver stops, the kubelet's deadline passes; no event at all.
	l.at(600, lost(healthy))
	l.must(!l.c.Open() && l.c.GoodSince.IsZero(), "an unchanged Healthy is no evidence")
	l.at(900, lost(MakeReading("train-0").Unknown().Version("88200").SeenAt(900*sec)))
	l.must(l.c.Phase == quarantine.PhaseSuspect, "Unknown becomes visible")
	l.must(l.c.FirstNotGood.Equal(start.Add(900*sec)) && l.c.GraceUntil.Equal(start.Add(1200*sec)),
		"the window runs from t=900 to t=1200, is %s to %s", l.c.FirstNotGood, l.c.GraceUntil)
	l.must(len(l.heard) == 1 && strings.Contains(l.heard[0].Text, "visible since 2026-03-01T08:15:00Z, the silence may be older"),
		"the audit trail tells that the silence may be older: %+v", l.heard)
	// The watch repeats the Healthy of before: late, and so nothing.
	l.at(910, lost(healthy))
	l.must(l.c.Evidence().Value == device.Unknown && l.c.GoodSince.IsZero(), "the old Healthy is no evidence")
	// A live look at a node whose Lease stands still finds it Healthy: no freshness.
	silent := MakeLooked().Lease("2026-03-01T08:00:00Z").Reading(MakeReading("train-0").Healthy().Version("88201")).Answer()
	for _, s := range []int{920, 1000, 1100, 1199} {
		l.at(s, silent)
		l.must(l.c.Phase == quarantine.PhaseSuspect && l.c.GoodSince.IsZero(), "Healthy without a fresh Lease is no evidence")
	}
	// When the value was last confirmed is kept apart from it.
	l.must(l.c.LookedAt.Equal(l.now), "the case knows when it was last confirmed")
	l.at(1200, woke())
	l.must(l.c.Waiting == quarantine.WaitingForNode && l.c.Mark.State == quarantine.MarkNone, "no window ends on a node that is out, and nothing is marked")

	// Nor does such a Healthy count towards the stability window.
	advisory := live(t, plugged, enforce())
	advisory.at(0, observed(MakeReading("train-0").Unhealthy(majorFault)))
	advisory.at(0, reported(quarantine.OutcomeUnavailable, "no API"))
	still := func() event {
		return MakeLooked().Presence(nil).Lease("2026-03-01T08:00:00Z").Reading(MakeReading("train-0").Healthy().Version("2")).Answer()
	}
	for s := 10; s <= 7200; s += 60 {
		advisory.at(s, still())
		advisory.must(advisory.c.Phase == quarantine.PhaseQuarantined && advisory.c.GoodSince.IsZero(), "Healthy without a fresh Lease isn't stable")
	}
}

// O3, Q6. Case 02, the old endpoint overwrites or clears the new one's health
// during a rolling upgrade (kubernetes/kubernetes#140818, PR #140842): one case
// through the whole flap.
func TestCase02TwoEndpointsOverwriteEachOther(t *testing.T) {
	l := live(t, gpu, enforce())
	version := 0
	says := func(b *ReadingBuilder) event {
		version++
		return lost(b.Version(device.Version(itoa(version))).SeenAt(l.now.Sub(start)))
	}
	l.at(6, says(MakeReading("train-0").Unhealthy(majorFault)))
	l.must(l.c.Phase == quarantine.PhaseQuarantined, "the fault opens a case")
	epoch, lease, opened := l.c.Epoch, l.c.LeaseUntil, l.kinds()
	l.must(opened == "CaseOpened", "one audit line, is %q", opened)
	for _, row := range []struct {
		at int
		r  *ReadingBuilder
	}{
		{7, MakeReading("train-0").Healthy()},
		{9, MakeReading("train-0").Unhealthy(majorFault)},
		{12, MakeReading("train-0").Unknown()},
		{20, MakeReading("train-0").Unhealthy(majorFault)},
	} {
		l.at(row.at, says(row.r))
		l.must(l.c.Phase == quarantine.PhaseQuarantined && l.c.Epoch == epoch, "the same case goes on")
		l.must(l.c.LeaseUntil.Equal(lease) && l.c.GoodSince.IsZero(), "its clock isn't started anew")
		l.must(l.c.Evidence().Value == device.Unhealthy, "the known fault isn't downgraded to %s", l.c.Evidence().Value)
		l.must(l.owes() == "PutMark", "one mark is owed, is %q", l.owes())
		kinds := l.kinds()
		l.must(kinds == "", "no further audit line, is %q", kinds)
	}

	// A live look that falls into the blip reads what the old endpoint said. It
	// isn't believed for long enough to end anything.
	l.at(21, inForce())
	for _, row := range []struct {
		at int
		r  *ReadingBuilder
	}{
		{30, MakeReading("train-0").Healthy().Version("30")},
		{31, MakeReading("train-0").Unknown().Version("31")},
		{32, MakeReading("train-0").Unhealthy(majorFault).Version("32").SeenAt(32 * sec)},
	} {
		l.at(row.at, MakeLooked().Reading(row.r).Answer())
		l.must(l.c.Phase == quarantine.PhaseQuarantined && l.c.Epoch == epoch && l.c.Mark.State == quarantine.MarkInForce && l.c.LeaseUntil.Equal(lease),
			"the same case goes on, with its mark and its clock")
		l.must(l.c.Severity == reason.SeverityMajor && l.c.Reason.Code == "XidEngineTimeout", "the fault stays the case's reason")
		kinds := l.kinds()
		l.must(kinds == "", "no further audit line, is %q", kinds)
	}
}

// U1. Case 04, Unknown for ever because the driver has no health service
// (kubernetes/kubernetes#141855, #141856, KEP-4680): never known is no loss.
func TestCase04ADriverWithoutAHealthService(t *testing.T) {
	channel := device.Key{Driver: "compute-domain.example.com", Pool: "anvil-07", Device: "channel-0"}
	p := enforce()
	unmonitored, healthy := live(t, channel, p), live(t, gpu, p)
	unknown := observed(MakeReading("mpi-0").Unknown())
	unmonitored.at(0, unknown)
	healthy.at(0, observed(MakeReading("mpi-0").Healthy()))
	for _, s := range []int{300, 86400} {
		unmonitored.at(s, unknown)
		unmonitored.must(unmonitored.c.Phase == quarantine.PhaseNone && unmonitored.owes() == "", "never known opens nothing")
		healthy.at(s, woke())
		healthy.must(healthy.c.Phase == quarantine.PhaseNone, "the other device of the Pod is left alone")
	}
	// The other half: once the driver said something on that node, it is a loss.
	unmonitored.at(86401, lost(MakeReading("mpi-0").Unknown().Version("2").SeenAt(86401*sec)))
	unmonitored.must(unmonitored.c.Phase == quarantine.PhaseSuspect, "was known, now Unknown")
}

// O5. Case 07, one device in several containers and Pods that disagree (KEP-4680;
// core/v1 types.go): one case, the worst counts, both holders are known.
func TestCase07OneDeviceInManyStatuses(t *testing.T) {
	l := live(t, gpu, enforce())
	// The containers app and metrics of serve-a are one report; it comes twice.
	a := MakeReading("serve-a").Unhealthy(majorFault)
	l.at(0, observed(a))
	epoch := l.c.Epoch
	l.at(0, observed(a))
	kinds := l.kinds()
	l.must(l.c.Epoch == epoch && kinds == "", "the second container starts nothing, but %q", kinds)
	l.at(1, observed(MakeReading("serve-b").Healthy().SeenAt(sec)))
	l.must(l.c.Evidence().Value == device.Unhealthy && l.c.Phase == quarantine.PhaseQuarantined, "an older Healthy cancels nothing")
	l.at(8, observed(MakeReading("serve-b").Unhealthy(majorFault).Version("2").SeenAt(8*sec)))
	kinds = l.kinds()
	l.must(l.c.Epoch == epoch && kinds == "", "the second Pod's fault is the same fault, not %q", kinds)
	seen := map[string]time.Duration{}
	for _, r := range l.c.Reports {
		seen[r.Pod.Name] = r.Observed.Sub(start)
	}
	l.must(len(seen) == 2 && seen["serve-a"] == 0 && seen["serve-b"] == 8*sec, "each reporter's time is kept, is %v", seen)
	// Both Pods of the claim's reservedFor are holders.
	l.at(9, inForce())
	l.at(10, MakeLooked().Reading(a).Reading(MakeReading("serve-b").Unhealthy(majorFault).Version("2")).Answer())
	err := quarantine.Refuse(l.c, quarantine.Message{Verb: quarantine.VerbEvict, Actor: "oncall", Reason: "free it"})
	l.must(l.c.Waiting == quarantine.WaitingForHolder && strings.HasSuffix(err.Error(), "team-kestrel/serve-a team-kestrel/serve-b"),
		"both holders are waited for: %v", err)
	// One of them leaving doesn't free the device.
	l.at(11, MakeLooked().Ended("serve-a").Reading(MakeReading("serve-b").Unhealthy(majorFault).Version("2")).Answer())
	l.must(l.c.Waiting == quarantine.WaitingForHolder, "serve-b is still there")
}

// Q7. Case 10, which Xids condemn a device (NVIDIA/k8s-device-plugin health.go,
// #1974, #945, #1340, #1443; dra-driver-nvidia-gpu device_health.go;
// aws/eks-node-monitoring-agent#272; NVIDIA/gpu-operator#1065; leptonai/gpud#1165):
// what each does to a device's case.
func TestCase10WhichXidsCondemnADevice(t *testing.T) {
	rows := map[string]struct {
		xid    int
		phase  quarantine.Phase
		closes reason.Closes
		owes   string
	}{
		"t=0: 31 is the application's":          {31, quarantine.PhaseNone, "", ""},
		"t=10: 94 is contained":                 {94, quarantine.PhaseNone, "", ""},
		"t=20: 109 is out until a reset":        {109, quarantine.PhaseQuarantined, reason.ClosesByReset, "PutMark"},
		"t=30: 79 is out now":                   {79, quarantine.PhaseQuarantined, reason.ClosesByRepair, "PutMark"},
		"t=40: 9999 is unknown and not ignored": {9999, quarantine.PhaseSuspect, reason.ClosesByReset, ""},
		"never: 13":                             {13, quarantine.PhaseNone, "", ""},
		"never: 43":                             {43, quarantine.PhaseNone, "", ""},
		"never: 45":                             {45, quarantine.PhaseNone, "", ""},
		"never: 68":                             {68, quarantine.PhaseNone, "", ""},
	}
	for name, r := range rows {
		t.Run(name, func(t *testing.T) {
			l := live(t, gpu, enforce())
			l.at(0, observed(MakeReading("notebook").Unhealthy(fmt.Sprintf("critical XID %d reported by NVML", r.xid))))
			l.must(l.c.Phase == r.phase && l.c.Reason.Closes == r.closes && l.owes() == r.owes,
				"want %q, closed by %q, owing %q; is %q, %q, %q", r.phase, r.closes, r.owes, l.c.Phase, l.c.Reason.Closes, l.owes())
			for _, n := range l.heard {
				l.must(n.Catalogue == reason.Version && n.Rule != "" && n.Reason != "", "rule and catalogue are recorded: %+v", n)
			}
			l.must(r.phase == quarantine.PhaseNone || len(l.heard) == 1, "one decision is recorded, are %d", len(l.heard))
		})
	}
	t.Run("a new catalogue does not judge an open case again", func(t *testing.T) {
		l := live(t, gpu, enforce())
		l.at(0, observed(MakeReading("train-0").Unhealthy(fatalFault)))
		before := l.c.Reason
		again := MakeReading("train-0").Unhealthy(fatalFault)
		again.r.Fault = false
		again.r.Reason = reason.Match{Code: "XidFallenOffBus", Severity: reason.SeverityNote, Action: reason.ActionIgnore, Catalogue: "2027-01"}
		l.at(1, observed(again))
		l.must(l.c.Reason == before && l.c.Phase == quarantine.PhaseQuarantined, "the case keeps the judgement it was opened by")
	})
	t.Run("a new catalogue does not judge a closed case again", func(t *testing.T) {
		l := live(t, gpu, enforce())
		first := MakeReading("notebook").Unhealthy(suspectFault)
		l.at(0, observed(first))
		healthy := MakeReading("notebook").Healthy().Version("2")
		for s := 10; s <= 140; s += 10 {
			l.at(s, MakeLooked().Reading(healthy).Answer())
		}
		before := l.c
		l.must(before.End == quarantine.EndHealthBack, "the suspicion passed")
		again := *first
		again.r.Reason = reason.Match{Code: "SiteNewXid", Severity: reason.SeverityFatal, Action: reason.ActionQuarantine, Catalogue: "2027-01"}
		l.at(200, observed(&again))
		l.must(string(encode(t, l.c)) == string(encode(t, before)), "the same statement opens nothing")
	})
}

// O8, Q10. Case 12, a card disappears without an Xid (NVIDIA/NVSentinel#155;
// aws/eks-node-monitoring-agent PR #94; NVIDIA/kubevirt-gpu-device-plugin PR #105;
// leptonai/gpud PR #944): it is missing, handled like a hardware fault, and not
// forgotten.
func TestCase12ACardDisappearsWithoutAWord(t *testing.T) {
	l := live(t, gpu, enforce())
	other := live(t, device.Key{Driver: gpu.Driver, Pool: gpu.Pool, Device: "gpu-4"}, enforce())
	l.at(0, listed(oldCard))
	other.at(0, listed(newCard))
	l.must(!l.c.Open(), "eight devices, no case")
	// t=100: the node boots anew, and for a moment there is no pool at all. t=160: a
	// complete pool of seven.
	booting := live(t, gpu, enforce())
	booting.at(100, missing(device.PoolGone))
	booting.must(!booting.c.Open(), "a pool that is gone as a whole says nothing of the device")
	l.at(160, missing(device.MissingFromPool))
	other.at(160, listed(newCard))
	l.must(l.c.Phase == quarantine.PhaseSuspect && l.c.Reason.Code == reason.DeviceMissing, "gpu-3 is missing")
	l.must(l.c.Severity == reason.SeverityMajor && l.c.Reason.Action == reason.ActionQuarantine, "as grave as a hardware fault")
	other.must(!other.c.Open(), "the other seven have no case")
	l.at(161, missing(device.MissingFromPool))
	l.must(l.c.Absence.Since.Equal(start.Add(160*sec)), "a second report is the same absence")
	l.at(220, MakeLooked().Missing(device.MissingFromPool).Answer())
	l.must(l.c.Phase == quarantine.PhaseGone && l.owes() == "PutMark", "gone, and out when it comes back; owes %q", l.owes())
	l.at(221, inForce())
	l.at(24*3600, MakeLooked().Holder("train-0").Missing(device.MissingFromPool).Answer())
	l.must(l.c.Phase == quarantine.PhaseGone && l.c.Mark.State == quarantine.MarkInForce, "a day later it isn't forgotten")
	l.must(len(l.c.Holders) == 1 && l.c.Holders[0].Claim == "train-0-gpu", "the claim that has it allocated stays in sight, are %v", l.c.Holders)
}

// R5, Q5. Case 22, a fault right after a release is cancelled with it
// (NVIDIA/NVSentinel#1451): the new fault is a new epoch, and nothing that is
// still on its way to the old one touches it.
func TestCase22AFaultRightAfterTheEndOfACase(t *testing.T) {
	p := enforce()
	p.Stability = 60 * sec
	l := live(t, gpu, p)
	l.at(0, observed(MakeReading("train-0").Unhealthy(majorFault).Version("1")))
	l.at(1, reported(quarantine.OutcomeUnavailable, "no DeviceTaintRule"))
	healthy := MakeReading("train-0").Healthy().Version("2")
	l.at(30, MakeLooked().Reading(healthy).Answer())
	l.at(40, MakeLooked().Reading(healthy).Answer())
	l.at(100, MakeLooked().Reading(healthy).Answer())
	first := l.c
	l.must(first.Phase == quarantine.PhaseClosed, "q-1 is over at t=100")
	l.at(101, observed(MakeReading("train-0").Unhealthy(majorFault).Version("3").SeenAt(101*sec)))
	l.must(l.c.Phase == quarantine.PhaseQuarantined && l.c.Epoch > first.Epoch && l.owes() == "PutMark", "t=101 is no duplicate of t=0 but q-2")
	l.at(102, inForce())
	// t=103: q-1's clean-up is still running. Its answers carry q-1's epoch.
	second := l.c
	l.at(103, always(quarantine.MarkReported{Outcome: quarantine.OutcomeLifted, Epoch: first.Epoch}))
	l.must(string(encode(t, l.c)) == string(encode(t, second)), "q-1's clean-up changes nothing of q-2")
	// If it removed the mark all the same, that is put back.
	l.at(104, markDeleted())
	l.must(l.c.Mark.State == quarantine.MarkWanted && l.owes() == "PutMark Look", "q-2's mark is asserted again; owes %q", l.owes())
	l.at(105, inForce())
	l.must(l.c.Open() && l.c.Mark.State == quarantine.MarkInForce, "the device is in quarantine after t=103")
}

// Q10, R1. Case 25, the card was swapped (NVIDIA/NVSentinel#1553): the old card's
// case ends as replaced, the new one gets all gates and a clean history, neither
// freed at once nor condemned for ever.
func TestCase25ASwappedCard(t *testing.T) {
	l := live(t, gpu, enforce())
	l.at(0, observed(MakeReading("train-0").Unhealthy(fatalFault)))
	l.at(1, inForce())
	l.at(2, MakeLooked().Ended("train-0").Answer())
	old := l.c
	l.must(old.Reason.Closes == reason.ClosesByRepair && old.Incarnation == oldCard, "GPU-old's fault needs hands")
	// t=86400: the node boots anew. No event of the case's own.
	l.at(86460, listed(newCard))
	kinds := l.kinds()
	l.must(strings.Contains(kinds, "HardwareReplaced CaseOpened"), "the old case ends as replaced; announced %q", kinds)
	l.must(l.c.Epoch > old.Epoch && l.c.Incarnation == newCard && l.c.Reports == nil && l.c.Attempt == 0, "GPU-new has a clean history")
	l.must(l.c.Reason.Code == reason.HardwareReplaced && l.c.Reason.Closes == reason.ClosesByGates, "nothing but the gates is between it and service")
	l.must(l.c.Phase == quarantine.PhaseQuarantined && l.c.Mark.State == quarantine.MarkInForce, "it isn't freed")
	l.at(86461, func(c quarantine.Case, _ time.Time) quarantine.Event {
		// The new epoch's mark is the old one's object, written anew.
		m := oldMark()
		return quarantine.MarkReported{Outcome: quarantine.OutcomeInForce, Epoch: c.Epoch, Revision: c.Mark.Revision, Name: m.Name, Before: &m}
	})
	l.must(l.c.Reason.Code == reason.HardwareReplaced && l.c.Severity == reason.SeverityMajor && l.c.Attempt == 0 && l.c.Mark.Written == l.c.Mark.Revision,
		"what the old card's mark said is nothing to GPU-new: %s %s", l.c.Reason.Code, l.c.Severity)
	l.at(86462, MakeLooked().Presence(&quarantine.Inventory{Present: true, Now: newCard}).Answer())
	l.at(86462+301, woke())
	l.must(l.c.Waiting == quarantine.WaitingForRecovery, "its recovery is what comes next")

	renumbered := live(t, gpu, enforce())
	renumbered.at(0, observed(MakeReading("train-0").Unhealthy(fatalFault)))
	renumbered.at(1, inForce())
	renumbered.at(2, MakeLooked().Ended("train-0").Answer())
	epoch := renumbered.c.Epoch
	renumbered.at(86460, always(quarantine.Inventory{Present: true, Now: newCard, MovedTo: "gpu.example.com/anvil-07/gpu-5"}))
	renumbered.must(renumbered.c.Epoch == epoch && renumbered.c.Waiting == quarantine.WaitingForOperator, "an index that moved at a boot is no replacement")
}

// Case 35, a Pod that uses DRA through plain resources.limits
// (kubernetes/kubernetes#141290, #141467, PR #130653): who must leave is whom the
// claim is reserved for, and neither a Pod's spec nor that it is gone.
func TestCase35AHolderThatNoSpecNames(t *testing.T) {
	l := live(t, gpu, enforce())
	// t=0, t=1: the Pod is there, and its status names the claim; no event of the
	// case's own.
	bad := MakeReading("legacy-1").Unhealthy("")
	l.at(5, observed(bad))
	l.at(6, inForce())
	l.at(7, MakeLooked().Reading(bad).Answer())
	l.must(l.c.Waiting == quarantine.WaitingForHolder, "the Pod holds the device")
	// The mark keeps others out and makes nobody leave. The Pod is deleted by
	// somebody; its claim is still reserved for it.
	for _, s := range []int{60, 3600, 86400} {
		l.at(s, MakeLooked().Ended("legacy-1").Holder("legacy-1").Answer())
		l.must(l.c.Held() && l.c.Waiting == quarantine.WaitingForHolder, "reservedFor says that it is held, waits for %q", l.c.Waiting)
	}
	l.at(86401, MakeLooked().Ended("legacy-1").Answer())
	l.must(!l.c.Held() && l.c.Waiting == quarantine.WaitingForCoolDown, "nobody has it any more, waits for %q", l.c.Waiting)
}

// Invariant 9, U1. Case 49, signals at continue-as-new (temporalio/sdk-go#533,
// sdk-dotnet#427, documentation PR #1216): the state alone carries a case from run
// to run; a run that begins with a look ends where the last word leaves it, and no
// clock starts anew.
func TestCase49ACaseIsCarriedFromRunToRun(t *testing.T) {
	carry := func(l *life) {
		var next quarantine.Case
		if err := json.Unmarshal(encode(t, l.c), &next); err != nil {
			t.Fatal(err)
		}
		l.c = next
	}
	s1 := observed(MakeReading("train-0").Healthy().Version("2"))
	s2 := observed(MakeReading("train-0").Unhealthy(fatalFault).Version("3"))
	level := MakeLooked().Reading(MakeReading("train-0").Unhealthy(fatalFault).Version("3")).Answer()
	r1 := []step{
		{0, observed(MakeReading("train-0").Unhealthy(majorFault).Version("1"))}, {0, inForce()},
		{0, MakeLooked().Reading(MakeReading("train-0").Unhealthy(majorFault).Version("1")).Answer()},
	}
	ends := map[string]func(l *life){
		"both were taken in":                           func(l *life) { l.at(1, s1); l.at(1, s2); carry(l) },
		"the second came to the next run":              func(l *life) { l.at(1, s1); carry(l); l.at(2, s2) },
		"the second was lost, the next run reads live": func(l *life) { l.at(1, s1); carry(l); l.at(2, level) },
		"they came the other way round":                func(l *life) { l.at(1, s2); l.at(1, s1); carry(l) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			l := live(t, gpu, enforce())
			l.run(r1)
			lease := l.c.LeaseUntil
			end(l)
			l.must(l.c.Evidence().Value == device.Unhealthy && l.c.Severity == reason.SeverityFatal && l.c.Phase == quarantine.PhaseQuarantined,
				"s2 isn't lost")
			l.must(l.c.LeaseUntil.Equal(lease), "the lease ends when it would have")
		})
	}
	t.Run("a grace window goes on where it was", func(t *testing.T) {
		l := live(t, gpu, enforce())
		l.at(0, lost(MakeReading("train-0").Unknown()))
		for s := 60; s < 300; s += 60 {
			l.at(s, MakeLooked().Reading(MakeReading("train-0").Unknown()).Answer())
			carry(l)
		}
		l.must(l.c.GraceUntil.Equal(start.Add(300*sec)), "the window ends at t=300, not %s", l.c.GraceUntil)
		l.at(300, woke())
		l.must(l.c.Waiting == quarantine.WaitingForRestriction && l.owes() == "Look", "the window is over, and a look has to find it so")
	})
}

// U1. Case 18, two reasons take turns (aws/eks-node-monitoring-agent#39): its rows at
// t=0, t=60, t=120 and t=1800 as faults of the device that only raise suspicion, with
// the moments that the producer gives them. The window runs from t=0 by the case's own
// clock, and needs no reason twice in a row: at its end the device is quarantined. The
// same with Unknown in between, which doesn't restart it either; a fault that is one
// at once ends it at once.
func TestCase18TwoReasonsThatTakeTurns(t *testing.T) {
	const other = "critical XID 9998 reported by NVML"
	says := func(s int, version, message string) event {
		return observed(MakeReading("train-0").Unhealthy(message).Version(device.Version(version)).SeenAt(time.Duration(s) * sec))
	}
	t.Run("codes 101 and 4", func(t *testing.T) {
		l := live(t, gpu, enforce())
		l.at(0, says(0, "1", suspectFault))
		l.must(l.c.Phase == quarantine.PhaseSuspect && l.c.GraceUntil.Equal(start.Add(300*sec)), "t=0 begins the window")
		l.at(60, says(60, "2", other))
		l.must(l.c.GraceUntil.Equal(start.Add(300*sec)), "t=60 restarts nothing")
		l.at(120, says(120, "3", suspectFault))
		l.must(l.c.GraceUntil.Equal(start.Add(300*sec)) && l.c.FirstNotGood.Equal(start), "t=120 restarts nothing")
		l.at(299, woke())
		l.must(l.c.Phase == quarantine.PhaseSuspect, "a second before its end it is suspect")
		l.at(300, woke())
		l.must(l.c.Phase == quarantine.PhaseQuarantined, "at its end it is quarantined, long before t=1800")
		l.at(1800, says(1800, "4", other))
		l.must(l.c.Phase == quarantine.PhaseQuarantined && l.c.FirstNotGood.Equal(start), "t=1800 is more of the same")
	})
	t.Run("with Unknown in between", func(t *testing.T) {
		l := live(t, gpu, enforce())
		l.at(0, lost(MakeReading("train-0").Unknown()))
		l.at(60, says(60, "2", other))
		l.at(120, lost(MakeReading("train-0").Unknown().Version("3").SeenAt(120*sec)))
		l.must(l.c.Phase == quarantine.PhaseSuspect && l.c.GraceUntil.Equal(start.Add(300*sec)), "nothing restarts the window")
		l.at(180, says(180, "4", fatalFault))
		l.must(l.c.Phase == quarantine.PhaseQuarantined, "and a fault that is one at once ends it at once")
	})
}
