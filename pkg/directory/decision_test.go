package directory_test

import (
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/incident"
)

// K3 in part: what is decided about an incident has a name that whoever follows decisions
// about devices can read, one for each scope, and all that a decision says.
func TestADecisionAboutAnIncidentHasANameAndSaysAll(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for scope, name := range map[incident.Scope]string{
		incident.Cluster():                                 "incident/cluster/all",
		incident.OfDriver("gpu.example.com"):               "incident/driver/gpu.example.com/all",
		incident.OfDriver("example.com/gpu"):               "incident/driver/example.com/gpu/all",
		incident.OfNode("node-7"):                          "incident/node/node-7/all",
		incident.CrowdOfNode("node-7"):                     "incident/crowd/node/node-7/all",
		incident.CrowdOfDriver("gpu.example.com", "580.1"): "incident/crowd/driver/gpu.example.com/580-1",
	} {
		n := incident.Notice{Seq: 3, At: at, Kind: incident.NoticeMessage, Phase: incident.Holding, Actor: "oncall@example.com", Seen: "wait: an upgrade", Text: "holds"}
		d := directory.IncidentDecision(scope, at.Add(-time.Hour), n)
		if parsed, err := device.ParseKey(d.Device.String()); err != nil || parsed != d.Device || d.Device.String() != name {
			t.Errorf("%s is named %s, read as %v, %v; want %s", scope, d.Device, parsed, err, name)
		}
		if d.Incident != scope.String() || d.Node != scope.Node || d.Epoch != at.Add(-time.Hour).UnixMilli() || d.Seq != 3 ||
			string(d.Kind) != "IncidentMessage" || d.Actor != n.Actor || d.Seen != n.Seen || d.Text != n.Text || !d.At.Equal(at) {
			t.Errorf("%s is told as %+v", scope, d)
		}
	}
}
