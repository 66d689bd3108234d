package activities_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/activities"
	"github.com/sickbay-dev/sickbay/pkg/budget"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

type upgrades struct {
	all []budget.Pause
	err error
}

func (u upgrades) Upgrades(context.Context) ([]budget.Pause, error) { return u.all, u.err }

// B4 in part. A case that is open already isn't restricted while its device's driver is
// upgraded, and has its grace after that; an announcement about another node, one that is
// over and a plain pause keep nothing back; and what can't be asked is not done.
func TestNothingIsRestrictedWhileItsDriverIsUpgraded(t *testing.T) {
	gpu := device.Key{Driver: "gpu.example.com", Pool: "node-7", Device: "gpu-0"}
	const grace = 5 * time.Minute
	announced := func(scope budget.Scope, lasts time.Duration) budget.Pause {
		return budget.Pause{Scope: scope, Actor: "oncall@example.com", Reason: "580.95", Until: time.Now().Add(lasts), Upgrade: true}
	}
	driver := budget.Scope{Kind: budget.Driver, Name: "gpu.example.com"}
	for sentence, c := range map[string]struct {
		all     []budget.Pause
		granted bool
		least   time.Duration
		most    time.Duration
	}{
		"nothing is announced":             {granted: true},
		"its driver is, for two minutes":   {all: []budget.Pause{announced(driver, 2*time.Minute)}, least: 6 * time.Minute, most: 7 * time.Minute},
		"for a day":                        {all: []budget.Pause{announced(driver, 24*time.Hour)}, least: 10 * time.Minute, most: 10 * time.Minute},
		"its pool is":                      {all: []budget.Pause{announced(budget.Scope{Kind: budget.Pool, Name: "gpu.example.com/node-7"}, time.Minute)}, least: 5 * time.Minute, most: 6 * time.Minute},
		"its node is, and its driver more": {all: []budget.Pause{announced(budget.Scope{Kind: budget.Node, Name: "node-7"}, time.Minute), announced(driver, 3*time.Minute)}, least: 7 * time.Minute, most: 8 * time.Minute},
		"another node is":                  {all: []budget.Pause{announced(budget.Scope{Kind: budget.Node, Name: "node-8"}, time.Hour)}, granted: true},
		"it is over":                       {all: []budget.Pause{announced(driver, -time.Second)}, granted: true},
	} {
		u := &activities.Upgrades{Lister: upgrades{all: c.all}, Grace: func(device.Key) time.Duration { return grace }}
		got, err := u.MayRestrict(t.Context(), quarantine.AskRestriction{Device: gpu, Node: "node-7", Epoch: 17})
		if err != nil || got.Granted != c.granted || got.Epoch != 17 || got.Again < c.least || got.Again > c.most {
			t.Errorf("%s: %+v, %v", sentence, got, err)
		}
		if !c.granted && !strings.Contains(got.Why, "says oncall@example.com (580.95)") {
			t.Errorf("%s: it doesn't say who announced it: %q", sentence, got.Why)
		}
	}
	u := &activities.Upgrades{Lister: upgrades{err: errors.New("away")}}
	if got, err := u.MayRestrict(t.Context(), quarantine.AskRestriction{Device: gpu}); err == nil || got.Granted {
		t.Errorf("what can't be asked: %+v, %v", got, err)
	}
}
