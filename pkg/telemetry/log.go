package telemetry

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// Logs makes log lines that are written for an epoch carry the IDs of its trace,
// by the names that OpenTelemetry has for logs in other formats.
func Logs(next slog.Handler) slog.Handler { return &traced{next} }

type traced struct{ slog.Handler }

// Handle implements slog.Handler.
func (h *traced) Handle(ctx context.Context, record slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		record = record.Clone()
		record.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs implements slog.Handler.
func (h *traced) WithAttrs(attributes []slog.Attr) slog.Handler {
	return &traced{h.Handler.WithAttrs(attributes)}
}

// WithGroup implements slog.Handler.
func (h *traced) WithGroup(name string) slog.Handler { return &traced{h.Handler.WithGroup(name)} }
