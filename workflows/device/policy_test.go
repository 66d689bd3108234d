package device_test

import (
	"path/filepath"
	"testing"
	"time"

	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// A run goes by the policy that it recorded, whatever holds by the time that it is
// replayed: in each place another duration, another mode, and other ones at each ask.
func TestRecordedRunsReplayUnderAnotherPolicy(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*", "*.json"))
	if err != nil || len(files) < leastHistories {
		t.Fatalf("%d recorded runs, %v", len(files), err)
	}
	other := quarantine.Policy{
		Rules: quarantine.Rules, Mode: quarantine.ModeObserve, Grace: time.Second, RecheckFirst: time.Second, RecheckMax: time.Second, Hysteresis: time.Second,
		Stability: time.Second, Lease: time.Second, CoolDown: time.Second, MarkRetry: time.Second, SettlePool: time.Second, SettlePoolGone: time.Second,
		SettleAllocatable: time.Second, SettleNode: time.Second, Forget: time.Second, FlapLimit: 2, FlapWindow: time.Minute,
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			asked := 0
			settings := func(device.Key, []string) devicewf.Knobs {
				asked++
				changing := other
				changing.Grace, changing.Lease = time.Duration(asked)*time.Second, time.Duration(asked)*time.Hour
				if asked%2 == 0 {
					changing.Mode = quarantine.ModeEnforce
				}
				return devicewf.Knobs{Policy: changing, SearchAttributes: asked%2 == 0}
			}
			replayer := worker.NewWorkflowReplayer()
			replayer.RegisterWorkflowWithOptions(devicewf.New(settings, reason.Builtin().Meaning).Run, workflow.RegisterOptions{Name: devicewf.WorkflowType})
			if err := replayer.ReplayWorkflowHistoryFromJSONFile(nil, file); err != nil {
				t.Error(err)
			}
		})
	}
}

// A policy that changes holds for an open case at its next decision, in both ways: what
// was only observed is marked, and what is marked stays so.
func TestAChangedPolicyHoldsForAnOpenCase(t *testing.T) {
	key, err := device.NewDRA("gpu.example.com", "anvil-07", "gpu-3")
	if err != nil {
		t.Fatal(err)
	}
	read := func(text string) *policy.InForce {
		document, err := policy.Parse([]byte("apiVersion: sickbay.dev/v1\nkind: Policy\n" + text))
		if err != nil {
			t.Fatal(err)
		}
		return policy.New(policy.DefaultBase(), document)
	}
	held := read("mode: observe")
	r := newRunWith(t, key, func(key device.Key, classes []string) devicewf.Knobs {
		return devicewf.Knobs{Policy: held.For(key.Driver, classes)}
	})
	seen := func(version string) {
		r.SignalWorkflow(devicewf.SignalObserved, devicewf.Signal[quarantine.Observed]{Event: quarantine.Observed{
			Node: "anvil-07", Readings: []quarantine.Reading{classified(report("train-0", device.Unhealthy, "XID 79", version))},
			Around: quarantine.Around{Classes: []string{"a100"}},
		}})
	}
	expect := func(when string, mark quarantine.MarkState) {
		t.Helper()
		if c := r.state(); c.Mark.State != mark {
			t.Errorf("%s: the mark is %s, want %s", when, c.Mark.State, mark)
		}
	}
	r.at(0, func() { seen("41") })
	r.at(time.Second, func() {
		expect("while the policy only observes", quarantine.MarkObserved)
		held = read("mode: observe\nclasses: {h100: {mode: enforce}}")
		seen("42")
	})
	r.at(2*time.Second, func() {
		expect("when another class is enforced", quarantine.MarkObserved)
		held = read("mode: observe\nclasses: {a100: {mode: enforce}}")
		seen("43")
	})
	r.at(3*time.Second, func() {
		expect("when its class is enforced", quarantine.MarkInForce)
		held = read("mode: observe")
		seen("44")
	})
	r.at(4*time.Second, func() { expect("when its class only observes again", quarantine.MarkInForce) })
	r.stop(5 * time.Second)
	r.ExecuteWorkflow(devicewf.WorkflowType, devicewf.NewState(r.key))
}

// That a class only observes holds for the very event that opens a case.
func TestTheClassCountsFromTheFirstDecision(t *testing.T) {
	key, err := device.NewDRA("gpu.example.com", "anvil-07", "gpu-3")
	if err != nil {
		t.Fatal(err)
	}
	document, err := policy.Parse([]byte("apiVersion: sickbay.dev/v1\nkind: Policy\nmode: enforce\nclasses: {a100: {mode: observe}}"))
	if err != nil {
		t.Fatal(err)
	}
	held := policy.New(policy.DefaultBase(), document)
	r := newRunWith(t, key, func(key device.Key, classes []string) devicewf.Knobs {
		return devicewf.Knobs{Policy: held.For(key.Driver, classes)}
	})
	r.at(0, func() {
		r.SignalWorkflow(devicewf.SignalObserved, devicewf.Signal[quarantine.Observed]{Event: quarantine.Observed{
			Node: "anvil-07", Readings: []quarantine.Reading{classified(report("train-0", device.Unhealthy, "XID 79", "41"))},
			Around: quarantine.Around{Classes: []string{"a100"}},
		}})
	})
	r.at(time.Second, func() {
		if c := r.state(); c.Mark.State != quarantine.MarkObserved || c.Mark.Tries != 0 {
			t.Errorf("the mark is %s after %d tries, want it only observed", c.Mark.State, c.Mark.Tries)
		}
	})
	r.stop(2 * time.Second)
	r.ExecuteWorkflow(devicewf.WorkflowType, devicewf.NewState(r.key))
}
