package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/tests/product"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

const (
	// filling bounds the wait until a fleet is listed and its directory filled.
	filling = 10 * time.Minute
	// fillingPoll is how often it is looked: a look at the metrics counts all devices.
	fillingPoll = time.Second
	// probeEvery is a kubelet's default.
	probeEvery = 10 * time.Second
)

// The bounds of a healthy fleet. Measured at 1,000 and at 10,000 nodes: starter 64 to
// 70 requests a minute, of which 60 renew its Lease and 6 are probes, and worker 5;
// 2,300 to 2,400 bytes for each device, and 3,900 with the 400 devices of the test;
// 400 series.
const (
	starterRequests = 140
	workerRequests  = 30
	bytesPerDevice  = 5000
	seriesBound     = 1000
)

// site is Sickbay with its default settings, as it is deployed, beside a healthy
// fleet.
type site struct {
	stack  *stack.Stack
	binary string
	// kubernetes points at another cluster than the stack's; empty for that.
	kubernetes []string
	devices    int
	services   map[string]string // where each process answers
	redis      redis.UniversalClient
	temporal   client.Client

	empty   int64 // Redis' memory before anything was written
	settled time.Duration
}

// newSite starts the processes and waits until all devices are in the directory. kubernetes
// points them at another cluster than the stack's.
func newSite(ctx context.Context, st *stack.Stack, binary string, devices int, kubernetes ...string) (*site, error) {
	s := &site{stack: st, binary: binary, devices: devices, kubernetes: kubernetes, services: map[string]string{}}
	var err error
	s.redis, err = directory.Connect(directory.Connection{
		Kind: directory.KindSingle, Addresses: []string{st.RedisAddress()}, Timeout: 10 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	s.temporal, err = client.DialContext(ctx, client.Options{HostPort: st.TemporalAddress(), Namespace: st.TemporalNamespace(), Logger: quiet{}})
	if err != nil {
		return nil, errors.Join(err, s.redis.Close())
	}
	if err := s.begin(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *site) close() {
	s.temporal.Close()
	_ = s.redis.Close() // nothing of it is needed any more
}

func (s *site) begin(ctx context.Context) error {
	var err error
	if s.empty, err = s.redisMemory(ctx); err != nil {
		return err
	}
	env := append([]string{
		"SICKBAY_REDIS_ADDRESSES=" + s.stack.RedisAddress(),
	}, s.kubernetes...)
	began := time.Now()
	for _, command := range []string{"worker", "starter"} {
		s.services[command], err = product.Start(ctx, s.stack, product.Service{Binary: s.binary, Command: command, Env: env})
		if err != nil {
			return err
		}
	}
	err = eventually(ctx, filling, fillingPoll, s.filled)
	s.settled = time.Since(began)
	return err
}

// filled tells what is still missing until all devices are seen and shown.
func (s *site) filled(ctx context.Context) error {
	p, err := scrape(ctx, s.services["starter"])
	if err != nil {
		return err
	}
	for _, metric := range []string{"sickbay_listed_devices", "sickbay_reported_devices"} {
		if got := int(p.sum(metric)); got != s.devices {
			return fmt.Errorf("%s: %d, want %d", metric, got, s.devices)
		}
	}
	states, err := directory.New(s.redis, "sickbay").Status(ctx)
	if err != nil {
		return err
	}
	for shard, state := range states {
		if !state.WholeSeen || !state.WholeCase {
			return fmt.Errorf("shard %d of the directory isn't whole", shard)
		}
	}
	if waiting := p.sum("sickbay_directory_waiting"); waiting > 0 {
		return fmt.Errorf("%.0f devices wait to be written into the directory", waiting)
	}
	return nil
}

func eventually(ctx context.Context, limit, every time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}

// idle is what one process cost while nothing happened.
type idle struct {
	usage
	goroutines, series int
	// requests are those to the Kubernetes API in a minute, by verb and resource.
	requests map[string]float64
}

// watchIdle watches the processes for a while, and probes them as a kubelet does.
func (s *site) watchIdle(ctx context.Context, window time.Duration) (map[string]idle, error) {
	before, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	end := time.NewTimer(window)
	defer end.Stop()
	probe := time.NewTicker(probeEvery)
	defer probe.Stop()
	began := time.Now()
	for waiting := true; waiting; {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-probe.C:
			for command, address := range s.services {
				if _, err := get(ctx, "http://"+address+"/readyz"); err != nil {
					return nil, fmt.Errorf("%s isn't ready: %w", command, err)
				}
			}
		case <-end.C:
			waiting = false
		}
	}
	took := time.Since(began)
	after, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]idle{}
	for command, now := range after {
		was := before[command]
		now.cpu -= was.cpu
		for request := range now.requests {
			now.requests[request] = (now.requests[request] - was.requests[request]) / took.Minutes()
		}
		maps.DeleteFunc(now.requests, func(_ string, n float64) bool { return n == 0 })
		found[command] = now
	}
	return found, nil
}

func (s *site) look(ctx context.Context) (map[string]idle, error) {
	found := map[string]idle{}
	for command, address := range s.services {
		used, err := usageOf(s.stack.PID(command))
		if err != nil {
			return nil, err
		}
		p, err := scrape(ctx, address)
		if err != nil {
			return nil, err
		}
		found[command] = idle{
			usage: used, goroutines: int(p.sum("go_goroutines")), series: p.series,
			requests: p.by("sickbay_kubernetes_requests_total", "verb", "resource"),
		}
	}
	return found, nil
}

// openWorkflows counts in Temporal.
func (s *site) openWorkflows(ctx context.Context) (int64, error) {
	answer, err := s.temporal.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{
		Namespace: s.stack.TemporalNamespace(), Query: "ExecutionStatus = 'Running'",
	})
	return answer.GetCount(), err
}

