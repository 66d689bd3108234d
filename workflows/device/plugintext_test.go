package device_test

import (
	"strings"
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// O4, O8: whoever reads a plugin's case in the UI is told that nothing keeps the
// device out and what can be done, and why a Healthy isn't believed.
func TestTheDetailsOfAPluginsCaseSayWhatCanBeDone(t *testing.T) {
	key := device.Key{Node: "anvil-07", Resource: "example.com/gpu", ID: "GPU-1"}
	report := device.Report{Pod: device.PodRef{Namespace: "n", Name: "train", UID: "u"}, Node: "anvil-07", Health: device.Healthy, Version: "1"}
	said := func(health device.Health, stale device.Staleness) []device.Report {
		r := report
		r.Health, r.Stale = health, stale
		return []device.Report{r}
	}
	for name, tc := range map[string]struct {
		c    quarantine.Case
		want []string
	}{
		"a fault": {
			quarantine.Case{
				Phase: quarantine.PhaseQuarantined, Waiting: quarantine.WaitingForHealth, Reports: said(device.Unhealthy, device.Fresh),
				Mark: quarantine.Mark{State: quarantine.MarkAdvisory, Detail: "Kubernetes has no API for it"},
			},
			[]string{"**Health:** Unhealthy by 1 reading", "**Kept out:** NO: `Kubernetes has no API for it`", "nothing can keep it out",
				"only its plugin's word keeps it from new Pods", "Look at the device plugin of `example.com/gpu` on node `anvil-07`",
				"its device plugin calls it Healthy for the stability window"},
		},
		"its plugin is away": {
			quarantine.Case{Phase: quarantine.PhaseSuspect, Waiting: quarantine.WaitingForRestriction, Reports: said(device.Healthy, device.PluginAbsent)},
			[]string{"**Health:** Unknown, although the kubelet goes on saying Healthy (PluginAbsent", "nothing keeps it out",
				"bring the plugin of example.com/gpu back on node anvil-07", "Look at the device plugin of `example.com/gpu` on node `anvil-07`"},
		},
		"it left the list": {
			quarantine.Case{
				Phase: quarantine.PhaseGone, Waiting: quarantine.WaitingForReturn, Reports: said(device.Healthy, device.NotListed),
				Absence: &quarantine.Absence{Reason: device.MissingFromPlugin}, Mark: quarantine.Mark{State: quarantine.MarkAdvisory},
			},
			[]string{"NotListed: the plugin lists fewer devices than when it called this one Unhealthy", "its device plugin and what its log says"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.c.Device, tc.c.Node = key, key.Node
			details := shown(tc.c)
			for _, want := range tc.want {
				if !strings.Contains(details, want) {
					t.Errorf("the details don't say %q:\n%s", want, details)
				}
			}
		})
	}
}
