package show

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	nodewf "github.com/sickbay-dev/sickbay/workflows/node"
)

// storyLines tell of one device: how it is first, what happens next last.
func storyLines(s listing.Story, wide, colour bool, latest int) []string {
	p := page{colour: colour, now: s.At}
	p.say(colourOf(s.Device), s.Summary)
	p.section("Signals (none stands in for another)", signalFields(s))
	p.section("Case", p.caseFields(s))
	if len(s.Evidence) > 0 {
		p.table("Evidence", p.evidenceRows(s.Evidence), func(i int) string { return evidenceColour(s.Evidence[i]) })
		if age := ageLine(s); age != "" {
			p.say("", "  "+age)
		}
	}
	if len(s.Unmapped) > 0 {
		p.unmapped("Unmapped faults that may be about it", s.Unmapped)
	}
	if i := s.Device.NodeIsolated; i != nil {
		p.section("The whole node is isolated", []field{
			{"node", []string{s.Device.Node + ", by a " + string(i.Way) + " of Sickbay's since " + i.Since.UTC().Format(time.DateTime) + " UTC"}},
			{"why", []string{i.Why}},
			{"workflow", []string{nodewf.ID(s.Device.Node)}},
		})
	}
	if len(s.Family) > 0 {
		p.table("On the same chip", familyRows(s.Family), func(i int) string { return colourOf(s.Family[i].Device) })
	}
	p.timeline(s.Timeline, wide, latest)
	p.lines = append(p.lines, "")
	p.say(bold, "Next: "+s.Next)
	return p.lines
}

// page is a text that grows line by line.
type page struct {
	colour bool
	now    time.Time
	lines  []string
}

// say adds a line, in a colour where there is colour.
func (p *page) say(colour, text string) {
	text = oneLine(text)
	if p.colour && colour != "" {
		text = colour + text + reset
	}
	p.lines = append(p.lines, text)
}

// field is a name and what is said under it; several lines if need be.
type field struct {
	name string
	said []string
}

// section adds fields under a title. A field that says nothing is left out.
func (p *page) section(title string, fields []field) {
	p.lines = append(p.lines, "")
	p.say(bold, title)
	width := 0
	for _, f := range fields {
		if len(f.said) > 0 {
			width = max(width, len(f.name))
		}
	}
	for _, f := range fields {
		name := f.name
		for _, line := range f.said {
			p.lines = append(p.lines, fmt.Sprintf("  %-*s  %s", width, name, oneLine(line)))
			name = ""
		}
	}
}

// table adds rows, of which the first is the header, under a title.
func (p *page) table(title string, rows [][]string, colourOf func(row int) string) {
	p.lines = append(p.lines, "")
	p.say(bold, title)
	for _, row := range rows {
		for i := range row {
			row[i] = oneLine(row[i])
		}
		row[0] = "  " + row[0]
	}
	colours := []string{""}
	for i := range rows[1:] {
		colours = append(colours, colourOf(i))
	}
	p.lines = append(p.lines, aligned(rows, colours, p.colour)...)
}

// unmapped adds entries that lead to no one device.
func (p *page) unmapped(title string, entries []device.Unmapped) {
	p.lines = append(p.lines, "")
	p.say(bold, title)
	for _, line := range unmappedTable(entries, true, p.colour) {
		p.lines = append(p.lines, "  "+line)
	}
}

func signalFields(s listing.Story) []field {
	return []field{
		{"allocation", allocationLines(s)},
		{"device health", []string{healthLine(s)}},
		{"container ready", readyLines(s.Signals.Containers)},
		{"business objective", []string{s.Signals.Objective}},
	}
}

func allocationLines(s listing.Story) []string {
	var all []string
	for _, a := range s.Signals.Allocation {
		to := "which no Pod uses"
		if len(a.Pods) > 0 {
			to = "used by " + strings.Join(a.Pods, ", ")
		}
		how := ""
		if a.Class != "" {
			how = " (class " + a.Class + ")"
		}
		verb := "by claim "
		switch {
		case a.Ours:
			verb = "tried by Sickbay's claim "
		case a.AdminAccess:
			verb = "monitored by claim "
		}
		all = append(all, verb+a.Claim+how+", "+to)
	}
	if len(all) > 0 {
		return all
	}
	for _, h := range s.Device.Holders {
		all = append(all, "to "+h.String()+", as its status says")
	}
	if len(all) > 0 {
		return all
	}
	return []string{"to nobody"}
}

