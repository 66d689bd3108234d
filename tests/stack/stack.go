package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// KeepVariable, set to 1, keeps a failed test's data and logs.
const KeepVariable = "SICKBAY_STACK_KEEP"

// startLimit bounds the start of the parts, not their build.
const startLimit = 2 * time.Minute

// The names of the parts a Stack runs itself.
const (
	Etcd              = "etcd"
	APIServer         = "apiserver"
	Scheduler         = "scheduler"
	ControllerManager = "controller-manager"
	Temporal          = "temporal"
	PostgreSQL        = "postgresql"
	Redis             = "redis"
	Collector         = "otlp-collector"
)

// Stack is a set of running parts.
type Stack struct {
	opts    Options
	release release // zero without Kubernetes
	dir     *stackDir
	ports   *portBlock
	pki     *pki
	tokens  map[string]string // user of the static token file to token
	spawner *spawner
	binary  Binaries
	redis   string // path of redis-server
	crashed chan error
	// postgres is the folder with PostgreSQL's programs.
	postgres string
	// guard is what a secured Temporal asks of its clients, nil if it isn't secured.
	guard *guard

	mu    sync.Mutex // guards the fields below
	parts map[string]*part
	order []string // names in the order in which they were first started
	users map[string]string
}

// Start runs a stack for a test and stops it when the test ends. A part that
// ended on its own meanwhile fails the test.
func Start(t testing.TB, opts Options) *Stack {
	t.Helper()
	if opts.Logf == nil {
		opts.Logf = t.Logf
	}
	s, err := Run(t.Context(), opts)
	if err != nil {
		t.Fatalf("start the stack: %v", err)
	}
	t.Cleanup(func() {
		if err := s.crashes(); err != nil {
			t.Errorf("a part of the stack failed during the test: %v", err)
		}
		if t.Failed() && os.Getenv(KeepVariable) == "1" {
			s.dir.keep = true
			t.Logf("the stack's data and logs are kept in %s", s.Dir())
		}
		if err := s.Stop(context.Background()); err != nil {
			t.Errorf("stop the stack: %v", err)
		}
	})
	return s
}

// Run builds what is missing and starts a stack. ctx bounds the start only; the
// stack runs until Stop.
func Run(ctx context.Context, opts Options) (*Stack, error) {
	if opts.TemporalNamespace == "" {
		opts.TemporalNamespace = "sickbay"
	}
	opts.NoTemporalNamespace = opts.NoTemporalNamespace || opts.TemporalPostgreSQL
	if opts.NoTemporalNamespace && len(opts.SearchAttributes) > 0 {
		return nil, errors.New("search attributes need a namespace that the stack makes: without one, there is nothing to have them")
	}
	if opts.TemporalLogLevel == "" {
		opts.TemporalLogLevel = "warn"
	}
	if opts.Logf == nil {
		opts.Logf = func(string, ...any) {}
	}
	s := &Stack{opts: opts, crashed: make(chan error, 1)}
	if err := s.findPrograms(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not started within %s", startLimit))
	defer cancel()

	// Between looking at a port and listening on it anyone may take it.
	taken := map[int]bool{}
	for {
		err := s.startOn(ctx, taken)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, errPortTaken) || len(taken) == 3 {
			return nil, err
		}
	}
}

// findPrograms builds or finds what the stack will run.
func (s *Stack) findPrograms(ctx context.Context) error {
	parts, err := s.opts.parts()
	if err != nil {
		return err
	}
	if s.opts.Kubernetes != "" {
		if s.release, err = releaseFor(s.opts.Kubernetes); err != nil {
			return err
		}
	}
	if s.opts.Redis {
		if s.redis, err = findRedis(ctx, s.opts.Progress); err != nil {
			return err
		}
	}
	if s.opts.TemporalPostgreSQL {
		if s.postgres, err = findPostgreSQL(ctx, s.opts.Progress); err != nil {
			return err
		}
	}
	s.binary, err = Build(ctx, s.opts.Progress, parts...)
	return err
}

// parts are the programs that a stack with these options needs built.
func (o Options) parts() ([]Part, error) {
	var parts []Part
	if o.Kubernetes != "" {
		controlPlane, err := ControlPlaneParts(o.Kubernetes)
		if err != nil {
			return nil, err
		}
		parts = append(parts, controlPlane...)
	}
	if o.Temporal {
		parts = append(parts, PartTemporal)
	}
	if o.Collector {
		parts = append(parts, PartCollector)
	}
	return parts, nil
}

// startOn starts everything on a fresh block of ports, or leaves nothing behind.
func (s *Stack) startOn(ctx context.Context, taken map[int]bool) (err error) {
	if s.dir, err = newStackDir(s.opts.Dir); err != nil {
		return err
	}
	if s.ports, err = reservePorts(taken); err != nil {
		return errors.Join(err, s.dir.remove())
	}
	taken[s.ports.base] = true
	s.spawner = newSpawner()
	s.parts, s.order, s.users = map[string]*part{}, nil, map[string]string{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
		}
	}()

	var starts []func(context.Context) error
	if s.opts.Kubernetes != "" {
		starts = append(starts, s.startControlPlane)
	}
	if s.opts.Temporal {
		starts = append(starts, s.startTemporal)
	}
	if s.opts.Redis {
		starts = append(starts, s.startRedis)
	}
	if s.opts.Collector {
		starts = append(starts, s.startCollector)
	}
	begin := time.Now()
	if err := together(ctx, starts...); err != nil {
		return err
	}
	s.opts.Logf("stack: ready after %.1fs in %s", time.Since(begin).Seconds(), s.Dir())
	return nil
}

