package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// tracerName is the instrumentation scope of all spans.
const tracerName = "github.com/sickbay-dev/sickbay"

// together is how long after its beginning an epoch goes on in one trace. A case
// lasts for days, and no trace store shows such a trace; what comes later are
// traces of their own, linked to the first.
const together = time.Minute

// Attributes that OpenTelemetry's conventions have no name for.
const (
	AttributeEpoch   = attribute.Key("sickbay.epoch")
	AttributeHealth  = attribute.Key("sickbay.health")
	AttributeReason  = attribute.Key("sickbay.reason")
	AttributePhase   = attribute.Key("sickbay.phase")
	AttributeKind    = attribute.Key("sickbay.decision.kind")
	AttributeSeq     = attribute.Key("sickbay.decision.seq")
	AttributeText    = attribute.Key("sickbay.decision.text")
	AttributeActor   = attribute.Key("sickbay.decision.actor")
	AttributeMark    = attribute.Key("sickbay.mark")
	AttributeOutcome = attribute.Key("sickbay.mark.outcome")
	// AttributeVersion is the status version: the Pod's resourceVersion at which the
	// present health was first seen.
	AttributeVersion = attribute.Key("sickbay.status.version")
)

// Tracer makes the spans of epochs. The zero value makes none.
type Tracer struct{ provider trace.TracerProvider }

func (t Tracer) tracer() trace.Tracer { return t.provider.Tracer(tracerName) }

// Device are the attributes that name a device on a node; node may be empty.
func Device(key, node string) []attribute.KeyValue {
	named := []attribute.KeyValue{semconv.HwID(key)}
	if node != "" {
		named = append(named, semconv.K8SNodeName(node))
	}
	return named
}

// Pod are the attributes that name a Pod.
func Pod(namespace, name, uid string) []attribute.KeyValue {
	return []attribute.KeyValue{semconv.K8SNamespaceName(namespace), semconv.K8SPodName(name), semconv.K8SPodUID(uid)}
}

// Begin starts a trace with something that was seen at a time.
func (t Tracer) Begin(ctx context.Context, name string, at time.Time, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	if t.provider == nil {
		return ctx, trace.SpanFromContext(ctx)
	}
	return t.tracer().Start(ctx, name, trace.WithNewRoot(), trace.WithTimestamp(at), trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(attributes...))
}

// Send starts the span of a message to somebody else.
func (t Tracer) Send(ctx context.Context, name string) (context.Context, trace.Span) {
	if t.provider == nil {
		return ctx, trace.SpanFromContext(ctx)
	}
	return t.tracer().Start(ctx, name, trace.WithSpanKind(trace.SpanKindProducer))
}

// Continue starts a span in the trace of an epoch that began at a time. Long after
// that it starts another trace, which links to the epoch's.
func (t Tracer) Continue(ctx context.Context, epoch Epoch, name string, at time.Time, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	if t.provider == nil {
		return ctx, trace.SpanFromContext(ctx)
	}
	options := []trace.SpanStartOption{trace.WithTimestamp(at), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes...)}
	origin := epoch.origin()
	switch {
	case !origin.IsValid():
		options = append(options, trace.WithNewRoot())
	case at.Sub(epoch.Began) > together:
		options = append(options, trace.WithNewRoot(), trace.WithLinks(trace.Link{
			SpanContext: origin, Attributes: []attribute.KeyValue{attribute.String("sickbay.link", "epoch")},
		}))
	default:
		ctx = trace.ContextWithRemoteSpanContext(ctx, origin)
	}
	return t.tracer().Start(ctx, name, options...)
}

// Epoch is the trace of an epoch, as a workflow carries it.
type Epoch struct {
	// TraceParent is the W3C traceparent of the signal that opened it, or empty.
	TraceParent string
	Began       time.Time
}

// origin is the span that the epoch comes from; invalid if there is none.
func (e Epoch) origin() trace.SpanContext {
	carrier := propagation.MapCarrier{"traceparent": e.TraceParent}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// TraceID is the ID of the epoch's trace, or empty.
func (e Epoch) TraceID() string {
	if origin := e.origin(); origin.IsValid() {
		return origin.TraceID().String()
	}
	return ""
}

// TraceParent is the W3C traceparent of the span in ctx, or empty.
func TraceParent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// End ends a span with what became of it.
func End(span trace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}
