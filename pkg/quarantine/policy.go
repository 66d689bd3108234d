package quarantine

import (
	"errors"
	"fmt"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// Mode says whether marks are made.
type Mode string

const (
	// ModeObserve changes nothing in the cluster; cases show what would be done.
	ModeObserve Mode = "observe"
	// ModeEnforce makes marks.
	ModeEnforce Mode = "enforce"
)

// Rules counts what Decide goes by. A recorded run decides by the rules that it was
// recorded with: what came with a later one stays off in it.
const Rules = rulesOfRecovery

const (
	// rulesOfUnknown: Unknown that outlasts its window restricts the device, an outage
	// of the node suspends the window, looks have jitter, and a device that keeps going
	// Unknown is remembered.
	rulesOfUnknown = 1
	// rulesOfProof: a mark that the watch shows makes nothing worse of a suspect or
	// restricted device before a look finds it; a fault that was said by a Pod that has
	// ended since is a fault; a node is judged in a case as everywhere else; and the first
	// not-good moment outlives the case on its mark.
	rulesOfProof = 2
	// rulesOfPermits: a case that only observes asks whether its mark would have a permit.
	rulesOfPermits = 3
	// rulesOfBursts: a case takes over the mark that was made ahead of it; a mark that is
	// kept after all doesn't keep an expired record from being renewed; no suspect's case
	// ends before a look has said whether the mark is there that was seen; a mark whose
	// update has no permit is gone; a removal that mode observe came in between is none;
	// and a case that is held is looked at once before each ask.
	rulesOfBursts = 4
	// rulesOfRecovery: devices are proven healthy and given back.
	rulesOfRecovery = 5
)

// Policy holds the operator's choices. It is an input of every decision.
type Policy struct {
	// Rules is the version of the rules that it is meant for.
	Rules int  `json:"rules,omitempty"`
	Mode  Mode `json:"mode"`
	// Grace is how long Unknown, or a reason that only raises suspicion, is
	// waited out.
	Grace time.Duration `json:"grace"`
	// RecheckFirst and RecheckMax bound the exponential backoff of live looks
	// while a case is suspect or waits for health.
	RecheckFirst time.Duration `json:"recheckFirst"`
	RecheckMax   time.Duration `json:"recheckMax"`
	// Hysteresis is how long a suspect's health has to stay good before the case
	// ends. The kubelet shows a driver's silence up to about 90 s late, so less
	// than that flaps.
	Hysteresis time.Duration `json:"hysteresis"`
	// Stability is how long an advisory case has to see the device healthy.
	Stability time.Duration `json:"stability"`
	// Lease is how long a quarantine's record is valid; at its end the case
	// looks again, and extends it while the fault lasts.
	Lease time.Duration `json:"lease"`
	// CoolDown is how long a device rests after its last holder left.
	CoolDown time.Duration `json:"coolDown"`
	// MarkRetry is the longest pause between two tries at a mark that was refused.
	MarkRetry time.Duration `json:"markRetry"`
	// SettlePool, SettlePoolGone, SettleAllocatable and SettleNode are how long
	// a device has to be missing, by the way it went missing.
	SettlePool        time.Duration `json:"settlePool"`
	SettlePoolGone    time.Duration `json:"settlePoolGone"`
	SettleAllocatable time.Duration `json:"settleAllocatable"`
	SettleNode        time.Duration `json:"settleNode"`
	// Forget is how long a gone device's mark is kept.
	Forget time.Duration `json:"forget"`
	// FlapLimit is how many times a device may go Unknown within FlapWindow; the last
	// of them is a case of a flapping device.
	FlapLimit  int           `json:"flapLimit,omitempty"`
	FlapWindow time.Duration `json:"flapWindow,omitempty"`
	// Recover is set where attempts at recovery can be made: there is a namespace for
	// what they need, and a program to try devices with.
	Recover bool `json:"recover,omitempty"`
	// ProveWithin, ProbeWithin and CanaryWithin are how long the first three gates may
	// take, each.
	ProveWithin  time.Duration `json:"proveWithin,omitempty"`
	ProbeWithin  time.Duration `json:"probeWithin,omitempty"`
	CanaryWithin time.Duration `json:"canaryWithin,omitempty"`
	// Attempts is how many attempts may fail before the device is retired. After the
	// first it rests for AttemptPause, after each further one for twice as long as
	// before, and never longer than AttemptPauseMax.
	Attempts        int           `json:"attempts,omitempty"`
	AttemptPause    time.Duration `json:"attemptPause,omitempty"`
	AttemptPauseMax time.Duration `json:"attemptPauseMax,omitempty"`
	// RelapseWatch is how long after its release a fault counts against the device.
	RelapseWatch time.Duration `json:"relapseWatch,omitempty"`
}

// DefaultPolicy returns the values that hold where the operator says nothing.
func DefaultPolicy() Policy {
	return Policy{
		Rules:             Rules,
		Mode:              ModeObserve,
		Grace:             5 * time.Minute,
		RecheckFirst:      10 * time.Second,
		RecheckMax:        2 * time.Minute,
		Hysteresis:        2 * time.Minute,
		Stability:         15 * time.Minute,
		Lease:             time.Hour,
		CoolDown:          5 * time.Minute,
		MarkRetry:         time.Minute,
		SettlePool:        time.Minute,
		SettlePoolGone:    5 * time.Minute,
		SettleAllocatable: 5 * time.Minute,
		SettleNode:        time.Minute,
		Forget:            72 * time.Hour,
		FlapLimit:         3,
		FlapWindow:        time.Hour,
		ProveWithin:       10 * time.Minute,
		ProbeWithin:       15 * time.Minute,
		CanaryWithin:      30 * time.Minute,
		Attempts:          5,
		AttemptPause:      30 * time.Minute,
		AttemptPauseMax:   24 * time.Hour,
		RelapseWatch:      24 * time.Hour,
	}
}

// Validate names everything that is wrong with a policy, all at once.
func (p Policy) Validate() error {
	var errs []error
	if p.Mode != ModeObserve && p.Mode != ModeEnforce {
		errs = append(errs, fmt.Errorf("mode %q: want observe or enforce", p.Mode))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"grace", p.Grace}, {"recheck first", p.RecheckFirst}, {"recheck max", p.RecheckMax},
		{"hysteresis", p.Hysteresis}, {"stability", p.Stability}, {"lease", p.Lease},
		{"cool-down", p.CoolDown}, {"mark retry", p.MarkRetry},
		{"settle pool", p.SettlePool}, {"settle pool gone", p.SettlePoolGone},
		{"settle allocatable", p.SettleAllocatable}, {"settle node", p.SettleNode}, {"forget", p.Forget},
		{"flap window", p.FlapWindow},
		{"prove within", p.ProveWithin}, {"probe within", p.ProbeWithin}, {"canary within", p.CanaryWithin},
		{"attempt pause", p.AttemptPause}, {"attempt pause max", p.AttemptPauseMax}, {"relapse watch", p.RelapseWatch},
	} {
		if d.value <= 0 {
			errs = append(errs, fmt.Errorf("%s %s: want more than zero", d.name, d.value))
		}
	}
	if p.FlapLimit < 2 {
		errs = append(errs, fmt.Errorf("flap limit %d: want at least 2; a device that went Unknown once doesn't flap", p.FlapLimit))
	}
	if p.Attempts < 1 {
		errs = append(errs, fmt.Errorf("attempts %d: want at least 1", p.Attempts))
	}
	if p.AttemptPauseMax < p.AttemptPause {
		errs = append(errs, fmt.Errorf("attempt pause max %s: want at least attempt pause, %s", p.AttemptPauseMax, p.AttemptPause))
	}
	if p.RecheckMax < p.RecheckFirst {
		errs = append(errs, fmt.Errorf("recheck max %s: want at least recheck first, %s", p.RecheckMax, p.RecheckFirst))
	}
	return errors.Join(errs...)
}

// settle is how long a device has to be missing before it counts as gone.
func (p Policy) settle(reason device.MissingReason) time.Duration {
	switch reason {
	case device.PoolGone:
		return p.SettlePoolGone
	case device.AllocatableDropped, device.MissingFromPlugin:
		return p.SettleAllocatable
	case device.NodeDeleted:
		return p.SettleNode
	}
	return p.SettlePool
}

// backoff is the pause before look number tries, doubling from RecheckFirst.
func (p Policy) backoff(tries int) time.Duration {
	pause := p.RecheckFirst
	for range tries {
		if pause >= p.RecheckMax {
			break
		}
		pause *= 2
	}
	return min(pause, p.RecheckMax)
}
