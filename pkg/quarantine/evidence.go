package quarantine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// unknownReason and missingReason are what Sickbay itself concludes; drivers'
// messages get theirs from the catalogue.
var (
	unknownReason = reason.Match{
		Code: reason.HealthUnknown, Severity: reason.SeverityMinor, Action: reason.ActionSuspect,
		Closes: reason.ClosesByGates, Scope: device.ScopeInstance, Rule: "sickbay/unknown",
	}
	pluginAbsentReason = reason.Match{
		Code: reason.PluginAbsent, Severity: reason.SeverityMinor, Action: reason.ActionSuspect,
		Closes: reason.ClosesByGates, Scope: device.ScopeInstance, Rule: "sickbay/plugin-absent",
	}
	flappingReason = reason.Match{
		Code: reason.HealthFlapping, Severity: reason.SeverityMinor, Action: reason.ActionSuspect,
		Closes: reason.ClosesByGates, Scope: device.ScopeInstance, Rule: "sickbay/flapping",
	}
	missingReason = reason.Match{
		Code: reason.DeviceMissing, Severity: reason.SeverityMajor, Action: reason.ActionQuarantine,
		Closes: reason.ClosesByGates, Scope: device.ScopeInstance, Rule: "sickbay/missing",
	}
	replacedReason = reason.Match{
		Code: reason.HardwareReplaced, Severity: reason.SeverityMajor, Action: reason.ActionQuarantine,
		Closes: reason.ClosesByGates, Scope: device.ScopeInstance, Rule: "sickbay/replaced",
	}
)

// observed takes in what the watch saw.
func (d *decision) observed(e Observed) {
	c := &d.c
	if e.Node != "" {
		c.Node = e.Node
	}
	if c.Incarnation.IsZero() {
		c.Incarnation = e.Incarnation
	}
	d.around(e.Around)
	d.lost, d.made = e.Lost, e.Made
	held := c.Held()
	for _, r := range e.Readings {
		if !e.Sent.IsZero() {
			// How old it is says the clock that dated it; what time it is says ours.
			r.Observed = r.Observed.Add(d.now.Sub(e.Sent))
		}
		if d.believe(r, false) == device.Doubted {
			c.DoubtedAt = d.now
			// A fault that is in force ends by the gates alone; nothing is gained
			// by looking at a Healthy early. A holder that left is worth a look.
			if c.Phase == PhaseSuspect || c.Phase == PhaseRestricted || c.unmarked() || c.Open() && r.Ended {
				d.lookBy(later(d.now, c.LookedAt.Add(d.p.RecheckFirst)))
			}
		}
	}
	if (c.Phase == PhaseQuarantined || c.Phase == PhaseRestricted) && !held && c.Held() {
		// Somebody got hold of a device that was free: a claim that slipped past
		// the mark, or one that tolerates it. Looks are what sees it leave again.
		d.lookBy(later(d.now, c.LookedAt.Add(d.p.RecheckFirst)))
	}
}

// believe offers one reading to the case.
func (d *decision) believe(r Reading, live bool) device.Belief {
	c := &d.c
	r.Message = clip(r.Message, maxMessage)
	report := r.Report
	report.Message = clip(report.Message, maxReport)
	if belief := offer(c.Reports, report, live); belief != device.Believed {
		if belief == device.Repeated && !live {
			d.late(r)
		}
		if belief == device.Doubted && d.p.Rules >= rulesOfProof && r.Ended && r.Health == device.Unhealthy && r.Fault {
			// That the Pod has ended is what makes it better, and a look tells that. What
			// it said before is a fault like any other.
			r.Ended = false
			d.believe(r, false)
		}
		return belief
	}
	reports, _ := device.Believe(c.Reports, report, true)
	c.Reports = bound(reports)
	d.saw(r, fmt.Sprintf("%s: %s at version %s", r.Pod, quoted(report), r.Version))
	// A change either way makes the next looks worth while.
	c.Looks = 0
	if r.Counts().WorseThan(device.Healthy) {
		c.GoodSince = time.Time{}
	}
	if judged(report).WorseThan(device.Healthy) && !r.Observed.IsZero() && (d.notGoodAt.IsZero() || r.Observed.Before(d.notGoodAt)) {
		d.notGoodAt = r.Observed
	}
	if r.Ended && c.Open() && !live {
		d.lookAnew()
	}
	if r.Health == device.Unhealthy && r.Fault {
		d.blame(r)
	}
	if !live && c.Absence != nil && r.Health == device.Unhealthy && c.Device.Path() == device.PathPlugin {
		// Only of a device that is on its list a plugin says this.
		d.lookAnew()
	}
	return device.Believed
}