func healthLine(s listing.Story) string {
	switch {
	case s.Signals.Health == "" && len(s.Device.Holders) == 0:
		return "not reported: nobody holds the device"
	case s.Signals.Health == "":
		return "not reported by its holders"
	case s.Signals.Stale != device.Fresh:
		return s.Signals.Believed()
	case s.Device.Message == "" || s.Signals.Health == device.Healthy:
		return string(s.Signals.Health)
	}
	return string(s.Signals.Health) + ": " + s.Device.Message
}

// ageLine says how old what is reported may be, which the report itself never does.
func ageLine(s listing.Story) string {
	age := s.Device.Age
	if age == nil {
		return ""
	}
	p := page{now: s.At}
	var said string
	switch {
	case age.Confirmed == nil && s.Signals.Stale != device.Fresh:
		said = "Of unknown age: nothing tells since when it can't be believed"
	case age.Confirmed == nil:
		return "Of unknown age: nothing is known of its node"
	case s.Device.NodeOut != "":
		said = "Last known to hold at " + p.moment(*age.Confirmed) + ", before the node was out"
	default:
		said = "Held within the last " + duration.HumanDuration(max(s.At.Sub(*age.Confirmed), 0))
	}
	switch age.Lag {
	case "":
		return said
	case listing.Unbounded:
		return said + "; the plugin's own word may be of any age"
	}
	return said + "; the driver's own word may be up to " + age.Lag + " older"
}

func readyLines(pods []listing.PodStatus) []string {
	if len(pods) == 0 {
		return []string{"no holder, so no container"}
	}
	var all []string
	for _, pod := range pods {
		all = append(all, pod.String()+": "+podState(pod))
	}
	return all
}

func podState(pod listing.PodStatus) string {
	if pod.Missing != "" {
		return pod.Missing
	}
	var said []string
	for _, c := range pod.Containers {
		ready := "not ready"
		if c.Ready {
			ready = "ready"
		}
		said = append(said, fmt.Sprintf("%s %s (%s, %s)", c.Name, ready, orNothing(c.State), count(int(c.Restarts), "restart", "restarts")))
	}
	if len(said) == 0 {
		said = []string{"Pod " + orNothing(pod.Phase)}
	}
	if pod.Deleting {
		said = append(said, "being deleted")
	}
	return strings.Join(said, "; ")
}

func (p *page) caseFields(s listing.Story) []field {
	d := s.Device
	if s.Case == nil && d.Phase == "" && d.Workflow == "" && d.Mark == nil {
		return []field{{"phase", []string{"no case"}}, {"mark", []string{s.MarkText}}, p.uiField(s)}
	}
	phase := phaseCell(d)
	if waiting := waitingCell(d); waiting != nothing {
		phase += ", waiting for " + waiting
	}
	if d.Source != "" && d.Source != listing.SourceCase {
		phase += " (told by its " + sourceName(d.Source) + ")"
	}
	reason := orNothing(d.Reason)
	if d.Severity != "" {
		reason += " (" + d.Severity + ")"
	}
	if s.Case == nil {
		opened := p.optional(d.Since)
		if s.MarkFound != nil {
			reason += closing(d.Phase, s.MarkFound.Closes)
			if s.MarkFound.Since > 0 {
				opened = p.moment(time.UnixMilli(s.MarkFound.Since))
			}
			opened += " by " + orNothing(s.MarkFound.Actor)
		}
		return []field{
			{"phase", []string{phase}}, {"reason", []string{reason}},
			{"driver says", given(d.Message)},
			{"opened", []string{opened}},
			{"record", []string{fmt.Sprintf("epoch %d, attempt %d", d.Epoch, d.Attempt)}},
			{"mark", []string{s.MarkText}}, {"workflow", given(d.Workflow)}, p.uiField(s),
		}
	}
	c := *s.Case
	if c.Reason.Closes != "" {
		reason += closing(c.Phase, c.Reason.Closes) + fmt.Sprintf("; rule %s of catalogue %s", orNothing(c.Reason.Rule), orNothing(c.Reason.Catalogue))
	}
	return []field{
		{"phase", []string{phase}}, {"reason", []string{reason}},
		{"driver says", given(c.Message)},
		{"opened", []string{p.moment(c.Since) + " by " + orNothing(c.Actor)}},
		{"first not good", []string{p.moment(c.FirstNotGood)}},
		{"record", []string{fmt.Sprintf("epoch %d, attempt %d, %s", c.Epoch, c.Attempt, p.lease(c))}},
		{"last look", []string{p.moment(c.LookedAt)}},
		{"mark", []string{s.MarkText}},
		{"gates", p.gates(c)},
		{"operators said", p.words(c.Words)},
		{"refused", p.refusedWords(c.RefusedWords)},
		{"hardware", hardware(c)},
		{"workflow", given(d.Workflow)}, p.uiField(s), {"trace", given(s.Trace)},
	}
}

