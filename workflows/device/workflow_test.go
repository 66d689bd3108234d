package device_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// A fault that a Pod's status shows leads to one mark, and to a case that says
// whose turn it is. Part of Q1.
func TestAFaultIsMarkedOnce(t *testing.T) {
	r := newRun(t)
	bad := report("train-0", device.Unhealthy, "XID 79: GPU has fallen off the bus", "41")
	r.world.set(bad)
	r.at(0, func() { r.observe(bad) })
	r.at(time.Second, func() { r.observe(bad); r.observe(bad) })
	r.at(time.Minute, func() {
		c := r.state()
		if c.Mark.State != quarantine.MarkInForce || c.Waiting != quarantine.WaitingForHolder {
			t.Errorf("after a minute: mark %s, %s; want it in force and the holder waited for", c.Mark.State, c.Waiting)
		}
		if puts, _ := r.world.count(); puts != 1 {
			t.Errorf("%d marks written, want 1", puts)
		}
	})
	r.stop(2 * time.Minute)
	r.ExecuteWorkflow(devicewf.WorkflowType, devicewf.NewState(r.key))
}

// A mark is written while a look is still waiting for its answer's retry, and a
// write that fails is tried again until it succeeds.
func TestAMarkIsTriedUntilItIsThere(t *testing.T) {
	r := newRun(t)
	bad := report("train-0", device.Unhealthy, "XID 48", "41")
	r.world.set(bad)
	r.world.fail = 3
	r.at(0, func() { r.observe(bad) })
	r.at(time.Minute, func() {
		if c := r.state(); c.Mark.State != quarantine.MarkInForce {
			t.Errorf("mark %s (%s), want it in force", c.Mark.State, c.Mark.Detail)
		}
		if puts, _ := r.world.count(); puts != 4 {
			t.Errorf("%d writes, want three that fail and one that succeeds", puts)
		}
	})
	r.stop(2 * time.Minute)
	r.ExecuteWorkflow(devicewf.WorkflowType, devicewf.NewState(r.key))
}

// A fault that is confirmed while its run only waits for a look to end, so as to
// continue, is marked at once and not when the API server has answered. Part of Q1.
func TestAMarkDoesNotWaitForALookThatHangs(t *testing.T) {
	r := newRun(t)
	unknown := report("train-0", device.Unknown, "", "41")
	bad := report("train-0", device.Unhealthy, "XID 79", "43")
	r.world.set(unknown)
	r.world.hang = true
	r.at(0, func() { r.observe(unknown) })
	r.at(time.Minute, func() {
		if _, looks := r.world.count(); looks != 1 {
			t.Errorf("%d looks, want one that hangs", looks)
		}
		r.SetCurrentHistoryLength(60)
		r.observe(bad)
	})
	r.at(time.Minute+time.Second, func() {
		if c := r.state(); c.Mark.State != quarantine.MarkInForce {
			t.Errorf("%s, mark %s; want it in force", c.Phase, c.Mark.State)
		}
	})
	r.stop(2 * time.Minute)
	r.ExecuteWorkflow(devicewf.WorkflowType, devicewf.NewState(r.key))
}

// A refused mark is shown with the API server's words and tried again for ever.
func TestARefusedMarkIsShownAndTriedAgain(t *testing.T) {
	r := newRun(t)
	bad := report("train-0", device.Unhealthy, "XID 48", "41")
	r.world.set(bad)
	r.world.refuse = "the API server forbids to create DeviceTaintRule"
	r.at(0, func() { r.observe(bad) })
	r.at(30*time.Second, func() {
		c := r.state()
		if c.Waiting != quarantine.WaitingForMark || !strings.Contains(c.Mark.Detail, "forbids") {
			t.Errorf("%s, %q; want it to wait for the mark and say why", c.Waiting, c.Mark.Detail)
		}
		if details := shown(c); !strings.Contains(details, "forbids") {
			t.Errorf("the UI doesn't show the refusal:\n%s", details)
		}
		r.world.mu.Lock()
		r.world.refuse = ""
		r.world.mu.Unlock()
	})
	r.at(3*time.Minute, func() {
		if c := r.state(); c.Mark.State != quarantine.MarkInForce {
			t.Errorf("mark %s, want it in force once the right was granted", c.Mark.State)
		}
	})
	r.stop(4 * time.Minute)
	r.ExecuteWorkflow(devicewf.WorkflowType, devicewf.NewState(r.key))
}

