package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/telemetry"
)

// logs is a log that can be read while it is written.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
	grew chan struct{}
}

func newLogs() *logs { return &logs{grew: make(chan struct{}, 1)} }

func (l *logs) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.grew <- struct{}{}:
	default:
	}
	return l.text.Write(line)
}

// await returns what a pattern's group matched, once it does.
func (l *logs) await(t *testing.T, pattern string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	expression := regexp.MustCompile(pattern)
	for {
		l.mu.Lock()
		match := expression.FindStringSubmatch(l.text.String())
		l.mu.Unlock()
		if match != nil {
			return match[len(match)-1]
		}
		select {
		case <-l.grew:
		case <-ctx.Done():
			t.Fatalf("the log never says %s", pattern)
		}
	}
}

func toldTo(t *testing.T, log *slog.Logger) *telemetry.Telemetry {
	t.Helper()
	told, err := startTelemetry(t.Context(), config.Telemetry{}, telemetry.Worker, log)
	if err != nil {
		t.Fatal(err)
	}
	return told
}

// started runs a service and returns where it answers, how to end it, and how it
// ended.
func started(t *testing.T, s service) (url string, stop func(), ended <-chan error) {
	t.Helper()
	log := newLogs()
	s.log = slog.New(slog.NewJSONHandler(log, nil))
	s.told = toldTo(t, s.log)
	s.address = "127.0.0.1:0"
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- s.serve(ctx) }()
	return "http://" + log.await(t, `"http":"([^"]+)"`), cancel, done
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func TestReadinessSaysWhatIsMissing(t *testing.T) {
	url, stop, ended := started(t, service{
		run: untilDone, stopLimit: time.Second,
		ready: readiness{conditions: []condition{
			{"kubernetes", func(context.Context) error { return nil }},
			{"temporal", func(context.Context) error { return errors.New("namespace sickbay can't be read:\nnobody is there") }},
		}},
	})
	status, body := get(t, url+"/readyz")
	want := "kubernetes: ok\ntemporal: namespace sickbay can't be read:; nobody is there\nrunning: ok\n"
	if status != http.StatusServiceUnavailable || body != want {
		t.Errorf("answers %d %q, want 503 %q", status, body, want)
	}
	if status, body := get(t, url+"/healthz"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("/healthz answers %d %q: a process that isn't ready is alive all the same", status, body)
	}
	if status, body := get(t, url+"/metrics"); status != http.StatusOK || !strings.Contains(body, "go_goroutines") {
		t.Errorf("/metrics answers %d without Go's own metrics", status)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestAConditionThatHangsDoesNotHangTheProbe(t *testing.T) {
	url, stop, ended := started(t, service{
		run: untilDone, stopLimit: time.Second,
		ready: readiness{conditions: []condition{{"kubernetes", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}}},
	})
	if status, body := get(t, url+"/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "kubernetes: context deadline exceeded") {
		t.Errorf("answers %d %q, want 503 after the limit", status, body)
	}
	stop()
	<-ended
}

func TestWhileAServiceEndsItIsAliveAndNotReady(t *testing.T) {
	release := make(chan struct{})
	ending := make(chan struct{})
	url, stop, ended := started(t, service{
		stopLimit: time.Minute,
		run: func(ctx context.Context) error {
			<-ctx.Done()
			close(ending)
			<-release
			return fmt.Errorf("put down: %w", ctx.Err())
		},
	})
	stop()
	<-ending
	if status, body := get(t, url+"/readyz"); status != http.StatusServiceUnavailable || body != "running: the process is ending\n" {
		t.Errorf("answers %d %q, want 503 and why", status, body)
	}
	if status, _ := get(t, url+"/healthz"); status != http.StatusOK {
		t.Errorf("/healthz answers %d: killed in the midst of a clean end", status)
	}
	close(release)
	if err := <-ended; err != nil {
		t.Errorf("ended with %v, want nothing: it was told to end", err)
	}
}

func TestWorkThatDoesNotEndIsGivenUp(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	_, stop, ended := started(t, service{
		stopLimit: 20 * time.Millisecond,
		run:       func(context.Context) error { <-hang; return nil },
	})
	stop()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "not ended 20ms after the signal") {
		t.Errorf("ended with %v, want an error that says that it hung", err)
	}
}

func TestWorkThatFailsEndsTheService(t *testing.T) {
	_, _, ended := started(t, service{
		stopLimit: time.Second,
		run:       func(context.Context) error { return errors.New("the task queue is gone") },
	})
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "the task queue is gone") {
		t.Errorf("ended with %v, want the work's error", err)
	}
}

func TestAnAddressThatIsTakenIsAMatterOfConfiguration(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := service{log: slog.New(slog.DiscardHandler), told: toldTo(t, slog.New(slog.DiscardHandler)), address: taken.Addr().String(), run: untilDone}
	if err := s.serve(t.Context()); exitCode(err) != ExitUsage || !strings.Contains(err.Error(), "SICKBAY_HTTP_ADDRESS") {
		t.Errorf("failed with %v, want the variable named and exit code %d", err, ExitUsage)
	}
}
