package activities_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/activities"
	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// desk is the permits workflow without Temporal: pkg/budget behind a lock.
type desk struct {
	mu     sync.Mutex
	book   budget.Book
	limits budget.Limits
	// batches counts the updates that carried asks, counted those that told of marks.
	batches, counted int
	away             error
}

func (d *desk) decide(e budget.Event) (budget.Outcome, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.away != nil {
		return budget.Outcome{}, d.away
	}
	switch e.(type) {
	case budget.Asked:
		d.batches++
	case budget.Counted:
		d.counted++
	}
	var out budget.Outcome
	d.book, out = budget.Decide(d.book, e, time.Now(), d.limits)
	return out, nil
}

func (d *desk) Ask(_ context.Context, asks []budget.Ask) ([]budget.Answer, error) {
	out, err := d.decide(budget.Asked{Asks: asks})
	return out.Answers, err
}

func (d *desk) Count(_ context.Context, counted budget.Counted) (bool, error) {
	out, err := d.decide(counted)
	return out.Tell, err
}

func (d *desk) Return(_ context.Context, permits []budget.Permit) error {
	_, err := d.decide(budget.Returned{Permits: permits})
	return err
}

func (d *desk) Turn(_ context.Context, ask budget.AskTurn) (budget.Turn, error) {
	out, err := d.decide(budget.TurnsAsked{Asks: []budget.AskTurn{ask}})
	if err != nil {
		return budget.Turn{}, err
	}
	return out.Turns[0], nil
}

// marks are those that exist.
type marks []budget.Standing

func (m marks) Standing(context.Context) ([]budget.Standing, error) { return m, nil }

func markOf(t *testing.T, n int) quarantine.PutMark {
	t.Helper()
	key, err := device.NewDRA("gpu.example.com", fmt.Sprintf("node-%d", n/8), fmt.Sprintf("gpu-%d", n%8))
	if err != nil {
		t.Fatal(err)
	}
	return quarantine.PutMark{Device: key, Node: key.Pool, Epoch: int64(n + 1), Severity: 3, Around: quarantine.Around{InClass: 1000, InCluster: 1000, OnNode: 8}}
}

// B1 in part. A thousand marks that are due at once, by two workers, ask in a few updates,
// never get more permits than there are, and count what exists already, although nobody
// told the budgets of it before.
func TestAThousandMarksAskInAFewUpdates(t *testing.T) {
	d := &desk{limits: budget.Limits{Cluster: budget.Limit{None: true}, Class: budget.Limit{Percent: 10}, Tenant: budget.Limit{None: true}, Node: budget.Limit{None: true}}}
	var exist marks
	for n := range 40 {
		c := markOf(t, 2000+n)
		exist = append(exist, budget.Standing{Device: c.Device.String(), Epoch: c.Epoch, Scopes: budget.ScopesOf(c.Device, c.Node, nil, nil)})
	}
	workers := []*activities.Permits{
		activities.NewPermits(d, exist, "worker-a", slog.New(slog.DiscardHandler)),
		activities.NewPermits(d, exist, "worker-b", slog.New(slog.DiscardHandler)),
	}
	var work sync.WaitGroup
	var mu sync.Mutex
	granted := 0
	for n := range 1000 {
		c := markOf(t, n)
		work.Go(func() {
			permit, err := workers[n%2].Permit(t.Context(), c)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Error(err)
			case permit.Granted:
				granted++
			case !strings.Contains(permit.Why, "100 of the 100") || permit.Again <= 0:
				t.Errorf("refused with %+v", permit)
			}
		})
	}
	work.Wait()
	if granted != 60 {
		t.Errorf("%d granted beside 40 marks where 100 may be", granted)
	}
	if d.batches > 100 || d.counted == 0 {
		t.Errorf("%d updates with asks, %d that told of marks", d.batches, d.counted)
	}
	// A mark that is lifted makes room for the next in line, and for no other.
	first := markOf(t, 2000)
	workers[0].Return(t.Context(), first.Device, first.Epoch)
	if d.book.Ledger(budget.Mark).Used(budget.Everything) != 100 || len(d.book.Marks.Waiters) != 939 {
		t.Errorf("after one came back %d are in force and %d wait", d.book.Ledger(budget.Mark).Used(budget.Everything), len(d.book.Marks.Waiters))
	}
}

// A case that is over leaves the line, unless it only was a suspect, which never asks.
func TestACaseThatIsOverLeavesTheLine(t *testing.T) {
	d := &desk{limits: budget.Limits{Cluster: budget.Limit{Max: 1}, Class: budget.Limit{None: true}, Tenant: budget.Limit{None: true}, Node: budget.Limit{None: true}}}
	permits := activities.NewPermits(d, marks(nil), "worker-a", slog.New(slog.DiscardHandler))
	for n := range 3 {
		if _, err := permits.Permit(t.Context(), markOf(t, n)); err != nil {
			t.Fatal(err)
		}
	}
	waiting := func() int { return len(d.book.Marks.Waiters) }
	second, third := markOf(t, 1), markOf(t, 2)
	for sentence, n := range map[string]quarantine.Notice{
		"another decision": {Kind: quarantine.NoticeMarkHeld, Epoch: second.Epoch, Phase: quarantine.PhaseQuarantined},
		"a suspect's end":  {Kind: quarantine.NoticeClosed, Epoch: second.Epoch, Left: quarantine.PhaseSuspect},
	} {
		if permits.Closed(t.Context(), second.Device, []quarantine.Notice{n}); waiting() != 2 {
			t.Errorf("%s: %d wait, want 2", sentence, waiting())
		}
	}
	over := []quarantine.Notice{{Kind: quarantine.NoticeSeverity}, {Kind: quarantine.NoticeClosed, Epoch: third.Epoch, Left: quarantine.PhaseQuarantined}}
	if permits.Closed(t.Context(), third.Device, over); waiting() != 1 || d.book.Marks.Waiters[0].Device != second.Device.String() {
		t.Errorf("waiting are %+v; want only %s", d.book.Marks.Waiters, second.Device)
	}
}

// Without an answer there is no permit: the mark waits.
func TestNoAnswerIsNoPermit(t *testing.T) {
	d := &desk{limits: budget.DefaultLimits(), away: errors.New("temporal is away")}
	permits := activities.NewPermits(d, marks(nil), "worker-a", slog.New(slog.DiscardHandler))
	if permit, err := permits.Permit(t.Context(), markOf(t, 0)); err == nil || permit.Granted {
		t.Errorf("%+v, %v", permit, err)
	}
	d.away = nil
	if permit, err := permits.Permit(t.Context(), markOf(t, 0)); err != nil || !permit.Granted {
		t.Errorf("once it answers: %+v, %v", permit, err)
	}
}
