package activities

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

const (
	// gathering is how long asks are gathered that go to the permits workflow together:
	// a thousand in one update cost hardly more than one.
	gathering = 5 * time.Millisecond
	// maxBatch bounds the asks of one update, and inFlight the updates under way: the
	// workflow takes ten at once, of all workers together.
	maxBatch, inFlight = 500, 3
	// permitCall bounds an update; the activity has five seconds in all.
	permitCall = 4 * time.Second
)

// PermitAsker asks the permits workflow.
type PermitAsker interface {
	Ask(context.Context, []budget.Ask) ([]budget.Answer, error)
	Count(context.Context, budget.Counted) (tell bool, err error)
	Return(context.Context, []budget.Permit) error
	Turn(context.Context, budget.AskTurn) (budget.Turn, error)
}

// MarkLister lists the marks that exist.
type MarkLister interface {
	Standing(context.Context) ([]budget.Standing, error)
}

// Permits asks for permits on behalf of all marks that this worker makes, in batches.
type Permits struct {
	asker PermitAsker
	marks MarkLister
	self  string
	log   *slog.Logger
	// slots bounds the updates under way.
	slots chan struct{}

	mu sync.Mutex
	// next is the batch that asks are gathered for, or nil.
	next *batch
}

// batch is asks that go to the workflow together. Whoever opened it sends it.
type batch struct {
	asks []budget.Ask
	done chan struct{}
	// answers and err are there once done is closed.
	answers []budget.Answer
	err     error
}

// NewPermits returns what asks the permits workflow; self names this worker.
func NewPermits(asker PermitAsker, marks MarkLister, self string, log *slog.Logger) *Permits {
	return &Permits{asker: asker, marks: marks, self: self, log: log, slots: make(chan struct{}, inFlight)}
}

// Permit implements kube.Permits.
func (p *Permits) Permit(ctx context.Context, c quarantine.PutMark) (kube.Permit, error) {
	answer, err := p.ask(ctx, askFor(c))
	if err != nil {
		return kube.Permit{}, err
	}
	if !answer.Granted {
		p.log.InfoContext(ctx, "no permit for a mark now", "device", c.Device.String(), "epoch", c.Epoch, "why", answer.Why, "again", answer.Again.String())
	}
	return kube.Permit{Granted: answer.Granted, Why: answer.Why, Again: answer.Again}, nil
}

// AskPermit answers whether a mark that mode observe doesn't make would have a permit.
func (p *Permits) AskPermit(ctx context.Context, task devicewf.Task[quarantine.AskPermit]) (quarantine.PermitAnswered, error) {
	c := task.Command
	ask := askFor(quarantine.PutMark{
		Device: c.Device, Node: c.Node, Epoch: c.Epoch, Severity: c.Severity, FirstNotGood: c.FirstNotGood, Around: c.Around, Tenants: c.Tenants,
	})
	ask.Purpose = budget.Observe
	answer, err := p.ask(ctx, ask)
	if err != nil {
		return quarantine.PermitAnswered{}, err
	}
	return quarantine.PermitAnswered{Epoch: c.Epoch, Granted: answer.Granted, Why: answer.Why, Again: answer.Again}, nil
}

func askFor(c quarantine.PutMark) budget.Ask {
	ask := budget.Ask{
		Device: c.Device.String(), Epoch: c.Epoch, Purpose: budget.Mark,
		// Starters count devices by driver and resource, and marks with them; a DeviceClass
		// admits devices of several, and nobody counts those.
		Scopes:   budget.ScopesOf(c.Device, c.Node, nil, c.Tenants),
		Severity: int(c.Severity), Since: c.FirstNotGood,
	}
	for _, s := range append([]budget.Scope{budget.Everything}, ask.Scopes...) {
		eligible := map[budget.Kind]int{budget.Cluster: c.Around.InCluster, budget.Class: c.Around.InClass, budget.Node: c.Around.OnNode}[s.Kind]
		if eligible > 0 {
			ask.Sizes = append(ask.Sizes, budget.Size{Scope: s, Eligible: eligible})
		}
	}
	return ask
}

