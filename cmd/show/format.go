package show

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/sickbay-dev/sickbay/cmd/listing"
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
	switch format {
	case JSON:
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(l)
	case YAML:
		content, err := yaml.Marshal(l)
		if err != nil {
			return fmt.Errorf("write the listing as YAML: %w", err)
		}
		_, err = out.Write(content)
		return err
	case Name:
		for _, d := range l.Devices {
			if _, err := fmt.Fprintln(out, d.Name); err != nil {
				return err
			}
		}
		return nil
	}
	for _, line := range lines(l, format == Wide, colour) {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}
