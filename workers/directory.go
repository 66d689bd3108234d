package workers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sickbay-dev/sickbay/activities"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/telemetry"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// showDelay is how long after an activity its workflow is asked for its case, so
// that it has taken the activity's end in.
const showDelay = time.Second

// askedAtOnce bounds the questions to workflows under way.
const askedAtOnce = 8

// setUpDirectory makes the writer of cases, where there is a directory.
func (w *Worker) setUpDirectory() error {
	o := w.options
	if o.Directory == nil {
		return nil
	}
	var err error
	if w.trail, err = directory.NewTrail(o.Directory, o.Logger, o.Registerer); err != nil {
		return fmt.Errorf("register the trail's metrics: %w", err)
	}
	metrics, err := directory.NewMetrics(o.Registerer, directory.FieldCase, func() *directory.Writer { return w.shown })
	if err != nil {
		return fmt.Errorf("register the directory's metrics: %w", err)
	}
	cases := &activities.Cases{Reader: devicewf.NewClient(o.Temporal, o.TaskQueue)}
	w.shown = directory.NewWriter(directory.WriterOptions{
		Directory: o.Directory, Field: directory.FieldCase, Truth: cases, Log: o.Logger, Metrics: metrics,
		Timing: directory.Timing{Delay: showDelay}, Parallel: askedAtOnce,
	})
	cases.Later = w.shown.ChangedAt
	return nil
}

// tell keeps the directory as the cases are, and publishes decisions, until the
// returned function is called. That is after the last activity: what it decided is
// told, too.
func (w *Worker) tell(ctx context.Context) (end func()) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var showing sync.WaitGroup
	showing.Go(func() { w.events.Run(ctx) })
	if w.shown != nil {
		showing.Go(func() { w.shown.Run(ctx) })
		showing.Go(func() { w.trail.Run(ctx) })
	}
	return func() {
		stop()
		showing.Wait()
	}
}

// noting tells the directory's writer, after an activity, that the device's case
// may have changed. It never waits, and whatever becomes of the directory is
// nothing to the activity.
func noting[C devicewf.Commands, R any](
	w *Worker, run func(context.Context, devicewf.Task[C]) (R, error),
) func(context.Context, devicewf.Task[C]) (R, error) {
	return func(ctx context.Context, task devicewf.Task[C]) (R, error) {
		result, err := run(ctx, task)
		key, _ := subjectOf(task.Command)
		w.note(key)
		return result, err
	}
}

// subjectOf is the device that a command is about, and its node where it says so.
func subjectOf(command any) (key device.Key, node string) {
	switch c := command.(type) {
	case quarantine.PutMark:
		return c.Device, c.Node
	case quarantine.LiftMark:
		return c.Device, ""
	case quarantine.Look:
		return c.Device, c.Node
	case quarantine.AskRestriction:
		return c.Device, c.Node
	case quarantine.AskPermit:
		return c.Device, c.Node
	case quarantine.Tend:
		return c.Device, c.Node
	case quarantine.CleanUp:
		return c.Device, ""
	case quarantine.AskReturn:
		return c.Device, c.Node
	}
	return device.Key{}, ""
}

// announce publishes a case's notices: into the log at once, into the transitions
// of the directory and as Events as soon as can be. It has the case's record in
// the directory brought up to date, and the budgets told of a case that is over. A mark
// that the case wants was written before.
func (w *Worker) announce(ctx context.Context, task devicewf.Task[quarantine.Announce]) error {
	key, notices := task.Command.Device, task.Command.Notices
	w.decided(ctx, epochOf(task), key, notices)
	w.tellSenders(ctx, key, notices)
	ctx, span := w.span(ctx, epochOf(task), key, "")
	err := w.audit.Announce(ctx, task)
	defer func() { telemetry.End(span, err) }()
	if w.enforces(key, task.Classes) {
		// Observing changes nothing in the cluster, and an Event is something in it.
		w.events.Announce(key, notices)
	}
	if w.trail != nil {
		for _, n := range notices {
			w.trail.Add(directory.Decision{Device: key, Notice: n})
		}
	}
	w.note(key)
	w.permits.Closed(ctx, key, notices)
	return err
}

// sendersLimit bounds the reading of histories for one announcement: who sent a message
// is good to know, and holds up no decision.
const sendersLimit = 3 * time.Second

// tellSenders adds to decisions who sent the messages that led to them.
func (w *Worker) tellSenders(ctx context.Context, key device.Key, notices []quarantine.Notice) {
	ctx, cancel := context.WithTimeout(ctx, sendersLimit)
	defer cancel()
	if err := devicewf.NewClient(w.options.Temporal, w.options.TaskQueue).TellSenders(ctx, devicewf.ID(key), notices); err != nil {
		w.options.Logger.Warn("who sent an operator's message is missing in the trail; its history has it", "device", key.String(), "error", err)
	}
}

func (w *Worker) note(key device.Key) {
	if w.shown != nil {
		w.shown.Changed(key)
	}
}
