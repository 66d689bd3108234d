package show

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// nothing stands in a cell that has nothing to say.
const nothing = "-"

// maxHolders bounds the holders that the narrow table names.
const maxHolders = 2

// lines are a listing's devices as a table.
func lines(l listing.Listing, wide, colour bool) []string {
	if len(l.Devices) == 0 {
		return []string{"No devices."}
	}
	return deviceTable(l, wide, colour)
}

// footer sums a listing up, below its table.
func footer(l listing.Listing, colour bool) []string {
	counts := l.Count()
	var phases []string
	for _, p := range counts.Phases {
		if p.Phase == listing.NoCase {
			p.Phase = "without a case"
		}
		phases = append(phases, fmt.Sprintf("%d %s", p.Devices, p.Phase))
	}
	all := []string{""}
	if len(phases) > 0 {
		all = append(all, fmt.Sprintf("%s: %s", count(counts.Devices, "device", "devices"), strings.Join(phases, ", ")))
	}
	if counts.Unmapped != nil && *counts.Unmapped > 0 {
		line := count(*counts.Unmapped, "unmapped fault", "unmapped faults") + ": health entries that lead to no one device; --unmapped lists them"
		if colour {
			line = yellow + line + reset
		}
		all = append(all, line)
	}
	if out := outageLine(l); out != "" {
		if colour {
			out = yellow + out + reset
		}
		all = append(all, out)
	}
	if isolated := isolatedLine(l); isolated != "" {
		if colour {
			isolated = yellow + isolated + reset
		}
		all = append(all, isolated)
	}
	if len(all) == 1 {
		return nil
	}
	return all
}

// isolatedLine names the nodes that Sickbay keeps out as a whole.
func isolatedLine(l listing.Listing) string {
	ways := map[string]string{}
	for _, d := range l.Devices {
		if d.NodeIsolated != nil {
			ways[d.Node] = string(d.NodeIsolated.Way)
		}
	}
	if len(ways) == 0 {
		return ""
	}
	var named []string
	for i, name := range slices.Sorted(maps.Keys(ways)) {
		if i == maxNodes {
			named = append(named, fmt.Sprintf("and %d more", len(ways)-i))
			break
		}
		named = append(named, fmt.Sprintf("%s (%s)", oneLine(name), ways[name]))
	}
	return count(len(ways), "node is isolated", "nodes are isolated") + " by Sickbay: " + strings.Join(named, ", ") + "; nothing new is scheduled there, and sickbay device tells why"
}

// maxNodes bounds the nodes that the line about outages names.
const maxNodes = 3

// outageLine names the nodes that are out: it tells at a glance why devices of theirs
// are Unknown.
func outageLine(l listing.Listing) string {
	nodes := l.Outages()
	if len(nodes) == 0 {
		return ""
	}
	var named []string
	for i, n := range nodes {
		if i == maxNodes {
			named = append(named, fmt.Sprintf("and %d more", len(nodes)-i))
			break
		}
		named = append(named, fmt.Sprintf("%s (%s, %s)", oneLine(n.Node), n.Why, count(n.Devices, "device", "devices")))
	}
	back := "they are back"
	if len(nodes) == 1 {
		back = "it is back"
	}
	return count(len(nodes), "node is out", "nodes are out") + ": " + strings.Join(named, ", ") + "; nothing is concluded about devices there until " + back
}

// count writes a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// countLines are counts as a table.
func countLines(counts listing.Counts, colour bool) []string {
	rows := [][]string{{"PHASE", "DEVICES"}}
	colours := []string{bold}
	for _, p := range counts.Phases {
		rows = append(rows, []string{p.Phase, fmt.Sprint(p.Devices)})
		colours = append(colours, colourOf(listing.Device{Phase: quarantine.Phase(p.Phase)}))
	}
	all := aligned(rows, colours, colour)
	unmapped := "unmapped faults not known"
	if counts.Unmapped != nil {
		unmapped = count(*counts.Unmapped, "unmapped fault", "unmapped faults")
	}
	return append(all, "", fmt.Sprintf("%s, %d faulty; %s", count(counts.Devices, "device", "devices"), counts.Faulty, unmapped))
}

// unmappedLines are a listing's unmapped faults, with what they mean.
func unmappedLines(l listing.Listing, wide, colour bool) []string {
	if len(l.Unmapped) == 0 {
		return []string{"No unmapped faults: every health entry that isn't Healthy leads to one device."}
	}
	all := []string{count(len(l.Unmapped), "health entry that isn't Healthy leads", "health entries that aren't Healthy lead") + " to no one device:", ""}
	return append(all, unmappedTable(l.Unmapped, wide, colour)...)
}

func deviceTable(l listing.Listing, wide, colour bool) []string {
	header := []string{"DEVICE", "NODE", "HEALTH", "PHASE", "WAITING", "REASON", "MARK", "HOLDERS", "SINCE"}
	if wide {
		header = append(header, "CLASS", "SEVERITY", "EPOCH", "ATTEMPT", "SOURCE", "WORKFLOW", "CONFIRMED", "LAG", "MESSAGE")
	}
	rows := [][]string{header}
	colours := []string{bold}
	for _, d := range l.Devices {
		rows = append(rows, deviceRow(d, l.At, wide))
		colours = append(colours, colourOf(d))
	}
	return aligned(rows, colours, colour)
}

