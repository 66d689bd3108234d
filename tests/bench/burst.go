package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// The bounds of what one fault of a burst costs. They don't depend on the machine.
const (
	writesPerFault  = 4
	readsPerFault   = 16
	rpcsPerFault    = 28
	historyPerFault = 50
)

// bursting is how many faults come at once, on how many devices.
type bursting struct {
	nodes, faults int
	// quiet is how long nothing may have been asked until the burst counts as over.
	quiet time.Duration
}

// burst is a fleet in which many devices fail at once, on the real control plane.
type burst struct {
	*site
	nodes *simnode.Cluster

	mu sync.Mutex
	// marked is when a watch showed the mark of a device.
	marked map[device.Key]time.Time
}

// measureBurst lets many devices of a fleet fail at once, within the budgets, and
// counts what each costs until it is marked and its case has come to rest.
func measureBurst(ctx context.Context, binary, kubernetes string, s sizes) (r report, err error) {
	st, err := stack.Run(ctx, stack.Options{
		Kubernetes: kubernetes, Temporal: true, Redis: true, SearchAttributes: product.SearchAttributes(), Logf: progress,
	})
	if err != nil {
		return r, err
	}
	defer stopStack(st)
	nodes, err := simnode.Run(ctx, st.SimulatorConfig(), simnode.Options{})
	if err != nil {
		return r, err
	}
	defer nodes.Stop()
	how := s.burstOf
	if err := nodes.Add(ctx, simnode.MakeNodes("node", how.nodes, s.perNode)...); err != nil {
		return r, err
	}
	progress("placing %d Pods with %d devices each", how.nodes, s.perNode)
	if err := holdAll(ctx, nodes, sizes{fleetNodes: how.nodes, perNode: s.perNode}); err != nil {
		return r, err
	}
	fleet, err := newSite(ctx, st, binary, how.nodes*s.perNode,
		"SICKBAY_MODE=enforce", "SICKBAY_LOG_LEVEL=warn",
		fmt.Sprintf("SICKBAY_BUDGET_CLUSTER=100%% max %d", how.faults), fmt.Sprintf("SICKBAY_BUDGET_CLASS=100%% max %d", how.faults),
		// They are a burst within the budget, and no crowd that is asked about.
		fmt.Sprintf("SICKBAY_CROWD_DEVICES=%d", how.faults+1))
	if err != nil {
		return r, err
	}
	defer fleet.close()
	b := &burst{site: fleet, nodes: nodes, marked: map[device.Key]time.Time{}}
	stop, err := b.watchMarks(ctx)
	if err != nil {
		return r, err
	}
	defer stop()
	r.title = fmt.Sprintf("%d faults at once: %d nodes × %d devices, Kubernetes %s", how.faults, how.nodes, s.perNode, st.KubernetesVersion())
	return r, b.measure(ctx, &r, how)
}

// watchMarks notes when each device's mark shows on a watch, which is a little after
// the API server accepted it.
func (b *burst) watchMarks(ctx context.Context) (stop func(), err error) {
	capabilities, err := kube.Discover(ctx, discovery.NewDiscoveryClientForConfigOrDie(b.stack.RESTConfig()))
	if err != nil {
		return nil, err
	}
	rules := dynamic.NewForConfigOrDie(b.stack.RESTConfig()).Resource(capabilities.TaintRules)
	informer := cache.NewSharedInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return rules.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return rules.Watch(ctx, options)
		},
	}, &unstructured.Unstructured{}, 0)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
		if mark, ours := kube.ReadMark(object.(*unstructured.Unstructured)); ours && mark.Intact {
			b.mu.Lock()
			b.marked[mark.Device] = time.Now()
			b.mu.Unlock()
		}
	}}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { informer.RunWithContext(ctx) })
	return func() {
		cancel()
		watching.Wait()
	}, nil
}

// spent is what everything has asked and used up to a moment.
type spent struct {
	processes map[string]idle
	// rpcs are the requests to Temporal, by operation; polls wait and aren't counted.
	rpcs map[string]float64
	cpu  map[string]time.Duration
}

func (b *burst) spent(ctx context.Context) (spent, error) {
	s := spent{rpcs: map[string]float64{}, cpu: map[string]time.Duration{}}
	var err error
	if s.processes, err = b.look(ctx); err != nil {
		return s, err
	}
	for _, address := range b.services {
		p, err := scrape(ctx, address)
		if err != nil {
			return s, err
		}
		for operation, n := range p.by("temporal_request_total", "operation") {
			s.rpcs[operation] += n
		}
	}
	for _, part := range []string{stack.Etcd, stack.APIServer, stack.ControllerManager, stack.Scheduler, stack.Temporal, "worker", "starter"} {
		used, err := usageOf(b.stack.PID(part))
		if err != nil {
			return s, err
		}
		s.cpu[part] = used.cpu
	}
	return s, nil
}

// always are requests that go on whatever happens: Leases are renewed, and a process
// looks at its own prerequisites.
var always = []string{"update leases.coordination.k8s.io", "list leases.coordination.k8s.io", "create selfsubjectaccessreviews.authorization.k8s.io", "get -"}

// requests adds up the requests to the API server since an earlier moment, by verb and
// resource.
func (s spent) requests(since spent) map[string]float64 {
	sum := map[string]float64{}
	for process, now := range s.processes {
		for request, n := range now.requests {
			if n -= since.processes[process].requests[request]; n > 0 && !slices.Contains(always, request) {
				sum[request] += n
			}
		}
	}
	return sum
}

