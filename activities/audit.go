package activities

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// Audit publishes what cases decided: one structured log line per decision, and
// a count of each kind.
type Audit struct {
	logger    *slog.Logger
	decisions *prometheus.CounterVec
}

// NewAudit returns an Audit that logs to logger and counts in registerer.
func NewAudit(logger *slog.Logger, registerer prometheus.Registerer) (*Audit, error) {
	a := &Audit{
		logger: logger,
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sickbay_decisions_total",
			Help: "Decisions about cases, by kind, reason code and whether they raise an alert.",
		}, []string{"kind", "reason", "alert"}),
	}
	if err := registerer.Register(a.decisions); err != nil {
		return nil, err
	}
	return a, nil
}

// Announce publishes a case's notices. Repeating it repeats log lines with the
// same sequence number, never a number twice with another text.
func (a *Audit) Announce(ctx context.Context, task devicewf.Task[quarantine.Announce]) error {
	for _, n := range task.Command.Notices {
		level, alert := slog.LevelInfo, "false"
		if n.Alert {
			level, alert = slog.LevelWarn, "true"
		}
		a.decisions.WithLabelValues(string(n.Kind), n.Reason, alert).Inc()
		a.logger.LogAttrs(ctx, level, "decision",
			slog.String("device", task.Command.Device.String()), slog.Int64("seq", n.Seq), slog.Time("at", n.At),
			slog.String("kind", string(n.Kind)), slog.Bool("alert", n.Alert), slog.Int64("epoch", n.Epoch),
			slog.String("phase", string(n.Phase)), slog.String("reason", n.Reason), slog.String("severity", n.Severity),
			slog.String("rule", n.Rule), slog.String("catalogue", n.Catalogue), slog.String("actor", n.Actor),
			slog.String("seen", n.Seen), slog.String("text", n.Text))
	}
	return nil
}
