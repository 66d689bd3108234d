package activities

import (
	"context"
	"fmt"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// AskReturn answers whether it is a device's turn to be given back. Few ask at a time, so
// that each goes to the permits workflow by itself.
func (p *Permits) AskReturn(ctx context.Context, task devicewf.Task[quarantine.AskReturn]) (quarantine.ReturnAnswered, error) {
	c := task.Command
	ctx, cancel := context.WithTimeout(ctx, permitCall)
	defer cancel()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return quarantine.ReturnAnswered{}, fmt.Errorf("the permits workflow takes too long for the asks before: %w", ctx.Err())
	}
	turn, err := p.asker.Turn(ctx, budget.AskTurn{
		Device: c.Device.String(), Epoch: c.Epoch, Token: c.Token, Scopes: budget.ScopesOf(c.Device, c.Node, nil, nil),
	})
	if err != nil {
		return quarantine.ReturnAnswered{}, err
	}
	p.log.InfoContext(ctx, "asked whether it is a device's turn to come back", "device", c.Device.String(), "epoch", c.Epoch,
		"granted", turn.Granted, "why", turn.Why, "again", turn.Again.String())
	return quarantine.ReturnAnswered{Token: c.Token, Granted: turn.Granted, Why: turn.Why, Again: turn.Again}, nil
}
