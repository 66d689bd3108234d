package policy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sickbay-dev/sickbay/pkg/spelling"
)

// ErrPolicy is wrapped by every error about a policy's text.
var ErrPolicy = errors.New("wrong policy")

// FieldError is one thing that is wrong in a policy's text.
type FieldError struct {
	// Line is where it stands; zero where it doesn't stand anywhere.
	Line int
	// Field is the field's path, as quarantine.grace or drivers[gpu.example.com].mode;
	// empty is the whole text.
	Field string
	// Found is what is there, and Want what is allowed.
	Found, Want string
}

func (e *FieldError) Error() string {
	text := e.Found + "; want " + e.Want
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	if e.Line > 0 {
		text = fmt.Sprintf("line %d: %s", e.Line, text)
	}
	return text
}

func (e *FieldError) Unwrap() error { return ErrPolicy }

const (
	// maxText bounds a policy's text, and maxNames how many drivers or classes it may
	// name. More is no policy that a person wrote.
	maxText  = 256 << 10
	maxNames = 1000
	// maxShown bounds how much of what was found is shown.
	maxShown = 40
)

// Parse reads a policy. It refuses whatever it doesn't know: unknown and repeated
// fields, wrong types, values beyond their bounds. All errors come at once
// (errors.Join), each with its line and field, and wrap ErrPolicy.
func Parse(text []byte) (*Document, error) {
	if len(text) > maxText {
		return nil, &FieldError{Found: fmt.Sprintf("a text of %d bytes", len(text)), Want: fmt.Sprintf("at most %d", maxText)}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var root yaml.Node
	if err := decoder.Decode(&root); errors.Is(err, io.EOF) {
		return nil, &FieldError{Found: "an empty text", Want: "apiVersion: " + APIVersion + ", kind: " + Kind + ", and what it should say"}
	} else if err != nil {
		return nil, noYAML(err)
	}
	r := &reader{}
	var next yaml.Node
	if err := decoder.Decode(&next); err == nil {
		r.fail(next.Line, "", "a second document", "one")
	} else if !errors.Is(err, io.EOF) {
		return nil, noYAML(err)
	}
	document := &Document{}
	r.object(root.Content[0], "", reflect.ValueOf(document).Elem())
	r.complete(document)
	if len(r.errs) == 0 {
		r.fits(document)
	}
	slices.SortStableFunc(r.errs, func(a, b *FieldError) int { return cmp.Compare(a.Line, b.Line) })
	if len(r.errs) > 0 {
		errs := make([]error, len(r.errs))
		for i, err := range r.errs {
			errs[i] = err
		}
		return nil, errors.Join(errs...)
	}
	return document, nil
}

var (
	yamlLine = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)$`)
	// yamlEarly is what yaml.v3 says of the line after the one that it names: it counts
	// from zero where its parser finds something, and from one where its scanner does.
	yamlEarly = regexp.MustCompile(`^did not find expected (',' or|key|'-' indicator|node content|<)`)
)

// noYAML is what the YAML parser says, in the form of the other errors.
func noYAML(err error) error {
	refused := &FieldError{Found: err.Error(), Want: "YAML"}
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		fmt.Sscan(m[1], &refused.Line)
		if refused.Found = m[2]; refused.Line > 0 && yamlEarly.MatchString(m[2]) {
			refused.Line++
		}
	}
	return refused
}

// reader reads YAML by hand, because a decoder stops at the first mistake and doesn't
// say which field it is in.
type reader struct {
	errs []*FieldError
	// lines are where fields stand.
	lines map[string]int
}

func (r *reader) fail(line int, field, found, want string) {
	r.errs = append(r.errs, &FieldError{Line: line, Field: field, Found: found, Want: want})
}

// object reads the fields of a struct.
func (r *reader) object(node *yaml.Node, at string, into reflect.Value) {
	fields := fieldsOf(into.Type())
	r.entries(node, at, "an object with any of "+strings.Join(names(fields), ", "), func(key, value *yaml.Node) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == key.Value })
		path := join(at, key.Value)
		if i < 0 {
			want := "one of " + strings.Join(names(fields), ", ")
			if near := spelling.Nearest(key.Value, names(fields)); near != "" {
				want = near + ", if that is meant, or " + want
			}
			r.fail(key.Line, join(at, cut(key.Value)), "no such field", want)
			return
		}
		r.value(fields[i], value, path, into.Field(fields[i].i))
	})
}

// entries reads the keys of a mapping, each once.
func (r *reader) entries(node *yaml.Node, at, want string, take func(key, value *yaml.Node)) {
	if node.Kind != yaml.MappingNode {
		r.fail(node.Line, at, found(node), want)
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			r.fail(key.Line, at, found(key)+" as a name", "a plain text")
			continue
		}
		if line, twice := seen[key.Value]; twice {
			r.fail(key.Line, join(at, cut(key.Value)), fmt.Sprintf("a field that stands in line %d already", line), "each once")
			continue
		}
		seen[key.Value] = key.Line
		take(key, value)
	}
}

// value reads one field.
func (r *reader) value(f field, node *yaml.Node, at string, into reflect.Value) {
	if r.lines == nil {
		r.lines = map[string]int{}
	}
	r.lines[at] = node.Line
	switch f.kind.Kind() {
	case reflect.Map:
		r.named(f, node, at, into)
		return
	case reflect.Struct:
		section := reflect.New(f.kind)
		r.object(node, at, section.Elem())
		into.Set(section)
		return
	case reflect.Slice:
		r.list(f, node, at, into)
		return
	}
	if node.Kind != yaml.ScalarNode || node.Tag == "!!null" {
		r.fail(node.Line, at, found(node), f.allowed())
		return
	}
	held, ok := f.read(node.Value, node.Tag == "!!str")
	if !ok {
		r.fail(node.Line, at, found(node), f.allowed())
		return
	}
	if into.Kind() == reflect.Pointer {
		pointer := reflect.New(f.kind)
		pointer.Elem().Set(held)
		held = pointer
	}
	into.Set(held)
}

// name is a driver's, a resource's or a class's: a DNS name, for a resource with a word
// behind a slash.
var name = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`)

