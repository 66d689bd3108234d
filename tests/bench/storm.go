package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"go.temporal.io/api/workflowservice/v1"

	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/tests/bench/apiserver"
	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
	incidentwf "github.com/sickbay-dev/sickbay/workflows/incident"
)

// incidents is how many workflows all devices of one driver going Unknown may cost:
// the driver's incident, and the cluster's if that is found first.
const incidents = 2

// storming is how a storm is measured.
type storming struct {
	nodes int
	// watch is how long it is watched, from the first Unknown on, and grace the window
	// of cases, which is over by then: what holds them is the incident.
	watch, grace time.Duration
	// settings are more of Sickbay's variables.
	settings []string
}

// measureStorm lets all devices of a fleet go Unknown at once, under enforce, and back.
// The fleet is generated, as that of measureGenerated is.
func measureStorm(ctx context.Context, binary, _ string, s sizes) (r report, err error) {
	server, err := apiserver.Start(apiserver.Fleet{Nodes: s.storm.nodes, DevicesPerNode: s.perNode})
	if err != nil {
		return r, err
	}
	defer func() { _ = server.Stop() }() // its clients are gone by then
	st, err := stack.Run(ctx, stack.Options{Temporal: true, Redis: true, SearchAttributes: product.SearchAttributes(), Logf: progress})
	if err != nil {
		return r, err
	}
	defer stopStack(st)
	kubeconfig := filepath.Join(st.Dir(), "generated.kubeconfig")
	if err := server.WriteKubeconfig(kubeconfig); err != nil {
		return r, err
	}
	fleet, err := newSite(ctx, st, binary, server.Fleet().Devices(), append([]string{
		"SICKBAY_KUBECONFIG=" + kubeconfig, "SICKBAY_MODE=enforce", "SICKBAY_GRACE=" + s.storm.grace.String(),
	}, s.storm.settings...)...)
	if err != nil {
		return r, err
	}
	defer fleet.close()
	r.title = fmt.Sprintf("%d Unknowns at once: %d nodes × %d devices, generated", server.Fleet().Devices(), s.storm.nodes, s.perNode)
	return r, fleet.storm(ctx, &r, server, s.storm)
}

// storm measures one storm, and puts it into a report.
func (s *site) storm(ctx context.Context, r *report, server *apiserver.Server, how storming) error {
	before, err := s.look(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	devices, err := server.SayAll(corev1.ResourceHealthStatusUnknown)
	if err != nil {
		return err
	}
	said := time.Since(began)
	progress("%d devices are Unknown after %s", devices, said.Round(time.Millisecond))
	opened, err := accepted(ctx, s, incidentwf.ID(incident.OfDriver(simnode.DefaultDriver)))
	if err != nil {
		return fmt.Errorf("the incident: %w\n%s", err, s.logs())
	}
	progress("the incident is there after %s; watching it for %s", opened.Sub(began).Round(time.Millisecond), how.watch)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Until(began.Add(how.watch))):
	}
	during, err := s.look(ctx)
	if err != nil {
		return err
	}
	held, err := s.heldDevices(ctx)
	if err != nil {
		return err
	}
	if held != devices {
		return fmt.Errorf("%d devices are held by incidents, want all %d that are Unknown\n%s", held, devices, s.logs())
	}

	back := time.Now()
	if _, err := server.SayAll(corev1.ResourceHealthStatusHealthy); err != nil {
		return err
	}
	if err := eventually(ctx, patience+5*time.Minute, fillingPoll, func(ctx context.Context) error {
		open, err := s.openWorkflows(ctx)
		if err == nil && open > 0 {
			err = fmt.Errorf("%d workflows are open", open)
		}
		return err
	}); err != nil {
		return fmt.Errorf("the end of the incident: %w\n%s", err, s.logs())
	}
	over := time.Since(back)

	after, err := s.look(ctx)
	if err != nil {
		return err
	}
	marks, evictions := written(after, "devicetaintrules"), written(after, "pods")
	cases, err := s.workflows(ctx, "WorkflowType = 'device'")
	if err != nil {
		return err
	}
	all, err := s.workflows(ctx, "WorkflowType = 'incident'")
	if err != nil {
		return err
	}
	r.table("what", "how much")
	r.row("Unknown devices, all within", said.Round(time.Millisecond).String())
	r.row("first Unknown served → the incident is there to be seen in Temporal", opened.Sub(began).Round(time.Millisecond).String())
	r.row("health back → the incident is over", over.Round(time.Second).String())
	r.row("device workflows, ever", fmt.Sprint(cases))
	r.row("incident workflows, ever", fmt.Sprint(all))
	r.row("requests to write marks", fmt.Sprintf("%.0f", marks))
	r.row("requests to write, evict or delete Pods", fmt.Sprintf("%.0f", evictions))
	r.table("process", "memory before", "memory in the storm", "peak memory", "CPU in "+how.watch.String()+" of it")
	for _, command := range []string{"starter", "worker"} {
		r.row(command, size(before[command].resident), size(during[command].resident), size(during[command].peak),
			(during[command].cpu - before[command].cpu).Round(tick).String())
	}
	r.most("device workflows", float64(cases), 0)
	r.most("incident workflows", float64(all), incidents)
	r.most("requests to write marks", marks, 0)
	r.most("requests to write Pods", evictions, 0)
	return nil
}

// heldDevices is how many devices wait in incidents, as the starter says.
func (s *site) heldDevices(ctx context.Context) (int, error) {
	p, err := scrape(ctx, s.services["starter"])
	return int(p.sum("sickbay_held_devices")), err
}

// written adds up the requests of all processes to change objects of a resource, or
// something below it.
func written(found map[string]idle, resource string) float64 {
	total := 0.0
	for _, process := range found {
		for request, n := range process.requests {
			verb, of, _ := strings.Cut(request, " ")
			reads := verb == "get" || verb == "list" || verb == "watch"
			if !reads && (of == resource || strings.HasPrefix(of, resource+"/")) {
				total += n
			}
		}
	}
	return total
}

// workflows counts, open and closed ones.
func (s *site) workflows(ctx context.Context, query string) (int64, error) {
	answer, err := s.temporal.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: s.stack.TemporalNamespace(), Query: query})
	return answer.GetCount(), err
}