func deviceRow(d listing.Device, now time.Time, wide bool) []string {
	row := []string{
		oneLine(d.Name), orNothing(d.Node), healthCell(d), phaseCell(d), waitingCell(d), orNothing(d.Why()),
		markCell(d), holdersCell(d.Holders, wide), sinceCell(d.Since, now),
	}
	if !wide {
		return row
	}
	epoch := ""
	if d.Epoch > 0 {
		epoch = fmt.Sprint(d.Epoch)
	}
	attempt := ""
	if d.Phase != "" {
		attempt = fmt.Sprint(d.Attempt)
	}
	return append(row, orNothing(strings.Join(d.Classes, ",")), orNothing(d.Severity), orNothing(epoch), orNothing(attempt),
		orNothing(string(d.Source)), orNothing(d.Workflow), confirmedCell(d.Age, now), lagCell(d.Age), orNothing(oneLine(d.Message)))
}

func healthCell(d listing.Device) string {
	switch {
	case !d.Listed:
		return "NotListed"
	case d.Health == "" && len(d.Holders) == 0:
		return "NotSeen" // nobody has it, so nobody reports on it: docs/watch.md
	case d.Health == "":
		return nothing
	}
	return string(d.Health)
}

// phaseCell shows a question mark for a case of which only its workflow is known.
func phaseCell(d listing.Device) string {
	if d.Phase == "" && d.Workflow != "" {
		return "?"
	}
	return orNothing(string(d.Phase))
}

// waitingCell drops the word that every value begins with. Where the case itself
// didn't answer, what it waits for isn't known.
func waitingCell(d listing.Device) string {
	if d.Source != "" && d.Source != listing.SourceCase {
		return "?"
	}
	return orNothing(strings.TrimPrefix(string(d.Waiting), "WaitingFor"))
}

func markCell(d listing.Device) string {
	if d.Mark == nil {
		return nothing
	}
	return d.Mark.State
}

func holdersCell(holders []listing.Holder, wide bool) string {
	if len(holders) == 0 {
		return nothing
	}
	var names []string
	for i, h := range holders {
		if i == maxHolders && !wide {
			names = append(names, fmt.Sprintf("+%d", len(holders)-i))
			break
		}
		names = append(names, h.String())
	}
	return strings.Join(names, ",")
}

func sinceCell(since *time.Time, now time.Time) string {
	if since == nil {
		return nothing
	}
	return duration.HumanDuration(max(now.Sub(*since), 0))
}

// confirmedCell is how long ago what is reported was borne out: at most, or where it isn't
// any more, and only since when is known, at least.
func confirmedCell(age *listing.Age, now time.Time) string {
	switch {
	case age == nil:
		return nothing
	case age.Confirmed == nil && age.Ceased != nil:
		return "≥" + duration.HumanDuration(max(now.Sub(*age.Ceased), 0))
	case age.Confirmed == nil:
		return "?"
	}
	return "≤" + duration.HumanDuration(max(now.Sub(*age.Confirmed), 0))
}

func lagCell(age *listing.Age) string {
	if age == nil {
		return nothing
	}
	return orNothing(age.Lag)
}

func unmappedTable(unmapped []device.Unmapped, wide, colour bool) []string {
	header := []string{"POD", "CONTAINER", "NODE", "ENTRY", "ID", "HEALTH", "WHY", "CANDIDATES"}
	if wide {
		header = append(header, "MESSAGE")
	}
	rows := [][]string{header}
	colours := []string{bold}
	for _, u := range unmapped {
		var candidates []string
		for _, key := range u.Candidates {
			candidates = append(candidates, oneLine(key.String()))
		}
		row := []string{
			u.Pod.String(), u.Container, orNothing(u.Node), orNothing(oneLine(u.Entry)), orNothing(oneLine(u.ID)),
			string(u.Health), string(u.Reason), orNothing(strings.Join(candidates, ",")),
		}
		if wide {
			row = append(row, orNothing(oneLine(u.Message)))
		}
		rows = append(rows, row)
		colours = append(colours, healthColour(u.Health))
	}
	return aligned(rows, colours, colour)
}

// aligned lays rows out in columns. Colour goes around whole lines, after the
// columns were measured: escape sequences have no width.
func aligned(rows [][]string, colours []string, colour bool) []string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	// A strings.Builder never fails.
	_ = table.Flush()
	all := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	for i := range all {
		all[i] = strings.TrimRight(all[i], " ")
		if colour && colours[i] != "" {
			all[i] = colours[i] + all[i] + reset
		}
	}
	return all
}

func orNothing(text string) string {
	if text == "" {
		return nothing
	}
	return text
}

// oneLine keeps a driver's text from breaking a table, or from driving the
// terminal: control characters are replaced.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}

// The colours of a table's lines (ECMA-48 SGR).
const (
	bold   = "\x1b[1m"
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	grey   = "\x1b[90m"
	reset  = "\x1b[0m"
)

// colourOf is red for what is out or faulty, yellow for what is only suspected
// or unknown, grey for what is gone.
func colourOf(d listing.Device) string {
	switch d.Phase {
	case quarantine.PhaseGone:
		return grey
	case quarantine.PhaseQuarantined, quarantine.PhaseRetired, quarantine.PhaseRecovering:
		return red
	case quarantine.PhaseSuspect, quarantine.PhaseRestricted:
		return yellow
	}
	return healthColour(d.Health)
}

func healthColour(h device.Health) string {
	switch h {
	case device.Unhealthy:
		return red
	case device.Unknown:
		return yellow
	}
	return ""
}