// together runs the functions side by side and returns the first error once all
// have ended; the others are cancelled by it.
func together(ctx context.Context, functions ...func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	failures := make(chan error, len(functions))
	for _, function := range functions {
		go func() { failures <- function(ctx) }()
	}
	var first error
	for range functions {
		if err := <-failures; err != nil && first == nil {
			first = err
			cancel(err)
		}
	}
	return first
}

// Stop ends every part, removes the data unless its directory was given, and
// frees the ports. What was started on top goes first, in reverse order; the
// API server goes before etcd, which it would wait for, and Temporal before
// PostgreSQL, which would wait for it. ctx cuts the wait for a
// clean end short; the parts are then killed. A second Stop does nothing.
func (s *Stack) Stop(ctx context.Context) error {
	s.mu.Lock()
	order := slices.Clone(s.order)
	s.mu.Unlock()
	if s.spawner == nil {
		return nil
	}
	var failures []error
	own := []string{Etcd, APIServer, Scheduler, ControllerManager, Temporal, PostgreSQL, Redis}
	for _, name := range slices.Backward(order) {
		if !slices.Contains(own, name) {
			failures = append(failures, s.stopIfThere(ctx, name))
		}
	}
	stopper := func(name string) func(context.Context) error {
		return func(ctx context.Context) error { return s.stopIfThere(ctx, name) }
	}
	failures = append(failures,
		together(ctx, stopper(Scheduler), stopper(ControllerManager), stopper(Temporal), stopper(Redis)),
		s.stopIfThere(ctx, PostgreSQL),
		s.stopIfThere(ctx, APIServer),
		s.stopIfThere(ctx, Etcd))

	failures = append(failures, s.writeCalls())
	s.spawner.close()
	s.spawner = nil
	s.ports.release()
	return errors.Join(append(failures, s.dir.remove())...)
}

func (s *Stack) stopIfThere(ctx context.Context, name string) error {
	s.mu.Lock()
	p := s.parts[name]
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.stop(ctx)
}

// Crashed receives the first end of a part that nobody asked for, for a caller
// that runs a stack for long. Start looks for itself.
func (s *Stack) Crashed() <-chan error { return s.crashed }

// crashes describes the parts that ended although nobody asked them to.
func (s *Stack) crashes() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var failures []error
	for _, name := range s.order {
		failures = append(failures, s.parts[name].crash())
	}
	return errors.Join(failures...)
}

// StartProcess runs a further process as a part of the stack, under its name:
// a kubelet, a container runtime, Sickbay's own processes. It returns when the
// process is ready. It can be killed and started again like the stack's own
// parts, ends before them at Stop, and never outlives the test.
func (s *Stack) StartProcess(ctx context.Context, spec Process) error {
	if spec.Dir == "" {
		spec.Dir = s.Dir()
	}
	s.mu.Lock()
	if s.parts[spec.Name] != nil {
		s.mu.Unlock()
		return fmt.Errorf("start %s: the stack already has a part of that name; StartPart starts it again", spec.Name)
	}
	p := &part{spec: spec, logPath: s.Log(spec.Name), spawner: s.spawner, crashed: s.crashed}
	s.parts[spec.Name] = p
	s.order = append(s.order, spec.Name)
	s.mu.Unlock()

	begin := time.Now()
	if err := p.start(ctx); err != nil {
		return err
	}
	s.opts.Logf("stack: %s ready after %.2fs", spec.Name, time.Since(begin).Seconds())
	return nil
}

// StartPart starts a part that was stopped or killed, on the same ports and
// data, and returns when it is ready.
func (s *Stack) StartPart(ctx context.Context, name string) error {
	p, err := s.part(name)
	if err != nil {
		return err
	}
	return p.start(ctx)
}

// StopPart ends a part with SIGTERM and returns when it is gone.
func (s *Stack) StopPart(ctx context.Context, name string) error {
	p, err := s.part(name)
	if err != nil {
		return err
	}
	return p.stop(ctx)
}

// KillPart ends a part as kill -9 does and returns when it is gone.
func (s *Stack) KillPart(name string) error {
	p, err := s.part(name)
	if err != nil {
		return err
	}
	return p.kill()
}

// SignalPart sends any other signal, for example SIGSTOP and SIGCONT: a part
// that is there and does not answer.
func (s *Stack) SignalPart(name string, sig syscall.Signal) error {
	p, err := s.part(name)
	if err != nil {
		return err
	}
	return p.signal(sig)
}

// PID is the process ID of a part, 0 if it does not run.
func (s *Stack) PID(name string) int {
	p, err := s.part(name)
	if err != nil {
		return 0
	}
	return p.pid()
}

func (s *Stack) part(name string) (*part, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parts[name]
	if p == nil {
		return nil, fmt.Errorf("the stack has no part %q; it has %v", name, s.order)
	}
	return p, nil
}

// Dir is the stack's directory. Its path is short enough for sockets in it.
func (s *Stack) Dir() string { return s.dir.path }

// Log is the path of a part's log: standard output and error of all its runs.
func (s *Stack) Log(name string) string { return filepath.Join(s.Dir(), "log", name+".log") }

// FreePort is a port on the loopback address that is reserved for this stack
// and that nothing in it uses; each call gives another one.
func (s *Stack) FreePort() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ports.free()
}