// A suspect's case ends by itself once live looks find the device healthy, and
// nothing was marked. Liveness of the Unknown path. Case 01, "expose when it was
// last confirmed": the page in the UI says it beside the value.
func TestAnUnknownThatPassesLeavesNothingBehind(t *testing.T) {
	r := newRun(t)
	unknown := report("train-0", device.Unknown, "", "41")
	r.world.set(unknown)
	r.at(0, func() { r.observe(unknown) })
	r.at(time.Minute, func() {
		if c := r.state(); c.Phase != quarantine.PhaseSuspect {
			t.Errorf("phase %s, want Suspect", c.Phase)
		}
		if want := "Unknown by 1 reading; last live look " + r.state().LookedAt.Format(time.DateTime); !strings.Contains(shown(r.state()), want) {
			t.Errorf("the UI doesn't show %q:\n%s", want, shown(r.state()))
		}
		healthy := report("train-0", device.Healthy, "", "57")
		r.world.set(healthy)
		r.observe(healthy)
	})
	r.ExecuteWorkflow(devicewf.WorkflowType, devicewf.NewState(r.key))
	if !r.IsWorkflowCompleted() || r.GetWorkflowError() != nil {
		t.Fatalf("completed %v, error %v; want the case to end", r.IsWorkflowCompleted(), r.GetWorkflowError())
	}
	c := r.state()
	if c.End != quarantine.EndHealthBack {
		t.Errorf("ended as %q, want HealthBack", c.End)
	}
	if puts, _ := r.world.count(); puts != 0 {
		t.Errorf("%d marks written for an Unknown, want none", puts)
	}
	if len(r.world.notices) == 0 || r.world.notices[len(r.world.notices)-1].Kind != quarantine.NoticeClosed {
		t.Errorf("the end was not announced: %+v", r.world.notices)
	}
}

// Operators' messages come by signal and by update. What can't be read or is
// refused is on record with its reason, and never dropped.
func TestMessagesAreAnsweredOrRefusedOnRecord(t *testing.T) {
	r := newRun(t)
	bad := report("train-0", device.Unhealthy, "XID 79", "41")
	r.at(0, func() { r.observe(bad) })
	r.at(10*time.Second, func() {
		r.SignalWorkflow("release", "not an object")
		r.SignalWorkflow("release", map[string]string{"actor": "ops@example.com"})
		// A field that nobody knows may be a misspelt one.
		r.SignalWorkflow("extend", map[string]string{"actor": "ops@example.com", "reason": "spare ordered", "fro": "48h"})
		r.SignalWorkflow("retire", map[string]string{"actor": "ops@example.com", "reason": "third time"})
	})
	r.at(20*time.Second, func() {
		r.UpdateWorkflow("release", "u1", &updates{t: t, wantRefusal: "send repaired once it is"},
			devicewf.OperatorPayload{Actor: "ops@example.com", Reason: "looks fine"})
		r.UpdateWorkflow("repaired", "u2", &updates{t: t, wantRefusal: "it is for epoch 7, and the open case is of epoch "},
			devicewf.OperatorPayload{Actor: "ops@example.com", Reason: "riser replaced", Epoch: 7})
		r.UpdateWorkflow("repaired", "u3", &updates{t: t, wantTurnedAway: "say who you are"},
			devicewf.OperatorPayload{Reason: "riser replaced"})
		r.UpdateWorkflow("repaired", "u4", &updates{t: t, wantTurnedAway: `unknown field "tiket"`},
			map[string]string{"actor": "ops@example.com", "reason": "riser replaced", "tiket": "RMA-7"})
		// Tools write a large number with an exponent.
		r.UpdateWorkflow("repaired", "u5", &updates{t: t}, json.RawMessage(fmt.Sprintf(
			`{"actor":"ops@example.com","reason":"riser replaced","ticket":"RMA-7","epoch":%.12e}`, float64(r.state().Epoch))))
	})
	r.at(time.Minute, func() {
		c := r.state()
		if c.Phase != quarantine.PhaseQuarantined {
			t.Errorf("phase %s, want Quarantined after retire and repaired", c.Phase)
		}
		refused := r.world.noticed(quarantine.NoticeRefused)
		if refused != 5 {
			t.Errorf("%d refusals on record, want the unreadable, the reasonless and the misspelt signal, and the updates that name who sent them", refused)
		}
		for _, want := range []string{"send repaired once it is", "it is for epoch 7", "ticket `RMA-7`"} {
			if !strings.Contains(shown(c), want) {
				t.Errorf("the UI doesn't show %q:\n%s", want, shown(c))
			}
		}
		checkSent(t, r.world.notices)
	})
	r.stop(2 * time.Minute)
	r.ExecuteWorkflow(devicewf.WorkflowType, devicewf.NewState(r.key))
}

