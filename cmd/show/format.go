package show

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/device"
)

// Format is a form of output.
type Format string

const (
	Table Format = "table"
	Wide  Format = "wide"
	JSON  Format = "json"
	YAML  Format = "yaml"
	Name  Format = "name"
)

// Formats lists all formats, as help texts show them.
func Formats() []Format { return []Format{Table, Wide, JSON, YAML, Name} }

// ParseFormat reads what a user asked for.
func ParseFormat(text string) (Format, error) {
	var names []string
	for _, f := range Formats() {
		if string(f) == text {
			return f, nil
		}
		names = append(names, string(f))
	}
	return "", fmt.Errorf("output %q: want %s", text, strings.Join(names, ", "))
}

// Print writes a listing once. Colour is used in tables only.
func Print(out io.Writer, l listing.Listing, format Format, colour bool) error {
	return write(out, l, format, func(name func(string)) {
		for _, d := range l.Devices {
			name(d.Name)
		}
	}, func() []string { return append(lines(l, format == Wide, colour), footer(l, colour)...) })
}

// unmapped is what machines get of a listing of unmapped faults.
type unmapped struct {
	At       time.Time         `json:"at"`
	Unmapped []device.Unmapped `json:"unmapped"`
	Blind    []string          `json:"blind,omitempty"`
	Problems []string          `json:"problems,omitempty"`
}

// PrintUnmapped writes a listing's unmapped faults. Their names are those of
// their Pods.
func PrintUnmapped(out io.Writer, l listing.Listing, format Format, colour bool) error {
	return write(out, unmapped{At: l.At, Unmapped: l.Unmapped, Blind: l.Blind, Problems: l.Problems}, format, func(name func(string)) {
		last := ""
		for _, u := range l.Unmapped {
			if pod := u.Pod.String(); pod != last {
				name(pod)
				last = pod
			}
		}
	}, func() []string { return unmappedLines(l, format == Wide, colour) })
}

// PrintCounts writes how many devices of a listing stand where.
func PrintCounts(out io.Writer, l listing.Listing, format Format, colour bool) error {
	counts := l.Count()
	return write(out, counts, format, nil, func() []string { return countLines(counts, colour) })
}

// PrintStory writes what is known of one device; of its timeline, tables show the
// latest decisions only, or all for zero.
func PrintStory(out io.Writer, s listing.Story, format Format, colour bool, latest int) error {
	return write(out, s, format, func(name func(string)) { name(s.Device.Name) }, func() []string {
		return storyLines(s, format == Wide, colour, latest)
	})
}

// PrintPod writes what is known of one Pod's devices. Names are the devices'.
func PrintPod(out io.Writer, s listing.PodStory, format Format, colour bool) error {
	return write(out, s, format, func(name func(string)) {
		last := ""
		for _, d := range s.Devices {
			if d.Device.Name != last {
				name(d.Device.Name)
				last = d.Device.Name
			}
		}
	}, func() []string { return podLines(s, format == Wide, colour) })
}

// write writes a value for machines, its names, or its lines for people.
func write(out io.Writer, value any, format Format, names func(func(string)), forPeople func() []string) error {
	var all []string
	switch format {
	case JSON:
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	case YAML:
		content, err := yaml.Marshal(value)
		if err != nil {
			return fmt.Errorf("write the answer as YAML: %w", err)
		}
		_, err = out.Write(content)
		return err
	case Name:
		if names == nil {
			return errors.New("there are no names in this answer")
		}
		names(func(name string) { all = append(all, oneLine(name)) })
	default:
		all = forPeople()
	}
	buffered := bufio.NewWriter(out)
	for _, line := range all {
		if _, err := fmt.Fprintln(buffered, line); err != nil {
			return err
		}
	}
	return buffered.Flush()
}
