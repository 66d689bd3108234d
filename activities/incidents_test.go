package activities

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	incidentwf "github.com/sickbay-dev/sickbay/workflows/incident"
)

// asker answers by scope; a scope without an answer has no incident.
type asker struct {
	answers map[incident.Scope]incident.Answer
	away    map[incident.Scope]bool
	asked   []incident.Scope
}

func (a *asker) Ask(_ context.Context, scope incident.Scope, _ incident.Asked) (incident.Answer, error) {
	a.asked = append(a.asked, scope)
	if a.away[scope] {
		return incident.Answer{}, errors.New("temporal is away")
	}
	answer, there := a.answers[scope]
	if !there {
		return incident.Answer{}, incidentwf.ErrNoIncident
	}
	return answer, nil
}

// U4, U2. A device is restricted only if every incident that it is in lets it through;
// one that can't be asked doesn't.
func TestAnIncidentHasASayInEachRestriction(t *testing.T) {
	driver, node := incident.OfDriver("gpu.example.com"), incident.OfNode("node-7")
	holds := incident.Answer{Phase: incident.Holding, Holds: true, Again: 5 * time.Minute, Why: "it holds"}
	through := incident.Answer{Phase: incident.Pacing, Holds: true, Through: 1}
	for name, tc := range map[string]struct {
		answers map[incident.Scope]incident.Answer
		away    incident.Scope
		granted bool
		again   time.Duration
		of      string
	}{
		"none runs":                            {granted: true},
		"the driver's holds":                   {answers: map[incident.Scope]incident.Answer{driver: holds}, again: 5 * time.Minute, of: "incident/driver/gpu.example.com"},
		"the node's holds":                     {answers: map[incident.Scope]incident.Answer{node: holds}, again: 5 * time.Minute, of: "incident/node/node-7"},
		"the cluster's holds":                  {answers: map[incident.Scope]incident.Answer{incident.Cluster(): holds}, again: 5 * time.Minute, of: "incident/cluster"},
		"another node's holds":                 {answers: map[incident.Scope]incident.Answer{incident.OfNode("node-8"): holds}, granted: true},
		"it lets one through":                  {answers: map[incident.Scope]incident.Answer{driver: through}, granted: true, of: "incident/driver/gpu.example.com"},
		"one lets through and another doesn't": {answers: map[incident.Scope]incident.Answer{driver: through, node: holds}, again: 5 * time.Minute, of: "incident/node/node-7"},
		"it was admitted":                      {answers: map[incident.Scope]incident.Answer{driver: {Phase: incident.Admitted}}, granted: true, of: "incident/driver/gpu.example.com"},
		"it can't be asked":                    {away: node, again: 30 * time.Second, of: "incident/node/node-7"},
	} {
		t.Run(name, func(t *testing.T) {
			a := &asker{answers: tc.answers, away: map[incident.Scope]bool{tc.away: true}}
			incidents := NewIncidents(a, slog.New(slog.DiscardHandler))
			ask := quarantine.AskRestriction{Device: device.Key{Driver: "gpu.example.com", Pool: "node-7", Device: "gpu-0"}, Node: "node-7", Epoch: 17}
			got, err := incidents.MayRestrict(t.Context(), ask)
			if err != nil || got.Epoch != 17 || got.Granted != tc.granted || got.Again != tc.again || got.Incident != tc.of || !got.Granted && got.Why == "" {
				t.Errorf("answered %+v, %v", got, err)
			}
		})
	}
}

// A thousand cases of one storm don't ask it a thousand times.
func TestAnIncidentThatHoldsIsAskedOnceForManyCases(t *testing.T) {
	a := &asker{answers: map[incident.Scope]incident.Answer{incident.Cluster(): {Phase: incident.Holding, Holds: true, Again: time.Minute}}}
	incidents := NewIncidents(a, slog.New(slog.DiscardHandler))
	for range 1000 {
		if got, err := incidents.MayRestrict(t.Context(), quarantine.AskRestriction{Device: device.Key{Driver: "d", Pool: "p", Device: "x"}, Node: "n"}); err != nil || got.Granted {
			t.Fatalf("answered %+v, %v", got, err)
		}
	}
	if len(a.asked) > 10 {
		t.Errorf("asked %d times", len(a.asked))
	}
}
