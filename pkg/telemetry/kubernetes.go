package telemetry

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// KubernetesCalls counts the calls of the Kubernetes API, and traces those that
// are made for an epoch. The API server is sent the trace's context: one that
// traces (feature gate APIServerTracing) goes on with it.
type KubernetesCalls struct {
	requests  *prometheus.CounterVec
	time      *prometheus.HistogramVec
	evictions prometheus.Counter
	tracer    Tracer
}

func newKubernetesCalls(registerer prometheus.Registerer, tracer Tracer) (*KubernetesCalls, error) {
	evictions := Evictions.NewCounter()
	k := &KubernetesCalls{
		requests: KubernetesRequests.NewCounter(), time: KubernetesRequestTime.NewHistogram(),
		evictions: evictions.WithLabelValues(), tracer: tracer,
	}
	return k, errors.Join(registerer.Register(k.requests), registerer.Register(k.time), registerer.Register(evictions))
}

// Wrap watches the calls that go through a transport. It is what rest.Config.Wrap
// takes.
func (k *KubernetesCalls) Wrap(next http.RoundTripper) http.RoundTripper {
	if k == nil {
		return next
	}
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		c := callOf(r)
		traced := next
		if trace.SpanContextFromContext(r.Context()).IsValid() {
			traced = k.tracer.transport(next, c.String())
		}
		began := time.Now()
		answer, err := traced.RoundTrip(r)
		code := "error"
		if err == nil {
			code = strconv.Itoa(answer.StatusCode)
		}
		k.requests.WithLabelValues(c.verb, c.rights(), code).Inc()
		k.time.WithLabelValues(c.verb).Observe(time.Since(began).Seconds())
		if c.evicts() {
			k.evictions.Inc()
		}
		return answer, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// transport makes a span of each call, with the attributes that OpenTelemetry's
// conventions have for HTTP clients.
func (t Tracer) transport(next http.RoundTripper, name string) http.RoundTripper {
	if t.provider == nil {
		return next
	}
	return otelhttp.NewTransport(next,
		otelhttp.WithTracerProvider(t.provider),
		otelhttp.WithMeterProvider(metricnoop.NewMeterProvider()),
		otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithSpanNameFormatter(func(string, *http.Request) string { return name }))
}

// apiCall is a call of the Kubernetes API, as rights are granted on it.
type apiCall struct{ verb, resource, subresource, group string }

// String names the call, for people.
func (c apiCall) String() string { return c.verb + " " + c.rights() }

// rights is the resource as rights are granted on it.
func (c apiCall) rights() string {
	if c.resource == "" {
		return "-"
	}
	name := c.resource
	if c.subresource != "" {
		name += "/" + c.subresource
	}
	if c.group != "" {
		name += "." + c.group
	}
	return name
}

// evicts tells whether the call ends a Pod.
func (c apiCall) evicts() bool {
	if c.group != "" || c.resource != "pods" {
		return false
	}
	return c.subresource == "eviction" && c.verb == "create" || c.subresource == "" && strings.HasPrefix(c.verb, "delete")
}

// callOf reads what a request does off its method and path, as the API server does
// (k8s.io/apiserver/pkg/endpoints/request, RequestInfo).
func callOf(r *http.Request) apiCall {
	var c apiCall
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(path) >= 3 && path[0] == "api":
		path = path[2:]
	case len(path) >= 4 && path[0] == "apis":
		c.group, path = path[1], path[3:]
	default:
		c.verb = strings.ToLower(r.Method)
		return c
	}
	if len(path) >= 3 && path[0] == "namespaces" && path[2] != "status" && path[2] != "finalize" {
		path = path[2:]
	}
	c.resource = path[0]
	named := len(path) > 1
	if len(path) > 2 {
		c.subresource = path[2]
	}
	switch r.Method {
	case http.MethodPost:
		c.verb = "create"
	case http.MethodPut:
		c.verb = "update"
	case http.MethodPatch:
		c.verb = "patch"
	case http.MethodDelete:
		c.verb = "delete"
		if !named {
			c.verb = "deletecollection"
		}
	default:
		c.verb = "get"
		if !named {
			c.verb = "list"
		}
		if watch := r.URL.Query().Get("watch"); watch == "true" || watch == "1" {
			c.verb = "watch"
		}
	}
	return c
}