// checkSent checks that decisions that an operator's word led to say which message of the
// run it was.
func checkSent(t *testing.T, notices []quarantine.Notice) {
	t.Helper()
	var sent []string
	for _, n := range notices {
		if n.Kind != quarantine.NoticeMessage && n.Kind != quarantine.NoticeRefused {
			continue
		}
		if n.Sent.Run == "" {
			t.Errorf("%s doesn't say in which run it came", n.Text)
		}
		way := "signal"
		if n.Sent.Update {
			way = "update"
		}
		sent = append(sent, fmt.Sprintf("%s %s %d", way, n.Sent.Verb, n.Sent.Nth))
	}
	slices.Sort(sent)
	want := []string{
		"signal extend 1", "signal release 1", "signal release 2", "signal retire 1", "update release 1", "update repaired 1", "update repaired 2",
	}
	if !slices.Equal(sent, want) {
		t.Errorf("the messages were %q, want %q", sent, want)
	}
}

// Cancelling a case's workflow in the UI doesn't end it: the refusal is on
// record, and the case goes on. Case 22, row t=100: no cancellation is left over
// that could swallow the next fault.
func TestACaseCannotBeCancelled(t *testing.T) {
	r := newRun(t)
	bad := report("train-0", device.Unhealthy, "XID 79", "41")
	r.world.set(bad)
	r.at(0, func() { r.observe(bad) })
	r.at(10*time.Second, r.CancelWorkflow)
	r.at(90*time.Minute, func() {
		c := r.state()
		if c.Phase != quarantine.PhaseQuarantined || c.Mark.State != quarantine.MarkInForce {
			t.Errorf("%s, mark %s; want the case to go on", c.Phase, c.Mark.State)
		}
		if r.world.noticed(quarantine.NoticeRefused) != 1 {
			t.Errorf("%d refusals on record, want the cancellation's", r.world.noticed(quarantine.NoticeRefused))
		}
		if r.world.noticed(quarantine.NoticeExtended) == 0 {
			t.Error("the lease was not extended after the cancellation: timers stand still")
		}
	})
	r.stop(2 * time.Hour)
	r.ExecuteWorkflow(devicewf.WorkflowType, devicewf.NewState(r.key))
}

