package device_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// Whatever a case waits for, its page says so in words that aren't the code's, says
// what happens next, and leaves nobody without something to do.
func TestAPageHasWordsForEveryStandingOfACase(t *testing.T) {
	opened := time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)
	key, err := device.NewDRA("gpu.example.com", "anvil-07", "gpu-3")
	if err != nil {
		t.Fatal(err)
	}
	match := reason.Builtin().Match(key.Driver, "XID 79")
	base := quarantine.Case{
		Device: key, Node: "anvil-07", Epoch: opened.UnixMilli(), Actor: "sickbay", Since: opened, FirstNotGood: opened,
		Reason: match, Severity: match.Severity, Message: "XID 79: `GPU` has fallen off the bus", LookedAt: opened,
		Reports: []device.Report{report("train-0", device.Unhealthy, "XID 79", "41")},
		Holders: []quarantine.Holder{{Pod: device.PodRef{Namespace: "team-kestrel", Name: "train-0", UID: "uid-train-0"}}},
	}
	later := opened.Add(time.Hour)
	quarantined := func(state quarantine.MarkState, waiting quarantine.Waiting) func(*quarantine.Case) {
		return func(c *quarantine.Case) {
			c.Phase, c.Waiting, c.LeaseUntil = quarantine.PhaseQuarantined, waiting, later
			c.Mark = quarantine.Mark{State: state, Name: "sickbay-x", Detail: "forbidden: `grant` it", RetryAt: later, InForceSince: opened, Restored: 1}
		}
	}
	recovering := func(waiting quarantine.Waiting, change func(*quarantine.Recovery)) func(*quarantine.Case) {
		return func(c *quarantine.Case) {
			quarantined(quarantine.MarkInForce, waiting)(c)
			c.Phase, c.Attempt, c.Holders, c.Mark.RetryAt = quarantine.PhaseRecovering, 2, nil, time.Time{}
			c.Recovery = &quarantine.Recovery{Token: 1, Began: opened, Gate: quarantine.GateEvidence, GateBegan: opened, Deadline: later}
			c.Litter = 1
			change(c.Recovery)
		}
	}
	for name, tc := range map[string]struct {
		change func(*quarantine.Case)
		says   []string
	}{
		"suspect": {func(c *quarantine.Case) { c.Phase, c.GraceUntil = quarantine.PhaseSuspect, later },
			[]string{"inside its grace window", "quarantined when the grace window ends at 2026-11-02 09:00:00 UTC", "Nothing has to be done yet."}},
		"suspect, missing": {func(c *quarantine.Case) {
			c.Phase, c.Absence = quarantine.PhaseSuspect, &quarantine.Absence{Reason: device.MissingFromPool, Since: opened, SettledAt: later}
		}, []string{"isn't listed any more, and nothing keeps it out", "counts as gone from 2026-11-02 09:00:00 UTC on"}},
		"suspect past its window": {func(c *quarantine.Case) {
			c.Phase, c.Waiting = quarantine.PhaseSuspect, quarantine.WaitingForRestriction
		}, []string{"when its grace window ended", "Look at the driver of `gpu.example.com` on node `anvil-07`"}},
		"suspect, and nobody reports": {func(c *quarantine.Case) {
			c.Phase, c.Waiting, c.Holders, c.Reports = quarantine.PhaseSuspect, quarantine.WaitingForEvidence, nil, nil
		}, []string{"nobody can tell how it is", "**Held by:** nobody", "**Health:** nobody reports on it", "Let a Pod use the device"}},
		"the mark is wanted":  {quarantined(quarantine.MarkWanted, quarantine.WaitingForMark), []string{"NOT kept out yet", "not yet; its mark is being made", "the mark is being written"}},
		"the mark is refused": {quarantined(quarantine.MarkRefused, quarantine.WaitingForMark), []string{"its mark was refused", "**Kept out:** NO: `forbidden: 'grant' it`", "the mark was refused, and is tried again at 2026-11-02 09:00:00 UTC", "Put right what was refused", "cordon the node"}},
		"the mark is adopted": {quarantined(quarantine.MarkAdopted, quarantine.WaitingForLook), []string{"found without its case", "a mark that is being confirmed", "it goes on by itself"}},
		"holder": {quarantined(quarantine.MarkInForce, quarantine.WaitingForHolder),
			[]string{"a Pod still has it", "**Kept out:** yes, since 2026-11-02 08:00:00 UTC; somebody removed or changed the mark once, and it was put back", "**Mark:** `sickbay-x` in force since 2026-11-02 08:00:00 UTC, lease until 2026-11-02 09:00:00 UTC", "Delete the Pod that has it, if it has to go: `team-kestrel/train-0`"}},
		"cool-down": {quarantined(quarantine.MarkInForce, quarantine.WaitingForCoolDown), []string{"nobody has it", "the device rests", "it goes on by itself"}},
		"recovery":  {quarantined(quarantine.MarkInForce, quarantine.WaitingForRecovery), []string{"due to be proven healthy", "`repaired` or new hardware, then all gates in one attempt", "SICKBAY_PROBE_NAMESPACE"}},
		"an attempt": {recovering(quarantine.WaitingForGates, func(r *quarantine.Recovery) {
			r.Gate, r.Job, r.Health, r.HealthAt = quarantine.GateCanary, quarantine.JobRunning, device.Healthy, opened
			r.Results = []quarantine.GateResult{{Gate: quarantine.GateEvidence, Verdict: quarantine.VerdictPassed, Began: opened, Ended: later, Evidence: "Healthy on our claim"}}
		}), []string{"being proven healthy: gate Canary of attempt 2", "### Attempt 2", "**Evidence:** passed at 2026-11-02 09:00:00 UTC after 1h0m0s: `Healthy on our claim`",
			"**Canary:** since 2026-11-02 08:00:00 UTC, until 2026-11-02 09:00:00 UTC, its program is running, Healthy on our claim at 2026-11-02 08:00:00 UTC", "it goes on by itself"}},
		"a taint of the driver": {recovering(quarantine.WaitingForDriver, func(r *quarantine.Recovery) { r.Blocked = []string{"gpu.example.com/broken"} }),
			[]string{"its driver stands in the way", "taints of its driver keep our claim out: `gpu.example.com/broken`", "`recovery.tolerate`"}},
		"a probe that can't run": {recovering(quarantine.WaitingForProbe, func(r *quarantine.Recovery) { r.Trouble = "image sickbay:1 can't be pulled" }),
			[]string{"a gate can't be tried", "can't be tried: `image sickbay:1 can't be pulled`", "Look at what stands in the way: `image sickbay:1 can't be pulled`"}},
		"its turn": {recovering(quarantine.WaitingForTurn, func(r *quarantine.Recovery) { r.Gate, r.Wait = quarantine.GateReturn, "1 of 1 of its node comes back" }),
			[]string{"waits for its turn to come back", "other devices come back first: `1 of 1 of its node comes back`"}},
		"an attempt that failed": {func(c *quarantine.Case) {
			quarantined(quarantine.MarkInForce, quarantine.WaitingForCoolDown)(c)
			c.RestUntil, c.Mark.RetryAt = later, time.Time{}
			c.Last = &quarantine.Attempted{Attempt: 1, Counted: true, Result: quarantine.GateResult{
				Gate: quarantine.GateProbe, Verdict: quarantine.VerdictFailed, Began: opened, Ended: opened.Add(time.Minute), Evidence: "exit code 3",
			}}
		}, []string{"### Attempt 1, over", "**Probe:** failed at 2026-11-02 08:01:00 UTC after 1m0s: `exit code 3`", "it may be tried again at 2026-11-02 09:00:00 UTC"}},
		"what is left of an attempt": {recovering(quarantine.WaitingForCleanUp, func(r *quarantine.Recovery) { r.Gate, r.Granted = quarantine.GateReturn, true }),
			[]string{"is being given back", "what was made for the attempt has to be gone first", "`sickbay.dev/attempt`"}},
		"advisory": {quarantined(quarantine.MarkAdvisory, quarantine.WaitingForHealth), []string{"nothing can keep it out", "**Kept out:** NO: `forbidden: 'grant' it`", "advisory only", "Cordon the node"}},
		"observed": {quarantined(quarantine.MarkObserved, quarantine.WaitingForHealth), []string{"the mode is observe", "none: mode observe"}},
		"moved": {func(c *quarantine.Case) {
			quarantined(quarantine.MarkInForce, quarantine.WaitingForOperator)(c)
			c.MovedTo = "gpu.example.com/anvil-07/gpu-4"
		}, []string{"until an operator decides", "listed as `gpu.example.com/anvil-07/gpu-4` now", "Find out which card is where"}},
		"retired": {func(c *quarantine.Case) {
			quarantined(quarantine.MarkInForce, quarantine.WaitingForOperator)(c)
			c.Phase = quarantine.PhaseRetired
			c.Words = []quarantine.Word{{Verb: quarantine.VerbRetire, Actor: "oncall@example.com", Reason: "third `time`\nthis week", At: later}}
		}, []string{"until it is repaired or replaced", "Repair or replace the device", "**Operator said:** `retire` at 2026-11-02 09:00:00 UTC by `oncall@example.com`: `third 'time' this week`"}},
		"gone": {func(c *quarantine.Case) {
			quarantined(quarantine.MarkInForce, quarantine.WaitingForReturn)(c)
			c.Phase, c.LeaseUntil, c.ForgetAt = quarantine.PhaseGone, time.Time{}, later
		}, []string{"isn't listed any more", "forgotten at 2026-11-02 09:00:00 UTC", "Find out why it isn't listed"}},
		"gone, and its mark stays": {func(c *quarantine.Case) {
			quarantined(quarantine.MarkLifting, quarantine.WaitingForOperator)(c)
			c.Phase, c.LeaseUntil = quarantine.PhaseGone, time.Time{}
		}, []string{"its mark could not be removed: `forbidden: 'grant' it`", "Delete its mark by hand"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := base
			tc.change(&c)
			page := shown(c)
			for _, want := range append(tc.says, "`gpu.example.com/anvil-07/gpu-3` on node `anvil-07`", "XidFallenOffBus (fatal): The GPU has fallen off the bus.",
				"`XID 79: 'GPU' has fallen off the bus`", "**Since:** 2026-11-02 08:00:00 UTC", "opened 2026-11-02 08:00:00 UTC by sickbay", "**Next:** ", "### What you can do\n\n- ") {
				if !strings.Contains(page, want) {
					t.Errorf("the page doesn't say %q:\n%s", want, page)
				}
			}
			if found := regexp.MustCompile(`WaitingFor|%!|0001-01-01|: never|\n- \n|\*\* \n`).FindString(page); found != "" {
				t.Errorf("the page says %q:\n%s", found, page)
			}
		})
	}
}

// The page offers those messages that the case would take, and no other.
func TestAPageOffersWhatTheCaseTakes(t *testing.T) {
	key, err := device.NewDRA("gpu.example.com", "anvil-07", "gpu-3")
	if err != nil {
		t.Fatal(err)
	}
	for _, phase := range []quarantine.Phase{quarantine.PhaseSuspect, quarantine.PhaseQuarantined, quarantine.PhaseRetired, quarantine.PhaseGone, quarantine.PhaseClosed} {
		c := quarantine.Case{Device: key, Phase: phase}
		page := shown(c)
		for _, verb := range quarantine.Verbs {
			// A case that is over has no workflow to send anything to.
			takes := c.Open() && quarantine.Refuse(c, quarantine.Message{Verb: verb, Actor: "oncall@example.com", Reason: "a spare came"}) == nil
			if offered := strings.Contains(page, fmt.Sprintf("- Send `%s`: ", verb)); offered != takes {
				t.Errorf("%s: the page offers %s: %t, and it is taken: %t\n%s", phase, verb, offered, takes, page)
			}
		}
	}
}
