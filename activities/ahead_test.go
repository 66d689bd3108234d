package activities_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/activities"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/workflows/burst"
)

// wall takes marks as the API server does, refuses those that it is told to, and knows
// how many were made at the same time.
type wall struct {
	mu        sync.Mutex
	made      map[device.Key]quarantine.PutMark
	refused   map[device.Key]error
	held      map[device.Key]bool
	now, most int
	// together is closed once two are under way at the same time; the first waits for it.
	together chan struct{}
	// slow blocks every call until its context ends.
	slow bool
}

func (w *wall) First(ctx context.Context, c quarantine.PutMark) (quarantine.MarkReported, error) {
	w.mu.Lock()
	w.now++
	w.most = max(w.most, w.now)
	if w.now == 2 && w.together != nil {
		close(w.together)
		w.together = nil
	}
	together := w.together
	w.mu.Unlock()
	switch {
	case w.slow:
		<-ctx.Done()
	case together != nil:
		select {
		case <-together:
		case <-ctx.Done():
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now--
	report := quarantine.MarkReported{Epoch: c.Epoch, Name: "mark-of-" + c.Device.Device, Version: "9", Outcome: quarantine.OutcomeInForce}
	switch {
	case w.slow:
		return report, ctx.Err()
	case w.refused[c.Device] != nil:
		return report, w.refused[c.Device]
	case w.held[c.Device]:
		report.Outcome = quarantine.OutcomeHeld
		return report, nil
	}
	w.made[c.Device] = c
	return report, nil
}

func faultsOf(t *testing.T, count int, message string) []quarantine.Fault {
	t.Helper()
	why := reason.Builtin().Match("gpu.example.com", message)
	var faults []quarantine.Fault
	for n := range count {
		key := markOf(t, n).Device
		seen := time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)
		faults = append(faults, quarantine.Fault{Device: key, Event: quarantine.Observed{Node: key.Pool, Sent: seen, Readings: []quarantine.Reading{{
			Report: device.Report{
				Pod: device.PodRef{Namespace: "team-kestrel", Name: fmt.Sprintf("train-%d", n), UID: fmt.Sprintf("uid-%d", n)}, Node: key.Pool,
				Health: device.Unhealthy, Message: message, Version: "1", Observed: seen, Fault: why.DeviceFault(),
			},
			Reason: why,
		}}}})
	}
	return faults
}

func aheadOf(w *wall, mode quarantine.Mode) *activities.Ahead {
	policy := quarantine.DefaultPolicy()
	policy.Mode = mode
	return &activities.Ahead{Marks: w, Policy: func(device.Key, []string) quarantine.Policy { return policy }, Logger: slog.New(slog.DiscardHandler)}
}

func newWall() *wall {
	return &wall{made: map[device.Key]quarantine.PutMark{}, refused: map[device.Key]error{}, held: map[device.Key]bool{}, together: make(chan struct{})}
}

// A mark that is made ahead is the one that its case would make; what isn't made is left
// to the case and keeps no other from being made.
func TestMarksMadeAheadAreThoseOfTheirCases(t *testing.T) {
	w, faults := newWall(), faultsOf(t, 200, "XID 79: GPU has fallen off the bus")
	w.refused[faults[3].Device], w.held[faults[4].Device] = errors.New("the API server is away"), true
	epoch := time.Date(2026, 11, 2, 8, 0, 1, 0, time.UTC)
	marked, err := aheadOf(w, quarantine.ModeEnforce).MarkAhead(t.Context(), burst.Task{Faults: faults, Epoch: epoch.UnixMilli()})
	if err != nil || len(marked.Marks) != 198 || len(w.made) != 198 {
		t.Fatalf("%d are answered and %d made, %v; want 198", len(marked.Marks), len(w.made), err)
	}
	if w.most < 2 || w.most > 32 {
		t.Errorf("%d at the same time, want several and 32 at most", w.most)
	}
	for _, m := range marked.Marks {
		put := w.made[m.Device]
		if m.Made.Epoch != epoch.UnixMilli() || put.Epoch != m.Made.Epoch || m.Made.Version != "9" || m.Made.At.IsZero() || put.Severity != reason.SeverityFatal {
			t.Fatalf("%s: %+v for %+v", m.Device, m.Made, put)
		}
	}
	policy := quarantine.DefaultPolicy()
	policy.Mode = quarantine.ModeEnforce
	fault := faults[0]
	fault.Event.Made = marked.Marks[0].Made
	c, _ := quarantine.Decide(quarantine.Case{Device: fault.Device}, fault.Event, epoch.Add(3*time.Second), policy)
	if c.Mark.State != quarantine.MarkInForce || c.Epoch != w.made[fault.Device].Epoch {
		t.Errorf("its case has the mark %+v in epoch %d", c.Mark, c.Epoch)
	}
}

// Where a case makes no mark, none is made ahead of it either.
func TestNoMarkIsMadeAheadThatACaseWouldNotMake(t *testing.T) {
	for name, tc := range map[string]struct {
		mode    quarantine.Mode
		message string
	}{
		"in mode observe":             {quarantine.ModeObserve, "XID 79: GPU has fallen off the bus"},
		"of what is only suspected":   {quarantine.ModeEnforce, "critical XID 9999 reported by NVML"},
		"of an application's failure": {quarantine.ModeEnforce, "XID 13: Graphics Engine Exception"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWall()
			marked, err := aheadOf(w, tc.mode).MarkAhead(t.Context(), burst.Task{Faults: faultsOf(t, 20, tc.message), Epoch: 1793606401000})
			if err != nil || len(marked.Marks) > 0 || len(w.made) > 0 {
				t.Errorf("%d answered, %d made, %v; want none", len(marked.Marks), len(w.made), err)
			}
		})
	}
}

// An API server that doesn't answer keeps nobody waiting for longer than the limit.
func TestMarkingAheadEndsWithItsTime(t *testing.T) {
	w := newWall()
	w.slow = true
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	marked, err := aheadOf(w, quarantine.ModeEnforce).MarkAhead(ctx, burst.Task{Faults: faultsOf(t, 100, "XID 79: GPU has fallen off the bus"), Epoch: 1793606401000})
	if err != nil || len(marked.Marks) > 0 || w.now != 0 {
		t.Errorf("%d answered, %d under way, %v", len(marked.Marks), w.now, err)
	}
}
