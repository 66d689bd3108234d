package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/telemetry"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// One fault, told to a real OTLP receiver: the trace of its epoch leads from the
// Pod's status over the signal, the decisions and the activity to the call that
// made the mark, and the logs of both processes carry its ID. Proves K2. Both show
// their metrics, each as it is defined, and push them too. Proves K1 in part: how
// long a mark takes, what was dropped, what was called.
func TestOneTraceLeadsFromThePodStatusToTheMark(t *testing.T) {
	c := start(t, stack.Options{Kubernetes: "1.37", Temporal: true, Redis: true, Collector: true}, 1, 2)
	env := []string{
		"SICKBAY_OTLP_ENDPOINT=" + c.stack.OTLPEndpoint(), "SICKBAY_REDIS_ADDRESSES=" + c.stack.RedisAddress(),
		"OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_METRIC_EXPORT_INTERVAL=500",
	}
	// A worker tries whether it is refused more than marks; before it is, that counts as
	// a rule that was created.
	c.awaitPolicy()
	worker := c.process("worker", "worker", "", append(fastEnvironment(), env...)...)
	starter := c.process("starter", "starter", "", append(starterEnvironment(), env...)...)
	key := c.runPod("train-0")
	c.set(key, corev1.ResourceHealthStatusUnhealthy, fallenOff)
	state := c.awaitInForce(key)

	var trace []stack.Span
	var root, signal, activity, call stack.Span
	c.eventually("the whole trace is with the receiver", 20*time.Second, func(context.Context) error {
		spans, err := c.stack.Spans()
		if err != nil {
			return err
		}
		if root, err = one(spans, "pod status change", func(s stack.Span) bool {
			return s.Attributes["hw.id"] == key.String() && s.Attributes["sickbay.health"] == "Unhealthy"
		}); err != nil {
			return err
		}
		trace = slices.DeleteFunc(spans, func(s stack.Span) bool { return s.TraceID != root.TraceID })
		if signal, err = one(trace, "signal observed (open)", childOf(root)); err != nil {
			return err
		}
		if activity, err = one(trace, "activity PutMark", childOf(signal)); err != nil {
			return err
		}
		if call, err = one(trace, "create devicetaintrules.resource.k8s.io", childOf(activity)); err != nil {
			return err
		}
		for _, kind := range []quarantine.NoticeKind{quarantine.NoticeOpened, quarantine.NoticeMarkInForce} {
			if _, err = one(trace, "decision "+string(kind), childOf(signal)); err != nil {
				return err
			}
		}
		return nil
	})
	if traced, err := c.cases.State(t.Context(), key); err != nil || !strings.Contains(traced.TraceParent, root.TraceID) {
		t.Errorf("the case carries trace %q (%v), want %s", traced.TraceParent, err, root.TraceID)
	}
	if root.ParentID != "" || root.Service != "sickbay-starter" || activity.Service != "sickbay-worker" {
		t.Errorf("root %+v, activity %+v: want the starter's span first, and the worker's under it", root, activity)
	}
	for name, want := range map[string]string{
		"k8s.pod.name": "train-0", "k8s.namespace.name": "default", "k8s.node.name": "node-0", "sickbay.reason": string(state.Reason.Code),
	} {
		if got := root.Attributes[name]; got != want {
			t.Errorf("the change's %s is %q, want %q", name, got, want)
		}
	}
	if got := activity.Attributes["sickbay.mark"]; got != state.Mark.Name {
		t.Errorf("the activity made mark %q, want %q", got, state.Mark.Name)
	}
	if got := call.Attributes["http.response.status_code"]; got != "201" {
		t.Errorf("the call was answered with %q, want 201", got)
	}
	if root.Start.After(signal.Start) || signal.Start.After(activity.Start) || activity.Start.After(call.Start) || call.End.After(activity.End) {
		t.Errorf("the trace's spans aren't in the order of what they caused: %+v", trace)
	}
	for process, line := range map[string]string{"starter": "signalled", "worker": "mark written"} {
		if !slices.ContainsFunc(c.logged(process, line), func(fields map[string]any) bool {
			return fields["trace_id"] == root.TraceID && fields["device"] == key.String()
		}) {
			t.Errorf("no line %q of the %s carries trace %s and the device", line, process, root.TraceID)
		}
	}

	c.eventually("the open case is counted", 10*time.Second, func(ctx context.Context) error {
		shown, err := scrape(ctx, starter)
		if err != nil {
			return err
		}
		return valued(shown, telemetry.OpenCases.Name, 1, "phase", "Quarantined", "driver", key.Driver)
	})
	for process, address := range map[telemetry.Process]string{telemetry.Starter: starter, telemetry.Worker: worker} {
		shown, err := scrape(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		isAsDefined(t, process, shown)
		for _, name := range []string{"temporal_request_total", "go_goroutines", "process_resident_memory_bytes"} {
			if shown[name] == nil {
				t.Errorf("the %s doesn't show %s", process, name)
			}
		}
		if err := valued(shown, telemetry.Evictions.Name, 0); err != nil {
			t.Error(err)
		}
		if process == telemetry.Worker {
			if marked := shown[telemetry.MarkDelay.Name].GetMetric(); len(marked) != 1 || marked[0].GetHistogram().GetSampleCount() != 1 {
				t.Errorf("time to the mark: %v, want one observation", marked)
			}
			if err := valued(shown, telemetry.KubernetesRequests.Name, 1, "verb", "create", "resource", "devicetaintrules.resource.k8s.io", "code", "201"); err != nil {
				t.Error(err)
			}
		}
	}
	c.eventually("metrics are pushed", 10*time.Second, func(context.Context) error {
		pushed, err := c.stack.PushedMetrics()
		for _, name := range []string{telemetry.Signals.Name, telemetry.MarkDelay.Name, "temporal_request"} {
			if err == nil && !pushed[name] {
				err = fmt.Errorf("%s isn't among the %d metrics that were pushed: %v", name, len(pushed), pushed)
			}
		}
		return err
	})
}

// isAsDefined compares what a process shows with the definitions: every metric of
// ours is defined for it with its kind and labels, and all that are defined and
// need no occasion are there.
func isAsDefined(t *testing.T, process telemetry.Process, shown map[string]*dto.MetricFamily) {
	t.Helper()
	defined := map[string]telemetry.Metric{}
	for _, section := range telemetry.Sections() {
		for _, m := range section.Metrics {
			if m.In(process) {
				defined[m.Name] = m
			}
		}
	}
	for name, family := range shown {
		if !strings.HasPrefix(name, "sickbay_") {
			continue
		}
		m, ok := defined[name]
		if !ok {
			t.Errorf("the %s shows %s, which isn't defined for it", process, name)
			continue
		}
		if kind := strings.ToLower(family.GetType().String()); kind != string(m.Kind) {
			t.Errorf("%s is shown as a %s and defined as a %s", name, kind, m.Kind)
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if !slices.ContainsFunc(m.Labels, func(l telemetry.Label) bool { return l.Name == label.GetName() }) {
					t.Errorf("%s has label %s, which isn't defined", name, label.GetName())
				}
			}
		}
	}
	// What has labels shows once it has something to show.
	occasional := []telemetry.Metric{
		telemetry.UnmappedFaults, telemetry.UnmonitoredDevices, telemetry.NotedFaults, telemetry.SendRetries,
		telemetry.Blind, telemetry.StaleDevices, telemetry.Pokes,
		telemetry.DirectoryDifferences, telemetry.PhaseTime, telemetry.DirectoryWrites,
	}
	for name := range defined {
		if shown[name] == nil && !slices.ContainsFunc(occasional, func(m telemetry.Metric) bool { return m.Name == name }) {
			t.Errorf("the %s doesn't show %s", process, name)
		}
	}
}

