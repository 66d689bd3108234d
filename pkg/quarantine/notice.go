package quarantine

import "time"

// maxNotices bounds the notices that wait. Past it the oldest are given up; the
// gap in the numbers shows it.
const maxNotices = 24

// NoticeKind says what a notice is about; the names are metric labels.
type NoticeKind string

const (
	NoticeOpened       NoticeKind = "CaseOpened"
	NoticePhase        NoticeKind = "PhaseChanged"
	NoticeSeverity     NoticeKind = "SeverityRaised"
	NoticeMarkInForce  NoticeKind = "MarkInForce"
	NoticeMarkRestored NoticeKind = "MarkRestored"
	NoticeMarkRefused  NoticeKind = "MarkRefused"
	NoticeMarkHeld     NoticeKind = "MarkHeld"
	NoticeMarkLifted   NoticeKind = "MarkLifted"
	NoticeAdvisory     NoticeKind = "AdvisoryOnly"
	NoticeExtended     NoticeKind = "LeaseExtended"
	NoticeGraceHalf    NoticeKind = "GraceHalf"
	NoticeGraceOver    NoticeKind = "GraceOver"
	NoticeHeld         NoticeKind = "RestrictionHeld"
	NoticeNodeOut      NoticeKind = "NodeOut"
	NoticeNodeBack     NoticeKind = "NodeBack"
	NoticeReplaced     NoticeKind = "HardwareReplaced"
	NoticeMoved        NoticeKind = "HardwareMoved"
	NoticeMessage      NoticeKind = "OperatorMessage"
	NoticeRefused      NoticeKind = "OperatorMessageRefused"
	NoticeGate         NoticeKind = "Gate"
	NoticeAttempt      NoticeKind = "AttemptEnded"
	NoticeReleased     NoticeKind = "Released"
	NoticeRelapse      NoticeKind = "Relapsed"
	NoticeClosed       NoticeKind = "CaseClosed"
)

// Notice is one decision, for the audit trail: what was seen, what was decided,
// why and by whom.
type Notice struct {
	Seq   int64      `json:"seq"`
	At    time.Time  `json:"at"`
	Kind  NoticeKind `json:"kind"`
	Alert bool       `json:"alert,omitempty"`
	Epoch int64      `json:"epoch,omitempty"`
	Phase Phase      `json:"phase,omitempty"`
	// Reason is the case's reason code, Rule and Catalogue how it was found.
	Reason    string `json:"reason,omitempty"`
	Severity  string `json:"severity,omitempty"`
	Rule      string `json:"rule,omitempty"`
	Catalogue string `json:"catalogue,omitempty"`
	Actor     string `json:"actor"`
	Seen      string `json:"seen,omitempty"`
	// Sent is where Temporal has the operator's message that was taken or refused.
	Sent Sent `json:"sent,omitzero"`
	// Identity is what the client of whoever sent that message called itself, Caller whom
	// Temporal let through, where it authenticates its callers and notes them. No case
	// knows them: they are told by who publishes its decisions.
	Identity string `json:"identity,omitempty"`
	Caller   string `json:"caller,omitempty"`
	// Gate is the one that a release was refused at.
	Gate Gate `json:"gate,omitempty"`
	// Left is the phase that the decision ended, and Stayed how long that lasted.
	Left   Phase         `json:"left,omitempty"`
	Stayed time.Duration `json:"stayed,omitempty"`
	// Took is the time from the sight of the fault to its mark, on the notice that
	// the mark is in force for the first time in its epoch.
	Took time.Duration `json:"took,omitempty"`
	// Good is since when live looks have found the device healthy, on the notice that
	// its case is closed.
	Good time.Time `json:"good,omitzero"`
	// FirstTry is set on the notice that a device was given back whose first attempt
	// passed all gates: nothing was found wrong with it.
	FirstTry bool   `json:"firstTry,omitempty"`
	Text     string `json:"text"`
}

// notify records a decision. The actor is Sickbay unless an operator's word led
// to it.
func (d *decision) notify(kind NoticeKind, alert bool, text string) {
	d.notifyAs(self, kind, alert, text)
}

func (d *decision) notifyAs(actor string, kind NoticeKind, alert bool, text string) {
	c := &d.c
	c.NoticeSeq++
	notice := Notice{
		Seq: c.NoticeSeq, At: d.now, Kind: kind, Alert: alert, Epoch: c.Epoch, Phase: c.Phase,
		Reason: string(c.Reason.Code), Rule: c.Reason.Rule, Catalogue: c.Reason.Catalogue,
		Actor: clip(actor, maxName), Seen: clip(d.seen, maxSeen), Text: clip(text, maxText),
	}
	if c.Severity != 0 {
		notice.Severity = c.Severity.String()
	}
	if kind == NoticeClosed {
		notice.Good = c.GoodSince
	}
	c.Notices = append(c.Notices, notice)
	if extra := len(c.Notices) - maxNotices; extra > 0 {
		c.Notices = c.Notices[extra:]
	}
}
