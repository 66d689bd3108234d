package incident

import (
	"fmt"
	"strings"
	"time"
)

const (
	// maxNotices bounds the notices that wait; past it the oldest are given up, and
	// the gap in the numbers shows it. maxStory bounds those that are kept.
	maxNotices, maxStory = 24, 24
	// maxText bounds a notice's text and maxDevice a device's name, in bytes.
	maxText, maxDevice = 640, 256
	// maxUnsure bounds what a starter can't see, in bytes.
	maxUnsure = 256
)

// NoticeKind says what a notice is about; the names are metric labels.
type NoticeKind string

const (
	NoticeBegan     NoticeKind = "IncidentBegan"
	NoticeAsks      NoticeKind = "IncidentAsks"
	NoticeGrew      NoticeKind = "IncidentGrew"
	NoticeTakenOver NoticeKind = "IncidentTakenOver"
	NoticeMessage   NoticeKind = "IncidentMessage"
	NoticeRefused   NoticeKind = "IncidentMessageRefused"
	NoticeClosed    NoticeKind = "IncidentClosed"
)

// Notice is one decision about an incident, for the audit trail.
type Notice struct {
	Seq   int64      `json:"seq"`
	At    time.Time  `json:"at"`
	Kind  NoticeKind `json:"kind"`
	Alert bool       `json:"alert,omitempty"`
	Phase Phase      `json:"phase,omitempty"`
	Actor string     `json:"actor"`
	// Devices is how many it was about then, and Seen what led to it: a count, or an
	// operator's reason.
	Devices int    `json:"devices,omitempty"`
	Seen    string `json:"seen,omitempty"`
	Text    string `json:"text"`
}

// self is the actor of what nobody asked for.
const self = "sickbay"

func (d *decision) notify(kind NoticeKind, alert bool, text string) {
	d.notifyAs(self, kind, alert, text)
}

func (d *decision) notifyAs(actor string, kind NoticeKind, alert bool, text string) {
	d.NoticeSeq++
	n := Notice{Seq: d.NoticeSeq, At: d.now, Kind: kind, Alert: alert, Phase: d.Phase, Actor: actor, Devices: d.Levels.Now, Seen: clip(d.seen, maxText), Text: clip(text, maxText)}
	d.Notices = append(d.Notices, n)
	d.Notices = d.Notices[max(len(d.Notices)-maxNotices, 0):]
	d.Story = append(d.Story, n)
	if extra := len(d.Story) - maxStory; extra > 0 {
		// How it began is never given up.
		d.Story = append(d.Story[:1], d.Story[1+extra:]...)
	}
}

func clipSample(sample []string) []string {
	var kept []string
	for _, s := range sample[:min(len(sample), maxSample)] {
		kept = append(kept, clip(s, maxDevice))
	}
	return kept
}

// clip cuts a text to so many bytes, and shows that it did.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const more = "…"
	return strings.ToValidUTF8(text[:limit-len(more)], "") + more
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}

func people(n int) string {
	if n == 1 {
		return "1 device is"
	}
	return fmt.Sprintf("%d devices are", n)
}
