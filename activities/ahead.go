package activities

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/workflows/burst"
)

// aheadAtOnce is how many marks of a burst are made at the same time. More of them wait
// for each other in the API server; SICKBAY_KUBE_QPS bounds how many there are in a second.
const aheadAtOnce = 32

// FirstMarker makes marks where there are none.
type FirstMarker interface {
	// First makes a mark unless there is one already; that isn't touched.
	First(context.Context, quarantine.PutMark) (quarantine.MarkReported, error)
}

// Ahead makes the first marks of many devices at once, ahead of their cases.
type Ahead struct {
	Marks FirstMarker
	// Policy is what holds for a device of these classes, as its case goes by it.
	Policy func(key device.Key, classes []string) quarantine.Policy
	Logger *slog.Logger
}

// MarkAhead makes the marks that the cases of these faults would make, and answers which
// it made until its time was over.
func (a *Ahead) MarkAhead(ctx context.Context, task burst.Task) (burst.Marked, error) {
	ctx, cancel := context.WithTimeout(ctx, burst.MarkLimit)
	defer cancel()
	made := make([]*quarantine.MadeAhead, len(task.Faults))
	next := make(chan int)
	var making sync.WaitGroup
	for range min(aheadAtOnce, len(task.Faults)) {
		making.Go(func() {
			for i := range next {
				made[i] = a.mark(ctx, task.Faults[i], task.Epoch)
			}
		})
	}
	for i := range task.Faults {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	making.Wait()
	var marked burst.Marked
	for _, m := range made {
		if m != nil {
			marked.Marks = append(marked.Marks, *m)
		}
	}
	a.Logger.InfoContext(ctx, "marks made ahead of their cases", "faults", len(task.Faults), "marks", len(marked.Marks), "epoch", task.Epoch)
	return marked, nil
}

// mark makes the mark of one fault, if its case would.
func (a *Ahead) mark(ctx context.Context, fault quarantine.Fault, epoch int64) *quarantine.MadeAhead {
	policy := a.Policy(fault.Device, fault.Event.Around.Classes)
	_, owed := quarantine.Decide(quarantine.Case{Device: fault.Device}, fault.Event, time.UnixMilli(epoch).UTC(), policy)
	for _, command := range owed {
		put, ok := command.(quarantine.PutMark)
		if !ok || ctx.Err() != nil {
			continue
		}
		report, err := a.Marks.First(ctx, put)
		switch {
		case err != nil:
			a.Logger.WarnContext(ctx, "a mark isn't made ahead of its case, which makes it itself", "device", fault.Device.String(), "error", err)
		case report.Outcome == quarantine.OutcomeInForce:
			return &quarantine.MadeAhead{Device: fault.Device, Made: quarantine.Made{
				Epoch: put.Epoch, Name: report.Name, Version: report.Version, At: time.Now().UTC(),
			}}
		}
	}
	return nil
}
