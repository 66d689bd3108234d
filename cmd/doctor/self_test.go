package doctor

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// What a process lacks is looked at again soon, what it has later, and the log tells
// of each change once. Its hours pass on the bubble's clock: nothing sleeps.
func TestAProcessLooksAgainAndTellsOnceOfEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var granted, degraded atomic.Bool
		var looks atomic.Int64
		self := NewSelf(slog.New(slog.NewTextHandler(&log, nil)), System{Reach: Check{Ask: func(context.Context) ([]Finding, error) {
			looks.Add(1)
			f := Finding{Check: "kubernetes/rights/worker", State: OK}
			if !granted.Load() {
				f.State, f.Found, f.Without, f.Remedy = Missing, "it may not get pods", "looks fail", "grant it"
			}
			if degraded.Load() {
				f.State, f.Found, f.Without, f.Remedy = Degraded, "no DeviceTaintRule API", "nothing is kept out", "serve it"
			}
			return []Finding{f}, nil
		}}})
		if self.Last() != nil {
			t.Error("it knows something before it asked")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			self.Run(ctx)
		}()
		synctest.Wait()
		if last := self.Last(); last == nil || last.Worst() != Missing {
			t.Errorf("after the first look it knows %+v", last)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if asked := looks.Load(); asked < 5 || asked > 10 {
			t.Errorf("asked %d times within the minute in which something was missing, want growing pauses up to %s", asked, againSoon)
		}
		granted.Store(true)
		time.Sleep(againSoon)
		synctest.Wait()
		if self.Last().Worst() != OK {
			t.Errorf("%s after it was granted it still lacks it", againSoon)
		}
		before := looks.Load()
		time.Sleep(againLater - time.Second)
		synctest.Wait()
		if asked := looks.Load(); asked != before {
			t.Errorf("asked %d times while nothing is missing, want none within %s", asked-before, againLater)
		}
		degraded.Store(true)
		time.Sleep(againLater)
		synctest.Wait()
		before = looks.Load()
		time.Sleep(time.Hour)
		synctest.Wait()
		if asked := looks.Load() - before; asked < 12 || asked > 16 {
			t.Errorf("asked %d times within the hour in which something was degraded, want growing pauses up to %s", asked, againLater)
		}
		cancel()
		<-ended
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 3 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "grant it") || !strings.Contains(lines[1], "level=INFO") {
			t.Errorf("it logged\n%s\nwant one warning with the remedy, one line that it is well again, and one of what is degraded", log.String())
		}
	})
}
