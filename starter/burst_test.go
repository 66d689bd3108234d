package starter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// maker makes marks ahead of their cases, but for devices that it is told to leave out.
type maker struct {
	batches [][]quarantine.Fault
	without map[device.Key]bool
	fail    error
}

func (m *maker) Mark(_ context.Context, faults []quarantine.Fault) ([]quarantine.MadeAhead, error) {
	m.batches = append(m.batches, faults)
	if m.fail != nil {
		return nil, m.fail
	}
	var made []quarantine.MadeAhead
	for _, f := range faults {
		if !m.without[f.Device] {
			made = append(made, quarantine.MadeAhead{Device: f.Device, Made: quarantine.Made{Epoch: 4711, Name: "mark"}})
		}
	}
	return made, nil
}

// lull is the scene's clock, but its timers don't keep anybody waiting: it is one
// goroutine that sends and lets time go by.
type lull struct{ clock.WithTicker }

func (lull) NewTimer(time.Duration) clock.Timer { return clock.RealClock{}.NewTimer(0) }

func burstScene(t *testing.T) (*scene, *maker) {
	t.Helper()
	s, m := newScene(t), &maker{without: map[device.Key]bool{}}
	s.sender.bursts = newBursts(m, s.tracker, s.sender.queue, lull{s.clock}, slog.New(slog.DiscardHandler))
	s.pass(time.Second)
	return s, m
}

func (s *scene) breakAll(from, count int) {
	for n := range count {
		node := fmt.Sprintf("node-%d", from+n)
		s.report("train-"+node, gpu(node, "gpu-0"), device.Unhealthy, xid79)
	}
}

// rest lets the burst be over, and sends what waited for that until so many more signals
// have come.
func (s *scene) rest(more int) []call {
	s.t.Helper()
	s.pass(burstLimit)
	var calls []call
	for len(calls) < more {
		s.sender.next(s.t.Context()) // waits until the queue has something
		calls = append(calls, s.cases.take()...)
	}
	return append(calls, s.send()...)
}

// Many faults at once have their marks made in batches before their cases are opened; the
// first ones don't wait for that, and each case is told of its mark.
func TestManyFaultsAreMarkedAheadOfTheirCases(t *testing.T) {
	s, m := burstScene(t)
	s.breakAll(0, 400)
	first := s.send()
	if len(first) != burstFrom-1 {
		t.Fatalf("%d cases are opened before the burst is over, want the %d that came before it was one", len(first), burstFrom-1)
	}
	if len(m.batches) != 2 || len(m.batches[0]) != burstMost || len(m.batches[1]) != 400-burstMost-(burstFrom-1) {
		t.Fatalf("%d batches, want all others in two", len(m.batches))
	}
	told := map[device.Key]quarantine.Made{}
	for _, c := range append(first, s.rest(400-len(first))...) {
		if e := observedIn(t, c, c.key, true); e.Made.Epoch != 0 {
			told[c.key] = e.Made
		} else if _, twice := told[c.key]; twice {
			t.Errorf("%s is told twice", c.key)
		}
	}
	if len(told) != 400-(burstFrom-1) {
		t.Errorf("%d cases are told of their marks, want %d", len(told), 400-(burstFrom-1))
	}
}

// What comes one by one, is known already, or was there before this starter led, is no burst.
func TestFewFaultsAreNoBurst(t *testing.T) {
	s, m := burstScene(t)
	s.breakAll(0, burstFrom-1)
	if calls := s.send(); len(calls) != burstFrom-1 || len(m.batches) != 0 {
		t.Errorf("%d cases, %d batches; want cases only", len(calls), len(m.batches))
	}
	s.pass(10 * time.Second)
	for n := range 40 {
		s.pass(100 * time.Millisecond)
		s.breakAll(100+n, 1)
		if calls := s.send(); len(calls) != 1 {
			t.Fatalf("%d signals for one fault", len(calls))
		}
	}
	if len(m.batches) != 0 {
		t.Errorf("%d batches for ten faults a second", len(m.batches))
	}

	later := newStandby(t)
	m = &maker{}
	later.sender.bursts = newBursts(m, later.tracker, later.sender.queue, lull{later.clock}, slog.New(slog.DiscardHandler))
	later.tracker.listed()
	later.breakAll(0, 100)
	later.pass(time.Second)
	later.lead()
	if calls := later.send(); len(calls) != 100 || len(m.batches) != 0 {
		t.Errorf("%d cases, %d batches for faults that an earlier leader may have told of", len(calls), len(m.batches))
	}
}

// What isn't made ahead, and what a failed batch leaves, is left to the cases, which wait
// for nothing then.
func TestACaseMakesTheMarkThatWasNotMadeAhead(t *testing.T) {
	s, m := burstScene(t)
	m.without[gpu("node-20", "gpu-0")] = true
	s.breakAll(0, 40)
	found := false
	for _, c := range s.send() {
		found = found || c.key == gpu("node-20", "gpu-0")
	}
	if !found {
		t.Error("the case of a device without a mark waits for those with one")
	}

	s, m = burstScene(t)
	m.fail = errors.New("no worker knows such a workflow")
	s.breakAll(0, 100)
	if calls := s.send(); len(calls) != 100 || len(m.batches) != 1 {
		t.Errorf("%d cases after %d failed batches, want all 100 after one", len(calls), len(m.batches))
	}
}

// The watch may show the mark before its case is told of it: it isn't taken for one that
// lost its case.
func TestAMarkMadeAheadIsNoMarkWithoutACase(t *testing.T) {
	s, _ := burstScene(t)
	s.breakAll(0, 40)
	first := s.send()
	key := gpu("node-30", "gpu-0")
	s.tracker.markSeen(key, mark{rule: "mark", node: "node-30", intact: true, found: quarantine.MarkFound{Name: "mark", Epoch: 4711}})
	for _, expected := range s.tracker.expected() {
		if expected == key {
			t.Error("it is asked whether its case runs, which nobody has opened yet")
		}
	}
	for _, c := range s.rest(40 - len(first)) {
		if _, adopted := c.event.(quarantine.MarkSeen); adopted {
			t.Errorf("%s is adopted", c.key)
		}
	}
}
