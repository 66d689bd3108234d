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

	"github.com/sickbay-dev/sickbay/cmd/doctor"
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

// readiness answers /readyz: 200 if every condition is met and no prerequisite is
// missing, else 503, and in either case one line for each that says what is wrong.
type readiness struct {
	conditions []condition
	// prerequisites are what the process found of itself; nil asks for none.
	prerequisites *doctor.Self
}

func (r readiness) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	ctx, cancel := context.WithTimeout(request.Context(), probeLimit)
	defer cancel()
	missing := make([]error, len(r.conditions))
	var looks sync.WaitGroup
	for i, c := range r.conditions {
		looks.Go(func() { missing[i] = c.met(ctx) })
	}
	looks.Wait()

	var answer strings.Builder
	status := http.StatusOK
	say := func(name, text string) {
		fmt.Fprintf(&answer, "%s: %s\n", name, strings.ReplaceAll(text, "\n", "; "))
	}
	for i, c := range r.conditions {
		if missing[i] == nil {
			say(c.name, "ok")
			continue
		}
		status = http.StatusServiceUnavailable
		say(c.name, missing[i].Error())
	}
	if r.prerequisites != nil {
		report := r.prerequisites.Last()
		if report == nil {
			status = http.StatusServiceUnavailable
			say("prerequisites", "not looked at yet")
			report = &doctor.Report{}
		}
		for _, f := range report.Findings {
			if f.State == doctor.Missing {
				status = http.StatusServiceUnavailable
			}
			say(f.Check, f.Line())
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	// A prober that hung up needs no answer.
	_, _ = w.Write([]byte(answer.String()))
}

// with returns the readiness with further conditions.
func (r readiness) with(more ...condition) readiness {
	r.conditions = append(slices.Clip(r.conditions), more...)
	return r
}

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
