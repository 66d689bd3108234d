package listing

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reading"
)

// Report tells what came, or in mode observe would have come, of the cases of a span of
// time: what was kept out or would have been, for how long, and for how much of that it
// was right. Its JSON form is part of the command line's interface.
type Report struct {
	At    time.Time `json:"at"`
	Since time.Time `json:"since"`
	// Total sums up all groups.
	Total  Outcome   `json:"total"`
	Groups []Outcome `json:"groups"`
	Cases  []Episode `json:"cases"`

	Problems []string `json:"problems,omitempty"`
}

// Outcome sums up the cases of one driver and reason.
type Outcome struct {
	Driver string `json:"driver,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Cases were opened or open, Passed of them are those that came to nothing: their
	// devices were only suspected.
	Cases  int `json:"cases"`
	Passed int `json:"passed"`
	// Marked were kept out, Unmarked would have been in mode enforce, and of these, or of
	// those that were to be, Refused had no permit at first.
	Marked   int `json:"marked"`
	Unmarked int `json:"unmarked"`
	Refused  int `json:"refused"`
	// Out is for how long they were, or would have been, kept out in all, and Right for
	// how much of that their devices weren't known to be healthy.
	Out   time.Duration `json:"out"`
	Right time.Duration `json:"right"`
}

// Episode is one case.
type Episode struct {
	Name   string `json:"name"`
	Node   string `json:"node,omitempty"`
	Epoch  int64  `json:"epoch"`
	Driver string `json:"driver"`
	Reason string `json:"reason"`
	// Opened is when it was opened, Out from when on its device was to be kept out, zero
	// if never; Good since when it was found healthy, and Closed when it was over.
	Opened time.Time `json:"opened"`
	Out    time.Time `json:"out,omitzero"`
	Good   time.Time `json:"good,omitzero"`
	Closed time.Time `json:"closed,omitzero"`
	// Marked tells that a mark was in force, Refused that there was no permit for it at
	// first, or would have been none.
	Marked  bool   `json:"marked,omitempty"`
	Refused bool   `json:"refused,omitempty"`
	Last    string `json:"last,omitempty"`
}

// lasted is how long the device was to be kept out, and for how much of it that was
// right, as far as the span and the case go.
func (e Episode) lasted(since, now time.Time) (out, right time.Duration) {
	if e.Out.IsZero() {
		return 0, 0
	}
	from, until := e.Out, now
	if from.Before(since) {
		from = since
	}
	if !e.Closed.IsZero() {
		until = e.Closed
	}
	good := until
	if !e.Good.IsZero() && e.Good.Before(until) {
		good = e.Good
	}
	return max(until.Sub(from), 0), max(good.Sub(from), 0)
}

// ReportOf sums up a trail.
func ReportOf(t Trail) Report {
	type id struct {
		name  string
		epoch int64
	}
	episodes := map[id]*Episode{}
	for _, d := range t.Decisions {
		if d.Incident != "" || d.Whole || d.Epoch == 0 {
			continue
		}
		key := id{d.Name, d.Epoch}
		e := episodes[key]
		if e == nil {
			// What was decided before the span isn't in it: the case is as old as its epoch.
			e = &Episode{Name: d.Name, Epoch: d.Epoch, Driver: reading.DriverOf(d.Device), Opened: time.UnixMilli(d.Epoch).UTC()}
			episodes[key] = e
		}
		e.take(d)
	}
	report := Report{At: t.At, Since: t.Since, Groups: []Outcome{}, Cases: []Episode{}, Problems: t.Problems}
	for _, e := range episodes {
		report.Cases = append(report.Cases, *e)
	}
	slices.SortFunc(report.Cases, func(a, b Episode) int {
		return cmp.Or(a.Opened.Compare(b.Opened), strings.Compare(a.Name, b.Name))
	})
	for _, e := range report.Cases {
		i := slices.IndexFunc(report.Groups, func(o Outcome) bool { return o.Driver == e.Driver && o.Reason == e.Reason })
		if i < 0 {
			i = len(report.Groups)
			report.Groups = append(report.Groups, Outcome{Driver: e.Driver, Reason: e.Reason})
		}
		report.Groups[i].add(e, t.Since, t.At)
		report.Total.add(e, t.Since, t.At)
	}
	slices.SortFunc(report.Groups, func(a, b Outcome) int {
		return cmp.Or(cmp.Compare(b.Cases, a.Cases), strings.Compare(a.Driver, b.Driver), strings.Compare(a.Reason, b.Reason))
	})
	return report
}

// take takes a decision in.
func (e *Episode) take(d Decision) {
	e.Node, e.Last = cmp.Or(d.Node, e.Node), d.Text
	e.Reason = cmp.Or(d.Reason, e.Reason)
	switch d.Phase {
	case quarantine.PhaseQuarantined, quarantine.PhaseRestricted, quarantine.PhaseRetired:
		if e.Out.IsZero() {
			e.Out = d.At
		}
	}
	switch d.Kind {
	case quarantine.NoticeOpened:
		e.Opened = d.At
	case quarantine.NoticeMarkInForce:
		e.Marked = true
	case quarantine.NoticeMarkHeld:
		e.Refused = true
	case quarantine.NoticeClosed:
		e.Closed, e.Good = d.At, d.Good
	}
}

// add counts a case.
func (o *Outcome) add(e Episode, since, now time.Time) {
	o.Cases++
	switch {
	case e.Out.IsZero():
		if !e.Closed.IsZero() {
			o.Passed++
		}
		return
	case e.Marked:
		o.Marked++
	default:
		o.Unmarked++
	}
	if e.Refused {
		o.Refused++
	}
	out, right := e.lasted(since, now)
	o.Out += out
	o.Right += right
}
