package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/simnode"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

const (
	devicesPerNode = 8
	// patience bounds the wait for one mark.
	patience = 2 * time.Minute
	fault    = "XID 79: GPU has fallen off the bus"
)

// bench is a cluster with Sickbay on it.
type bench struct {
	stack   *stack.Stack
	nodes   *simnode.Cluster
	binary  string
	metrics string
	// free are devices with a holder that had no fault yet.
	free []device.Key

	mu sync.Mutex
	// marked is when the watch showed a device's mark.
	marked map[device.Key]time.Time
	seen   chan struct{}
	stop   context.CancelFunc
	watch  sync.WaitGroup
}

// begin starts everything and gives every device a holder.
func begin(ctx context.Context, binary, kubernetes string, s sizes) (*bench, error) {
	b := &bench{binary: binary, marked: map[device.Key]time.Time{}, seen: make(chan struct{}, 1)}
	if err := b.start(ctx, kubernetes, s); err != nil {
		b.end()
		return nil, err
	}
	return b, nil
}

func (b *bench) start(ctx context.Context, kubernetes string, s sizes) error {
	var err error
	b.stack, err = stack.Run(ctx, stack.Options{
		Kubernetes: kubernetes, Temporal: true,
		SearchAttributes: product.SearchAttributes(),
		Logf:             func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) },
	})
	if err != nil {
		return err
	}
	if b.nodes, err = simnode.Run(ctx, b.stack.SimulatorConfig(), simnode.Options{}); err != nil {
		return err
	}
	devices := s.faults + s.burst + s.faulty
	count := (devices + devicesPerNode - 1) / devicesPerNode
	if err := b.nodes.Add(ctx, simnode.MakeNodes("node", count, devicesPerNode)...); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "placing %d holders on %d nodes\n", count*devicesPerNode, count)
	for n := range count {
		for d := range devicesPerNode {
			node, name := fmt.Sprintf("node-%d", n), fmt.Sprintf("gpu-%d", d)
			key, err := device.NewDRA(simnode.DefaultDriver, node, name)
			if err != nil {
				return err
			}
			if _, err := b.nodes.Place(ctx, "default", fmt.Sprintf("job-%d-%d", n, d), node, name); err != nil {
				return fmt.Errorf("place a holder on %s: %w", key, err)
			}
			b.free = append(b.free, key)
		}
	}
	if err := b.watchMarks(ctx); err != nil {
		return err
	}
	return b.startSickbay(ctx)
}

// watchMarks notes when each device's mark shows on a watch, which is a little
// after the API server accepted it.
func (b *bench) watchMarks(ctx context.Context) error {
	capabilities, err := kube.Discover(ctx, discovery.NewDiscoveryClientForConfigOrDie(b.stack.RESTConfig()))
	if err != nil {
		return err
	}
	own, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	rules, err := dynamic.NewForConfigOrDie(b.stack.RESTConfig()).Resource(capabilities.TaintRules).Watch(own, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watch DeviceTaintRules: %w", err)
	}
	b.watch.Go(func() {
		for event := range rules.ResultChan() {
			object, ok := event.Object.(*unstructured.Unstructured)
			if !ok || event.Type != watch.Added {
				continue
			}
			if mark, ours := kube.ReadMark(object); ours && mark.Intact {
				b.mu.Lock()
				b.marked[mark.Device] = time.Now()
				b.mu.Unlock()
				select {
				case b.seen <- struct{}{}:
				default:
				}
			}
		}
	})
	return nil
}

func (b *bench) startSickbay(ctx context.Context) error {
	for _, command := range []string{"worker", "starter"} {
		address, err := product.Start(ctx, b.stack, product.Service{
			Binary: b.binary, Command: command,
			// All faults at once are what is measured, and no crowd that is asked about.
			Env: []string{"SICKBAY_MODE=enforce", "SICKBAY_LOG_LEVEL=warn", "SICKBAY_CROWD_DEVICES=1000000"},
		})
		if err != nil {
			return err
		}
		if command == "starter" {
			b.metrics = "http://" + address + "/metrics"
		}
	}
	return nil
}

// end stops everything; errors on the way are shown and change nothing.
func (b *bench) end() {
	if b.nodes != nil {
		b.nodes.Stop()
	}
	if b.stop != nil {
		b.stop()
		b.watch.Wait()
	}
	if b.stack != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := b.stack.Stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "bench: stop:", err)
		}
	}
}

// take removes count devices from the free ones.
func (b *bench) take(count int) []device.Key {
	taken := b.free[:count]
	b.free = b.free[count:]
	return taken
}