// maxName is the longest name of a DNS domain, a slash, and the longest word behind it.
const maxName = 253 + 1 + 63

// named reads what is said of each of several drivers or classes.
func (r *reader) named(f field, node *yaml.Node, at string, into reflect.Value) {
	into.Set(reflect.MakeMap(into.Type()))
	r.entries(node, at, f.allowed(), func(key, value *yaml.Node) {
		path := at + "[" + cut(key.Value) + "]"
		if len(key.Value) > maxName || !name.MatchString(key.Value) {
			r.fail(key.Line, path, "a name that none of the "+at+" can have", "one such as gpu.example.com or example.com/gpu")
			return
		}
		if into.Len() == maxNames {
			r.fail(key.Line, path, "one name more", fmt.Sprintf("at most %d", maxNames))
			return
		}
		said := reflect.New(into.Type().Elem().Elem())
		r.object(value, path, said.Elem())
		into.SetMapIndex(reflect.ValueOf(key.Value), said)
	})
}

// list reads a list of texts.
func (r *reader) list(f field, node *yaml.Node, at string, into reflect.Value) {
	if node.Kind != yaml.SequenceNode {
		r.fail(node.Line, at, found(node), f.allowed())
		return
	}
	if most := int(f.number("most")); len(node.Content) > most {
		r.fail(node.Line, at, fmt.Sprintf("a list of %d", len(node.Content)), f.allowed())
		return
	}
	item, never := f.item(), f.tag.Get("never")
	words := []string{}
	for i, entry := range node.Content {
		path := fmt.Sprintf("%s[%d]", at, i)
		switch {
		case entry.Kind != yaml.ScalarNode || entry.Tag != "!!str" || !item.fits(entry.Value):
			r.fail(entry.Line, path, found(entry), item.allowed)
		case f.tag.Get("items") == "condition" && entry.Value == never:
			r.fail(entry.Line, path, found(entry), "another condition: a node that is out isn't faulty, and is never isolated for it")
		case f.tag.Get("items") == "taint" && strings.HasPrefix(entry.Value, never):
			r.fail(entry.Line, path, found(entry), "a key of the driver's: of Sickbay's marks its claim has the one of its own case, and no other")
		case f.once() && slices.Contains(words, entry.Value):
			r.fail(entry.Line, path, found(entry)+" once more", "each once")
		default:
			words = append(words, entry.Value)
		}
	}
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.ValueOf(&words))
		return
	}
	into.Set(reflect.ValueOf(words))
}