func (p *page) uiField(s listing.Story) field { return field{"Temporal UI", given(s.UI)} }

// closing says what closes a case's reason. Of a device of which nothing was found but
// that its health isn't known, nothing has to be proven.
func closing(phase quarantine.Phase, closes reason.Closes) string {
	switch {
	case phase == quarantine.PhaseSuspect, phase == quarantine.PhaseRestricted:
		return ", closed by health that comes back and lasts"
	case closes == "":
		return ""
	}
	return ", closed by " + string(closes)
}

// sourceName says who told of a case that didn't answer itself.
func sourceName(source listing.Source) string {
	if source == listing.SourceMark {
		return "mark"
	}
	return "search attributes"
}

func given(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

func (p *page) words(words []quarantine.Word) []string {
	var all []string
	for _, w := range words {
		said := w.Reason
		if w.Ticket != "" {
			said += ", ticket " + w.Ticket
		}
		all = append(all, fmt.Sprintf("%s by %s, %s: %s", w.Verb, w.Actor, p.moment(w.At), said))
	}
	return all
}

func (p *page) refusedWords(words []quarantine.RefusedWord) []string {
	var all []string
	for _, w := range words {
		all = append(all, fmt.Sprintf("%s by %s, %s: %s", w.Verb, w.Actor, p.moment(w.At), w.Text))
	}
	return all
}

func hardware(c quarantine.Case) []string {
	var said []string
	for _, part := range [][2]string{{"uuid ", c.Incarnation.UUID}, {"serial ", c.Incarnation.Serial}, {"slot ", c.Incarnation.Slot}} {
		if part[1] != "" {
			said = append(said, part[0]+part[1])
		}
	}
	if c.MovedTo != "" {
		said = append(said, "listed as "+c.MovedTo+" now")
	}
	return given(strings.Join(said, ", "))
}

func (p *page) lease(c quarantine.Case) string {
	if c.LeaseUntil.IsZero() {
		if c.Mark.State == quarantine.MarkInForce {
			return "no lease: the mark is kept until the device is back or forgotten"
		}
		return "no lease: nothing is kept out"
	}
	return "lease until " + p.moment(c.LeaseUntil)
}

// moment writes a time with its distance from now.
func (p *page) moment(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	at := t.UTC().Format("2006-01-02 15:04:05 MST")
	if ahead := t.Sub(p.now); ahead > 0 {
		return at + " (in " + duration.HumanDuration(ahead) + ")"
	}
	return at + " (" + duration.HumanDuration(p.now.Sub(t)) + " ago)"
}

func (p *page) optional(t *time.Time) string {
	if t == nil {
		return nothing
	}
	return p.moment(*t)
}

func (p *page) evidenceRows(evidence []listing.Reading) [][]string {
	rows := [][]string{{"POD", "CONTAINER", "HEALTH", "AGE", "STATUS VERSION", "ROLE", "MESSAGE"}}
	for _, r := range evidence {
		version, seen := string(r.Version), "?"
		if r.Observed != nil {
			seen = duration.HumanDuration(max(p.now.Sub(*r.Observed), 0))
		} else {
			version = "≤ " + version
		}
		role := "holder"
		switch {
		case r.Ended:
			role = "gone"
		case r.Monitor:
			role = "monitor"
		}
		rows = append(rows, []string{
			r.Pod.String(), orNothing(r.Container), saidCell(r), seen, version, role, orNothing(r.Message),
		})
	}
	return rows
}

// saidCell is what a Pod says, with why it isn't believed.
func saidCell(r listing.Reading) string {
	if r.Stale != device.Fresh {
		return fmt.Sprintf("%s (%s)", r.Health, r.Stale)
	}
	return string(r.Health)
}

func evidenceColour(r listing.Reading) string {
	if r.Ended {
		return grey
	}
	return healthColour(r.Health)
}

func familyRows(family []listing.Relative) [][]string {
	rows := [][]string{{"RELATION", "DEVICE", "HEALTH", "PHASE", "REASON", "MARK", "HOLDERS"}}
	for _, r := range family {
		d := r.Device
		rows = append(rows, []string{
			string(r.Relation), d.Name, healthCell(d), phaseCell(d), orNothing(d.Why()), markCell(d), holdersCell(d.Holders, false),
		})
	}
	return rows
}

// timeline adds the latest decisions. What was seen is part of the wide form.
func (p *page) timeline(all []quarantine.Notice, wide bool, latest int) {
	if len(all) == 0 {
		return
	}
	title := "Timeline"
	if more := len(all) - latest; latest > 0 && more > 0 {
		title += fmt.Sprintf(" (the last %d of %d decisions; --timeline 0 shows all)", latest, len(all))
		all = all[more:]
	}
	header := []string{"TIME (UTC)", "AGE", "DECISION", "BY", "WHAT"}
	if wide {
		header = append(header, "SEEN")
	}
	rows := [][]string{header}
	for _, n := range all {
		row := []string{
			n.At.UTC().Format(time.DateTime), duration.HumanDuration(max(p.now.Sub(n.At), 0)), string(n.Kind), orNothing(n.Actor), n.Text,
		}
		if wide {
			row = append(row, orNothing(n.Seen))
		}
		rows = append(rows, row)
	}
	p.table(title, rows, func(i int) string {
		if all[i].Alert {
			return yellow
		}
		return ""
	})
}

// podLines tell of one Pod's devices: how they are first, what happens next last.
func podLines(s listing.PodStory, wide, colour bool) []string {
	p := page{colour: colour, now: s.At}
	worst := ""
	for _, d := range s.Devices {
		if c := podDeviceColour(d); c == red || worst == "" {
			worst = c
		}
	}
	for _, u := range s.Unmapped {
		if worst == "" {
			worst = healthColour(u.Health)
		}
	}
	p.say(worst, s.Summary)
	p.section("Pod", []field{
		{"node", []string{orNothing(s.Pod.Node)}},
		{"container ready", []string{podState(s.Pod)}},
	})
	if len(s.Devices) > 0 {
		p.table("Devices", podRows(s, wide), func(i int) string { return podDeviceColour(s.Devices[i]) })
	}
	if len(s.Unmapped) > 0 {
		p.unmapped("Health entries that lead to no one device", s.Unmapped)
	}
	p.lines = append(p.lines, "")
	for i, step := range strings.Split(s.Next, "\n") {
		name := "Next: "
		if i > 0 {
			name = "      "
		}
		p.say(bold, name+step)
	}
	return p.lines
}

func podDeviceColour(d listing.PodDevice) string {
	if c := colourOf(d.Device); c != "" {
		return c
	}
	return healthColour(d.Health)
}

func podRows(s listing.PodStory, wide bool) [][]string {
	rows := [][]string{{"CONTAINER", "DEVICE", "HEALTH", "PHASE", "WAITING", "REASON", "MARK", "SINCE", "MESSAGE"}}
	if wide {
		rows[0] = slices.Insert(rows[0], 2, "CLAIM", "CLASS")
	}
	for _, e := range s.Devices {
		health := orNothing(string(e.Health))
		switch {
		case e.Frozen:
			health += " (frozen)"
		case e.Monitor:
			health += " (monitor)"
		case e.Health == device.Healthy && e.Device.Stale != device.Fresh:
			health += fmt.Sprintf(" (%s)", e.Device.Stale)
		}
		row := []string{
			orNothing(e.Container), e.Device.Name, health, phaseCell(e.Device), waitingCell(e.Device), orNothing(e.Device.Why()),
			markCell(e.Device), sinceCell(e.Device.Since, s.At), orNothing(e.Message),
		}
		if wide {
			row = slices.Insert(row, 2, orNothing(e.Claim), orNothing(strings.Join(e.Device.Classes, ",")))
		}
		rows = append(rows, row)
	}
	return rows
}
