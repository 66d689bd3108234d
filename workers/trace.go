package workers

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/activity"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/telemetry"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// An activity's span hangs under the signal that opened the epoch and not under the
// workflow's run, as the SDK's own interceptor would have it: a case has one run
// after another, each of which would be a trace of its own.

// epochOf is the trace that a task belongs to.
func epochOf[C devicewf.Commands](task devicewf.Task[C]) telemetry.Epoch {
	return telemetry.Epoch{TraceParent: task.TraceParent, Began: task.TraceBegan}
}

// span starts the span of an activity.
func (w *Worker) span(ctx context.Context, epoch telemetry.Epoch, key device.Key, node string) (context.Context, trace.Span) {
	info := activity.GetInfo(ctx)
	attributes := append(telemetry.Device(key.String(), node),
		// The names are those that Temporal's own interceptor uses.
		attribute.String("temporalWorkflowID", info.WorkflowExecution.ID),
		attribute.String("temporalRunID", info.WorkflowExecution.RunID),
		attribute.String("temporalActivityID", info.ActivityID),
		attribute.Int("temporal.attempt", int(info.Attempt)))
	return w.options.Tracer.Continue(ctx, epoch, "activity "+info.ActivityType.Name, time.Now(), attributes...)
}

// traced gives an activity its span.
func traced[C devicewf.Commands, R any](
	w *Worker, run func(context.Context, devicewf.Task[C]) (R, error),
) func(context.Context, devicewf.Task[C]) (R, error) {
	return func(ctx context.Context, task devicewf.Task[C]) (R, error) {
		key, node := subjectOf(task.Command)
		ctx, span := w.span(ctx, epochOf(task), key, node)
		result, err := run(ctx, task)
		if reported, ok := any(result).(quarantine.MarkReported); ok && err == nil {
			span.SetAttributes(telemetry.AttributeMark.String(reported.Name), telemetry.AttributeOutcome.String(string(reported.Outcome)),
				telemetry.AttributeEpoch.Int64(reported.Epoch))
		}
		telemetry.End(span, err)
		return result, err
	}
}

// decided shows decisions as spans without a length, at the time at which the
// workflow made them: a workflow makes none itself, for it would make them again
// with each replay.
func (w *Worker) decided(ctx context.Context, epoch telemetry.Epoch, key device.Key, notices []quarantine.Notice) {
	for _, n := range notices {
		attributes := append(telemetry.Device(key.String(), ""),
			telemetry.AttributeKind.String(string(n.Kind)), telemetry.AttributeText.String(n.Text), telemetry.AttributeActor.String(n.Actor),
			telemetry.AttributePhase.String(string(n.Phase)), telemetry.AttributeReason.String(n.Reason),
			telemetry.AttributeEpoch.Int64(n.Epoch), telemetry.AttributeSeq.Int64(n.Seq))
		_, span := w.options.Tracer.Continue(ctx, epoch, "decision "+string(n.Kind), n.At, attributes...)
		span.End(trace.WithTimestamp(n.At))
	}
}
