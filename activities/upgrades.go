package activities

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// UpgradeLister lists the pauses that announce a driver's upgrade.
type UpgradeLister interface {
	Upgrades(context.Context) ([]budget.Pause, error)
}

const (
	// upgradesFor is how long an answer is good for: the cases of a whole driver may ask
	// at once.
	upgradesFor = 5 * time.Second
	// upgradeAgain is when a case asks again while its driver's upgrade goes on for
	// longer than that, so that one that is called off early is noticed.
	upgradeAgain = 10 * time.Minute
)

// Upgrades are Restrictions by what operators announced: while a driver is upgraded none
// of its devices is restricted for being Unknown, and after that each has a grace window
// of its own. What isn't announced, Then decides.
type Upgrades struct {
	Lister UpgradeLister
	// Grace is how long a device's Unknown is waited out.
	Grace func(device.Key) time.Duration
	Then  Restrictions

	mu   sync.Mutex
	last []budget.Pause
	at   time.Time
}

// MayRestrict implements Restrictions. What can't be asked is an error: nothing is
// restricted then.
func (u *Upgrades) MayRestrict(ctx context.Context, c quarantine.AskRestriction) (quarantine.RestrictionAnswered, error) {
	upgrades, err := u.announced(ctx)
	if err != nil {
		return quarantine.RestrictionAnswered{}, fmt.Errorf("ask whether the driver of %s is being upgraded: %w", c.Device, err)
	}
	if answer, expected := u.judge(c, upgrades, time.Now()); expected {
		return answer, nil
	}
	if u.Then == nil {
		return quarantine.RestrictionAnswered{Epoch: c.Epoch, Granted: true}, nil
	}
	return u.Then.MayRestrict(ctx, c)
}

// judge refuses while one of these is about the device: by the one that lasts longest.
func (u *Upgrades) judge(c quarantine.AskRestriction, upgrades []budget.Pause, now time.Time) (quarantine.RestrictionAnswered, bool) {
	var longest budget.Pause
	scopes := budget.ScopesOf(c.Device, c.Node, nil, nil)
	for _, p := range upgrades {
		if p.Until.After(now) && p.Until.After(longest.Until) && slices.Contains(scopes, p.Scope) {
			longest = p
		}
	}
	left := longest.Until.Sub(now)
	if left <= 0 {
		return quarantine.RestrictionAnswered{}, false
	}
	again := upgradeAgain
	if left <= upgradeAgain {
		again = left + u.Grace(c.Device)
	}
	return quarantine.RestrictionAnswered{
		Epoch: c.Epoch, Again: again,
		Why: fmt.Sprintf("the driver of %s is being upgraded until %s, says %s (%s)",
			longest.Scope, longest.Until.UTC().Format(time.RFC3339), longest.Actor, longest.Reason),
	}, true
}

func (u *Upgrades) announced(ctx context.Context) ([]budget.Pause, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.at.IsZero() && time.Since(u.at) < upgradesFor {
		return u.last, nil
	}
	found, err := u.Lister.Upgrades(ctx)
	if err == nil {
		u.last, u.at = found, time.Now()
	}
	return found, err
}
