package starter

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// told is what the budgets were told, in order.
type told struct {
	counted []budget.Counted
	tell    bool
	err     error
}

func (b *told) Count(_ context.Context, counted budget.Counted) (bool, error) {
	if b.err != nil {
		return false, b.err
	}
	b.counted = append(b.counted, counted)
	return b.tell, nil
}

// B2 in part. The budgets are told which marks exist when that changes, in short once a
// minute, in full when they ask; and nothing while there never were any, or while marks
// can't be seen.
func TestTheBudgetsAreToldWhichMarksExist(t *testing.T) {
	clock := testclock.NewFakeClock(time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC))
	s := newScene(t)
	why := ""
	budgets := &told{}
	c := &counting{
		tracker: s.tracker, budgets: budgets, blind: func() string { return why }, identity: "a",
		clock: clock, log: slog.New(slog.DiscardHandler), limit: time.Second,
	}
	expect := func(what string, marks ...int) {
		t.Helper()
		c.round(t.Context())
		var got []int
		for _, counted := range budgets.counted {
			if counted.Same {
				got = append(got, -1)
			} else {
				got = append(got, len(counted.Marks))
			}
		}
		budgets.counted = nil
		if len(got) != len(marks) || len(got) > 0 && got[0] != marks[0] {
			t.Errorf("%s: told %v, want %v (-1 is the same)", what, got, marks)
		}
	}
	key, err := device.NewDRA("gpu.example.com", "anvil-07", "gpu-3")
	if err != nil {
		t.Fatal(err)
	}
	const same = -1
	expect("before there is a mark")
	s.tracker.markSeen(key, mark{rule: "sickbay-gpu-3", node: "anvil-07", found: quarantine.MarkFound{Epoch: 7}, intact: true})
	why = "devicetaintrules"
	expect("while marks can't be seen")
	why = ""
	expect("the first mark", 1)
	expect("at once again")
	clock.Step(recount)
	expect("a minute later", same)
	budgets.tell = true
	clock.Step(recount)
	expect("the budgets know nothing of it", same)
	budgets.tell = false
	clock.Step(countPause)
	expect("they asked for all", 1)
	budgets.err = errors.New("temporal is away")
	s.tracker.markGone("sickbay-gpu-3")
	clock.Step(countPause)
	expect("they can't be told")
	budgets.err = nil
	expect("not tried again at once")
	clock.Step(countPause)
	expect("the mark is gone", 0)
	clock.Step(recount)
	expect("none is news, too, to whoever counted one", same)
}