// saw notes which reading led to the decision: of several the gravest, and of those
// that are as grave the first.
func (d *decision) saw(r Reading, text string) {
	if d.gravest == nil || graver(r, *d.gravest) {
		d.gravest, d.seen = &r, text
	}
}

// graver orders readings by what they can lead to.
func graver(a, b Reading) bool {
	if x, y := judged(a.Report), judged(b.Report); x != y {
		return x.WorseThan(y)
	}
	return a.Fault && b.Fault && outranks(a.Reason, a.Message, b.Reason, b.Message)
}

// quoted is what a report says, and why it isn't believed if it isn't.
func quoted(r device.Report) string {
	text := fmt.Sprintf("%s %q", r.Health, r.Message)
	if r.Stale != device.Fresh {
		text += fmt.Sprintf(" (not believed: %s)", r.Stale)
	}
	return text
}

// offer asks what would be believed of a reading as far as the device's own
// faults go: from an Unhealthy that is its fault to one that isn't is a change for
// the better, and takes a live read.
func offer(known []device.Report, offered device.Report, live bool) device.Belief {
	if _, belief := device.Believe(known, offered, live); belief == device.Repeated {
		return belief
	}
	own := slices.Clone(known)
	for i, r := range own {
		own[i].Health = judged(r)
	}
	offered.Health = judged(offered)
	if _, belief := device.Believe(own, offered, live); belief == device.Doubted {
		return belief
	}
	return device.Believed
}

// late takes in a fault that a newer reading of its Pod has overtaken on the way.
// If it was seen in this episode it counts as it would have in time: a later mild
// event never hides a grave one. It is never news for the next episode.
func (d *decision) late(r Reading) {
	c := &d.c
	if !c.Open() || r.Health != device.Unhealthy || !r.Fault || r.Observed.Before(c.FirstNotGood) {
		return
	}
	overtaken := func(known device.Report) bool {
		return known.Pod.UID == r.Pod.UID && known.Version.Newer(r.Version)
	}
	if slices.ContainsFunc(c.Reports, overtaken) {
		d.saw(r, fmt.Sprintf("%s: %s %q at version %s, late", r.Pod, r.Health, r.Message, r.Version))
		d.blame(r)
	}
}

// blame takes a fault into the case. Severity only rises, and of two reasons as
// severe the one that asks for more stands, so that the order in which they were
// seen doesn't matter.
func (d *decision) blame(r Reading) {
	c := &d.c
	confirms := r.Reason.Action == reason.ActionQuarantine
	if confirms && !c.Confirmed && d.faultAt.IsZero() {
		d.faultAt = r.Observed
	}
	if !c.Open() {
		d.confirmed = d.confirmed || confirms
		if d.worst == nil || outranks(r.Reason, r.Message, d.worst.Reason, d.worst.Message) {
			d.worst = &r
		}
		return
	}
	if confirms && !c.Confirmed {
		c.Confirmed, c.FaultSeen = true, d.faultAt
	}
	if a := c.Recovery; a != nil && !r.Ended && !r.Observed.Before(a.Began) && d.fault == nil {
		d.fault = &r
	}
	d.raise(r.Reason, r.Message)
}

// raise makes a reason the case's if it outranks the present one.
func (d *decision) raise(why reason.Match, message string) {
	c := &d.c
	if !outranks(why, message, c.Reason, c.Message) {
		return
	}
	c.ReasonClosed = false
	graver := why.Severity > c.Severity
	c.Reason, c.Message = why, message
	c.Severity = max(c.Severity, why.Severity)
	if c.Mark.State != MarkNone {
		c.Mark.Revision++
	}
	if graver && c.Mark.State == MarkHeld {
		// Its turn comes earlier.
		c.Mark.RetryAt = d.now
	}
	if graver {
		d.notify(NoticeSeverity, true, fmt.Sprintf("now %s: %s", c.Severity, describe(why, message)))
	}
}

