package quarantine

import (
	"slices"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// What a case carries is bounded, so that its state stays well under 64 KiB
// whatever number of Pods come and go and whatever drivers and people write.
// Reports of ended Pods go first.
const (
	maxReports = 32
	maxHolders = 32
)

// Case is everything that is remembered of a device's present case. It is the
// workflow's state: plain data, absolute times, no more than Decide needs.
type Case struct {
	Device device.Key `json:"device"`
	Node   string     `json:"node,omitempty"`
	Phase  Phase      `json:"phase,omitempty"`
	// Waiting names what the case waits for.
	Waiting Waiting `json:"waiting,omitempty"`
	// Epoch numbers the case: its start in Unix milliseconds, above every earlier
	// epoch of the device. Zero while there is no case.
	Epoch int64 `json:"epoch,omitempty"`
	// Attempt counts the attempts at recovery.
	Attempt int `json:"attempt,omitempty"`
	// End is set when the case is closed.
	End End `json:"end,omitempty"`

	// Reason is the most severe reason so far, Message what the driver said.
	Reason   reason.Match    `json:"reason,omitzero"`
	Message  string          `json:"message,omitempty"`
	Severity reason.Severity `json:"severity,omitempty"`
	// Confirmed is set once a reading in this episode was a fault that the
	// catalogue quarantines at once, and not only a suspicion.
	Confirmed bool `json:"confirmed,omitempty"`
	// FaultSeen is when the reading was seen that confirmed it first.
	FaultSeen time.Time `json:"faultSeen,omitzero"`
	// Actor is who opened the case: "sickbay", or an operator.
	Actor string `json:"actor,omitempty"`
	// Since is when the case was opened. FirstNotGood is when the device was
	// first seen not good in this episode; no later reading moves it.
	Since        time.Time `json:"since,omitzero"`
	FirstNotGood time.Time `json:"firstNotGood,omitzero"`
	// PhaseSince is when the present phase began.
	PhaseSince time.Time `json:"phaseSince,omitzero"`
	// GoodSince is when live looks began to find the device healthy without a
	// break; zero while they don't.
	GoodSince time.Time `json:"goodSince,omitzero"`

	// Reports is the last reading per Pod, with its status version.
	Reports []device.Report `json:"reports,omitempty"`
	// Holders are the Pods that have the device allocated, as last looked up.
	Holders []Holder `json:"holders,omitempty"`
	// Lease is the node's Lease renewal at the last look, LeaseMoved the look that
	// last found it changed. LeaseRead is the look that read it last, LeaseSince the one
	// that found it as it is first, and LeaseLives the last that found it renewed
	// since another one just before.
	Lease      string    `json:"nodeLease,omitempty"`
	LeaseMoved time.Time `json:"nodeLeaseMoved,omitzero"`
	LeaseRead  time.Time `json:"nodeLeaseRead,omitzero"`
	LeaseSince time.Time `json:"nodeLeaseSince,omitzero"`
	LeaseLives time.Time `json:"nodeLeaseLives,omitzero"`
	// Outage is set while the node is out.
	Outage *Outage `json:"outage,omitempty"`
	// Slices is how the device's pool was published at the case's first look.
	Slices     string `json:"slices,omitempty"`
	SlicesRead bool   `json:"slicesRead,omitempty"`
	// Poke says how the kubelet was asked at the last look, or why it wasn't.
	Poke string `json:"poke,omitempty"`

	// Around is what the device's mark counts in beside its node.
	Around Around `json:"around,omitzero"`

	Incarnation device.Incarnation `json:"incarnation,omitzero"`
	// MovedTo is the name under which the hardware that this case is about is
	// listed now, where it isn't this device's any more.
	MovedTo string `json:"movedTo,omitempty"`
	// Listed is how many devices of the resource the node lists while this one is on
	// the list: what live looks found while the plugin called it Unhealthy. Shorter is
	// a list with fewer that is too new to count. Device-plugin path only.
	Listed  int64   `json:"listed,omitempty"`
	Shorter Shorter `json:"shorter,omitzero"`
	// Absence is set while the device is missing.
	Absence *Absence `json:"absence,omitempty"`
	// Former is the phase to go back to when a gone device returns, or when a mark
	// that was adopted into an open case turns out not to be there.
	Former Phase `json:"former,omitempty"`

	Mark Mark `json:"mark,omitzero"`

	// GraceUntil, LeaseUntil, CoolUntil and ForgetAt are the deadlines of the
	// phase; LookAt is when the next live look is due. Absolute, so that they
	// outlive a continue-as-new.
	GraceUntil time.Time `json:"graceUntil,omitzero"`
	// HalfAt is when the alert in the middle of the window is due, GraceLooks how many
	// looks found something out in the window, and OverSaid that its end was told.
	HalfAt     time.Time `json:"halfAt,omitzero"`
	GraceLooks int       `json:"graceLooks,omitempty"`
	OverSaid   bool      `json:"overSaid,omitempty"`
	// Asking is set while it is asked whether the device may be restricted; Refused is
	// the last answer if that was no.
	Asking  bool     `json:"asking,omitempty"`
	Refused *Refusal `json:"restrictionRefused,omitempty"`
	// OnTrial is set once an operator has released a restricted device that nobody
	// holds: its next holder's report decides.
	OnTrial bool `json:"onTrial,omitempty"`
	// Flaps is when the episodes of Unknown ended that are remembered, until
	// RememberUntil; Flapping is set for a device that goes Unknown again and again.
	Flaps         []time.Time `json:"flaps,omitempty"`
	RememberUntil time.Time   `json:"rememberUntil,omitzero"`
	Flapping      bool        `json:"flapping,omitempty"`
	// Recovery is the attempt under way, Last what came of the one before. Unsure counts
	// the attempts in a row that couldn't be tried.
	Recovery *Recovery  `json:"recovery,omitempty"`
	Last     *Attempted `json:"lastAttempt,omitempty"`
	Unsure   int        `json:"unsure,omitempty"`
	// Token is the last attempt's. Litter is the token up to which what was made for
	// attempts may still be there, CleanAt when that is looked for next.
	Token      int64     `json:"token,omitempty"`
	Litter     int64     `json:"litter,omitempty"`
	CleanAt    time.Time `json:"cleanAt,omitzero"`
	CleanTries int       `json:"cleanTries,omitempty"`
	// RestUntil is until when nothing is tried after an attempt that failed, or after a
	// relapse. Hurry is set by an operator's word: it is tried as soon as it can be.
	RestUntil time.Time `json:"restUntil,omitzero"`
	Hurry     bool      `json:"hurry,omitempty"`
	// ReasonClosed is set once an operator said that the reason is closed.
	ReasonClosed bool `json:"reasonClosed,omitempty"`
	// Relapse is what is remembered of an earlier release.
	Relapse Relapse `json:"relapse,omitzero"`
	// ByHandUntil is until when an operator quarantined the device by hand.
	ByHandUntil time.Time `json:"byHandUntil,omitzero"`
	LeaseUntil  time.Time `json:"leaseUntil,omitzero"`
	CoolUntil   time.Time `json:"coolUntil,omitzero"`
	ForgetAt    time.Time `json:"forgetAt,omitzero"`
	LookAt      time.Time `json:"lookAt,omitzero"`
	// Looks counts looks in a row that changed nothing, for the backoff.
	Looks int `json:"looks,omitempty"`
	// LookedAt is when the last look that could read was asked for; DoubtedAt is
	// when the watch last said something better than what is believed.
	LookedAt  time.Time `json:"lookedAt,omitzero"`
	DoubtedAt time.Time `json:"doubtedAt,omitzero"`
	// LookAfter is when something happened that a look asked for earlier can't
	// have seen, e.g. that the mark came into force. LookHeld is the end of the
	// pause after looks that failed; nothing shortens it.
	LookAfter time.Time `json:"lookAfter,omitzero"`
	LookHeld  time.Time `json:"lookHeld,omitzero"`

	// Words are the operators' words that are still of use, RefusedWords the last that
	// were refused.
	Words        []Word        `json:"words,omitempty"`
	RefusedWords []RefusedWord `json:"refusedWords,omitempty"`

	// Notices wait to be announced; NoticeSeq numbers them.
	Notices   []Notice `json:"notices,omitempty"`
	NoticeSeq int64    `json:"noticeSeq,omitempty"`
}

// Holder is a Pod that has the device allocated through a claim, as the claim's
// reservedFor says.
type Holder struct {
	Pod   device.PodRef `json:"pod"`
	Claim string        `json:"claim,omitempty"`
}

// Shorter is a plugin's list that has become shorter while the plugin still called
// the device Unhealthy, as far as its Pods' status says.
type Shorter struct {
	Listed int64     `json:"listed"`
	Since  time.Time `json:"since"`
}

// Absence is a device that isn't listed any more.
type Absence struct {
	Reason device.MissingReason `json:"reason"`
	Since  time.Time            `json:"since"`
	// SettledAt is when the absence counts, if it lasts.
	SettledAt time.Time `json:"settledAt"`
	// MissedAt is when the last live look that found the device missing was
	// asked for. An incomplete pool finds nothing missing.
	MissedAt time.Time `json:"missedAt,omitzero"`
}

// MarkState says how a quarantine is enforced.
type MarkState string

const (
	// MarkNone: nothing is wanted.
	MarkNone MarkState = ""
	// MarkWanted: the mark is to be made, or made again.
	MarkWanted MarkState = "Wanted"
	// MarkInForce: confirmed where it acts.
	MarkInForce MarkState = "InForce"
	// MarkRefused: the last try was refused; it is tried again.
	MarkRefused MarkState = "Refused"
	// MarkHeld: there is no permit for it now. It waits for its turn.
	MarkHeld MarkState = "Held"
	// MarkAdvisory: there is no way to keep this device out.
	MarkAdvisory MarkState = "Advisory"
	// MarkObserved: mode observe; nothing is made.
	MarkObserved MarkState = "Observed"
	// MarkAdopted: found without a case, to be confirmed by a live look.
	MarkAdopted MarkState = "Adopted"
	// MarkLifting: to be removed.
	MarkLifting MarkState = "Lifting"
)

// Mark is the enforcement of the case.
type Mark struct {
	State MarkState `json:"state,omitempty"`
	// Name is the object that enforces it, Version its resourceVersion when it was
	// last written or confirmed.
	Name    string         `json:"name,omitempty"`
	Version device.Version `json:"version,omitempty"`
	// Revision counts what the mark should say, Written what it is known to say.
	Revision int64 `json:"revision,omitempty"`
	Written  int64 `json:"written,omitempty"`
	// Tries counts refused tries, RetryAt is when the next one is due.
	Tries   int       `json:"tries,omitempty"`
	RetryAt time.Time `json:"retryAt,omitzero"`
	Detail  string    `json:"detail,omitempty"`
	// HeldSince is when a permit was refused first that wasn't granted since.
	HeldSince time.Time `json:"heldSince,omitzero"`
	// Restored counts how often somebody else removed or changed it.
	Restored int `json:"restored,omitempty"`
	// InForceSince is when it was first confirmed in this epoch, ConfirmedAt
	// when last.
	InForceSince time.Time `json:"inForceSince,omitzero"`
	ConfirmedAt  time.Time `json:"confirmedAt,omitzero"`
}

// overtook tells whether the mark was written after a version that somebody saw.
func (m Mark) overtook(seen device.Version) bool {
	return m.Version != "" && seen != "" && m.Version.Newer(seen)
}

// outdated tells whether the mark isn't known to say what it should.
func (m Mark) outdated() bool { return m.Written != m.Revision }

// Open tells whether there is a case that isn't over.
func (c Case) Open() bool {
	return c.Phase != PhaseNone && c.Phase != PhaseClosed && c.Phase != PhaseReleased
}

// Evidence is what is believed of the device.
func (c Case) Evidence() device.Evidence { return device.Fuse(c.Reports) }

// Advisory tells whether the device isn't kept out although it should be.
func (c Case) Advisory() bool {
	return c.Mark.State == MarkAdvisory || c.Mark.State == MarkObserved
}

// unmarked tells whether the device isn't kept out although it should be, for want of
// a way or of a permit.
func (c Case) unmarked() bool { return c.Advisory() || c.Mark.State == MarkHeld }

// Held tells whether a Pod holds the device: as the claims said at the last
// look, or as a live Pod's status says.
func (c Case) Held() bool { return len(c.Holders) > 0 || c.Evidence().Held }

// Lives tells whether the case's workflow is still needed: for a case that isn't over,
// and for what is remembered of one that is.
func (c Case) Lives() bool { return c.Open() || !c.RememberUntil.IsZero() || c.Litter != 0 }

// forgotten tells whether a gone device has been gone for so long that its mark is
// to be removed.
func (c Case) forgotten(now time.Time) bool {
	return c.Phase == PhaseGone && !c.ForgetAt.IsZero() && !c.ForgetAt.After(now)
}

// NextWake is the earliest deadline after now, or zero when only an event can
// carry the case on.
func (c Case) NextWake(now time.Time) time.Time {
	var next time.Time
	consider := func(at time.Time) {
		if at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	consider(c.RememberUntil)
	if c.Litter != 0 {
		consider(c.CleanAt)
	}
	if !c.Open() {
		return next
	}
	consider(c.LookAt)
	consider(c.GraceUntil)
	consider(c.HalfAt)
	consider(c.LeaseUntil)
	consider(c.ByHandUntil)
	consider(c.CoolUntil)
	consider(c.ForgetAt)
	consider(c.RestUntil)
	consider(c.Mark.RetryAt)
	if r := c.Recovery; r != nil && c.Phase == PhaseRecovering {
		consider(r.Deadline)
		consider(r.TendAt)
		consider(r.AskAt)
	}
	if c.Absence != nil {
		consider(c.Absence.SettledAt)
	}
	return next
}

// clone gives a copy that shares no memory with c, so that Decide never writes
// into its argument.
func (c Case) clone() Case {
	c.Reports = slices.Clone(c.Reports)
	c.Holders = slices.Clone(c.Holders)
	c.Words = slices.Clone(c.Words)
	c.RefusedWords = slices.Clone(c.RefusedWords)
	c.Notices = slices.Clone(c.Notices)
	c.Flaps = slices.Clone(c.Flaps)
	c.Around.Classes = slices.Clone(c.Around.Classes)
	if c.Absence != nil {
		absence := *c.Absence
		c.Absence = &absence
	}
	if c.Outage != nil {
		outage := *c.Outage
		c.Outage = &outage
	}
	if c.Recovery != nil {
		recovery := *c.Recovery
		recovery.Results = slices.Clone(recovery.Results)
		recovery.Blocked = slices.Clone(recovery.Blocked)
		c.Recovery = &recovery
	}
	if c.Last != nil {
		last := *c.Last
		last.Passed = slices.Clone(last.Passed)
		c.Last = &last
	}
	if c.Refused != nil {
		refused := *c.Refused
		c.Refused = &refused
	}
	return c
}