func (s *site) redisMemory(ctx context.Context) (int64, error) {
	info, err := s.redis.InfoMap(ctx, "memory").Result()
	if err != nil {
		return 0, fmt.Errorf("ask Redis for its memory: %w", err)
	}
	var used int64
	_, err = fmt.Sscan(info["Memory"]["used_memory"], &used)
	return used, err
}

// redisKeys adds up what the keys of each kind take.
func (s *site) redisKeys(ctx context.Context) (bytes map[string]int64, entries int, err error) {
	bytes = map[string]int64{}
	keys := s.redis.Scan(ctx, 0, "*", 1000).Iterator()
	var batch []string
	flush := func() error {
		asked := make([]*redis.IntCmd, len(batch))
		_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, key := range batch {
				asked[i] = p.MemoryUsage(ctx, key, 0)
			}
			return nil
		})
		for i, key := range batch {
			kind := kindOf(key)
			bytes[kind] += asked[i].Val()
			if kind == "entries" {
				entries++
			}
		}
		batch = batch[:0]
		return err
	}
	for keys.Next(ctx) {
		if batch = append(batch, keys.Val()); len(batch) == 1000 {
			if err := flush(); err != nil {
				return nil, 0, err
			}
		}
	}
	return bytes, entries, errors.Join(keys.Err(), flush())
}

// kindOf names what a key of the directory is (docs/directory.md).
func kindOf(key string) string {
	_, name, _ := strings.Cut(key, "}:")
	switch {
	case strings.HasPrefix(name, "device:"):
		return "entries"
	case strings.HasPrefix(name, "by:"), name == "devices", name == "cases":
		return "indexes"
	case name == "transitions":
		return "transitions"
	case strings.HasPrefix(name, "snapshot"):
		return "snapshots"
	}
	return "other"
}

// describe measures a fleet and puts it into a report.
func (s *site) describe(ctx context.Context, r *report, window time.Duration) error {
	found, err := s.watchIdle(ctx, window)
	if err != nil {
		return err
	}
	open, err := s.openWorkflows(ctx)
	if err != nil {
		return err
	}
	p, err := scrape(ctx, s.services["starter"])
	if err != nil {
		return err
	}
	signals := p.sum("sickbay_starter_signals_total")
	used, err := s.redisMemory(ctx)
	if err != nil {
		return err
	}
	kinds, entries, err := s.redisKeys(ctx)
	if err != nil {
		return err
	}
	if entries != s.devices {
		return fmt.Errorf("the directory has %d entries, want %d", entries, s.devices)
	}
	perDevice := (used - s.empty) / int64(s.devices)

	r.table("process", "memory", "peak memory", "CPU in "+window.String(), "goroutines", "series", "API requests a minute")
	for _, command := range slices.Sorted(maps.Keys(found)) {
		i := found[command]
		total := 0.0
		for _, n := range i.requests {
			total += n
		}
		r.row(command, size(i.resident), size(i.peak), i.cpu.Round(tick).String(), fmt.Sprint(i.goroutines), fmt.Sprint(i.series), fmt.Sprintf("%.0f", total))
		r.most(command+": API requests a minute", total, map[string]float64{"starter": starterRequests, "worker": workerRequests}[command])
		r.most(command+": series at /metrics", float64(i.series), seriesBound)
	}
	r.table("API request", "by", "a minute")
	for _, command := range slices.Sorted(maps.Keys(found)) {
		for _, request := range slices.Sorted(maps.Keys(found[command].requests)) {
			r.row(request, command, fmt.Sprintf("%.1f", found[command].requests[request]))
		}
	}
	r.table("what", "how much")
	r.row("open workflows", fmt.Sprint(open))
	r.row("signals sent", fmt.Sprintf("%.0f", signals))
	r.row("started → all devices listed and in the directory", s.settled.Round(100*time.Millisecond).String())
	r.row("Redis: memory for each device", size(perDevice))
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		r.row("– of that, "+kind, size(kinds[kind]/int64(s.devices)))
	}
	r.most("open workflows", float64(open), 0)
	r.most("signals about a healthy fleet", signals, 0)
	r.most("Redis: bytes for each device", float64(perDevice), bytesPerDevice)
	return nil
}

// logs gives the ends of the processes' logs, for whoever has to find out why
// something failed.
func (s *site) logs() string {
	var all strings.Builder
	for command := range s.services {
		content, err := os.ReadFile(s.stack.Log(command))
		if err == nil {
			fmt.Fprintf(&all, "%s:\n%s\n", command, content[max(0, len(content)-4000):])
		}
	}
	return all.String()
}

// quiet drops what the Temporal client logs; errors are returned as well.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}
