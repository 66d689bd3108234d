package isolation

import (
	"strings"
	"time"
)

const (
	// maxNotices bounds the notices that wait; past it the oldest are given up, and the
	// gap in the numbers shows it. maxStory bounds those that are kept.
	maxNotices, maxStory = 24, 24
	// maxText bounds a text and maxDevice a device's name, in bytes.
	maxText, maxDevice = 640, 256
)

// NoticeKind says what a notice is about; the names are metric labels.
type NoticeKind string

const (
	NoticeConsidered NoticeKind = "NodeConsidered"
	NoticeWouldBe    NoticeKind = "NodeWouldBeIsolated"
	NoticeHeld       NoticeKind = "NodeHeld"
	NoticeIsolated   NoticeKind = "NodeIsolated"
	NoticeAdopted    NoticeKind = "NodeAdopted"
	NoticePutBack    NoticeKind = "NodePutBack"
	NoticeOut        NoticeKind = "NodeLeftAlone"
	NoticeOthers     NoticeKind = "NodeKeptOutByOthers"
	NoticeRefused    NoticeKind = "NodeRefused"
	NoticeCalm       NoticeKind = "NodeCalm"
	NoticeLifted     NoticeKind = "NodeLifted"
	NoticeMessage    NoticeKind = "NodeMessage"
	NoticeUnheard    NoticeKind = "NodeMessageRefused"
	NoticeClosed     NoticeKind = "NodeClosed"
)

// Notice is one decision about a node, for the audit trail.
type Notice struct {
	Seq   int64      `json:"seq"`
	At    time.Time  `json:"at"`
	Kind  NoticeKind `json:"kind"`
	Alert bool       `json:"alert,omitempty"`
	Phase Phase      `json:"phase,omitempty"`
	Actor string     `json:"actor"`
	// Seen is what led to it: the ground, or an operator's reason.
	Seen string `json:"seen,omitempty"`
	Text string `json:"text"`
}

// self is the actor of what nobody asked for.
const self = "sickbay"

func (d *decision) notify(kind NoticeKind, alert bool, text string) {
	d.notifyAs(self, kind, alert, d.Ground.Text, text)
}

func (d *decision) notifyAs(actor string, kind NoticeKind, alert bool, seen, text string) {
	d.NoticeSeq++
	n := Notice{Seq: d.NoticeSeq, At: d.now, Kind: kind, Alert: alert, Phase: d.Phase, Actor: actor, Seen: clip(seen, maxText), Text: clip(text, maxText)}
	d.Notices = append(d.Notices, n)
	d.Notices = d.Notices[max(len(d.Notices)-maxNotices, 0):]
	d.Story = append(d.Story, n)
	if extra := len(d.Story) - maxStory; extra > 0 {
		// How it began is never given up.
		d.Story = append(d.Story[:1], d.Story[1+extra:]...)
	}
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
