package cmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/telemetry"
)

// service is a process that runs until it is told to end.
type service struct {
	log  *slog.Logger
	told *telemetry.Telemetry
	// address is where /metrics, /healthz and /readyz are answered.
	address string
	ready   readiness
	// run does the work and returns when ctx is done and everything is put down,
	// or when it can't go on.
	run func(ctx context.Context) error
	// stopLimit bounds how long run may take to put everything down.
	stopLimit time.Duration
}

// startTelemetry sets up what a service tells of itself.
func startTelemetry(ctx context.Context, set config.Telemetry, process telemetry.Process, log *slog.Logger) (*telemetry.Telemetry, error) {
	build := buildOf()
	told, err := telemetry.Start(ctx, telemetry.Options{
		Process: process, Version: build.Version, Commit: build.Commit, Instance: identity(string(process)),
		Endpoint: set.OTLPEndpoint, Log: log,
	})
	if err != nil {
		return nil, &configurationError{err}
	}
	return told, nil
}

// serve runs a service until ctx is done. Metrics and probes are answered from
// before the work begins until after it ended, so that a slow start and a slow
// end can be seen.
func (s service) serve(ctx context.Context) error {
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return &configurationError{fmt.Errorf("SICKBAY_HTTP_ADDRESS=%q: %w", s.address, err)}
	}
	stopping := condition{"running", func(context.Context) error {
		if ctx.Err() != nil {
			return errors.New("the process is ending")
		}
		return nil
	}}
	server := &http.Server{Handler: s.handler(stopping), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	s.log.Info("started", "version", buildOf().Version, "commit", buildOf().Commit, "http", listener.Addr().String())

	looking := s.lookAtPrerequisites(ctx)

	err = s.runBounded(ctx)

	looking()
	s.within("the last spans and metrics didn't reach the collector", s.told.Stop)
	s.within("answers under way were cut off", server.Shutdown)
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve %s: %w", s.address, failed))
	}
	if err != nil {
		return err
	}
	s.log.Info("ended")
	return nil
}

// lookAtPrerequisites begins to look, and returns how to end it.
func (s service) lookAtPrerequisites(ctx context.Context) (end func()) {
	if s.ready.prerequisites == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.ready.prerequisites.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// closeLimit bounds each step of putting down what isn't the work itself.
const closeLimit = 2 * time.Second

// within does one such step, and says what it means if it fails.
func (s service) within(means string, step func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if err := step(ctx); err != nil {
		s.log.Warn(means, "error", err)
	}
}

func (s service) handler(stopping condition) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.told.Gatherer(), promhttp.HandlerOpts{Registry: s.told.Registry}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.Handle("GET /readyz", s.ready.with(stopping))
	return mux
}

// runBounded runs the work. After ctx is done it may take stopLimit to end; what
// still hangs then is given up, because whoever sent the signal is about to kill
// the process anyway, and an error tells why.
func (s service) runBounded(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	select {
	case err := <-done:
		return ended(ctx, err)
	case <-ctx.Done():
	}
	s.log.Info("ending", "limit", s.stopLimit.String())
	limit := time.NewTimer(s.stopLimit)
	defer limit.Stop()
	select {
	case err := <-done:
		return ended(ctx, err)
	case <-limit.C:
		return fmt.Errorf("not ended %s after the signal; what was under way is given up", s.stopLimit)
	}
}

// ended forgets an error that only says that the work was told to end.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
