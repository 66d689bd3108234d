package starter

import (
	"context"

	"go.opentelemetry.io/otel/attribute"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/telemetry"
)

// trace starts the trace of what is about to be sent: the change that was seen,
// from the moment at which it came, and in it the signal. The signal that opens a
// case makes this the trace of its epoch.
func (s *sender) trace(ctx context.Context, d delivery, kind, via string) (context.Context, func(error)) {
	seen := d.since
	if seen.IsZero() {
		seen = s.tracker.clock.Now()
	}
	name, attributes := changeOf(d)
	ctx, change := s.tracer.Begin(ctx, name, seen, attributes...)
	ctx, signal := s.tracer.Send(ctx, "signal "+kind+" ("+via+")")
	return ctx, func(err error) {
		telemetry.End(signal, err)
		telemetry.End(change, nil)
	}
}

// changeOf names what a delivery is about.
func changeOf(d delivery) (name string, attributes []attribute.KeyValue) {
	switch e := d.event.(type) {
	case quarantine.Observed:
		attributes = telemetry.Device(d.key.String(), e.Node)
		if worst, ok := gravest(e.Readings); ok {
			attributes = append(attributes, telemetry.Pod(worst.Pod.Namespace, worst.Pod.Name, worst.Pod.UID)...)
			attributes = append(attributes,
				telemetry.AttributeHealth.String(string(worst.Health)), telemetry.AttributeReason.String(string(worst.Reason.Code)),
				telemetry.AttributeVersion.String(string(worst.Version)))
		}
		return "pod status change", attributes
	case quarantine.Inventory:
		return "inventory change", telemetry.Device(d.key.String(), e.Node)
	case quarantine.MarkSeen:
		return "mark change", append(telemetry.Device(d.key.String(), e.Node),
			telemetry.AttributeMark.String(e.Mark.Name), telemetry.AttributeEpoch.Int64(e.Mark.Epoch))
	}
	return "change", telemetry.Device(d.key.String(), "")
}
