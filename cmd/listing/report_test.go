package listing_test

import (
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// What a week of observing comes to: which cases would have been marked, which would have
// had to wait, and for how much of the time that would have been right.
func TestAReportTellsForHowLongMarksWouldHaveBeenRight(t *testing.T) {
	now := time.Date(2026, 11, 9, 8, 0, 0, 0, time.UTC)
	since := now.Add(-7 * 24 * time.Hour)
	decided := func(name string, epoch time.Time, kind quarantine.NoticeKind, at time.Time, phase quarantine.Phase, reason string) listing.Decision {
		key, err := device.NewDRA("gpu.example.com", "anvil-07", name)
		if err != nil {
			t.Fatal(err)
		}
		return listing.Decision{Name: key.String(), Decision: directory.Decision{Device: key, Node: "anvil-07", Notice: quarantine.Notice{
			Kind: kind, At: at, Epoch: epoch.UnixMilli(), Phase: phase, Reason: reason,
		}}}
	}
	day := func(n int) time.Time { return since.Add(time.Duration(n) * 24 * time.Hour) }
	const xid, unknown = "XidFallenOffBus", "HealthUnknown"
	closed := decided("gpu-0", day(1), quarantine.NoticeClosed, day(3), quarantine.PhaseClosed, xid)
	closed.Good = day(2)
	trail := listing.Trail{At: now, Since: since, Decisions: []listing.Decision{
		// Observed: bad for a day, and a second one until that was believed.
		decided("gpu-0", day(1), quarantine.NoticeOpened, day(1), quarantine.PhaseQuarantined, xid),
		decided("gpu-0", day(1), quarantine.NoticeMarkHeld, day(1), quarantine.PhaseQuarantined, xid),
		closed,
		// Only suspected.
		decided("gpu-1", day(1), quarantine.NoticeOpened, day(1), quarantine.PhaseSuspect, unknown),
		decided("gpu-1", day(1), quarantine.NoticeClosed, day(1).Add(5*time.Minute), quarantine.PhaseClosed, unknown),
		// Marked before the span began, and open still.
		decided("gpu-2", day(-2), quarantine.NoticeMarkInForce, day(-1), quarantine.PhaseQuarantined, xid),
		decided("gpu-2", day(-2), quarantine.NoticeExtended, day(1), quarantine.PhaseQuarantined, xid),
	}}
	report := listing.ReportOf(trail)
	want := listing.Outcome{Cases: 3, Passed: 1, Marked: 1, Unmarked: 1, Refused: 1, Out: (2 + 7) * 24 * time.Hour, Right: (1 + 7) * 24 * time.Hour}
	if report.Total != want {
		t.Errorf("in all\n%+v, want\n%+v", report.Total, want)
	}
	if len(report.Groups) != 2 || report.Groups[0].Reason != xid || report.Groups[0].Cases != 2 || report.Groups[1].Passed != 1 {
		t.Errorf("by reason: %+v", report.Groups)
	}
	if len(report.Cases) != 3 || report.Cases[0].Name != "gpu.example.com/anvil-07/gpu-2" {
		t.Errorf("cases: %+v", report.Cases)
	}
}
