package starter

import (
	"context"
	"fmt"
	"sync"

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
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: s.options.Namespace, Name: s.options.LeaseName},
		Client:     s.options.Kubernetes.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: s.options.Identity},
	}
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
	send := &sender{
		tracker: s.tracker, cases: s.options.Cases, answers: s.options.Answers, queue: q, settling: s.settling,
		timing: s.options.Timing, log: s.log, metrics: s.metrics,
		checks: flowcontrol.NewTokenBucketRateLimiter(float32(s.options.CheckRate), s.options.CheckRate),
	}
	// Leadership that is lost ends everything at once; a starter that ends only
	// stops taking news in, and sends what is queued.
	working, stop := context.WithCancel(ctx)
	defer stop()
	var work sync.WaitGroup
	defer work.Wait()
	checking, stopChecking := context.WithCancel(working)
	work.Go(func() { send.recheck(checking, s.options.Clock) })
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
	s.log.Info("levels compared", "waiting", q.Len())
	send.run(working, s.options.Workers)
	stop()
}