// ask adds an ask to the batch that is being gathered, and waits for its answer. The
// first of a batch sends it for all.
func (p *Permits) ask(ctx context.Context, ask budget.Ask) (budget.Answer, error) {
	p.mu.Lock()
	b := p.next
	first := b == nil
	if first {
		b = &batch{done: make(chan struct{})}
		p.next = b
	}
	at := len(b.asks)
	b.asks = append(b.asks, ask)
	if len(b.asks) >= maxBatch {
		p.next = nil
	}
	p.mu.Unlock()
	if first {
		// The others of the batch mustn't lose their answers by this one's end.
		p.send(context.WithoutCancel(ctx), b)
	}
	select {
	case <-ctx.Done():
		return budget.Answer{}, ctx.Err()
	case <-b.done:
	}
	if b.err != nil {
		return budget.Answer{}, b.err
	}
	return b.answers[at], nil
}

// send gathers for a moment, and sends the batch.
func (p *Permits) send(ctx context.Context, b *batch) {
	defer close(b.done)
	ctx, cancel := context.WithTimeout(ctx, permitCall)
	defer cancel()
	timer := time.NewTimer(gathering)
	defer timer.Stop()
	<-timer.C
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		p.close(b)
		b.err = fmt.Errorf("the permits workflow takes too long for the asks before: %w", ctx.Err())
		return
	}
	p.close(b)
	b.answers, b.err = p.asker.Ask(ctx, b.asks)
	if b.err == nil && unknown(b.answers) {
		b.answers, b.err = p.tellAndAsk(ctx, b.asks)
	}
}

// close takes no more asks into the batch.
func (p *Permits) close(b *batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == b {
		p.next = nil
	}
}

func unknown(answers []budget.Answer) bool {
	for _, a := range answers {
		if a.Unknown {
			return true
		}
	}
	return false
}

// tellAndAsk tells a workflow that knows nothing yet which marks exist, and asks anew.
func (p *Permits) tellAndAsk(ctx context.Context, asks []budget.Ask) ([]budget.Answer, error) {
	standing, err := p.marks.Standing(ctx)
	if err != nil {
		return nil, fmt.Errorf("find out which marks exist, for the budgets: %w", err)
	}
	if _, err := p.asker.Count(ctx, budget.Counted{Marks: standing, By: p.self}); err != nil {
		return nil, fmt.Errorf("tell the budgets which marks exist: %w", err)
	}
	p.log.InfoContext(ctx, "told the budgets which marks exist", "marks", len(standing))
	return p.asker.Ask(ctx, asks)
}

// Return gives the permit of a mark back that was lifted. If that fails, the starters'
// next count does.
func (p *Permits) Return(ctx context.Context, key device.Key, epoch int64) {
	err := p.asker.Return(ctx, []budget.Permit{{Device: key.String(), Epoch: epoch, Purpose: budget.Mark}})
	if err != nil {
		p.log.WarnContext(ctx, "a permit isn't given back; it is when a starter next counts the marks", "device", key.String(), "error", err)
	}
}

// Closed gives back what a case that is over waited for or never used. Nothing else tells
// the budgets: its turn would go to nobody, and what mode observe counts would stand for
// an hour. If that fails, its turn comes and goes, and its time runs out.
func (p *Permits) Closed(ctx context.Context, key device.Key, notices []quarantine.Notice) {
	for _, n := range notices {
		if n.Kind != quarantine.NoticeClosed || n.Left == quarantine.PhaseSuspect {
			continue // a suspect never asks
		}
		var back []budget.Permit
		for _, purpose := range budget.Purposes() {
			back = append(back, budget.Permit{Device: key.String(), Epoch: n.Epoch, Purpose: purpose, Unused: true})
		}
		ctx, cancel := context.WithTimeout(ctx, permitCall)
		err := p.asker.Return(ctx, back)
		cancel()
		if err != nil {
			p.log.WarnContext(ctx, "the budgets aren't told that a case is over", "device", key.String(), "epoch", n.Epoch, "error", err)
		}
	}
}