// complete refuses a text that doesn't say what it is.
func (r *reader) complete(d *Document) {
	for _, f := range fieldsOf(reflect.TypeFor[Document]())[:2] {
		if r.lines[f.name] == 0 {
			r.fail(1, f.name, "nothing", f.allowed())
		}
	}
}

// fits refuses what doesn't fit together.
func (r *reader) fits(d *Document) {
	backoff := func(at string, q *Quarantine) {
		if q != nil && q.AttemptPause != nil && q.AttemptPauseMax != nil && *q.AttemptPauseMax < *q.AttemptPause {
			at := join(at, "quarantine.attemptPauseMax")
			r.fail(r.lines[at], at, q.AttemptPauseMax.String(), "at least attemptPause, which is "+q.AttemptPause.String())
		}
		if q != nil && q.RecheckFirst != nil && q.RecheckMax != nil && *q.RecheckMax < *q.RecheckFirst {
			at = join(at, "quarantine.recheckMax")
			r.fail(r.lines[at], at, q.RecheckMax.String(), "at least recheckFirst, which is "+q.RecheckFirst.String())
		}
	}
	programs := func(at string, said *Recovery) {
		if said == nil {
			return
		}
		for name, program := range map[string]*Program{"probe": said.Probe, "canary": said.Canary} {
			if program != nil && program.Command != nil && program.Image == nil {
				path := join(join(at, "recovery"), name)
				r.fail(r.lines[path+".command"], path+".command", "a command without an image", "the image that it is in: Sickbay's own has no other program, and takes args alone")
			}
		}
	}
	backoff("", d.Quarantine)
	programs("", d.Recovery)
	for driver, said := range d.Drivers {
		backoff("drivers["+driver+"]", said.Quarantine)
		programs("drivers["+driver+"]", said.Recovery)
	}
	for class, said := range d.Classes {
		backoff("classes["+class+"]", said.Quarantine)
		programs("classes["+class+"]", said.Recovery)
	}
	for at, limit := range d.said() {
		if limit.None != nil && *limit.None && (limit.Percent != nil || limit.Max != nil || limit.Min != nil) {
			r.fail(r.lines[at], at, "none: true beside something else", "either of them")
		}
		if limit.Max != nil && limit.Min != nil && *limit.Min > *limit.Max {
			r.fail(r.lines[at], at, fmt.Sprintf("min %d and max %d", *limit.Min, *limit.Max), "a min that isn't more than the max")
		}
	}
}

// found says what stands where something else is wanted.
func found(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias (*" + cut(node.Value) + ")"
	}
	switch node.Tag {
	case "!!null":
		return "nothing"
	case "!!merge":
		return "a merge (<<)"
	case "!!str":
		return fmt.Sprintf("%q", cut(node.Value))
	}
	return cut(node.Value)
}

// cut is a text as it is shown in an error.
func cut(text string) string {
	runes := []rune(strings.ToValidUTF8(text, "?"))
	for i, c := range runes {
		if c < ' ' || c == 0x7f {
			runes[i] = ' '
		}
	}
	if len(runes) > maxShown {
		return string(runes[:maxShown]) + "…"
	}
	return string(runes)
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}
