package incident

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/workflows/entity"
)

// ActivityAnnounce is the name of the activity that publishes decisions. It is part
// of recorded histories.
const ActivityAnnounce = "AnnounceIncident"

// Announce is what that activity is given.
type Announce struct {
	Scope incident.Scope `json:"scope"`
	// Since is when the incident began: there may be another of its scope later.
	Since   time.Time         `json:"since,omitzero"`
	Notices []incident.Notice `json:"notices"`
}

// backlog is how many decisions may wait to be announced before operators'
// messages are left in their channels: no word may be missing from the trail.
const backlog = 12

// announce publishes the decisions that wait, unless some are being published.
func (r *runner) announce() {
	if r.announcing != nil || len(r.Incident.Notices) == 0 {
		return
	}
	notices := r.Incident.Notices
	ctx := workflow.WithActivityOptions(r.ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 10 * time.Second,
		Summary:             entity.Announcement(len(notices), notices[len(notices)-1].Text),
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	})
	r.announcing = workflow.ExecuteActivity(ctx, ActivityAnnounce, Announce{Scope: r.Incident.Scope, Since: r.Incident.Since, Notices: notices})
	r.announcedTo = notices[len(notices)-1].Seq
}

// announced takes in that the activity ended.
func (r *runner) announced() {
	done := r.announcing
	r.announcing = nil
	if err := done.Get(r.ctx, nil); err != nil {
		// Only a terminated workflow ends it early; the state keeps the notices.
		r.log.Warn("decisions not announced", "error", err)
		r.apply(incident.Woke{})
		return
	}
	r.apply(incident.Announced{UpTo: r.announcedTo})
}
