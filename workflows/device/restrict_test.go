package device_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// A device that stays Unknown past its window is asked about until it may be restricted,
// kept out, and given back by itself when its health is back and lasts; its workflow
// remembers it for a while, and ends.
func TestAnUnknownThatLastsIsRestrictedAndGivenBack(t *testing.T) {
	r := newRun(t)
	unknown := report("train-0", device.Unknown, "", "41")
	r.world.set(unknown)
	r.world.held, r.world.askFails = "incident/node/anvil-07", 5
	r.at(0, func() { r.observe(unknown) })
	r.at(4*time.Minute, func() {
		if puts, _ := r.world.count(); puts != 0 || r.world.asked != 0 {
			t.Errorf("inside its window: %d marks, %d questions; want none", puts, r.world.asked)
		}
	})
	r.at(20*time.Minute, func() {
		c := r.state()
		if puts, _ := r.world.count(); puts != 0 || c.Waiting != quarantine.WaitingForIncident || r.world.asked < 10 {
			t.Errorf("held by an incident: %d marks, %d questions, waiting for %q", puts, r.world.asked, c.Waiting)
		}
		if page := shown(c); !strings.Contains(page, "incident/node/anvil-07") {
			t.Errorf("the page doesn't name the incident:\n%s", page)
		}
		r.world.mu.Lock()
		r.world.held = ""
		r.world.mu.Unlock()
	})
	r.at(30*time.Minute, func() {
		c := r.state()
		r.world.mu.Lock()
		mark := r.world.mark
		r.world.mu.Unlock()
		if c.Phase != quarantine.PhaseRestricted || mark == nil || !mark.Restricted || len(c.Holders) != 1 {
			t.Errorf("%s with mark %+v and holders %v, want it restricted and its holder still there", c.Phase, mark, c.Holders)
		}
		if page := shown(c); !strings.Contains(page, "Restricted: kept from new Pods, because its health isn't known") {
			t.Errorf("the page says\n%s", page)
		}
		healthy := report("train-0", device.Healthy, "", "42")
		r.world.set(healthy)
		r.observe(healthy)
	})
	r.at(40*time.Minute, func() {
		c := r.state()
		r.world.mu.Lock()
		defer r.world.mu.Unlock()
		if c.End != quarantine.EndHealthBack || r.world.mark != nil {
			t.Errorf("%s %s with mark %+v ten minutes after its health is back, want it given back", c.Phase, c.End, r.world.mark)
		}
	})
	r.SetTestTimeout(time.Minute)
	r.ExecuteWorkflow(devicewf.WorkflowType, devicewf.NewState(r.key))
	if err := r.GetWorkflowError(); err != nil {
		t.Errorf("ended with %v", err)
	}
	if lived := r.Now().Sub(time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)); lived < 90*time.Minute || lived > 110*time.Minute {
		t.Errorf("its workflow lived %s, want it to remember the device for an hour and no longer", lived)
	}
}

// The health of a driver whose word is known to lag has to stay good for that long.
func TestHysteresisIsNoShorterThanTheDriversDelay(t *testing.T) {
	for name, delays := range map[string]map[string]time.Duration{
		"ended": {"": 20 * time.Minute, "nic.example.com": 20 * time.Minute}, "open": {"gpu.example.com": 20 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			base := policy.DefaultBase()
			base.Quarantine.Mode, base.Delays = quarantine.ModeEnforce, delays
			held := policy.New(base, nil)
			key, err := device.NewDRA("gpu.example.com", "anvil-07", "gpu-3")
			if err != nil {
				t.Fatal(err)
			}
			r := newRunWith(t, key, func(key device.Key, classes []string) devicewf.Knobs {
				return devicewf.Knobs{Policy: held.For(key.Driver, classes)}
			})
			r.at(0, func() { r.observe(report("train-0", device.Unknown, "", "41")) })
			r.at(time.Second, func() {
				healthy := report("train-0", device.Healthy, "", "42")
				r.world.set(healthy)
				r.observe(healthy)
			})
			r.at(10*time.Minute, func() {
				if c := r.state(); c.Open() != (name == "open") {
					t.Errorf("after ten minutes of good health the case is %s", c.Phase)
				}
			})
			r.stop(15 * time.Minute)
			r.ExecuteWorkflow(devicewf.WorkflowType, devicewf.NewState(r.key))
		})
	}
}
