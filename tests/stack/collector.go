package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// This file runs the OpenTelemetry receiver, and reads back what it was sent.

// OTLPEndpoint is the receiver's URL, for OTLP over gRPC.
func (s *Stack) OTLPEndpoint() string { return "http://" + loopback(s.ports.port(portOTLP)) }

func (s *Stack) otlpFile() string { return filepath.Join(s.Dir(), "otlp.json") }

func (s *Stack) startCollector(ctx context.Context) error {
	return s.StartProcess(ctx, Process{
		Name: Collector,
		Path: s.binary[PartCollector],
		Args: []string{fmt.Sprintf("-port=%d", s.ports.port(portOTLP)), "-file=" + s.otlpFile()},
		Ready: func(ctx context.Context) error {
			dialer := net.Dialer{Timeout: probeLimit}
			connection, err := dialer.DialContext(ctx, "tcp", loopback(s.ports.port(portOTLP)))
			if err != nil {
				return err
			}
			return connection.Close()
		},
	})
}

// Span is a span as the receiver got it.
type Span struct {
	TraceID, SpanID, ParentID string
	// Links are the IDs of the traces that it links to.
	Links      []string
	Name       string
	Service    string
	Start, End time.Time
	Attributes map[string]string
	// Error is the text of a status that is an error.
	Error string
}

// otlp is a batch as the OTLP specification writes it in JSON
// (opentelemetry-proto, docs/specification.md, "JSON Protobuf Encoding").
type otlp struct {
	ResourceSpans []struct {
		Resource   struct{ Attributes otlpAttributes }
		ScopeSpans []struct {
			Spans []struct {
				TraceID, SpanID, ParentSpanID, Name string
				StartTimeUnixNano, EndTimeUnixNano  string
				Attributes                          otlpAttributes
				Links                               []struct{ TraceID string }
				Status                              struct {
					Message string
					Code    int
				}
			}
		}
	}
	ResourceMetrics []struct {
		ScopeMetrics []struct {
			Metrics []struct{ Name string }
		}
	}
}

type otlpAttributes []struct {
	Key   string
	Value map[string]any
}

// texts gives all values as text.
func (a otlpAttributes) texts() map[string]string {
	texts := map[string]string{}
	for _, attribute := range a {
		for _, value := range attribute.Value {
			texts[attribute.Key] = fmt.Sprint(value)
		}
	}
	return texts
}

// Spans reads back the spans that the receiver was sent so far.
func (s *Stack) Spans() ([]Span, error) {
	var spans []Span
	return spans, s.batches(func(batch otlp) error {
		for _, from := range batch.ResourceSpans {
			service := from.Resource.Attributes.texts()["service.name"]
			for _, scope := range from.ScopeSpans {
				for _, read := range scope.Spans {
					span := Span{
						TraceID: read.TraceID, SpanID: read.SpanID, ParentID: read.ParentSpanID, Name: read.Name, Service: service,
						Attributes: read.Attributes.texts(),
					}
					const statusError = 2
					if read.Status.Code == statusError {
						span.Error = read.Status.Message
					}
					for _, link := range read.Links {
						span.Links = append(span.Links, link.TraceID)
					}
					for _, at := range []struct {
						text string
						to   *time.Time
					}{{read.StartTimeUnixNano, &span.Start}, {read.EndTimeUnixNano, &span.End}} {
						nanoseconds, err := strconv.ParseInt(at.text, 10, 64)
						if err != nil {
							return fmt.Errorf("time of span %s: %w", read.Name, err)
						}
						*at.to = time.Unix(0, nanoseconds)
					}
					spans = append(spans, span)
				}
			}
		}
		return nil
	})
}

// PushedMetrics reads back the names of the metrics that the receiver was sent.
func (s *Stack) PushedMetrics() (map[string]bool, error) {
	names := map[string]bool{}
	return names, s.batches(func(batch otlp) error {
		for _, from := range batch.ResourceMetrics {
			for _, scope := range from.ScopeMetrics {
				for _, m := range scope.Metrics {
					names[m.Name] = true
				}
			}
		}
		return nil
	})
}

// batches reads the receiver's file; its last line may be half written.
func (s *Stack) batches(read func(otlp) error) error {
	content, err := os.ReadFile(s.otlpFile())
	if err != nil {
		return fmt.Errorf("read what the OTLP receiver was sent: %w", err)
	}
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	for line := range bytes.Lines(content) {
		var batch otlp
		if err := json.Unmarshal(line, &batch); err != nil {
			return fmt.Errorf("read what the OTLP receiver was sent: %w", err)
		}
		if err := read(batch); err != nil {
			return err
		}
	}
	return nil
}