// breather is the pause between two faults, in which the case of the first comes to
// rest: its mark is announced and its holders are looked for.
const breather = 2500 * time.Millisecond

// oneAtATime breaks one device after the other, and returns the latencies.
func (b *bench) oneAtATime(ctx context.Context, count int) (durations, error) {
	var latencies durations
	for i, key := range b.take(count) {
		sent, err := b.breakDevice(ctx, key)
		if err != nil {
			return nil, err
		}
		at, err := b.await(ctx, key)
		if err != nil {
			return nil, err
		}
		latencies = append(latencies, at.Sub(sent))
		if (i+1)%50 == 0 {
			fmt.Fprintf(os.Stderr, "%d of %d faults marked\n", i+1, count)
		}
		select {
		case <-time.After(breather):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return latencies, nil
}

// atOnce breaks all devices as fast as the API server takes it.
func (b *bench) atOnce(ctx context.Context, count int) (durations, error) {
	keys := b.take(count)
	sent := make([]time.Time, count)
	errs := make([]error, count)
	var group sync.WaitGroup
	for i, key := range keys {
		group.Go(func() { sent[i], errs[i] = b.breakDevice(ctx, key) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	latencies := make(durations, count)
	for i, key := range keys {
		at, err := b.await(ctx, key)
		if err != nil {
			return nil, err
		}
		latencies[i] = at.Sub(sent[i])
	}
	return latencies, nil
}

// breakDevice lets the device's holder show a fault, and returns when the status
// write was sent.
func (b *bench) breakDevice(ctx context.Context, key device.Key) (time.Time, error) {
	before := time.Now()
	writes, err := b.nodes.Set(ctx, key.Pool, key.Device, corev1.ResourceHealthStatusUnhealthy, fault)
	if err != nil {
		return time.Time{}, err
	}
	if len(writes) == 1 {
		return writes[0].Sent, nil
	}
	// The simulated kubelet's own loop was faster; the call's start bounds it.
	return before, nil
}

func (b *bench) await(ctx context.Context, key device.Key) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		b.mu.Lock()
		at, ok := b.marked[key]
		b.mu.Unlock()
		if ok {
			return at, nil
		}
		select {
		case <-b.seen:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%s isn't marked after %s", key, patience)
		}
	}
}

// flooded is what a flood of repeated status writes cost.
type flooded struct {
	writes  int
	signals int
	took    time.Duration
}

// flood breaks some devices and then writes their Pods' status again and again,
// as kubelets do, without saying anything new.
func (b *bench) flood(ctx context.Context, faulty, repeats int) (flooded, error) {
	before, err := b.signals(ctx)
	if err != nil {
		return flooded{}, err
	}
	keys := b.take(faulty)
	var broken []string
	for _, key := range keys {
		if _, err := b.breakDevice(ctx, key); err != nil {
			return flooded{}, err
		}
		if !slices.Contains(broken, key.Pool) {
			broken = append(broken, key.Pool)
		}
	}
	for _, key := range keys {
		if _, err := b.await(ctx, key); err != nil {
			return flooded{}, err
		}
	}
	began := time.Now()
	var result flooded
	var mu sync.Mutex
	var errs []error
	var group sync.WaitGroup
	for _, node := range broken {
		group.Go(func() {
			for {
				mu.Lock()
				enough := result.writes >= repeats || len(errs) > 0
				mu.Unlock()
				if enough {
					return
				}
				writes, err := b.nodes.Resync(ctx, node)
				mu.Lock()
				result.writes += len(writes)
				if err != nil {
					errs = append(errs, err)
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	result.took = time.Since(began)
	if err := errors.Join(errs...); err != nil {
		return result, err
	}
	after, err := b.signals(ctx)
	result.signals = after - before
	return result, err
}

// signals reads from the starter's metrics how many signals it sent.
func (b *bench) signals(ctx context.Context) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.metrics, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	total := 0.0
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok && strings.HasPrefix(name, "sickbay_starter_signals_total") {
			count, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, fmt.Errorf("metric %s: %w", name, err)
			}
			total += count
		}
	}
	return int(total), lines.Err()
}

// quantile is the smallest latency that q of all don't exceed.
func (d durations) quantile(q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d))
	i := int(q*float64(len(sorted))+0.5) - 1
	return sorted[max(0, min(i, len(sorted)-1))].Round(100 * time.Microsecond)
}

// machine describes the machine in a line.
func machine() string {
	model := "unknown processor"
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.SplitSeq(string(data), "\n") {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d cores of %s, %s", runtime.NumCPU(), model, runtime.Version())
}
