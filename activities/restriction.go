package activities

import (
	"context"
	"log/slog"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// Restrictions knows whether a device's Unknown is a part of something larger, which
// is looked into as a whole.
type Restrictions interface {
	MayRestrict(context.Context, quarantine.AskRestriction) (quarantine.RestrictionAnswered, error)
}

// Restriction answers cases whose device is Unknown past its window.
type Restriction struct {
	// Incidents is asked for what is announced and for incidents; nil means that nothing
	// stands in the way of any device.
	Incidents Restrictions
	Logger    *slog.Logger
}

// AskRestriction answers whether a device may be kept out now. What can't be found
// out is an error: it is asked again, and nothing is restricted meanwhile.
func (r *Restriction) AskRestriction(ctx context.Context, task devicewf.Task[quarantine.AskRestriction]) (quarantine.RestrictionAnswered, error) {
	c := task.Command
	if r.Incidents == nil {
		return quarantine.RestrictionAnswered{Epoch: c.Epoch, Granted: true}, nil
	}
	answer, err := r.Incidents.MayRestrict(ctx, c)
	if err != nil {
		return answer, err
	}
	r.Logger.InfoContext(ctx, "asked for a restriction", "device", c.Device.String(), "epoch", c.Epoch,
		"granted", answer.Granted, "incident", answer.Incident, "why", answer.Why)
	return answer, nil
}
