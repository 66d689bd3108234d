package starter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/kube"
)

// Starter watches the cluster and hands what it sees to the device workflows. Make
// one with New.
type Starter struct {
	options  Options
	log      *slog.Logger
	metrics  *metrics
	tracker  *tracker
	settling *settling
	eyes     *eyes
	sources  []*source
	rules    *ruleWatch
	census   *census
	// heartbeats looks at the Leases of nodes while this starter leads.
	heartbeats *heartbeats
	election   election
	// shown is what writes the directory, or nil.
	shown *directory.Writer

	// draining is closed when the starter ends: no news is taken in any more.
	draining chan struct{}

	mu sync.Mutex
	// queue is the queue of the present stretch of leadership, or nil.
	queue *queue
	// idle is closed when no stretch of leadership is under way.
	idle chan struct{}
}

// New checks the options and sets a starter up. Nothing runs before Run.
func New(options Options) (*Starter, error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	options = options.withDefaults()
	m := newMetrics()
	s := &Starter{
		options: options, metrics: m,
		log:      options.Log.With("component", "starter"),
		draining: make(chan struct{}), idle: closedChannel(),
	}
	options.Log = s.log
	s.settling = newSettling(options.Clock, options.Timing)
	s.tracker = newTracker(options, s.settling, m)
	s.eyes = newEyes(s.log, m, options.Clock)
	for _, set := range []func() (*source, error){
		func() (*source, error) { return podSource(options.Kubernetes, s.tracker, s.eyes, s.settling) },
		func() (*source, error) { return claimSource(options.Kubernetes, s.tracker, s.eyes, s.settling) },
		func() (*source, error) { return sliceSource(options.Kubernetes, s.tracker, s.eyes, s.settling) },
		func() (*source, error) { return nodeSource(options.Kubernetes, s.tracker, s.eyes, s.settling) },
	} {
		source, err := set()
		if err != nil {
			return nil, err
		}
		s.sources = append(s.sources, source)
	}
	s.rules = &ruleWatch{
		tracker: s.tracker, discovery: options.Kubernetes.Discovery(), dynamic: options.Dynamic, eyes: s.eyes,
		settling: s.settling, timing: options.Timing, clock: options.Clock, log: s.log, first: make(chan struct{}),
	}
	s.census = &census{counter: options.Counter, tracker: s.tracker, clock: options.Clock, log: s.log, pause: options.Timing.Recheck}
	s.heartbeats = &heartbeats{
		leases: options.Kubernetes.CoordinationV1().Leases(corev1.NamespaceNodeLease), tracker: s.tracker, eyes: s.eyes,
		clock: options.Clock, every: options.Timing.Heartbeats, limit: options.Timing.Send,
	}
	if err := m.register(options.Registerer, s); err != nil {
		return nil, err
	}
	if err := s.setUpDirectory(); err != nil {
		return nil, err
	}
	return s, nil
}

// remembering makes the memory of one stretch of leadership. A starter that is alone
// writes nothing into the cluster, and has none.
func (s *Starter) remembering() *memory {
	if s.options.Alone {
		return nil
	}
	return &memory{
		objects: s.options.Kubernetes.CoreV1().ConfigMaps(s.options.Namespace), name: kube.MemoryName(s.options.LeaseName),
		tracker: s.tracker, clock: s.options.Clock, log: s.log, urged: make(chan struct{}, 1),
		first: s.options.Timing.MemoryFirst, every: s.options.Timing.MemoryEvery, limit: s.options.Timing.Send,
	}
}

// Run watches, and sends while it leads, until ctx ends. Then it takes no more
// news in, sends what is queued for at most Timing.Drain, releases the Lease and
// returns when everything that it started has ended. It may be called once.
func (s *Starter) Run(ctx context.Context) error {
	// What is started here outlives ctx by the time that draining takes.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var watching sync.WaitGroup
	for _, source := range s.sources {
		watching.Go(func() { source.informer.RunWithContext(background) })
	}
	watching.Go(func() { s.rules.run(background) })
	watching.Go(func() { s.janitor(background) })
	watching.Go(func() { s.markListed(background) })

	electing, resign := context.WithCancel(background)
	defer resign()
	elected := make(chan error, 1)
	go func() { elected <- s.elect(electing) }()

	var err error
	select {
	case <-ctx.Done():
		s.log.Info("ending: sending what is queued")
		close(s.draining)
		<-s.leadershipOver()
		resign()
		err = <-elected
	case err = <-elected:
	}
	stop()
	watching.Wait()
	return err
}