// Somebody tried to cancel a case's workflow; operators' updates are answered all the
// same, also those that wait until decisions are announced. Case 22, row t=100.
func TestAfterACancellationOperatorsAreStillAnswered(t *testing.T) {
	r := newRun(t)
	bad := report("train-0", device.Unhealthy, "XID 79", "41")
	r.world.set(bad)
	r.at(0, func() { r.observe(bad) })
	r.at(10*time.Second, func() {
		r.CancelWorkflow()
		// More than can be announced at once.
		for range 15 {
			r.SignalWorkflowSkippingWorkflowTask("retire", map[string]string{"actor": "ops@example.com"})
		}
		r.UpdateWorkflow("repaired", "u1", &updates{t: t}, devicewf.OperatorPayload{Actor: "late@example.com", Reason: "riser replaced"})
	})
	r.at(time.Minute, func() {
		words := r.state().Words
		if len(words) != 1 || words[0].Actor != "late@example.com" {
			t.Errorf("words %+v, want the one that came by update", words)
		}
	})
	r.stop(2 * time.Minute)
	r.ExecuteWorkflow(devicewf.WorkflowType, devicewf.NewState(r.key))
}

// Somebody started the workflow by hand, and named no device: nothing comes of it
// but an error that says so, and no decision about nothing reaches the trail.
func TestAWorkflowWithoutADeviceEnds(t *testing.T) {
	r := newRun(t)
	r.ExecuteWorkflow(devicewf.WorkflowType, devicewf.State{Version: 1})
	if err := r.GetWorkflowError(); err == nil || !strings.Contains(err.Error(), "started without a device") {
		t.Errorf("ended with %v", err)
	}
}

// A traceparent is in every task's input: what isn't one is not carried on.
func TestOnlyATraceparentIsCarriedOn(t *testing.T) {
	const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for given, want := range map[string]string{traceparent: traceparent, strings.Repeat("x", 400_000): "", "00-4bf9": ""} {
		r := newRun(t)
		bad := report("train-0", device.Unhealthy, "XID 79", "41")
		r.world.set(bad)
		r.at(0, func() {
			r.SignalWorkflow(devicewf.SignalObserved, devicewf.Signal[quarantine.Observed]{
				Device: r.key, Event: quarantine.Observed{Node: "anvil-07", Readings: []quarantine.Reading{classified(bad)}}, TraceParent: given,
			})
		})
		r.at(time.Minute, func() {
			value, err := r.QueryWorkflow(devicewf.QueryCase)
			if err != nil {
				t.Fatal(err)
			}
			var state devicewf.State
			if err := value.Get(&state); err != nil || state.TraceParent != want || !state.Case.Open() {
				t.Errorf("of %d characters %q is carried on (%v), want %q", len(given), state.TraceParent, err, want)
			}
		})
		r.stop(time.Hour)
		r.ExecuteWorkflow(devicewf.WorkflowType, devicewf.NewState(r.key))
	}
}

// A signal that names another device changes nothing here.
func TestASignalForAnotherDeviceIsRefused(t *testing.T) {
	r := newRun(t)
	bad := report("train-0", device.Unhealthy, "XID 79", "41")
	other, _ := device.NewDRA("gpu.example.com", "anvil-07", "gpu-4")
	r.at(0, func() {
		r.observe(report("train-0", device.Unknown, "", "40"))
		r.SignalWorkflow(devicewf.SignalObserved, devicewf.Signal[quarantine.Observed]{
			Device: other, Event: quarantine.Observed{Readings: []quarantine.Reading{classified(bad)}},
		})
	})
	r.at(10*time.Second, func() {
		if c := r.state(); c.Phase != quarantine.PhaseSuspect {
			t.Errorf("phase %s, want Suspect: the fault was another device's", c.Phase)
		}
	})
	r.stop(time.Minute)
	r.ExecuteWorkflow(devicewf.WorkflowType, devicewf.NewState(r.key))
}

