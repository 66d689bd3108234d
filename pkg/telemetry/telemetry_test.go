package telemetry

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// said is a log that can be read while it is written.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(line)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func TestACollectorThatIsAwayHoldsNothingUp(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// It takes connections and never answers, which is worse than one that isn't there.
	defer listener.Close()
	var log said
	begin := time.Now()
	told, err := Start(t.Context(), Options{
		Process: Worker, Version: "v1", Instance: "a", Endpoint: "http://" + listener.Addr().String(), Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 10_000 { // more than a queue of spans holds
		_, span := told.Tracer.Begin(t.Context(), "change", time.Now())
		span.End()
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("10,000 spans took %s", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	begin = time.Now()
	if err := told.Stop(ctx); err == nil {
		t.Error("nothing was said of the spans that are lost")
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("stopping took %s, and had 500 ms", took)
	}
}

func TestWhatCanNotBeExportedIsSaidOnceAMinute(t *testing.T) {
	var log said
	handler := &errorLog{log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 3 {
		handler.Handle(context.DeadlineExceeded)
		handler.Handle(context.Canceled)
	}
	handler.said = handler.said.Add(-errorPause)
	handler.Handle(context.Canceled)
	if n := strings.Count(log.String(), "nothing else is held up"); n != 2 || !strings.Contains(log.String(), "unsaid=5") {
		t.Errorf("said %d times, want one of six errors, and the next a minute later:\n%s", n, log.String())
	}
}

func TestAnEndpointOfOpenTelemetrysOwnVariableCounts(t *testing.T) {
	for _, test := range []struct {
		ours, both, traces string
		want               [2]bool // traces, metrics
	}{
		{"", "", "", [2]bool{false, false}},
		{"http://a:1", "", "", [2]bool{true, true}},
		{"", "http://a:1", "", [2]bool{true, true}},
		{"", "", "http://a:1", [2]bool{true, false}},
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", test.both)
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", test.traces)
		o := Options{Endpoint: test.ours}
		if got := [2]bool{o.exports("TRACES"), o.exports("METRICS")}; got != test.want {
			t.Errorf("%+v: exports %t", test, got)
		}
	}
}
