package activities

import (
	"context"
	"log/slog"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/policy"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// TendHeartbeat is how often a Tend that waits says that it is alive. A worker that dies
// in it costs a few of these.
const TendHeartbeat = 3 * time.Second

// Attempter makes, reads and removes what attempts at recovery need.
type Attempter interface {
	Tend(context.Context, quarantine.Tend, policy.ProbeSettings) (quarantine.Tended, error)
	CleanUp(context.Context, quarantine.CleanUp) (quarantine.Cleaned, error)
}

// Recovery holds the activities by which a device is proven healthy.
type Recovery struct {
	Attempts Attempter
	// Settings is what is run for a device of these classes, by the policy that holds now.
	Settings func(key device.Key, classes []string) policy.ProbeSettings
	// Enforce is as in Kubernetes: in mode observe nothing is made, though a workflow asks.
	// What is there is removed in any mode.
	Enforce func(key device.Key, classes []string) bool
	Logger  *slog.Logger
}

// Tend makes what is missing of an attempt and tells how it stands. It may wait for news.
func (r *Recovery) Tend(ctx context.Context, task devicewf.Task[quarantine.Tend]) (quarantine.Tended, error) {
	t := task.Command
	if !r.Enforce(t.Device, task.Classes) {
		return quarantine.Tended{Token: t.Token, Gate: t.Gate, Asked: t.Asked, Trouble: "this worker runs in mode observe for this device and makes nothing"}, nil
	}
	settings := r.Settings(t.Device, task.Classes)
	if settings.Class == "" && len(task.Classes) > 0 {
		settings.Class = task.Classes[0] // one that is known to admit the device
	}
	defer beat(ctx)()
	tended, err := r.Attempts.Tend(ctx, t, settings)
	attributes := []slog.Attr{
		slog.String("device", t.Device.String()), slog.Int64("epoch", t.Epoch), slog.Int64("attempt", t.Token), slog.String("gate", string(t.Gate)),
	}
	switch {
	case err != nil:
		r.Logger.LogAttrs(ctx, slog.LevelWarn, "attempt not tended to", append(attributes, slog.Any("error", err))...)
	case tended.Trouble != "" || tended.Elsewhere != "":
		r.Logger.LogAttrs(ctx, slog.LevelWarn, "attempt in trouble", append(attributes, slog.String("trouble", tended.Trouble), slog.String("elsewhere", tended.Elsewhere))...)
	case tended.Job != t.Job:
		r.Logger.LogAttrs(ctx, slog.LevelInfo, "attempt goes on", append(attributes, slog.String("job", string(tended.Job)), slog.String("report", tended.Report))...)
	}
	return tended, err
}

// CleanUp removes what was made for the device's attempts, and tells what is still there.
func (r *Recovery) CleanUp(ctx context.Context, task devicewf.Task[quarantine.CleanUp]) (quarantine.Cleaned, error) {
	c := task.Command
	cleaned, err := r.Attempts.CleanUp(ctx, c)
	if err != nil {
		r.Logger.WarnContext(ctx, "attempts not cleaned up", "device", c.Device.String(), "upTo", c.UpTo, "error", err)
	}
	return cleaned, err
}

// beat tells Temporal that the activity goes on, until the returned function is called.
func beat(ctx context.Context) (stop func()) {
	activity.RecordHeartbeat(ctx)
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(TendHeartbeat)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				activity.RecordHeartbeat(ctx)
			case <-ended:
				return
			}
		}
	}()
	return func() { close(ended); <-done }
}
