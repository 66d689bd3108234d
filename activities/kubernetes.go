package activities

import (
	"context"
	"log/slog"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// MarkWriter makes and removes marks.
type MarkWriter interface {
	Put(context.Context, quarantine.PutMark) (quarantine.MarkReported, error)
	Lift(context.Context, quarantine.LiftMark) (quarantine.MarkReported, error)
}

// LiveReader reads everything that bears on a device past every cache.
type LiveReader interface {
	Look(context.Context, quarantine.Look) (quarantine.Looked, error)
}

// Kubernetes holds the activities that read and write cluster objects.
type Kubernetes struct {
	Marks  MarkWriter
	Reader LiveReader
	// Enforce tells, of a device of these classes, whether marks are made or removed. In
	// mode observe a mark that a workflow still asks for, because it recorded its mode
	// before the worker's was changed, is not made.
	Enforce func(key device.Key, classes []string) bool
	// Permits takes permits back of marks that were lifted; nil is nobody.
	Permits Returner
	Logger  *slog.Logger
}

// Returner takes permits back.
type Returner interface {
	Return(ctx context.Context, key device.Key, epoch int64)
}

// PutMark makes the device's mark say what the command says.
func (k *Kubernetes) PutMark(ctx context.Context, task devicewf.Task[quarantine.PutMark]) (quarantine.MarkReported, error) {
	c := task.Command
	if !k.Enforce(c.Device, task.Classes) {
		return quarantine.MarkReported{
			Outcome: quarantine.OutcomeUnavailable, Epoch: c.Epoch, Revision: c.Revision,
			Detail: "this worker runs in mode observe for this device",
		}, nil
	}
	report, err := k.Marks.Put(ctx, c)
	k.log(ctx, "mark written", c.Device.String(), c.Epoch, report, err)
	return report, err
}

// LiftMark removes the device's mark if it is still this epoch's.
func (k *Kubernetes) LiftMark(ctx context.Context, task devicewf.Task[quarantine.LiftMark]) (quarantine.MarkReported, error) {
	c := task.Command
	if !k.Enforce(c.Device, task.Classes) {
		return quarantine.MarkReported{
			Outcome: quarantine.OutcomeRefused, Epoch: c.Epoch,
			Detail: "this worker runs in mode observe for this device and removes nothing",
		}, nil
	}
	report, err := k.Marks.Lift(ctx, c)
	if err == nil && report.Outcome == quarantine.OutcomeLifted && k.Permits != nil {
		k.Permits.Return(ctx, c.Device, c.Epoch)
	}
	k.log(ctx, "mark lifted", c.Device.String(), c.Epoch, report, err)
	return report, err
}

func (k *Kubernetes) log(ctx context.Context, what, device string, epoch int64, report quarantine.MarkReported, err error) {
	attributes := []slog.Attr{
		slog.String("device", device), slog.Int64("epoch", epoch),
		slog.String("mark", report.Name), slog.String("outcome", string(report.Outcome)),
	}
	level := slog.LevelInfo
	if err != nil {
		what, level = "mark call failed", slog.LevelWarn
		attributes = append(attributes, slog.Any("error", err))
	} else if report.Detail != "" {
		level = slog.LevelWarn
		attributes = append(attributes, slog.String("detail", report.Detail))
	}
	k.Logger.LogAttrs(ctx, level, what, attributes...)
}

// Look answers a case's live look.
func (k *Kubernetes) Look(ctx context.Context, task devicewf.Task[quarantine.Look]) (quarantine.Looked, error) {
	return k.Reader.Look(ctx, task.Command)
}
