package workers

import (
	"context"

	"github.com/sickbay-dev/sickbay/pkg/directory"
	incidentwf "github.com/sickbay-dev/sickbay/workflows/incident"
)

// announceIncident publishes an incident's notices: into the log at once, and into the
// directory and as Events as soon as can be.
func (w *Worker) announceIncident(ctx context.Context, task incidentwf.Announce) error {
	if err := w.audit.AnnounceIncident(ctx, task); err != nil {
		return err
	}
	if w.options.Policy().Enforces() {
		// Observing changes nothing in the cluster, and an Event is something in it.
		w.events.AnnounceIncident(task.Scope, task.Notices)
	}
	if w.trail != nil {
		for _, n := range task.Notices {
			w.trail.Add(directory.IncidentDecision(task.Scope, task.Since, n))
		}
	}
	return nil
}
