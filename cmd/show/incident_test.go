package show_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/cmd/show"
	"github.com/sickbay-dev/sickbay/pkg/incident"
)

// U4 in part: whoever reads the incidents sees how old their figures are, what they may
// lack, and that none is known where Sickbay can't see; and nothing of it where all is as
// it should be.
func TestIncidentsSayHowFarTheirFiguresHold(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	of := func(reported time.Time, unsure string) incident.Incident {
		return incident.Incident{
			Scope: incident.OfDriver("gpu.example.com"), Phase: incident.Holding, Since: now.Add(-10 * time.Minute), Until: now.Add(50 * time.Minute),
			Levels: incident.Levels{Now: 40, Held: 40, Total: 100, Enough: 16, By: "starter-a", Unsure: unsure}, ReportedAt: reported, Most: 40,
		}
	}
	text := func(list show.Incidents) string {
		t.Helper()
		var out strings.Builder
		if err := show.PrintIncidents(&out, list, show.Table, false); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for name, tc := range map[string]struct {
		list show.Incidents
		says []string
		not  []string
	}{
		"counted just now": {
			show.Incidents{At: now, Incidents: []show.Incident{show.IncidentOf(of(now.Add(-time.Minute), ""), now)}},
			[]string{"driver/gpu.example.com", "Holding"}, []string{"counted", "more"},
		},
		"not counted for long": {
			show.Incidents{At: now, Incidents: []show.Incident{show.IncidentOf(of(now.Add(-7*time.Minute), ""), now)}},
			[]string{"last counted 7m ago, it may be otherwise now"}, nil,
		},
		"by one who isn't sure": {
			show.Incidents{At: now, Incidents: []show.Incident{show.IncidentOf(of(now, "it can't watch everything"), now)}},
			[]string{"there may be more: it can't watch everything"}, []string{"counted"},
		},
		"none": {show.Incidents{At: now}, []string{"what is wrong is wrong with single devices"}, nil},
		"none that Sickbay could see": {
			show.Incidents{At: now, Blind: []string{"no starter has ever led"}},
			[]string{"No incidents are known; but Sickbay can't see everything"}, []string{"single devices"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := text(tc.list)
			for _, want := range tc.says {
				if !strings.Contains(got, want) {
					t.Errorf("says\n%s\nwant %q", got, want)
				}
			}
			for _, no := range tc.not {
				if strings.Contains(got, no) {
					t.Errorf("says\n%s\nand not %q", got, no)
				}
			}
		})
	}
}
