package reason

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// Parse reads a site's overrides from JSON. It refuses what it doesn't know:
// unknown and repeated fields, wrong types, bad values. All errors come at once
// (errors.Join), each with the place and what to do, and wrap ErrOverrides.
func Parse(text []byte) (*Overrides, error) {
	r := &reader{}
	overrides := r.overrides(text)
	if err := errors.Join(r.errs...); err != nil {
		return nil, err
	}
	if err := overrides.Validate(); err != nil {
		return nil, err
	}
	return overrides, nil
}

// reader reads JSON by hand, because encoding/json stops at the first unknown
// field, takes a repeated one silently, and can't say where it is.
type reader struct {
	errs []error
}

// read is how one field's value is taken.
type read func(value json.RawMessage, at string)

func (r *reader) fail(at, format string, args ...any) {
	if at == "" {
		at = "document"
	}
	r.errs = append(r.errs, fmt.Errorf("%w: %s: %w", ErrOverrides, at, fmt.Errorf(format, args...)))
}

// object reads one JSON object field by field.
func (r *reader) object(value json.RawMessage, at string, fields map[string]read) {
	decoder := json.NewDecoder(bytes.NewReader(value))
	token, err := decoder.Token()
	if err != nil {
		r.fail(at, "this is no JSON: %w; correct it", err)
		return
	}
	if token != json.Delim('{') {
		r.fail(at, "want an object with the fields %s", strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		return
	}
	seen := map[string]bool{}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			r.fail(at, "this is no JSON: %w; correct it", err)
			return
		}
		name, _ := key.(string)
		var field json.RawMessage
		if err := decoder.Decode(&field); err != nil {
			r.fail(at, "field %q is no JSON: %w; correct it", name, err)
			return
		}
		take, known := fields[name]
		switch {
		case !known:
			r.fail(at, "unknown field %q; known are %s", name, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		case seen[name]:
			r.fail(at, "field %q is given twice; remove one", name)
		default:
			take(field, join(at, name))
		}
		seen[name] = true
	}
	if _, err := decoder.Token(); err != nil {
		r.fail(at, "this is no JSON: %w; correct it", err)
		return
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		r.fail(at, "something follows after the object; remove it")
	}
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// list reads a JSON array element by element.
func (r *reader) list(value json.RawMessage, at string, element read) {
	var elements []json.RawMessage
	if !isArray(value) || json.Unmarshal(value, &elements) != nil {
		r.fail(at, "want a list")
		return
	}
	for i, e := range elements {
		element(e, fmt.Sprintf("%s[%d]", at, i))
	}
}

func isArray(value json.RawMessage) bool {
	return bytes.HasPrefix(bytes.TrimSpace(value), []byte("["))
}

// text reads a string into any type that is one.
func text[T ~string](r *reader, into *T) read {
	return func(value json.RawMessage, at string) {
		var s *string
		if err := json.Unmarshal(value, &s); err != nil || s == nil {
			r.fail(at, "want a text, not %s", value)
			return
		}
		*into = T(*s)
	}
}

func texts[T ~string](r *reader, into *[]T) read {
	return func(value json.RawMessage, at string) {
		r.list(value, at, func(e json.RawMessage, at string) {
			var one T
			text(r, &one)(e, at)
			*into = append(*into, one)
		})
	}
}

func (r *reader) numbers(into *[]int) read {
	return func(value json.RawMessage, at string) {
		r.list(value, at, func(e json.RawMessage, at string) {
			var n *int
			if err := json.Unmarshal(e, &n); err != nil || n == nil {
				r.fail(at, "want a whole number, not %s", e)
				return
			}
			*into = append(*into, *n)
		})
	}
}

func (r *reader) flag(into *bool) read {
	return func(value json.RawMessage, at string) {
		var b *bool
		if err := json.Unmarshal(value, &b); err != nil || b == nil {
			r.fail(at, "want true or false, not %s", value)
			return
		}
		*into = *b
	}
}

func (r *reader) severity(into *Severity) read {
	return func(value json.RawMessage, at string) {
		var name string
		text(r, &name)(value, at)
		if name == "" {
			return
		}
		var s Severity
		if err := s.UnmarshalText([]byte(name)); err != nil || s == 0 {
			r.fail(at, "severity %q: want note, minor, major or fatal", name)
			return
		}
		*into = s
	}
}

func (r *reader) overrides(document []byte) *Overrides {
	o := &Overrides{}
	r.object(document, "", map[string]read{
		"version":  text(r, &o.Version),
		"enable":   r.selectors(&o.Enable),
		"disable":  r.selectors(&o.Disable),
		"defaults": r.defaults(&o.Defaults),
		"rules": func(value json.RawMessage, at string) {
			r.list(value, at, func(e json.RawMessage, at string) {
				o.Rules = append(o.Rules, r.rule(e, at))
			})
		},
	})
	return o
}

func (r *reader) selectors(into *[]Selector) read {
	return func(value json.RawMessage, at string) {
		r.list(value, at, func(e json.RawMessage, at string) {
			var s Selector
			r.object(e, at, map[string]read{
				"drivers": texts(r, &s.Drivers),
				"xids":    r.numbers(&s.Xids),
				"codes":   texts(r, &s.Codes),
				"all":     r.flag(&s.All),
			})
			*into = append(*into, s)
		})
	}
}

func (r *reader) defaults(into *Defaults) read {
	one := func(into **Verdict) read {
		return func(value json.RawMessage, at string) {
			v := &Verdict{}
			r.object(value, at, r.verdict(v))
			*into = v
		}
	}
	return func(value json.RawMessage, at string) {
		r.object(value, at, map[string]read{
			"unrecognizedXid":     one(&into.UnrecognizedXid),
			"unrecognizedMessage": one(&into.UnrecognizedMessage),
			"withoutMessage":      one(&into.WithoutMessage),
		})
	}
}

func (r *reader) verdict(v *Verdict) map[string]read {
	return map[string]read{
		"severity": r.severity(&v.Severity),
		"action":   text(r, &v.Action),
		"closes":   text(r, &v.Closes),
		"scope":    text[device.Scope](r, &v.Scope),
	}
}

func (r *reader) rule(value json.RawMessage, at string) Rule {
	var rule Rule
	fields := r.verdict(&rule.Verdict)
	fields["name"] = text(r, &rule.Name)
	fields["drivers"] = texts(r, &rule.Drivers)
	fields["xids"] = r.numbers(&rule.Xids)
	fields["message"] = text(r, &rule.Message)
	fields["code"] = text(r, &rule.Code)
	fields["meaning"] = text(r, &rule.Meaning)
	fields["source"] = text(r, &rule.Source)
	r.object(value, at, fields)
	return rule
}
