package cmd

import (
	"io"
	"log/slog"

	"k8s.io/klog/v2"

	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/telemetry"
)

// newLogger makes a service's logger. Everything goes to standard error, one
// line each; what client-go logs by itself goes the same way.
func newLogger(out io.Writer, set config.Log, service string) *slog.Logger {
	var level slog.Level
	// pkg/config allows only names that slog knows.
	if err := level.UnmarshalText([]byte(set.Level)); err != nil {
		level = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewJSONHandler(out, options)
	if set.Format == "text" {
		handler = slog.NewTextHandler(out, options)
	}
	logger := slog.New(telemetry.Logs(handler)).With("service", service)
	klog.SetSlogLogger(logger.With("component", "client-go"))
	return logger
}
