package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/yaml"
)

// TemporalAddress is the frontend's gRPC address, "host:port".
func (s *Stack) TemporalAddress() string { return loopback(s.ports.port(portTemporal)) }

// TemporalNamespace is the namespace that exists from the start, or that a test
// creates.
func (s *Stack) TemporalNamespace() string { return s.opts.TemporalNamespace }

// TemporalUI is the URL of the web UI.
func (s *Stack) TemporalUI() string { return "http://" + loopback(s.ports.port(portTemporalUI)) }

// TemporalMetrics is the URL of the server's own metrics, Prometheus text.
func (s *Stack) TemporalMetrics() string {
	return "http://" + loopback(s.ports.port(portTemporalMetrics)) + "/metrics"
}

// SetDynamicConfig replaces the server's dynamic configuration while it runs.
// Values apply without constraints; the server reads them at once.
func (s *Stack) SetDynamicConfig(values map[string]any) error {
	if err := s.writeDynamicConfig(values); err != nil {
		return err
	}
	return s.SignalPart(Temporal, syscall.SIGHUP)
}

// writeDynamicConfig writes the file in one step: the server may be reading it.
func (s *Stack) writeDynamicConfig(values map[string]any) error {
	type constrained struct {
		Value any `json:"value"`
	}
	document := map[string][]constrained{}
	for key, value := range values {
		document[key] = []constrained{{Value: value}}
	}
	content, err := yaml.Marshal(document)
	if err != nil {
		return fmt.Errorf("write Temporal's dynamic configuration: %w", err)
	}
	path := s.dynamicConfigPath()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return fmt.Errorf("write Temporal's dynamic configuration: %w", err)
	}
	return os.Rename(path+".new", path)
}

func (s *Stack) dynamicConfigPath() string { return filepath.Join(s.Dir(), "temporal-dynamic.yaml") }

func (s *Stack) startTemporal(ctx context.Context) error {
	if err := s.writeDynamicConfig(s.opts.DynamicConfig); err != nil {
		return err
	}
	args := []string{
		fmt.Sprintf("-port=%d", s.ports.port(portTemporal)),
		fmt.Sprintf("-http-port=%d", s.ports.port(portTemporalHTTP)),
		fmt.Sprintf("-metrics-port=%d", s.ports.port(portTemporalMetrics)),
		fmt.Sprintf("-internal-port=%d", s.ports.port(portTemporalInternal)),
		"-dynamic-config=" + s.dynamicConfigPath(),
		"-log-level=" + s.opts.TemporalLogLevel,
	}
	if s.opts.TemporalPostgreSQL {
		if err := s.startPostgreSQL(ctx); err != nil {
			return err
		}
		args = append(args, "-postgres="+loopback(s.ports.port(portPostgreSQL)))
	} else {
		args = append(args, "-db="+filepath.Join(s.Dir(), "temporal.db"))
	}
	if !s.opts.NoTemporalNamespace {
		args = append(args, "-namespace="+s.opts.TemporalNamespace)
	}
	secured, err := s.temporalSecurity()
	if err != nil {
		return err
	}
	args = append(args, secured...)
	if s.opts.secured() {
		args = append(args, "-ui-port=0")
	} else {
		args = append(args, fmt.Sprintf("-ui-port=%d", s.ports.port(portTemporalUI)))
	}
	var attributes []string
	for name, kind := range s.opts.SearchAttributes {
		attributes = append(attributes, fmt.Sprintf("-search-attribute=%s=%s", name, kind))
	}
	slices.Sort(attributes)
	return s.StartProcess(ctx, Process{
		Name:  Temporal,
		Path:  s.binary[PartTemporal],
		Args:  append(args, attributes...),
		Ready: s.temporalReady,
	})
}

// temporalReady asks for the namespace, which is what a client needs first, and
// for the UI; where there is no namespace yet, or nobody may ask for it without a
// key, for what the server is.
func (s *Stack) temporalReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	secured, err := s.TemporalTLS()
	if err != nil {
		return err
	}
	security := insecure.NewCredentials()
	if secured != nil {
		security = credentials.NewTLS(secured)
	}
	connection, err := grpc.NewClient(s.TemporalAddress(), grpc.WithTransportCredentials(security))
	if err != nil {
		return err
	}
	frontend := workflowservice.NewWorkflowServiceClient(connection)
	if s.opts.NoTemporalNamespace || s.opts.TemporalKeys {
		_, err = frontend.GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	} else {
		_, err = frontend.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: s.opts.TemporalNamespace})
	}
	if err := errors.Join(err, connection.Close()); err != nil || s.opts.secured() {
		return err
	}
	return httpReady(s.TemporalUI(), "", "")(ctx)
}
