package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.temporal.io/sdk/client"
	temporalotel "go.temporal.io/sdk/contrib/opentelemetry"
)

// errorPause is how long nothing is said after an error of the exporters.
const errorPause = time.Minute

// Options is what a process says of itself.
type Options struct {
	Process Process
	Version string
	Commit  string
	// Instance tells this process from others of its kind.
	Instance string
	// Endpoint is the URL of a collector that takes OTLP over gRPC. Empty: what
	// OTEL_EXPORTER_OTLP_ENDPOINT says, or for one of the two
	// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT and OTEL_EXPORTER_OTLP_METRICS_ENDPOINT;
	// where all are empty, nothing is exported.
	Endpoint string
	Log      *slog.Logger
}

// exports tells whether there is a collector for "TRACES" or for "METRICS".
func (o Options) exports(signal string) bool {
	return cmp.Or(o.Endpoint, os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT")) != ""
}

// Telemetry is what a process counts and traces with.
type Telemetry struct {
	// Registry takes the process's metrics.
	Registry *prometheus.Registry
	// Tracer makes the spans of epochs.
	Tracer Tracer
	// Kubernetes watches the calls of the Kubernetes API.
	Kubernetes *KubernetesCalls

	// temporal holds what the Temporal SDK counts. It has a registry of its own,
	// for the collector gets it directly.
	temporal *prometheus.Registry
	meters   *metric.MeterProvider
	log      *slog.Logger
	shutdown []func(context.Context) error
}

// Start sets a process's telemetry up. It connects to nothing: a collector that is
// away is waited for while spans are given up.
func Start(ctx context.Context, o Options) (*Telemetry, error) {
	t := &Telemetry{Registry: prometheus.NewRegistry(), temporal: prometheus.NewRegistry(), log: o.Log.With("component", "telemetry")}
	// First of all: what OpenTelemetry finds wrong in its own variables is said by it.
	otel.SetErrorHandler(&errorLog{log: t.log})
	build := BuildInfo.NewGauge()
	build.WithLabelValues(o.Version, o.Commit).Set(1)
	t.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build)

	self, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			semconv.ServiceName("sickbay-"+string(o.Process)), semconv.ServiceVersion(o.Version), semconv.ServiceInstanceID(o.Instance)),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe this process, with OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	shown, err := otelprometheus.New(otelprometheus.WithRegisterer(t.temporal), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("set up the metrics of the Temporal SDK: %w", err)
	}
	readers := []metric.Option{metric.WithResource(self), metric.WithReader(shown)}
	if o.exports("TRACES") {
		spans, err := t.exportSpans(ctx, o, self)
		if err != nil {
			return nil, err
		}
		t.Tracer = Tracer{spans}
		t.shutdown = append(t.shutdown, spans.Shutdown)
	}
	if o.exports("METRICS") {
		pushed, err := t.exportMetrics(ctx, o)
		if err != nil {
			return nil, err
		}
		readers = append(readers, metric.WithReader(pushed))
	}
	t.meters = metric.NewMeterProvider(readers...)
	t.shutdown = append(t.shutdown, t.meters.Shutdown)
	if t.Kubernetes, err = newKubernetesCalls(t.Registry, t.Tracer); err != nil {
		return nil, err
	}
	return t, nil
}

// exportSpans hands spans to the collector in batches.
func (t *Telemetry) exportSpans(ctx context.Context, o Options, self *resource.Resource) (*sdktrace.TracerProvider, error) {
	var where []otlptracegrpc.Option
	if o.Endpoint != "" {
		where = append(where, otlptracegrpc.WithEndpointURL(o.Endpoint))
	}
	exporter, err := otlptracegrpc.New(ctx, where...)
	if err != nil {
		return nil, fmt.Errorf("set up the export of traces to %s: %w", o.Endpoint, err)
	}
	return sdktrace.NewTracerProvider(sdktrace.WithResource(self), sdktrace.WithBatcher(exporter)), nil
}

// exportMetrics hands all metrics to the collector, those of the registry too.
func (t *Telemetry) exportMetrics(ctx context.Context, o Options) (metric.Reader, error) {
	var where []otlpmetricgrpc.Option
	if o.Endpoint != "" {
		where = append(where, otlpmetricgrpc.WithEndpointURL(o.Endpoint))
	}
	exporter, err := otlpmetricgrpc.New(ctx, where...)
	if err != nil {
		return nil, fmt.Errorf("set up the export of metrics to %s: %w", o.Endpoint, err)
	}
	return metric.NewPeriodicReader(exporter, metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(t.Registry)))), nil
}

// Gatherer has everything that /metrics shows.
func (t *Telemetry) Gatherer() prometheus.Gatherer {
	return prometheus.Gatherers{t.Registry, t.temporal}
}

// Temporal counts what the Temporal SDK does.
func (t *Telemetry) Temporal() client.MetricsHandler {
	return temporalotel.NewMetricsHandler(temporalotel.MetricsHandlerOptions{
		Meter:                t.meters.Meter("temporal-sdk-go"),
		UseMonotonicCounters: true,
		OnError:              func(err error) { t.log.Warn("a metric of the Temporal SDK is lost", "error", err) },
	})
}

// Stop hands over what wasn't exported yet, until ctx ends.
func (t *Telemetry) Stop(ctx context.Context) error {
	var errs []error
	for _, stop := range t.shutdown {
		errs = append(errs, stop(ctx))
	}
	return errors.Join(errs...)
}

// errorLog says what OpenTelemetry can't do, once a minute: with a collector that is
// away, each batch of each kind fails with a text of its own.
type errorLog struct {
	log *slog.Logger

	mu     sync.Mutex
	said   time.Time
	unsaid int
}

// Handle implements otel.ErrorHandler.
func (e *errorLog) Handle(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.said) < errorPause {
		e.unsaid++
		return
	}
	e.log.Warn("telemetry isn't exported as it should be; nothing else is held up by that", "error", err, "unsaid", e.unsaid)
	e.said, e.unsaid = time.Now(), 0
}
