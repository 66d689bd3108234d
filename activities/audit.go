package activities

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/pkg/telemetry"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
	incidentwf "github.com/sickbay-dev/sickbay/workflows/incident"
)

// Audit publishes what cases decided: one structured log line per decision, and
// a count of each kind.
type Audit struct {
	logger    *slog.Logger
	catalogue *reason.Catalogue
	decisions *prometheus.CounterVec
	releases  *prometheus.CounterVec
	marked    *prometheus.HistogramVec
	phases    *prometheus.HistogramVec
}

// NewAudit returns an Audit that logs to logger and counts in registerer, by the
// reasons of catalogue.
func NewAudit(logger *slog.Logger, catalogue *reason.Catalogue, registerer prometheus.Registerer) (*Audit, error) {
	a := &Audit{
		logger:    logger,
		catalogue: catalogue,
		decisions: telemetry.Decisions.NewCounter(),
		releases:  telemetry.Releases.NewCounter(),
		marked:    telemetry.MarkDelay.NewHistogram(),
		phases:    telemetry.PhaseTime.NewHistogram(),
	}
	// The rate of first tries is asked before there is one.
	a.releases.WithLabelValues(firstAttempt)
	a.releases.WithLabelValues(laterAttempt)
	return a, errors.Join(registerer.Register(a.decisions), registerer.Register(a.releases), registerer.Register(a.marked), registerer.Register(a.phases))
}

// firstAttempt and laterAttempt are by which attempt a device was given back.
const firstAttempt, laterAttempt = "first", "later"

// count counts a decision, and what it ended.
func (a *Audit) count(n quarantine.Notice, alert string) {
	// A mark carries any text as its reason; not each is to be a series for ever.
	code := n.Reason
	if code != "" && a.catalogue.Meaning(reason.Code(code)) == "" {
		code = "Other"
	}
	a.decisions.WithLabelValues(string(n.Kind), code, alert).Inc()
	if n.Left != quarantine.PhaseNone {
		a.phases.WithLabelValues(string(n.Left), string(n.Phase)).Observe(n.Stayed.Seconds())
	}
	if n.Kind == quarantine.NoticeReleased {
		attempt := laterAttempt
		if n.FirstTry {
			attempt = firstAttempt
		}
		a.releases.WithLabelValues(attempt).Inc()
	}
	if n.Took > 0 {
		a.marked.WithLabelValues().Observe(n.Took.Seconds())
	}
}

// Announce publishes a case's notices. Repeating it repeats log lines with the
// same sequence number, never a number twice with another text.
func (a *Audit) Announce(ctx context.Context, task devicewf.Task[quarantine.Announce]) error {
	for _, n := range task.Command.Notices {
		level, alert := slog.LevelInfo, "false"
		if n.Alert {
			level, alert = slog.LevelWarn, "true"
		}
		a.count(n, alert)
		a.logger.LogAttrs(ctx, level, "decision",
			slog.String("device", task.Command.Device.String()), slog.Int64("seq", n.Seq), slog.Time("at", n.At),
			slog.String("kind", string(n.Kind)), slog.Bool("alert", n.Alert), slog.Int64("epoch", n.Epoch),
			slog.String("phase", string(n.Phase)), slog.String("reason", n.Reason), slog.String("severity", n.Severity),
			slog.String("rule", n.Rule), slog.String("catalogue", n.Catalogue), slog.String("actor", n.Actor),
			slog.String("identity", n.Identity), slog.String("caller", n.Caller),
			slog.String("seen", n.Seen), slog.String("text", n.Text))
	}
	return nil
}

// AnnounceIncident publishes an incident's notices, as Announce does a case's.
func (a *Audit) AnnounceIncident(ctx context.Context, task incidentwf.Announce) error {
	for _, n := range task.Notices {
		level, alert := slog.LevelInfo, "false"
		if n.Alert {
			level, alert = slog.LevelWarn, "true"
		}
		a.decisions.WithLabelValues(string(n.Kind), "", alert).Inc()
		a.logger.LogAttrs(ctx, level, "decision",
			slog.String("incident", task.Scope.String()), slog.Int64("seq", n.Seq), slog.Time("at", n.At),
			slog.String("kind", string(n.Kind)), slog.Bool("alert", n.Alert), slog.String("phase", string(n.Phase)),
			slog.Int("devices", n.Devices), slog.String("actor", n.Actor), slog.String("seen", n.Seen), slog.String("text", n.Text))
	}
	return nil
}