// begin starts a stretch of leadership, unless the starter ends.
func (s *Starter) begin(q *queue) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.draining:
		return false
	default:
	}
	s.queue, s.idle = q, make(chan struct{})
	return true
}

func (s *Starter) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = nil
	close(s.idle)
}

func (s *Starter) leadershipOver() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idle
}

func (s *Starter) depth() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue == nil {
		return 0
	}
	return float64(s.tracker.owing())
}

func closedChannel() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// markListed tells the tracker when everything has been listed once.
func (s *Starter) markListed(ctx context.Context) {
	for _, source := range s.sources {
		if !wait(ctx, source.handled) {
			return
		}
	}
	s.tracker.listed()
}

func wait(ctx context.Context, handled cache.DoneChecker) bool {
	select {
	case <-ctx.Done():
		return false
	case <-handled.Done():
		return true
	}
}

// settle waits, at the beginning of a stretch of leadership, until Pods have been
// listed, and claims, slices, nodes and marks too if that doesn't take too long;
// then for quiet. What is still missing after that makes the starter see less, and
// never more.
func (s *Starter) settle(ctx context.Context) error {
	ctx, cancel := s.untilDraining(ctx)
	defer cancel()
	if !wait(ctx, s.sources[0].handled) {
		return ctx.Err()
	}
	limit := s.options.Clock.NewTimer(s.options.Timing.SyncLimit)
	defer limit.Stop()
	rest := []<-chan struct{}{s.rules.first}
	for _, source := range s.sources[1:] {
		rest = append(rest, source.handled.Done())
	}
	for _, done := range rest {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-done:
			continue
		case <-limit.C():
			s.log.Warn("going on without having listed everything", "error", s.Ready())
		}
		break
	}
	s.settling.begin()
	return s.settling.wait(ctx)
}

// untilDraining gives a context that also ends when the starter does.
func (s *Starter) untilDraining(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.draining:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// janitor does what needs time to pass: judging pools that have come to rest,
// saying what stays unmapped, forgetting what others have told.
func (s *Starter) janitor(ctx context.Context) {
	ticker := s.options.Clock.NewTicker(max(s.options.Timing.InventoryQuiet/4, 10*time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			s.tracker.sees(s.eyes.err() == nil)
			s.tracker.settleNodes()
			s.tracker.settleInventory()
			s.tracker.settleOffers()
			s.tracker.settleDrivers()
			s.tracker.settleUnprepared()
			s.tracker.logUnmapped()
			s.tracker.tidy()
		}
	}
}

// Ready tells whether everything that is watched was listed and is watched now. A
// starter that stands by is ready too. The error names what is missing and what to
// do about it.
func (s *Starter) Ready() error {
	if err := errors.Join(s.eyes.err(), s.election.state()); err != nil {
		return err
	}
	var errs []error
	for _, source := range s.unlisted() {
		errs = append(errs, fmt.Errorf("%s: the first list isn't through yet", source.resource))
	}
	return errors.Join(errs...)
}

// unlisted are the sources whose first list isn't through.
func (s *Starter) unlisted() []*source {
	return slices.DeleteFunc(slices.Clone(s.sources), func(source *source) bool {
		select {
		case <-source.handled.Done():
			return true
		default:
			return false
		}
	})
}

// cantSee names what can't be seen now.
func (s *Starter) cantSee() []string {
	why := s.eyes.blind()
	if len(s.unlisted()) > 0 {
		why = append(why, "starting")
	}
	return why
}

// Leading tells whether this starter is the one that sends.
func (s *Starter) Leading() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue != nil
}

// Unmapped lists the health entries that aren't Healthy and lead to no single
// device.
func (s *Starter) Unmapped() []UnmappedFault { return s.tracker.unmappedFaults() }
