package listing

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reading"
	"github.com/sickbay-dev/sickbay/pkg/spelling"
)

// NoCase stands for the phase of a device that has no case.
const NoCase = "None"

// Phases are the phases that a listing can be narrowed to, the gravest first, as
// it counts and sorts them.
func Phases() []string {
	return []string{
		string(quarantine.PhaseQuarantined), string(quarantine.PhaseRetired), string(quarantine.PhaseGone),
		string(quarantine.PhaseRecovering), string(quarantine.PhaseRestricted), string(quarantine.PhaseSuspect),
		string(quarantine.PhaseReleased), NoCase,
	}
}

// Filter narrows a listing. Empty fields let everything through; of several
// values of one field, any lets a device through. Values of Nodes, Drivers,
// Classes and Reasons may hold the wildcards of path.Match.
type Filter struct {
	// Names are device names as the listing shows them.
	Names []string
	Nodes []string
	// Drivers are DRA drivers or device-plugin resource names.
	Drivers []string
	// Phases are those of Phases.
	Phases []string
	// Classes are DeviceClasses, or resource names of device plugins.
	Classes []string
	// Reasons are reason codes, or for unmapped faults why they are.
	Reasons []string
	// Faulty leaves out the devices that nothing is wrong with.
	Faulty bool
}

// Check names what is wrong with a filter.
func (f Filter) Check() error {
	for flag, values := range map[string][]string{"node": f.Nodes, "driver": f.Drivers, "class": f.Classes, "reason": f.Reasons} {
		for _, v := range values {
			if _, err := path.Match(v, ""); err != nil {
				return fmt.Errorf("--%s %q isn't a pattern: want a name, in which * stands for any letters and ? for one", flag, v)
			}
		}
	}
	for _, phase := range f.Phases {
		if slices.ContainsFunc(Phases(), func(p string) bool { return strings.EqualFold(p, phase) }) {
			continue
		}
		want := "want one of " + strings.Join(Phases(), ", ")
		if near := spelling.Nearest(phase, Phases()); near != "" {
			want = "did you mean " + near + "?"
		}
		return fmt.Errorf("--phase %q: there is no such phase; %s", phase, want)
	}
	return nil
}

// Narrow leaves of a listing what the filter lets through, and names those of the
// filter's devices that aren't in the listing.
func (l Listing) Narrow(f Filter) (Listing, []string) {
	names := map[string]bool{}
	for _, name := range f.Names {
		names[name] = false
	}
	whole := l.Devices
	l.Devices = make([]Device, 0, len(whole))
	for _, d := range whole {
		if _, ok := names[d.Name]; ok {
			names[d.Name] = true
		}
		if f.admits(d) {
			l.Devices = append(l.Devices, d)
		}
	}
	missing := slices.DeleteFunc(slices.Clone(f.Names), func(name string) bool { return names[name] })
	l.Unmapped = slices.DeleteFunc(slices.Clone(l.Unmapped), func(u device.Unmapped) bool { return !f.admitsUnmapped(u) })
	if l.noClasses != "" && len(f.Classes) > 0 {
		l.Problems = append(slices.Clone(l.Problems), l.noClasses)
	}
	for _, class := range l.openClasses {
		if len(f.Classes) > 0 && matches(f.Classes, class) {
			l.Notes = append(slices.Clone(l.Notes), fmt.Sprintf("DeviceClass %s demands more than a driver and strings of it, "+
				"which isn't judged here: of its devices only those are shown that are allocated by it", class))
		}
	}
	return l, missing
}

func (f Filter) admits(d Device) bool {
	return (len(f.Names) == 0 || slices.Contains(f.Names, d.Name)) &&
		matches(f.Nodes, d.Node) &&
		matches(f.Drivers, reading.DriverOf(d.Key)) &&
		matches(f.Reasons, d.Why()) &&
		(len(f.Phases) == 0 || slices.ContainsFunc(f.Phases, func(p string) bool { return strings.EqualFold(p, phaseOf(d)) })) &&
		(len(f.Classes) == 0 || slices.ContainsFunc(d.Classes, func(c string) bool { return matches(f.Classes, c) })) &&
		(!f.Faulty || d.Faulty())
}

// admitsUnmapped asks of an unmapped fault what can be asked of one.
func (f Filter) admitsUnmapped(u device.Unmapped) bool {
	return (len(f.Names) == 0 || slices.ContainsFunc(u.Candidates, func(k device.Key) bool { return slices.Contains(f.Names, k.String()) })) &&
		matches(f.Nodes, u.Node) &&
		matches(f.Reasons, string(u.Reason)) &&
		(len(f.Drivers) == 0 || slices.ContainsFunc(u.Candidates, func(k device.Key) bool { return matches(f.Drivers, reading.DriverOf(k)) }))
}

// matches tells whether a value meets one of the patterns; none lets all through.
func matches(patterns []string, value string) bool {
	if len(patterns) == 0 {
		return true
	}
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if pattern == value {
			return true
		}
		ok, err := path.Match(pattern, value)
		return err == nil && ok
	})
}

// phaseOf is a device's phase as it is filtered and counted. A case of which only
// its workflow is known has none that could be named.
func phaseOf(d Device) string {
	switch {
	case d.Phase != "":
		return string(d.Phase)
	case d.Workflow != "":
		return unknownPhase
	}
	return NoCase
}

// unknownPhase is shown for a case of which only its workflow is known.
const unknownPhase = "?"

// Strange names the filter's values that no device of the listing has, with what
// may have been meant: an empty answer is then most likely a slip of the pen.
func (l Listing) Strange(f Filter) []string {
	var said []string
	for _, field := range []struct {
		what     string
		patterns []string
		of       func(Device) []string
	}{
		{"node", f.Nodes, func(d Device) []string { return []string{d.Node} }},
		{"driver", f.Drivers, func(d Device) []string { return []string{reading.DriverOf(d.Key)} }},
		{"class", f.Classes, func(d Device) []string { return d.Classes }},
		{"reason", f.Reasons, func(d Device) []string { return []string{d.Why()} }},
	} {
		if len(field.patterns) == 0 {
			continue
		}
		known := map[string]bool{}
		for _, d := range l.Devices {
			for _, value := range field.of(d) {
				if value != "" {
					known[value] = true
				}
			}
		}
		for _, pattern := range field.patterns {
			if text := strange(field.what, pattern, known); text != "" {
				said = append(said, text)
			}
		}
	}
	return said
}

// mostNamed bounds the names that a suggestion gives.
const mostNamed = 5

func strange(what, pattern string, known map[string]bool) string {
	var names []string
	for name := range known {
		if matches([]string{pattern}, name) {
			return ""
		}
		names = append(names, name)
	}
	slices.Sort(names)
	near := spelling.Near(pattern, names, mostNamed)
	switch {
	case len(near) > 0:
		return fmt.Sprintf("no device has the %s %s; did you mean %s?", what, pattern, strings.Join(near, " or "))
	case len(names) == 0:
		return fmt.Sprintf("no device has the %s %s, nor any other", what, pattern)
	case len(names) > mostNamed:
		return fmt.Sprintf("no device has the %s %s; there are %s and %d more", what, pattern, strings.Join(names[:mostNamed], ", "), len(names)-mostNamed)
	}
	return fmt.Sprintf("no device has the %s %s; there is %s", what, pattern, strings.Join(names, ", "))
}
