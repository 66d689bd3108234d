// Command otlp-collector takes traces and metrics over OTLP/gRPC, with the
// receiver of the OpenTelemetry collector, and appends them to a file, one JSON
// document per batch as the OTLP specification writes it.
//
// It exists because the collector's released binary can't be had as a Go module,
// and a test wants to read back what a collector was really sent.
//
// It listens on 127.0.0.1 only: for tests and demos.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
)

func main() {
	port := flag.Int("port", 4317, "port of OTLP over gRPC, on 127.0.0.1")
	path := flag.String("file", "otlp.json", "file that is appended to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *port, *path); err != nil {
		fmt.Fprintf(os.Stderr, "otlp-collector: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, port int, path string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	out := &lines{file: file}

	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	grpc := config.Protocols.GRPC.GetOrInsertDefault()
	grpc.NetAddr.Endpoint = fmt.Sprintf("127.0.0.1:%d", port)
	config.Protocols.HTTP = configoptional.None[otlpreceiver.HTTPConfig]()
	settings := receiver.Settings{
		ID: component.NewID(factory.Type()), TelemetrySettings: componenttest.NewNopTelemetrySettings(), BuildInfo: component.NewDefaultBuildInfo(),
	}
	spans, err := consumer.NewTraces(func(_ context.Context, batch ptrace.Traces) error {
		return out.write((&ptrace.JSONMarshaler{}).MarshalTraces(batch))
	})
	if err != nil {
		return err
	}
	numbers, err := consumer.NewMetrics(func(_ context.Context, batch pmetric.Metrics) error {
		return out.write((&pmetric.JSONMarshaler{}).MarshalMetrics(batch))
	})
	if err != nil {
		return err
	}
	// Both share the one server behind the configuration.
	traces, err := factory.CreateTraces(ctx, settings, config, spans)
	if err != nil {
		return fmt.Errorf("set up the receiver of traces: %w", err)
	}
	metrics, err := factory.CreateMetrics(ctx, settings, config, numbers)
	if err != nil {
		return fmt.Errorf("set up the receiver of metrics: %w", err)
	}
	host := componenttest.NewNopHost()
	for _, r := range []component.Component{traces, metrics} {
		if err := r.Start(context.WithoutCancel(ctx), host); err != nil {
			return fmt.Errorf("start the receiver: %w", err)
		}
	}
	fmt.Printf("otlp-collector: taking OTLP over gRPC at %s\n", grpc.NetAddr.Endpoint)
	<-ctx.Done()
	for _, r := range []component.Component{traces, metrics} {
		if err := r.Shutdown(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("stop the receiver: %w", err)
		}
	}
	return nil
}

// lines appends whole lines to a file.
type lines struct {
	mu   sync.Mutex
	file *os.File
}

func (l *lines) write(line []byte, err error) error {
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.file.Write(append(line, '\n'))
	return err
}