// one finds the one span of a name that fits.
func one(spans []stack.Span, name string, fits func(stack.Span) bool) (stack.Span, error) {
	var found []stack.Span
	var named []string
	for _, s := range spans {
		if s.Name == name && fits(s) {
			found = append(found, s)
		}
		named = append(named, s.Name)
	}
	if len(found) != 1 {
		return stack.Span{}, fmt.Errorf("%d spans %q that fit, want 1; there are %q", len(found), name, named)
	}
	return found[0], nil
}

func childOf(parent stack.Span) func(stack.Span) bool {
	return func(s stack.Span) bool { return s.TraceID == parent.TraceID && s.ParentID == parent.SpanID }
}

// scrape reads a process's metrics, as Prometheus does.
func scrape(ctx context.Context, address string) (map[string]*dto.MetricFamily, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		return nil, fmt.Errorf("%s answers %s: %s", address, answer.Status, text)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(answer.Body)
}

// valued tells whether a counter or gauge with some labels has a value.
func valued(shown map[string]*dto.MetricFamily, name string, want float64, labels ...string) error {
	for _, metric := range shown[name].GetMetric() {
		has := map[string]string{}
		for _, l := range metric.GetLabel() {
			has[l.GetName()] = l.GetValue()
		}
		fits := true
		for i := 0; i < len(labels); i += 2 {
			fits = fits && has[labels[i]] == labels[i+1]
		}
		if !fits {
			continue
		}
		if got := metric.GetCounter().GetValue() + metric.GetGauge().GetValue(); got != want {
			return fmt.Errorf("%s%v is %v, want %v", name, labels, got, want)
		}
		return nil
	}
	return fmt.Errorf("%s%v isn't shown; there is %v", name, labels, shown[name])
}
