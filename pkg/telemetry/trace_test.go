package telemetry

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// recorded is a tracer with what it recorded.
func recorded(t *testing.T) (Tracer, *tracetest.InMemoryExporter) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	t.Cleanup(func() {
		if err := provider.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return Tracer{provider}, spans
}

// K2. What an epoch does within a minute is in its trace; what it does after a long
// wait is a trace of its own that is linked to it.
func TestALongWaitEndsTheTraceAndLinksTheNext(t *testing.T) {
	tracer, spans := recorded(t)
	began := time.Now()
	ctx, change := tracer.Begin(t.Context(), "pod status change", began)
	ctx, signal := tracer.Send(ctx, "signal")
	epoch := Epoch{TraceParent: TraceParent(ctx), Began: began}
	for name, at := range map[string]time.Time{"soon": began.Add(together), "late": began.Add(together + time.Millisecond)} {
		_, span := tracer.Continue(t.Context(), epoch, name, at)
		span.End()
	}
	End(signal, errors.New("refused"))
	End(change, nil)

	named := map[string]tracetest.SpanStub{}
	for _, s := range spans.GetSpans() {
		named[s.Name] = s
	}
	origin := named["signal"].SpanContext
	if soon := named["soon"]; soon.SpanContext.TraceID() != origin.TraceID() || soon.Parent.SpanID() != origin.SpanID() || len(soon.Links) != 0 {
		t.Errorf("soon: %+v, want it under the signal %+v", soon, origin)
	}
	late := named["late"]
	if late.SpanContext.TraceID() == origin.TraceID() || late.Parent.IsValid() {
		t.Errorf("late: %+v, want a trace of its own", late)
	}
	if len(late.Links) != 1 || late.Links[0].SpanContext.TraceID() != origin.TraceID() {
		t.Errorf("late links to %+v, want the epoch's trace %s", late.Links, origin.TraceID())
	}
	if got := epoch.TraceID(); got != origin.TraceID().String() {
		t.Errorf("the epoch's trace is %q, want %s", got, origin.TraceID())
	}
	if status := named["signal"].Status; status.Description != "refused" {
		t.Errorf("the failed signal's status is %+v", status)
	}
}

func TestWithoutATraceAnActivityBeginsOne(t *testing.T) {
	tracer, spans := recorded(t)
	for _, traceparent := range []string{"", "garbage", "00-00000000000000000000000000000000-0000000000000000-01"} {
		_, span := tracer.Continue(t.Context(), Epoch{TraceParent: traceparent}, "activity", time.Now())
		span.End()
	}
	for _, s := range spans.GetSpans() {
		if s.Parent.IsValid() || len(s.Links) != 0 || !s.SpanContext.IsValid() {
			t.Errorf("%+v: want a root without links", s)
		}
	}
}

func TestATracerThatIsOffCostsNothingAndCarriesNothing(t *testing.T) {
	var off Tracer
	ctx, span := off.Begin(t.Context(), "change", time.Now())
	ctx, sent := off.Send(ctx, "signal")
	_, done := off.Continue(ctx, Epoch{}, "activity", time.Now())
	End(done, nil)
	End(sent, nil)
	End(span, nil)
	if got := TraceParent(ctx); got != "" {
		t.Errorf("traceparent %q, want none", got)
	}
}

func TestLogLinesOfAnEpochCarryItsTrace(t *testing.T) {
	tracer, _ := recorded(t)
	var out bytes.Buffer
	log := slog.New(Logs(slog.NewTextHandler(&out, nil))).With("service", "worker").WithGroup("more")
	ctx, span := tracer.Begin(t.Context(), "change", time.Now())
	log.InfoContext(ctx, "traced")
	log.InfoContext(t.Context(), "untraced")
	traced, untraced, _ := strings.Cut(out.String(), "\n")
	if want := "trace_id=" + span.SpanContext().TraceID().String(); !strings.Contains(traced, want) || strings.Contains(untraced, "trace_id") {
		t.Errorf("logged %q: want %s in the first line only", out.String(), want)
	}
}

// Each call is counted under the verb and the resource that rights are granted on,
// and traced only where it is made for an epoch.
func TestCallsAreCountedAsRightsAreGranted(t *testing.T) {
	tracer, spans := recorded(t)
	calls, err := newKubernetesCalls(prometheus.NewRegistry(), tracer)
	if err != nil {
		t.Fatal(err)
	}
	var propagated string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		propagated = r.Header.Get("traceparent")
		w.WriteHeader(http.StatusTeapot)
	}))
	defer server.Close()
	transport := calls.Wrap(http.DefaultTransport)
	call := func(ctx context.Context, method, path string) {
		t.Helper()
		request, err := http.NewRequestWithContext(ctx, method, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	for path, want := range map[string][2]string{
		"GET /api/v1/pods":                                       {"list", "pods"},
		"GET /api/v1/pods?watch=true&limit=1":                    {"watch", "pods"},
		"GET /api/v1/namespaces/a/pods/b":                        {"get", "pods"},
		"GET /api/v1/namespaces/a":                               {"get", "namespaces"},
		"PATCH /api/v1/namespaces/a/pods/b/status":               {"patch", "pods/status"},
		"POST /api/v1/namespaces/a/events":                       {"create", "events"},
		"PUT /apis/coordination.k8s.io/v1/namespaces/a/leases/b": {"update", "leases.coordination.k8s.io"},
		"DELETE /apis/resource.k8s.io/v1/devicetaintrules/a":     {"delete", "devicetaintrules.resource.k8s.io"},
		"DELETE /apis/resource.k8s.io/v1/devicetaintrules":       {"deletecollection", "devicetaintrules.resource.k8s.io"},
		"POST /apis/resource.k8s.io/v1/devicetaintrules":         {"create", "devicetaintrules.resource.k8s.io"},
		"GET /version":                 {"get", "-"},
		"GET /apis/resource.k8s.io/v1": {"get", "-"},
	} {
		method, at, _ := strings.Cut(path, " ")
		before := testutil.ToFloat64(calls.requests.WithLabelValues(want[0], want[1], "418"))
		call(t.Context(), method, at)
		if got := testutil.ToFloat64(calls.requests.WithLabelValues(want[0], want[1], "418")) - before; got != 1 {
			t.Errorf("%s isn't counted as %v", path, want)
		}
	}
	if got := testutil.ToFloat64(calls.evictions); got != 0 || propagated != "" || len(spans.GetSpans()) != 0 {
		t.Errorf("%v evictions, traceparent %q, %d spans; want none of them", got, propagated, len(spans.GetSpans()))
	}
	for _, path := range []string{
		"POST /api/v1/namespaces/a/pods/b/eviction", "DELETE /api/v1/namespaces/a/pods/b", "DELETE /api/v1/namespaces/a/pods",
	} {
		before := testutil.ToFloat64(calls.evictions)
		method, at, _ := strings.Cut(path, " ")
		call(t.Context(), method, at)
		if got := testutil.ToFloat64(calls.evictions) - before; got != 1 {
			t.Errorf("%s isn't counted as an eviction", path)
		}
	}

	ctx, span := tracer.Begin(t.Context(), "activity", time.Now())
	call(ctx, http.MethodPost, "/apis/resource.k8s.io/v1/devicetaintrules")
	if !strings.Contains(propagated, span.SpanContext().TraceID().String()) {
		t.Errorf("the API server was sent traceparent %q, want trace %s", propagated, span.SpanContext().TraceID())
	}
	if got := spans.GetSpans(); len(got) != 1 || got[0].Name != "create devicetaintrules.resource.k8s.io" || got[0].Parent.SpanID() != span.SpanContext().SpanID() {
		t.Errorf("spans %+v, want the call under the activity", got)
	}
}
