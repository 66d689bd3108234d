package cmd

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"k8s.io/client-go/discovery"
)

// probeLimit bounds one look at one condition; a kubelet gives a probe a second
// by default, and /readyz looks at all of them side by side.
const probeLimit = 900 * time.Millisecond

// condition is one thing that a service needs to do its work.
type condition struct {
	name string
	// met returns what is missing.
	met func(context.Context) error
}

// readiness answers /readyz: 200 if every condition is met, else 503, and in
// either case one line per condition that says what is missing.
type readiness []condition

func (r readiness) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	ctx, cancel := context.WithTimeout(request.Context(), probeLimit)
	defer cancel()
	missing := make([]error, len(r))
	var looks sync.WaitGroup
	for i, c := range r {
		looks.Go(func() { missing[i] = c.met(ctx) })
	}
	looks.Wait()

	var answer strings.Builder
	status := http.StatusOK
	for i, c := range r {
		if missing[i] == nil {
			fmt.Fprintf(&answer, "%s: ok\n", c.name)
			continue
		}
		status = http.StatusServiceUnavailable
		fmt.Fprintf(&answer, "%s: %s\n", c.name, strings.ReplaceAll(missing[i].Error(), "\n", "; "))
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	// A prober that hung up needs no answer.
	_, _ = w.Write([]byte(answer.String()))
}

// with returns the conditions and further ones.
func (r readiness) with(more ...condition) readiness { return append(slices.Clip(r), more...) }

func kubernetesReachable(d discovery.DiscoveryInterface) condition {
	return condition{"kubernetes", func(ctx context.Context) error {
		if err := d.RESTClient().Get().AbsPath("/version").Do(ctx).Error(); err != nil {
			return fmt.Errorf("the API server doesn't answer: %w", err)
		}
		return nil
	}}
}

func temporalReachable(c client.Client, namespace string) condition {
	return condition{"temporal", func(ctx context.Context) error {
		_, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
		if err != nil {
			return fmt.Errorf("namespace %s can't be read: %w", namespace, err)
		}
		return nil
	}}
}
