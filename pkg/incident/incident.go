package incident

import (
	"errors"
	"fmt"
	"time"
)

// Phase is where an incident stands.
type Phase string

const (
	// PhaseNone: it has not begun.
	PhaseNone Phase = ""
	// Holding: its devices wait, until its maximum.
	Holding Phase = "Holding"
	// Pacing: its devices are let through one by one, and an operator is asked.
	Pacing Phase = "Pacing"
	// Admitted: an operator let all its devices through.
	Admitted Phase = "Admitted"
	// Noted: it holds nothing. A crowd on a node is only told, because its marks
	// move nobody.
	Noted Phase = "Noted"
	// Closed: it is over.
	Closed Phase = "Closed"
)

// OpenPhases lists the phases of incidents that aren't over.
func OpenPhases() []Phase { return []Phase{Holding, Pacing, Admitted, Noted} }

// End is why an incident is over.
type End string

const (
	// EndLevels: too few of its devices are left for an incident.
	EndLevels End = "LevelsGone"
	// EndOperator: an operator closed it.
	EndOperator End = "Operator"
)

// Levels is what a starter counts in an incident's scope now: levels, not what
// happened on the way to them.
type Levels struct {
	// Now are the devices that it is about, and Held those of them that wait in the
	// starter, without a case. Total are all that report a health in the scope.
	Now   int `json:"now"`
	Held  int `json:"held,omitempty"`
	Total int `json:"total,omitempty"`
	// Enough is how many of them make an incident.
	Enough int `json:"enough,omitempty"`
	// Lately are those that made it begin: they are Unknown, or were a moment ago.
	Lately int `json:"lately,omitempty"`
	// Begins tells that the starter has just found the incident. Without it the starter
	// goes on with one that it knows, or was told of.
	Begins bool `json:"begins,omitempty"`
	// Unsure is why there may be more than were counted; empty where it is known that
	// there aren't. A starter that has just begun, or can't see, doesn't know.
	Unsure string    `json:"unsure,omitempty"`
	Nodes  int       `json:"nodes,omitempty"`
	Oldest time.Time `json:"oldest,omitzero"`
	// Sample names a few.
	Sample []string `json:"sample,omitempty"`
	// By is the starter that counted.
	By string `json:"by,omitempty"`
}

// few tells that fewer were counted than half of what makes an incident, so that it
// doesn't come and go at the threshold.
func (l Levels) few(scope Scope) bool {
	return l.Now < (l.Enough+1)/2 && (scope.Kind == Storm || l.Held == 0) || l.Now == 0
}

// low tells that so few are left that the incident is about to be over. Who isn't sure
// of it never says so.
func (l Levels) low(scope Scope) bool { return l.few(scope) && l.Unsure == "" }

// Incident is one incident: all of the workflow's state that is decided about. It
// can be serialised, and every deadline in it is absolute.
type Incident struct {
	Scope Scope     `json:"scope"`
	Phase Phase     `json:"phase,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Until is the maximum: it holds no longer than that.
	Until time.Time `json:"until,omitzero"`
	// NextAt is from when on the next device may be let through.
	NextAt time.Time `json:"nextAt,omitzero"`
	// CalmSince is since when the levels are low.
	CalmSince time.Time `json:"calmSince,omitzero"`

	Levels     Levels    `json:"levels"`
	ReportedAt time.Time `json:"reportedAt,omitzero"`
	// Most is the most devices that it ever was about.
	Most int `json:"most,omitempty"`
	// Opened counts the devices that were let through to get a case, Granted the
	// cases that were let through to restrict theirs.
	Opened  int `json:"opened,omitempty"`
	Granted int `json:"granted,omitempty"`
	// Waiting are the cases that were sent away, the oldest first, and CaseLast tells
	// that the last one let through was a case: they take turns with the devices that
	// wait in the starter.
	Waiting  []Waiting `json:"waiting,omitempty"`
	CaseLast bool      `json:"caseLast,omitempty"`
	// Least is the fewest devices since it holds no more, by which a new wave shows,
	// and GrewAt when one was told last.
	Least  int       `json:"least,omitempty"`
	GrewAt time.Time `json:"grewAt,omitzero"`

	Words []Word    `json:"words,omitempty"`
	End   End       `json:"end,omitempty"`
	Ended time.Time `json:"ended,omitzero"`

	// Notices wait to be announced; Story keeps the latest ones for who asks.
	NoticeSeq int64    `json:"noticeSeq,omitempty"`
	Notices   []Notice `json:"notices,omitempty"`
	Story     []Notice `json:"story,omitempty"`
}

// Open tells whether the incident has begun and isn't over.
func (i Incident) Open() bool { return i.Phase != PhaseNone && i.Phase != Closed }

// Holds tells whether devices or cases wait for the incident.
func (i Incident) Holds() bool { return i.Phase == Holding || i.Phase == Pacing }

// Waiting is a case that was sent away.
type Waiting struct {
	Device string `json:"device"`
	// Since is its first not-good moment, Due when it was told to ask again.
	Since time.Time `json:"since,omitzero"`
	Due   time.Time `json:"due"`
}

// NextWake is when the incident goes on by itself; zero if only a report, a
// question or an operator carries it on.
func (i Incident) NextWake(p Policy) time.Time {
	if i.Phase == Holding {
		return i.asksAt(p)
	}
	return time.Time{}
}

// reportLate is by how much a report may be late that an incident waits for.
const reportLate = time.Minute

// asksAt is when a hold ends: at its maximum, unless its levels are low by then. Then
// it is as good as over, and nobody has to be woken up by it.
func (i Incident) asksAt(p Policy) time.Time {
	if !i.CalmSince.IsZero() {
		if over := i.CalmSince.Add(p.Calm + reportLate); over.After(i.Until) {
			return over
		}
	}
	return i.Until
}

// Policy holds the operator's choices. It is an input of every decision.
type Policy struct {
	// MaxNode and Max are how long an incident on a node, and a wider one, holds.
	MaxNode time.Duration `json:"maxNode"`
	Max     time.Duration `json:"max"`
	// Pace is the time between two devices that a storm lets through after that,
	// and CrowdPace that of a crowd, from its beginning.
	Pace      time.Duration `json:"pace"`
	CrowdPace time.Duration `json:"crowdPace"`
	// Calm is how long the levels have to stay low before it is over. The kubelet
	// shows a driver's silence up to about 90 s late.
	Calm time.Duration `json:"calm"`
}

// DefaultPolicy returns the values that hold where the operator says nothing.
func DefaultPolicy() Policy {
	return Policy{
		MaxNode: 15 * time.Minute, Max: time.Hour, Pace: 30 * time.Second, CrowdPace: 10 * time.Second, Calm: 2 * time.Minute,
	}
}

// Validate names everything that is wrong with a policy, all at once.
func (p Policy) Validate() error {
	var errs []error
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"incident max on a node", p.MaxNode}, {"incident max", p.Max}, {"incident pace", p.Pace},
		{"crowd pace", p.CrowdPace}, {"incident calm", p.Calm},
	} {
		if d.value <= 0 {
			errs = append(errs, fmt.Errorf("%s %s: want more than zero", d.name, d.value))
		}
	}
	return errors.Join(errs...)
}

func (p Policy) max(scope Scope) time.Duration {
	if scope.Node != "" {
		return p.MaxNode
	}
	return p.Max
}

func (p Policy) pace(scope Scope) time.Duration {
	if scope.Kind == Crowd {
		return p.CrowdPace
	}
	return p.Pace
}