// outranks orders reasons. That nothing is known ranks below every fault that is
// as severe.
func outranks(a reason.Match, aMessage string, b reason.Match, bMessage string) bool {
	if a.Severity != b.Severity {
		return a.Severity > b.Severity
	}
	if unknown := saysNothing(b.Code); unknown != saysNothing(a.Code) {
		return unknown
	}
	if x, y := closesRank(a.Closes), closesRank(b.Closes); x != y {
		return x > y
	}
	if a.Code != b.Code {
		return a.Code < b.Code
	}
	return aMessage < bMessage
}

// saysNothing tells that a reason is only that nothing is known of the device.
func saysNothing(code reason.Code) bool {
	return code == reason.HealthUnknown || code == reason.PluginAbsent || code == reason.HealthFlapping
}

// whyUnknown is the reason of a device of which nothing is known: what the driver
// says nothing of, or what no plugin stands behind.
func (d *decision) whyUnknown() reason.Match {
	if d.c.Evidence().Stale == device.PluginAbsent {
		return pluginAbsentReason
	}
	return unknownReason
}

func closesRank(c reason.Closes) int {
	return slices.Index([]reason.Closes{reason.ClosesByGates, reason.ClosesByReset, reason.ClosesByOperator, reason.ClosesByRepair}, c)
}

// worstFault is the gravest fault of this event, for the case that it opens. A
// case can also be opened by a fault that an earlier event brought, e.g. one
// that came while the device's last case was closing; then the reading itself
// isn't at hand any more.
func (d *decision) worstFault() Reading {
	if d.worst != nil {
		return *d.worst
	}
	return Reading{
		Report: device.Report{Message: d.c.Evidence().Message},
		Reason: reason.Match{
			Code: reason.UnrecognizedMessage, Severity: reason.SeverityMajor, Action: reason.ActionQuarantine,
			Closes: reason.ClosesByGates, Scope: device.ScopeInstance, Rule: "sickbay/carried-over",
		},
	}
}

// value is the device's health as far as its own faults go: an Unhealthy that
// the catalogue lays at the application's door counts as Healthy here.
func (d *decision) value() device.Health {
	reports := slices.Clone(d.c.Reports)
	for i, r := range reports {
		reports[i].Health = judged(r)
	}
	return device.Fuse(reports).Value
}

func judged(r device.Report) device.Health {
	if r.Health == device.Unhealthy && !r.Fault {
		return device.Healthy
	}
	return r.Counts()
}

// firstNotGood is when the readings that open a case were first seen. What was
// known before belongs to an earlier episode and doesn't date this one back.
func (d *decision) firstNotGood() time.Time {
	if !d.notGoodAt.IsZero() && d.notGoodAt.Before(d.now) {
		return d.notGoodAt
	}
	return d.now
}

// goodFor tells whether live looks found the device healthy for so long, the
// last one at the end of that time, and its node alive since that time began.
func (d *decision) goodFor(window time.Duration) bool {
	c := &d.c
	return !c.GoodSince.IsZero() && !c.LookedAt.Before(c.GoodSince.Add(window)) && c.LeaseMoved.After(c.GoodSince)
}

// bound keeps the number of reports down and their order independent of the
// order of their coming. History of ended Pods goes first, then what says least.
func bound(reports []device.Report) []device.Report {
	byUID := func(a, b device.Report) int { return strings.Compare(a.Pod.UID, b.Pod.UID) }
	if len(reports) > maxReports {
		slices.SortFunc(reports, func(a, b device.Report) int {
			switch {
			case a.Ended && !b.Ended, !a.Ended && !b.Ended && b.Health.WorseThan(a.Health):
				return 1
			case b.Ended && !a.Ended, !a.Ended && !b.Ended && a.Health.WorseThan(b.Health):
				return -1
			}
			return byUID(a, b)
		})
		reports = reports[:maxReports]
	}
	slices.SortFunc(reports, byUID)
	return reports
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
