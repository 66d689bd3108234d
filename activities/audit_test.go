package activities

import (
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// A mark can carry any text as its reason, and a case adopts it. Texts of strangers
// make no series of their own.
func TestReasonsThatTheCatalogueDoesNotHaveShareASeries(t *testing.T) {
	audit, err := NewAudit(slog.New(slog.DiscardHandler), reason.Builtin(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range []string{"XidFallenOffBus", string(reason.HealthUnknown), "Evil-1", "Evil-2", ""} {
		err := audit.Announce(context.Background(), devicewf.Task[quarantine.Announce]{Command: quarantine.Announce{
			Notices: []quarantine.Notice{{Seq: 1, Kind: quarantine.NoticeOpened, Reason: code}},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for code, want := range map[string]float64{"XidFallenOffBus": 1, string(reason.HealthUnknown): 1, "Other": 2, "": 1} {
		if got := testutil.ToFloat64(audit.decisions.WithLabelValues(string(quarantine.NoticeOpened), code, "false")); got != want {
			t.Errorf("reason %q counted %v times, want %v", code, got, want)
		}
	}
	if got := testutil.CollectAndCount(audit.decisions); got != 4 {
		t.Errorf("%d series, want 4", got)
	}
}