// Case 49: every message that was acknowledged is in the state that the next run gets.
// That none is lost in the very moment of the decision to continue can only be
// seen on a real server: tests/e2e.
func TestMessagesAreCarriedIntoTheNextRun(t *testing.T) {
	r := newRun(t)
	unknown := report("train-0", device.Unknown, "", "41")
	r.world.set(unknown)
	start := r.Now()
	r.at(0, func() { r.observe(unknown) })
	r.at(5*time.Second, func() {
		r.observe(unknown)
		// s1 and s2 of the case, one behind the other.
		r.observe(report("train-0", device.Healthy, "", "42"))
		r.observe(report("train-0", device.Unhealthy, "XID 79", "43"))
		r.SignalWorkflow("extend", map[string]string{"actor": "ops@example.com", "reason": "parts ordered", "for": "4h"})
		r.world.set(report("train-0", device.Unhealthy, "XID 79", "43"))
	})
	r.at(6*time.Second, func() { r.SetContinueAsNewSuggested(true); r.observe(unknown) })
	r.ExecuteWorkflow(devicewf.WorkflowType, devicewf.NewState(r.key))
	next := continued(t, r)
	c := next.Case
	if c.Phase != quarantine.PhaseQuarantined || c.Severity.String() != "fatal" {
		t.Errorf("next run starts as %s (%s), want Quarantined, fatal: s2 was acknowledged", c.Phase, c.Severity)
	}
	if want := start.Add(5*time.Second + 4*time.Hour); !c.LeaseUntil.Equal(want) {
		t.Errorf("lease until %s, want %s: the extension was acknowledged", c.LeaseUntil, want)
	}
	if next.Runs != 1 {
		t.Errorf("run %d, want 1", next.Runs)
	}
}

// A run that continues keeps the moments of its deadlines and looks at the level
// first, so that an edge lost anywhere heals. Case 49: no timer starts over.
func TestTheNextRunLooksFirstAndKeepsItsDeadlines(t *testing.T) {
	first := newRun(t)
	unknown := report("train-0", device.Unknown, "", "41")
	first.world.set(unknown)
	first.at(0, func() { first.observe(unknown) })
	first.at(2*time.Minute, func() { first.SetContinueAsNewSuggested(true); first.observe(unknown) })
	first.ExecuteWorkflow(devicewf.WorkflowType, devicewf.NewState(first.key))
	state := continued(t, first)
	deadline := state.Case.GraceUntil

	second := newRun(t)
	second.SetStartTime(first.Now())
	second.world.set(report("train-0", device.Unhealthy, "XID 79", "43"))
	second.at(5*time.Second, func() {
		c := second.state()
		if c.Phase != quarantine.PhaseQuarantined {
			t.Errorf("phase %s, want Quarantined: the live level is a fault that no signal told of", c.Phase)
		}
		if _, looks := second.world.count(); looks == 0 {
			t.Error("the run did not look")
		}
	})
	second.stop(time.Minute)
	second.ExecuteWorkflow(devicewf.WorkflowType, state)

	third := newRun(t)
	third.SetStartTime(first.Now())
	third.world.set(unknown)
	third.at(deadline.Sub(first.Now())-time.Second, func() {
		if c := third.state(); !c.GraceUntil.Equal(deadline) {
			t.Errorf("grace until %s, want %s as before", c.GraceUntil, deadline)
		}
	})
	third.at(deadline.Sub(first.Now())+time.Second, func() {
		if c := third.state(); c.Phase != quarantine.PhaseSuspect || c.Waiting != quarantine.WaitingForRestriction {
			t.Errorf("%s, waiting for %q after the window, want Suspect and %s", c.Phase, c.Waiting, quarantine.WaitingForRestriction)
		}
	})
	third.at(deadline.Sub(first.Now())+10*time.Minute, func() {
		if c := third.state(); c.Phase != quarantine.PhaseRestricted {
			t.Errorf("%s ten minutes after the window, want Restricted", c.Phase)
		}
	})
	third.stop(time.Hour)
	third.ExecuteWorkflow(devicewf.WorkflowType, state)
}

