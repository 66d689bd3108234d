package doctor

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What a process lacks is looked at again soon, what it has later, and the log tells
// of each change once.
func TestAProcessLooksAgainAndTellsOnceOfEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		state, asked := Missing, 0
		self := NewSelf(slog.New(slog.NewTextHandler(&log, nil)), System{Reach: Check{Ask: func(context.Context) ([]Finding, error) {
			asked++
			f := Finding{Check: "kubernetes/rights/worker", State: state}
			if state == Missing {
				f.Found, f.Without, f.Remedy = "it may not get pods", "looks fail", "grant it"
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
		if asked < 5 || asked > 10 {
			t.Errorf("asked %d times within the minute in which something was missing, want growing pauses up to %s", asked, againSoon)
		}
		state = OK
		time.Sleep(againSoon)
		synctest.Wait()
		if self.Last().Worst() != OK {
			t.Errorf("%s after it was granted it still lacks it", againSoon)
		}
		before := asked
		time.Sleep(againLater - time.Second)
		synctest.Wait()
		if asked != before {
			t.Errorf("asked %d times while nothing is missing, want none within %s", asked-before, againLater)
		}
		cancel()
		<-ended
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "grant it") || !strings.Contains(lines[1], "level=INFO") {
			t.Errorf("it logged\n%s\nwant one warning with the remedy, and one line that it is well again", log.String())
		}
	})
}