func total(counts map[string]float64) (sum float64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// measure breaks the devices and puts what came of it into the report.
func (b *burst) measure(ctx context.Context, r *report, how bursting) error {
	keys := make([]device.Key, how.faults)
	for i := range keys {
		// Each node's first device, then its second, and so on.
		var err error
		keys[i], err = device.NewDRA(simnode.DefaultDriver, fmt.Sprintf("node-%d", i%how.nodes), fmt.Sprintf("gpu-%d", i/how.nodes))
		if err != nil {
			return err
		}
	}
	before, err := b.spent(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	sent, err := b.breakAll(ctx, keys)
	if err != nil {
		return err
	}
	said := time.Since(began)
	progress("%d devices are Unhealthy after %s", len(keys), said.Round(time.Millisecond))
	var last time.Time
	var latencies durations
	if err := eventually(ctx, 10*patience, 100*time.Millisecond, func(context.Context) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.marked) < len(keys) {
			return fmt.Errorf("%d of %d devices are marked", len(b.marked), len(keys))
		}
		latencies = nil
		for i, key := range keys {
			at, ok := b.marked[key]
			if !ok {
				return fmt.Errorf("%s isn't marked", key)
			}
			latencies = append(latencies, at.Sub(sent[i]))
			if at.After(last) {
				last = at
			}
		}
		return nil
	}); err != nil {
		return fmt.Errorf("%w\n%s", err, b.logs())
	}
	marked, err := b.spent(ctx)
	if err != nil {
		return err
	}
	progress("all are marked after %s", last.Sub(began).Round(time.Millisecond))
	rested, err := b.rest(ctx, marked, how.quiet)
	if err != nil {
		return err
	}
	events, err := b.history(ctx, keys)
	if err != nil {
		return err
	}
	n := float64(len(keys))
	r.table("what", "how much")
	r.row("status writes, the first sent → the last accepted", said.Round(10*time.Millisecond).String())
	r.row("first status write sent → last mark seen on a watch", last.Sub(began).Round(10*time.Millisecond).String())
	r.row("marks a second, on the way", fmt.Sprintf("%.0f", n/last.Sub(began).Seconds()))
	r.table("what", "count", "p50", "p99", "max")
	r.row("a device's status write sent → its mark seen on a watch", latencies.cells()...)

	asked := rested.requests(before)
	reads, writes := map[string]float64{}, map[string]float64{}
	for request, count := range asked {
		verb, _, _ := strings.Cut(request, " ")
		if verb == "get" || verb == "list" || verb == "watch" {
			reads[request] = count
		} else {
			writes[request] = count
		}
	}
	rpcs := map[string]float64{}
	for operation, count := range rested.rpcs {
		if count -= before.rpcs[operation]; count > 0 {
			rpcs[operation] = count
		}
	}
	r.table("for each fault", "until its case has come to rest")
	each := func(what string, counts map[string]float64) {
		r.row(what, fmt.Sprintf("%.2f", total(counts)/n))
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			if counts[name]/n >= 0.005 {
				r.row("– "+name, fmt.Sprintf("%.2f", counts[name]/n))
			}
		}
	}
	each("API writes", writes)
	each("API reads", reads)
	each("requests to Temporal", rpcs)
	r.row("events in its history", fmt.Sprintf("%.1f", float64(events)/n))
	r.table("process", "CPU until the last mark", "CPU until all cases rest")
	for _, part := range slices.Sorted(maps.Keys(before.cpu)) {
		r.row(part, (marked.cpu[part] - before.cpu[part]).Round(tick).String(), (rested.cpu[part] - before.cpu[part]).Round(tick).String())
	}
	r.most("API writes for each fault", total(writes)/n, writesPerFault)
	r.most("API reads for each fault", total(reads)/n, readsPerFault)
	r.most("requests to Temporal for each fault", total(rpcs)/n, rpcsPerFault)
	r.most("history events for each fault", float64(events)/n, historyPerFault)
	return nil
}

// breakAll breaks the devices as fast as the API server takes it, and says when each
// status write was sent.
func (b *burst) breakAll(ctx context.Context, keys []device.Key) ([]time.Time, error) {
	sent := make([]time.Time, len(keys))
	errs := make([]error, len(keys))
	next := make(chan int)
	var breaking sync.WaitGroup
	for range 4 * placers {
		breaking.Go(func() {
			for i := range next {
				sent[i] = time.Now()
				_, errs[i] = b.nodes.Set(ctx, keys[i].Pool, keys[i].Device, corev1.ResourceHealthStatusUnhealthy, fault)
			}
		})
	}
	for i := range keys {
		next <- i
	}
	close(next)
	breaking.Wait()
	return sent, errors.Join(errs...)
}

// taskDone is how a worker tells Temporal that a workflow went a step on.
const taskDone = "RespondWorkflowTaskCompleted"

// rest waits until no workflow goes on any more: every case waits then.
func (b *burst) rest(ctx context.Context, since spent, quiet time.Duration) (spent, error) {
	found, at := since, time.Now()
	err := eventually(ctx, 10*time.Minute, time.Second, func(ctx context.Context) error {
		now, err := b.spent(ctx)
		if err != nil {
			return err
		}
		if now.rpcs[taskDone] > found.rpcs[taskDone] {
			at = time.Now()
			found = now
		}
		if time.Since(at) < quiet {
			return errors.New("there is still something to do")
		}
		return nil
	})
	return found, err
}

// history adds up the events of the cases' runs.
func (b *burst) history(ctx context.Context, keys []device.Key) (int64, error) {
	var events int64
	for _, key := range keys {
		answer, err := b.temporal.WorkflowService().DescribeWorkflowExecution(ctx, describing(b.stack.TemporalNamespace(), devicewf.ID(key)))
		if err != nil {
			return 0, fmt.Errorf("the case of %s: %w", key, err)
		}
		events += answer.GetWorkflowExecutionInfo().GetHistoryLength()
	}
	return events, nil
}
