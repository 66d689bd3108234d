package policy

// This file tells by what a device is proven healthy.

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// ProbeSettings is what an attempt at recovery makes and runs for a device.
type ProbeSettings struct {
	// Class is the DeviceClass that our claim asks for the device by. Empty: one by which
	// the device was claimed before, and where none is known the class that has the
	// driver's name.
	Class string
	// Tolerate are the keys of the driver's own taints that our claim may have on the
	// device. Any other one keeps it out, and the attempt waits.
	Tolerate []string
	// Hold is the program that has the device through the whole attempt and does nothing
	// with it; Probe looks for what is wrong with it; Canary is a small load.
	Hold, Probe, Canary ProgramSettings
}

// ProgramSettings is a program that is run in a Pod of ours. It may write
// /dev/termination-log, which is shown, and /tmp.
type ProgramSettings struct {
	Image string
	// Command and Args are those of the container; empty are the image's own.
	Command, Args []string
}

// Probing is by what a device is proven healthy, by its driver and its classes. Where
// several of its classes say something of the same, it is tolerated what all of those
// tolerate, and of the rest holds what the first of them says, by name.
func (f *InForce) Probing(driver string, classes []string) ProbeSettings {
	held, _ := f.probing(driver, classes)
	return held
}

// probingFields are the fields of recovery, as they are written, in their order.
var probingFields = [...]string{"class", "tolerate", "probe", "canary"}

// probing is that, and where each field comes from.
func (f *InForce) probing(driver string, classes []string) (ProbeSettings, map[string]Source) {
	own := f.unsaid("SICKBAY_PROBE_IMAGE")
	held := ProbeSettings{Hold: f.own("probe", "hold"), Probe: f.own("probe"), Canary: f.own("probe", "--for", "5m")}
	from := map[string]Source{"class": {Kind: FromDefault}, "tolerate": {Kind: FromDefault}, "probe": own, "canary": own}
	lay := func(said *Recovery, source Source) {
		if said == nil {
			return
		}
		if said.Class != nil {
			held.Class, from["class"] = *said.Class, source
		}
		if said.Tolerate != nil {
			held.Tolerate, from["tolerate"] = slices.Clone(*said.Tolerate), source
		}
		if said.Probe != nil {
			held.Probe, from["probe"] = said.Probe.over(f.own("probe")), source
		}
		if said.Canary != nil {
			held.Canary, from["canary"] = said.Canary.over(f.own("probe", "--for", "5m")), source
		}
	}
	lay(f.said.Recovery, Source{Kind: FromPolicy})
	if d := f.said.Drivers[driver]; d != nil {
		lay(d.Recovery, Source{Kind: FromDriver, Name: driver})
	}
	classes = slices.Compact(slices.Sorted(slices.Values(classes)))
	// Backwards, so that the first by name is laid over the others.
	for _, class := range slices.Backward(classes) {
		if c := f.said.Classes[class]; c != nil {
			lay(c.Recovery, Source{Kind: FromClass, Name: class})
		}
	}
	held.Tolerate = slices.DeleteFunc(held.Tolerate, func(key string) bool {
		return slices.ContainsFunc(classes, func(class string) bool {
			c := f.said.Classes[class]
			return c != nil && c.Recovery != nil && c.Recovery.Tolerate != nil && !slices.Contains(*c.Recovery.Tolerate, key)
		})
	})
	return held, from
}

// own is Sickbay's program with these arguments.
func (f *InForce) own(args ...string) ProgramSettings {
	return ProgramSettings{Image: f.base.ProbeImage, Args: args}
}

// over lays what is said of a program over Sickbay's own, whose arguments are those of
// sickbay probe, with that word or without. Another image has arguments of its own.
func (p *Program) over(own ProgramSettings) ProgramSettings {
	if p.Image != nil {
		own = ProgramSettings{Image: *p.Image}
	}
	if p.Command != nil {
		own.Command = slices.Clone(*p.Command)
	}
	if p.Args != nil {
		own.Args = slices.Clone(*p.Args)
		if p.Image == nil && (len(own.Args) == 0 || own.Args[0] != "probe") {
			own.Args = append([]string{"probe"}, own.Args...)
		}
	}
	return own
}

// String is the program as people read it: its image, and what is run in it.
func (p ProgramSettings) String() string {
	if p.Image == "" {
		return "none: no image, SICKBAY_PROBE_IMAGE is empty"
	}
	words := []string{p.Image}
	for _, word := range slices.Concat(p.Command, p.Args) {
		if word == "" || strings.ContainsFunc(word, func(c rune) bool { return c <= ' ' || c == '"' || c == 0x7f }) {
			word = strconv.Quote(word)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// explainProbing lists by what a device is proven healthy.
func (f *InForce) explainProbing(driver string, classes []string) []Explained {
	held, from := f.probing(driver, classes)
	values := map[string]string{
		"class":    cmp.Or(held.Class, "one by which it was claimed, or else "+driver),
		"tolerate": cmp.Or(strings.Join(held.Tolerate, ", "), "none"),
		"probe":    held.Probe.String(), "canary": held.Canary.String(),
	}
	var all []Explained
	for _, field := range probingFields {
		all = append(all, Explained{"recovery." + field, values[field], from[field]})
	}
	return all
}
