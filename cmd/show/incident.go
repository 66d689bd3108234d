package show

import (
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sickbay-dev/sickbay/pkg/incident"
	incidentwf "github.com/sickbay-dev/sickbay/workflows/incident"
)

// Incident is one incident, as machines get it too.
type Incident struct {
	Name string `json:"name"`
	incident.Incident
	// Next says what happens next.
	Next string `json:"next,omitempty"`
	// Old is how old the last count is, where it is older than it should be.
	Old string `json:"old,omitempty"`
}

// reportOld is how old a count is that should have been followed by another: the starter
// tells an incident its levels each minute at least.
const reportOld = 2 * time.Minute

// IncidentOf is an incident with its name, and what happens next.
func IncidentOf(i incident.Incident, now time.Time) Incident {
	shown := Incident{Name: i.Scope.String(), Incident: i, Next: incidentwf.Next(i)}
	if age := now.Sub(i.ReportedAt); i.Open() && age > reportOld {
		shown.Old = duration.HumanDuration(age)
	}
	return shown
}

// Incidents are those that are open.
type Incidents struct {
	At        time.Time  `json:"at"`
	Incidents []Incident `json:"incidents"`
	// Blind is what Sickbay itself can't see.
	Blind    []string `json:"blind,omitempty"`
	Problems []string `json:"problems,omitempty"`
}

// PrintIncidents writes the open incidents.
func PrintIncidents(out io.Writer, list Incidents, format Format, colour bool) error {
	return write(out, list, format, func(name func(string)) {
		for _, i := range list.Incidents {
			name(i.Name)
		}
	}, func() []string {
		if len(list.Incidents) == 0 {
			if len(list.Blind) > 0 {
				return []string{"No incidents are known; but Sickbay can't see everything, and there may be some."}
			}
			return []string{"No incidents: what is wrong is wrong with single devices."}
		}
		rows := [][]string{{"INCIDENT", "KIND", "PHASE", "SINCE", "DEVICES", "MOST", "HELD", "NEXT"}}
		colours := []string{bold}
		for _, i := range list.Incidents {
			if i.Phase == incident.PhaseNone {
				rows = append(rows, []string{i.Name, "?", "?", "?", "?", "?", "?", "?"})
				colours = append(colours, yellow)
				continue
			}
			rows = append(rows, []string{
				oneLine(i.Name), string(i.Scope.Kind), string(i.Phase), duration.HumanDuration(max(list.At.Sub(i.Since), 0)),
				fmt.Sprint(i.Levels.Now), fmt.Sprint(i.Most), fmt.Sprint(i.Levels.Held), i.Next + doubts(i),
			})
			colours = append(colours, incidentColour(i))
		}
		return aligned(rows, colours, colour)
	})
}

// doubts says what may be wrong with an incident's figures.
func doubts(i Incident) string {
	text := ""
	if i.Old != "" {
		text += fmt.Sprintf("; last counted %s ago, it may be otherwise now", i.Old)
	}
	if i.Levels.Unsure != "" && i.Open() {
		text += fmt.Sprintf("; there may be more: %s", oneLine(i.Levels.Unsure))
	}
	return text
}

func incidentColour(i Incident) string {
	if i.Phase == incident.Pacing {
		return red // somebody is asked
	}
	return yellow
}

// PrintIncident writes one incident's story.
func PrintIncident(out io.Writer, i Incident, now time.Time, format Format, colour bool) error {
	return write(out, i, format, func(name func(string)) { name(i.Name) }, func() []string {
		since := duration.HumanDuration(max(now.Sub(i.Since), 0)) + " ago"
		first := fmt.Sprintf("Incident %s: %d of %d devices are %s, since %s. %s.", i.Name, i.Levels.Now, i.Levels.Total, incident.What(i.Scope.Kind), since, i.Phase)
		if i.Phase == incident.Closed {
			first = fmt.Sprintf("Incident %s is over (%s); it began %s and was about %d devices at most.", i.Name, i.End, since, i.Most)
		}
		if colour {
			first = bold + first + reset
		}
		rows := [][]string{
			{"  phase", string(i.Phase)},
			{"  devices", fmt.Sprintf("%d on %d nodes now, %d at most; %d make an incident", i.Levels.Now, i.Levels.Nodes, i.Most, i.Levels.Enough)},
			{"  held", fmt.Sprintf("%d without a case", i.Levels.Held)},
			{"  let through", fmt.Sprintf("%d to get a case, %d cases to restrict theirs", i.Opened, i.Granted)},
			{"  last report", fmt.Sprintf("%s by %s", inUTC(i.ReportedAt), oneLine(i.Levels.By))},
			{"  workflow", incidentwf.ID(i.Scope)},
		}
		if !i.Until.IsZero() {
			rows = append(rows, []string{"  holds until", inUTC(i.Until)})
		}
		for _, name := range i.Levels.Sample {
			rows = append(rows, []string{"  for example", oneLine(name)})
		}
		all := append([]string{first, ""}, aligned(rows, make([]string, len(rows)), false)...)
		all = append(all, "", "Timeline")
		for _, n := range i.Story {
			all = append(all, fmt.Sprintf("  %s  %s by %s: %s", inUTC(n.At), n.Kind, oneLine(n.Actor), oneLine(n.Text)))
		}
		return append(all, "", "Next: "+i.Next+doubts(i)+".")
	})
}

func inUTC(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04:05 MST")
}
