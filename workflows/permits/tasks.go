package permits

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
	"github.com/sickbay-dev/sickbay/workflows/entity"
	nodewf "github.com/sickbay-dev/sickbay/workflows/node"
)

// ActivityAnnounce is the name of the activity that publishes decisions. It is part of
// recorded histories.
const ActivityAnnounce = "AnnounceBudget"

// Announce is what that activity is given.
type Announce struct {
	Notices []budget.Notice `json:"notices"`
}

// backlog is how many decisions may wait to be announced before operators' messages are
// left in their channels: no word may be missing from the trail.
const backlog = 16

// announce publishes the decisions that wait, unless some are being published.
func (r *runner) announce() {
	if r.announcing != nil || len(r.Book.Notices) == 0 {
		return
	}
	notices := r.Book.Notices
	ctx := workflow.WithActivityOptions(r.ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 10 * time.Second,
		Summary:             entity.Announcement(len(notices), notices[len(notices)-1].Text),
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	})
	r.announcing = workflow.ExecuteActivity(ctx, ActivityAnnounce, Announce{notices})
	r.announcedTo = notices[len(notices)-1].Seq
}

// announced takes in that the activity ended.
func (r *runner) announced() {
	done := r.announcing
	r.announcing = nil
	if err := done.Get(r.ctx, nil); err != nil {
		// Only a terminated workflow ends it early; the state keeps the notices.
		r.log.Warn("decisions not announced", "error", err)
		return
	}
	r.Book = r.Book.Announced(r.announcedTo)
}

// offering is a permit that is being offered to a case that waited.
type offering struct {
	budget.Offer
	sent workflow.Future
}

// offer tells cases that waited that it is their turn.
func (r *runner) offer(offers []budget.Offer) {
	for _, o := range offers {
		if node, whole := budget.NodeOf(o.Device); whole {
			r.offering = append(r.offering, offering{o, nodewf.Offer(r.ctx, node, o.Epoch)})
			continue
		}
		key, err := device.ParseKey(o.Device)
		if err != nil {
			// Nobody can be told: what isn't a device has no case.
			r.log.Warn("a permit for what isn't a device comes back", "device", o.Device, "error", err)
			r.lost = append(r.lost, o)
			continue
		}
		r.offering = append(r.offering, offering{o, devicewf.Offer(r.ctx, key, o.Epoch)})
	}
}

// offered takes in what became of an offer. Without a case nobody needs the permit.
func (r *runner) offered(o offering) {
	if err := o.sent.Get(r.ctx, nil); err != nil {
		r.log.Info("nobody takes the permit that was offered", "device", o.Device, "epoch", o.Epoch, "error", err)
		r.lost = append(r.lost, o.Offer)
	}
}

// takeBack returns permits that nobody could be told of.
func (r *runner) takeBack() {
	if len(r.lost) == 0 {
		return
	}
	var back []budget.Permit
	for _, o := range r.lost {
		back = append(back, budget.Permit{Device: o.Device, Epoch: o.Epoch, Purpose: o.Purpose})
	}
	r.lost = nil
	r.apply(budget.Returned{Permits: back})
}
