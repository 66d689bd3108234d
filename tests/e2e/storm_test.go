package e2e

// This file lets a driver fall silent on many nodes at once.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
	incidentwf "github.com/sickbay-dev/sickbay/workflows/incident"
)

// silence lets the driver of all nodes fall silent, or speak again.
func (c *cluster) silence(nodes int, silent bool) {
	c.t.Helper()
	call := c.nodes.Speak
	if silent {
		call = c.nodes.Silence
	}
	for n := range nodes {
		if _, err := call(c.t.Context(), fmt.Sprintf("node-%d", n)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// awaitIncident waits until an incident is as check wants it.
func (c *cluster) awaitIncident(scope incident.Scope, what string, within time.Duration, check func(incident.Incident) bool) incident.Incident {
	c.t.Helper()
	incidents := incidentwf.NewClient(c.temporal, taskQueue)
	var last incident.Incident
	c.eventually(fmt.Sprintf("incident %s %s", scope, what), within, func(ctx context.Context) error {
		state, err := incidents.State(ctx, scope)
		if err != nil {
			return err
		}
		if last = state.Incident; !check(last) {
			return fmt.Errorf("it is %s with %+v", last.Phase, last.Levels)
		}
		return nil
	})
	return last
}

func in(phase incident.Phase) func(incident.Incident) bool {
	return func(i incident.Incident) bool { return i.Phase == phase }
}

// killAmid kills the starter that leads, and the one that takes over from it, in the
// middle of an incident. Meanwhile an answer says that nobody watches; whoever has just
// begun goes on with the incident, and counts as many devices as before.
func (c *cluster) killAmid(scope incident.Scope, nodes int, o *operator, observe func(string)) {
	c.t.Helper()
	counting := ""
	told := func(i incident.Incident) bool {
		return i.Phase == incident.Holding && i.Levels.By != counting && i.Levels.Now == nodes && i.Levels.Held == nodes
	}
	counting = c.awaitIncident(scope, "is told", 20*time.Second, told).Levels.By
	observe("starter-standby")
	c.eventually("the other starter stands by", 20*time.Second, func(context.Context) error {
		if len(c.logged("starter-standby", "leader")) == 0 {
			return errors.New("it takes no part")
		}
		return nil
	})
	if err := c.stack.KillPart("starter"); err != nil {
		c.t.Fatal(err)
	}
	counting = c.awaitIncident(scope, "goes on under the one that stood by", 40*time.Second, told).Levels.By
	if err := c.stack.KillPart("starter-standby"); err != nil {
		c.t.Fatal(err)
	}
	c.eventually("it is said that nobody watches", 30*time.Second, func(context.Context) error {
		if a := o.types(o.binary, "incidents"); a.code != 0 || !strings.Contains(a.err, "Sickbay itself can't see: no starter") {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	observe("starter-new")
	first := c.awaitIncident(scope, "goes on under one that has just begun", 40*time.Second, told)
	// Had it counted too few, the second report would end it.
	c.awaitIncident(scope, "is told once more", 40*time.Second, func(i incident.Incident) bool { return told(i) && i.ReportedAt.After(first.ReportedAt) })
}

// U4. A driver that falls silent on twenty nodes at once is one incident: no device
// gets a workflow or a mark by it, a fault meanwhile is marked as fast as ever, and when
// the driver is back the incident ends by itself. Past its maximum it asks, and lets
// through one by one; an operator is told all of it, and decides.
func TestADriverThatFallsSilentEverywhereIsOneIncident(t *testing.T) {
	const nodes = 20
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true}, nodes, 1)
	for n := range nodes {
		if _, err := c.nodes.Place(t.Context(), "default", fmt.Sprintf("train-%d", n), fmt.Sprintf("node-%d", n), "gpu-0"); err != nil {
			t.Fatal(err)
		}
	}
	storm := []string{"SICKBAY_INCIDENT_MAX=15s", "SICKBAY_INCIDENT_PACE=3s", "SICKBAY_INCIDENT_CALM=2s", "SICKBAY_STORM_GATHER=2s"}
	c.process("worker", "worker", "", append(fastEnvironment(), storm...)...)
	observe := func(name string) {
		c.process(name, "starter", "", append([]string{"SICKBAY_MARK_CHECK=1s"}, storm...)...)
	}
	observe("starter")
	o, scope := c.operator(), incident.OfDriver(simnode.DefaultDriver)
	c.eventually("the starter knows that all are well", 30*time.Second, func(context.Context) error {
		if len(c.logged("starter", "levels compared")) == 0 {
			return fmt.Errorf("it doesn't lead")
		}
		return nil
	})

	c.silence(nodes, true)
	c.awaitIncident(scope, "holds them all", 20*time.Second, func(i incident.Incident) bool {
		return i.Phase == incident.Holding && i.Levels.Now == nodes && i.Levels.Held == nodes
	})
	o.wants("more time", o.types(o.binary, "incident", "wait", scope.String(), "--for", "1h", "--reason", "the driver is being upgraded", "--actor", "oncall@example.com"),
		0, "wait accepted for incident driver/gpu.example.com, which holds until")
	if started := c.workflows(); started != 0 {
		t.Errorf("%d device workflows of Unknown devices", started)
	}
	c.killAmid(scope, nodes, o, observe)
	if started := c.workflows(); started != 0 {
		t.Errorf("%d device workflows of Unknown devices after the starters were killed", started)
	}

	key := device.Key{Driver: simnode.DefaultDriver, Pool: "node-7", Device: "gpu-0"}
	// Its driver speaks again, and has nothing good to say.
	if _, err := c.nodes.Speak(t.Context(), key.Pool); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c.set(key, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	c.eventually("the fault's mark", 10*time.Second, func(ctx context.Context) error {
		rules, err := c.rules(ctx)
		if err == nil && len(rules) != 1 {
			err = fmt.Errorf("%d marks", len(rules))
		}
		return err
	})
	// A second is what it may take; the rest is what a busy machine adds.
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the mark of a fault inside a storm took %s", took)
	}

	list := o.types(o.binary, "incidents")
	o.wants("the incidents", list, 0, "driver/gpu.example.com", "Storm", "Holding")
	story := o.types(o.binary, "incident", scope.String())
	o.wants("the incident's story", story, 0, "20 of 20 devices in driver/gpu.example.com are Unknown at once", "IncidentMessage by oncall@example.com", "Next: its devices are well again, or one by one")
	o.wants("the trail", o.types(o.binary, "audit", "--kind", "Incident*"), 0,
		"incident/driver/gpu.example.com/all", "IncidentBegan", "20 of 20 devices Unknown on 20 nodes", "IncidentMessage", "wait: the driver is being upgraded", "IncidentTakenOver")
	var told struct {
		Incidents []struct{ Name, Phase string }
	}
	if err := json.Unmarshal([]byte(o.types(o.binary, "incidents", "-o", "json").out), &told); err != nil || len(told.Incidents) != 1 || told.Incidents[0].Phase != "Holding" {
		t.Errorf("told as %+v, %v", told, err)
	}
	if refused := o.types(o.binary, "incident", "close", scope.String(), "--reason", "I don't like it"); refused.code != 1 || !strings.Contains(refused.err, "devices are still Unknown; send admit") {
		t.Errorf("close: %+v", refused)
	}
	for _, wrong := range [][]string{{"incident"}, {"incident", "rack/7"}, {"incident", "wait", scope.String()}} {
		if a := o.types(o.binary, wrong...); a.code != 2 {
			t.Errorf("%v: %+v", wrong, a)
		}
	}
	if a := o.types(o.binary, "incident", "node/nowhere"); a.code != 4 {
		t.Errorf("an incident that isn't there: %+v", a)
	}

	c.silence(nodes, false)
	ended := c.awaitIncident(scope, "ends by itself", 60*time.Second, in(incident.Closed))
	if ended.End != incident.EndLevels || ended.Opened != 0 || ended.Most != nodes {
		t.Errorf("ended as %+v", ended)
	}
	c.oneMark()
	if started := c.workflows(); started != 1 {
		t.Errorf("%d device workflows, want that of the fault", started)
	}
	o.wants("no incidents", o.types(o.binary, "incidents"), 0, "No incidents")

	// Once more, and nobody says anything.
	c.silence(nodes, true)
	paced := c.awaitIncident(scope, "lets some through", 90*time.Second, func(i incident.Incident) bool {
		return i.Phase == incident.Pacing && i.Opened >= 3
	})
	if lasted := paced.ReportedAt.Sub(paced.Until); float64(paced.Opened) > lasted.Seconds()/3+1 {
		t.Errorf("%d were let through within %s at a pace of 3 s", paced.Opened, lasted)
	}
	o.wants("all let through", o.types(o.binary, "incident", "admit", scope.String(), "--reason", "they are broken for good"), 0, "admit accepted")
	c.eventually("every device has its case", 60*time.Second, func(context.Context) error {
		if started := c.workflows(); started != nodes {
			return fmt.Errorf("%d workflows", started)
		}
		return nil
	})
}
