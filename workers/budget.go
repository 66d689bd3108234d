package workers

import (
	"context"

	"github.com/sickbay-dev/sickbay/pkg/directory"
	permitswf "github.com/sickbay-dev/sickbay/workflows/permits"
)

// announceBudget publishes what was decided about budgets and pauses: into the log at
// once, and into the directory as soon as can be. It is about no object of the cluster,
// so that there are no Events.
func (w *Worker) announceBudget(ctx context.Context, task permitswf.Announce) error {
	if err := w.audit.AnnounceBudget(ctx, task); err != nil {
		return err
	}
	if w.trail != nil {
		for _, n := range task.Notices {
			w.trail.Add(directory.BudgetDecision(n))
		}
	}
	return nil
}