// Case 49, its five rows: a quarantined device's run with a history of 9,800 events
// gets two signals at once and continues. The next run begins with both, or with
// the first and gets the second, or with the first and finds the second's news by
// its own look; it ends the same each time, its lease when it would have, and its
// mark written once more, to say the new reason. Which of these it is when
// a signal comes in the very moment of the decision, only a real server shows:
// tests/e2e.
func TestTwoSignalsAtTheEndOfALongRun(t *testing.T) {
	first := report("train-0", device.Unhealthy, "XID 109", "41")
	s1, s2 := report("train-0", device.Healthy, "", "42"), report("train-0", device.Unhealthy, "XID 79", "43")
	for name, tc := range map[string]struct {
		// before come when the history is still short, last once it is long, which
		// ends the run.
		before     []device.Report
		last       device.Report
		inR2       []device.Report
		carriedToo bool
	}{
		"both before the decision":                      {before: []device.Report{s1, s2}, last: s1, carriedToo: true},
		"the second in the next run":                    {last: s1, inR2: []device.Report{s2}},
		"the second nowhere, and the next run reads it": {last: s1},
		"both in the next run, the other way round":     {last: first, inR2: []device.Report{s2, s1}},
	} {
		t.Run(name, func(t *testing.T) {
			r1 := newRun(t)
			r1.world.set(first)
			r1.at(0, func() { r1.observe(first) })
			var lease time.Time
			r1.at(time.Second, func() {
				c := r1.state()
				if c.Phase != quarantine.PhaseQuarantined || c.Mark.State != quarantine.MarkInForce {
					t.Errorf("t=0: %s, mark %s", c.Phase, c.Mark.State)
				}
				lease = c.LeaseUntil
				for _, signal := range tc.before {
					r1.observe(signal)
				}
			})
			r1.at(time.Second+time.Millisecond, func() {
				r1.SetCurrentHistoryLength(9800)
				r1.observe(tc.last)
			})
			r1.ExecuteWorkflow(devicewf.WorkflowType, devicewf.NewState(r1.key))
			state := continued(t, r1)
			if carried := state.Case.Severity.String() == "fatal"; carried != tc.carriedToo {
				t.Errorf("s2 is carried %t, want %t", carried, tc.carriedToo)
			}

			r2 := newRun(t)
			r2.SetStartTime(r1.Now())
			r2.world.set(s2)
			r2.world.mark = r1.world.mark
			r2.at(0, func() {
				for _, signal := range tc.inR2 {
					r2.observe(signal)
				}
			})
			r2.at(2*time.Second, func() {
				c := r2.state()
				if c.Phase != quarantine.PhaseQuarantined || c.Epoch != state.Case.Epoch || c.Severity.String() != "fatal" || c.Evidence().Value != device.Unhealthy {
					t.Errorf("%s (%s), epoch %d, %s; want Quarantined, fatal, epoch %d, Unhealthy", c.Phase, c.Severity, c.Epoch, c.Evidence().Value, state.Case.Epoch)
				}
				if !c.LeaseUntil.Equal(lease) {
					t.Errorf("lease until %s, want %s as before", c.LeaseUntil, lease)
				}
				before, _ := r1.world.count()
				after, looks := r2.world.count()
				if before+after != 2 || looks == 0 {
					t.Errorf("%d and %d marks written, %d looks in the new run; want the mark made, brought up to date, and a look", before, after, looks)
				}
			})
			r2.stop(time.Minute)
			r2.ExecuteWorkflow(devicewf.WorkflowType, state)
		})
	}
}

// continued returns the state that a run handed on.
func continued(t *testing.T, r *run) devicewf.State {
	t.Helper()
	var continued *workflow.ContinueAsNewError
	if err := r.GetWorkflowError(); !errors.As(err, &continued) {
		t.Fatalf("run ended with %v, want it to continue as new", err)
	}
	var state devicewf.State
	if err := decode(continued.Input, &state); err != nil {
		t.Fatal(err)
	}
	return state
}
