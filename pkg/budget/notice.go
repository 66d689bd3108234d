package budget

import (
	"strings"
	"time"
)

const (
	// maxNotices bounds the notices that wait; past it the oldest are given up, and the
	// gap in the numbers shows it. maxStory bounds those that are kept.
	maxNotices, maxStory = 32, 32
	// maxText bounds a notice's text, in bytes.
	maxText = 800
)

// NoticeKind says what a notice is about; the names are metric labels.
type NoticeKind string

const (
	// NoticeHeld: a scope is full or paused, and somebody has to wait for it.
	NoticeHeld NoticeKind = "BudgetHeld"
	// NoticeFree: nobody waits for the scope any more.
	NoticeFree NoticeKind = "BudgetFree"
	// NoticePaused and NoticeResumed: an operator's pause, and its end.
	NoticePaused  NoticeKind = "Paused"
	NoticeResumed NoticeKind = "Resumed"
	// NoticeRebuilt: marks exist that the book knew nothing of. Whoever had paused
	// something has to say it again.
	NoticeRebuilt NoticeKind = "BudgetRebuilt"
	// NoticeReturnsStopped: what was given back failed again soon, and nothing of its class
	// is given back for a while.
	NoticeReturnsStopped NoticeKind = "ReturnsStopped"
	// NoticeRefused: an operator's message made no sense.
	NoticeRefused NoticeKind = "BudgetMessageRefused"
)

// NoticeKinds lists all kinds.
func NoticeKinds() []NoticeKind {
	return []NoticeKind{NoticeHeld, NoticeFree, NoticePaused, NoticeResumed, NoticeRebuilt, NoticeReturnsStopped, NoticeRefused}
}

// Notice is one decision about a budget, for the audit trail.
type Notice struct {
	Seq   int64      `json:"seq"`
	At    time.Time  `json:"at"`
	Kind  NoticeKind `json:"kind"`
	Alert bool       `json:"alert,omitempty"`
	Actor string     `json:"actor"`
	Scope string     `json:"scope"`
	Text  string     `json:"text"`
}

// self is the actor of what nobody asked for.
const self = "sickbay"

func (d *decision) notify(kind NoticeKind, alert bool, scope Scope, text string) {
	d.notifyAs(self, kind, alert, scope, text)
}

func (d *decision) notifyAs(actor string, kind NoticeKind, alert bool, scope Scope, text string) {
	d.NoticeSeq++
	n := Notice{Seq: d.NoticeSeq, At: d.now, Kind: kind, Alert: alert, Actor: actor, Scope: clip(scope.String(), maxName), Text: clip(text, maxText)}
	d.Notices = append(d.Notices, n)
	d.Notices = d.Notices[max(len(d.Notices)-maxNotices, 0):]
	d.Story = append(d.Story, n)
	d.Story = d.Story[max(len(d.Story)-maxStory, 0):]
}

// Announced is the book without the notices up to a number, which are out.
func (b Book) Announced(upTo int64) Book {
	b = b.clone()
	kept := b.Notices[:0]
	for _, n := range b.Notices {
		if n.Seq > upTo {
			kept = append(kept, n)
		}
	}
	b.Notices = kept
	return b
}

// clip cuts a text to so many bytes, and shows that it did.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const more = "…"
	return strings.ToValidUTF8(text[:limit-len(more)], "") + more
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
