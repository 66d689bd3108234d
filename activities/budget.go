package activities

import (
	"context"
	"log/slog"

	permitswf "github.com/sickbay-dev/sickbay/workflows/permits"
)

// AnnounceBudget publishes what was decided about budgets and pauses, as Announce does a
// case's decisions.
func (a *Audit) AnnounceBudget(ctx context.Context, task permitswf.Announce) error {
	for _, n := range task.Notices {
		level, alert := slog.LevelInfo, "false"
		if n.Alert {
			level, alert = slog.LevelWarn, "true"
		}
		a.decisions.WithLabelValues(string(n.Kind), "", alert).Inc()
		a.logger.LogAttrs(ctx, level, "decision",
			slog.String("budget", n.Scope), slog.Int64("seq", n.Seq), slog.Time("at", n.At), slog.String("kind", string(n.Kind)),
			slog.Bool("alert", n.Alert), slog.String("actor", n.Actor), slog.String("text", n.Text))
	}
	return nil
}
