package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reading"
	incidentwf "github.com/sickbay-dev/sickbay/workflows/incident"
)

const (
	// unreachedAgain is when a case asks again whose incident can't be asked.
	unreachedAgain = 30 * time.Second
	// heldFor is how long a hold is remembered in place of asking for each of its
	// cases: a storm may have a thousand of them.
	heldFor = 10 * time.Second
)

// IncidentAsker asks a scope's incident whether a device's case may go on.
type IncidentAsker interface {
	// Ask returns incidentwf.ErrNoIncident where none is open.
	Ask(ctx context.Context, scope incident.Scope, asked incident.Asked) (incident.Answer, error)
}

// Incidents are Restrictions by the incident workflows: a device may be restricted
// if each incident that it is in lets it through.
type Incidents struct {
	asker IncidentAsker
	log   *slog.Logger

	mu sync.Mutex
	// held is what incidents that hold everything answered last.
	held map[incident.Scope]heldAnswer
}

type heldAnswer struct {
	answer incident.Answer
	at     time.Time
}

// NewIncidents returns what asks the incident workflows.
func NewIncidents(asker IncidentAsker, log *slog.Logger) *Incidents {
	return &Incidents{asker: asker, log: log, held: map[incident.Scope]heldAnswer{}}
}

// MayRestrict implements Restrictions. The widest incident is asked first: what it
// holds costs the others no question. One that can't be asked holds, too.
func (i *Incidents) MayRestrict(ctx context.Context, c quarantine.AskRestriction) (quarantine.RestrictionAnswered, error) {
	answered := quarantine.RestrictionAnswered{Epoch: c.Epoch, Granted: true}
	for _, scope := range incident.Storms(c.Node, reading.DriverOf(c.Device)) {
		answer, err := i.ask(ctx, scope, incident.Asked{Device: c.Device.String(), Since: c.Since})
		switch {
		case errors.Is(err, incidentwf.ErrNoIncident):
			continue
		case ctx.Err() != nil:
			return answered, fmt.Errorf("ask incident %s whether %s may be restricted: %w", scope, c.Device, ctx.Err())
		case err != nil:
			i.log.WarnContext(ctx, "can't tell whether an incident holds the device; it isn't restricted, and is asked for again",
				"device", c.Device.String(), "incident", scope.String(), "again", unreachedAgain.String(), "error", err)
			return quarantine.RestrictionAnswered{
				Epoch: c.Epoch, Again: unreachedAgain, Incident: incidentwf.ID(scope),
				Why: fmt.Sprintf("incident %s can't be asked now", scope),
			}, nil
		case !answer.Granted():
			return quarantine.RestrictionAnswered{Epoch: c.Epoch, Again: answer.Again, Incident: incidentwf.ID(scope), Why: answer.Why}, nil
		}
		answered.Incident = incidentwf.ID(scope)
	}
	return answered, nil
}

func (i *Incidents) ask(ctx context.Context, scope incident.Scope, asked incident.Asked) (incident.Answer, error) {
	i.mu.Lock()
	last, ok := i.held[scope]
	i.mu.Unlock()
	if ok && time.Since(last.at) < heldFor {
		return last.answer, nil
	}
	answer, err := i.asker.Ask(ctx, scope, asked)
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.held, scope)
	if err == nil && answer.Phase == incident.Holding {
		i.held[scope] = heldAnswer{answer, time.Now()}
	}
	return answer, err
}
