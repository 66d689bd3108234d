package starter

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/flowcontrol"
)

// elect takes part in the election until ctx ends, and leads whenever it wins. The
// Lease is released on the way out, so that another starter needn't wait for it to
// run out.
func (s *Starter) elect(ctx context.Context) error {
	if s.options.Alone {
		s.lead(ctx)
		return nil
	}
	lock := &watchedLock{election: &s.election, log: s.log, Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: s.options.Namespace, Name: s.options.LeaseName},
		Client:     s.options.Kubernetes.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: s.options.Identity},
	}}
	for ctx.Err() == nil {
		term := &term{}
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock:            lock,
			Name:            s.options.LeaseName,
			LeaseDuration:   s.options.Timing.Lease,
			RenewDeadline:   s.options.Timing.Renew,
			RetryPeriod:     s.options.Timing.Retry,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(leading context.Context) { term.run(func() { s.lead(leading) }) },
				OnStoppedLeading: func() {},
				OnNewLeader: func(identity string) {
					s.log.Info("leader", "identity", identity, "self", identity == s.options.Identity)
				},
			},
		})
		if err != nil {
			return fmt.Errorf("set up the election with Lease %s/%s: %w", s.options.Namespace, s.options.LeaseName, err)
		}
		elector.Run(ctx)
		term.over()
	}
	return nil
}

// election is whether this starter can take part in the election.
type election struct {
	mu  sync.Mutex
	err error
}

func (e *election) state() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// watchedLock is the election's Lease. A starter that can't read or write it will
// never lead, and isn't ready.
type watchedLock struct {
	resourcelock.Interface
	election *election
	log      *slog.Logger
}

func (l *watchedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if apierrors.IsNotFound(err) {
		return record, raw, err // it is made next
	}
	l.tell(ctx, "get", err)
	return record, raw, err
}

func (l *watchedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, record)
	if apierrors.IsAlreadyExists(err) {
		return err // another starter was faster
	}
	l.tell(ctx, "create", err)
	return err
}

func (l *watchedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Update(ctx, record)
	if apierrors.IsConflict(err) {
		return err // another starter was faster
	}
	l.tell(ctx, "update", err)
	return err
}

// tell takes in how a call ended, and says once that calls fail.
func (l *watchedLock) tell(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		err = fmt.Errorf("can't %s Lease %s, so this starter can't become the active one: %w; name a namespace that exists in SICKBAY_LEADER_ELECTION_NAMESPACE, and grant get, create and update on leases there",
			verb, l.Describe(), err)
	}
	l.election.mu.Lock()
	before := l.election.err
	l.election.err = err
	l.election.mu.Unlock()
	if err != nil && before == nil {
		l.log.Error("standing apart from the election", "error", err)
	}
}

// term is one stretch of leadership. The election starts it in a goroutine that it
// doesn't wait for; term does.
type term struct {
	mu    sync.Mutex
	ended bool
	work  sync.WaitGroup
}

func (t *term) run(lead func()) {
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		return
	}
	t.work.Add(1)
	t.mu.Unlock()
	defer t.work.Done()
	lead()
}

func (t *term) over() {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.work.Wait()
}

// lead sends what is owed for one stretch of leadership: it settles, compares
// levels once, and follows the news from there on. It returns when ctx ends, or
// when the starter ends and the queue is drained.
func (s *Starter) lead(ctx context.Context) {
	q := newQueue(s.options.Timing, s.options.Clock)
	if !s.begin(q) {
		q.ShutDown()
		return
	}
	s.metrics.leading.Set(1)
	defer func() {
		s.tracker.detach()
		s.metrics.leading.Set(0)
		q.ShutDown()
		s.end()
	}()
	if s.settle(ctx) != nil {
		return
	}
	remembering := s.remembering()
	if remembering != nil {
		remembering.recall(ctx)
	}
	send := &sender{
		tracker: s.tracker, cases: s.options.Cases, answers: s.options.Answers, queue: q, settling: s.settling,
		timing: s.options.Timing, log: s.log, metrics: s.metrics, tracer: s.options.Tracer,
		checks: flowcontrol.NewTokenBucketRateLimiter(float32(s.options.CheckRate), s.options.CheckRate),
	}
	if s.options.Ahead != nil {
		send.bursts = newBursts(s.options.Ahead, s.tracker, q, s.options.Clock, s.log)
	}
	// Leadership that is lost ends everything at once; a starter that ends only
	// stops taking news in, and sends what is queued.
	working, stop := context.WithCancel(ctx)
	defer stop()
	var work sync.WaitGroup
	defer work.Wait()
	checking, stopChecking := context.WithCancel(working)
	work.Go(func() { send.recheck(checking, s.options.Clock) })
	work.Go(func() { s.census.run(checking) })
	if s.options.Poker != nil {
		work.Go(func() { s.poking().run(checking) })
	}
	work.Go(func() { s.heartbeats.run(checking) })
	if remembering != nil {
		work.Go(func() { remembering.run(checking) })
	}
	work.Go(func() {
		select {
		case <-working.Done():
		case <-s.draining:
		}
		stopChecking()
		s.tracker.detach()
		q.ShutDown()
		if working.Err() == nil {
			timer := s.options.Clock.NewTimer(s.options.Timing.Drain)
			defer timer.Stop()
			select {
			case <-timer.C():
				s.log.Warn("not everything that was queued could be sent before the end; the next leader sends it", "left", q.Len())
				stop()
			case <-working.Done():
			}
		}
	})
	if s.shown != nil {
		work.Go(func() { s.showLevels(checking) })
	}
	s.tracker.attach(q.add)
	if s.options.Budgets != nil {
		marks := &counting{
			tracker: s.tracker, budgets: s.options.Budgets, blind: s.blind, identity: s.options.Identity,
			clock: s.options.Clock, log: s.log, limit: s.options.Timing.Send,
		}
		work.Go(func() { marks.run(checking) })
	}
	if s.options.Governed != nil {
		policy := &governing{
			tracker: s.tracker, governed: s.options.Governed, settling: s.settling, clock: s.options.Clock,
			pace: flowcontrol.NewTokenBucketRateLimiter(governedRate, governedRate),
		}
		work.Go(func() { policy.run(checking) })
	}
	if s.options.Isolations != nil {
		nodes := &isolating{
			tracker: s.tracker, nodes: s.options.Isolations, policy: s.options.NodePolicy, blind: s.blind, settling: s.settling,
			identity: s.options.Identity, clock: s.options.Clock, log: s.log, limit: s.options.Timing.Send,
		}
		work.Go(func() { nodes.run(checking) })
	}
	if s.options.Incidents != nil {
		telling := &reporter{
			tracker: s.tracker, incidents: s.options.Incidents, overview: s.options.Overview, settling: s.settling, memory: remembering, identity: s.options.Identity,
			clock: s.options.Clock, log: s.log, limit: s.options.Timing.Send,
		}
		if s.options.Upgrades != nil {
			telling.announced = &announced{tracker: s.tracker, upgrades: s.options.Upgrades, clock: s.options.Clock, log: s.log, limit: s.options.Timing.Send}
		}
		work.Go(func() { telling.run(checking) })
	}
	s.log.Info("levels compared", "waiting", q.Len())
	send.run(working, s.options.Workers)
	stop()
}
