package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// field is one field of a struct, as its tags describe it.
type field struct {
	name string
	tag  reflect.StructTag
	kind reflect.Type // without the pointer
	i    int
}

// fieldsOf lists the fields of a struct's type.
func fieldsOf(t reflect.Type) []field {
	fields := make([]field, 0, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		kind := f.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		fields = append(fields, field{name: name, tag: f.Tag, kind: kind, i: i})
	}
	return fields
}

func names(fields []field) []string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = f.name
	}
	return all
}

// allowed says in words what the field may hold.
func (f field) allowed() string {
	if choices := strings.Fields(f.tag.Get("oneof")); len(choices) > 0 {
		return oneOf(choices)
	}
	bounds := fmt.Sprintf("from %s to %s", f.tag.Get("min"), f.tag.Get("max"))
	switch f.kind {
	case reflect.TypeFor[Duration]():
		if whole := f.tag.Get("whole"); whole != "" {
			return "a duration such as 10s or 5m in whole seconds, " + bounds
		}
		return "a duration such as 30s, 5m or 1h30m, " + bounds
	case reflect.TypeFor[int]():
		return "a whole number, " + bounds
	case reflect.TypeFor[float64]():
		return "a number, " + bounds
	}
	switch f.kind.Kind() {
	case reflect.Struct:
		return "an object with any of " + strings.Join(names(fieldsOf(f.kind)), ", ")
	case reflect.Map:
		return "an object that has a name for each of them"
	case reflect.Slice:
		return fmt.Sprintf("a list of at most %s %s", f.tag.Get("most"), f.item().many)
	}
	return f.form().allowed
}

func oneOf(choices []string) string {
	if len(choices) == 1 {
		return choices[0]
	}
	last := len(choices) - 1
	return strings.Join(choices[:last], ", ") + " or " + choices[last]
}

// read takes a scalar's text into a value of the field's type, if it is allowed. quoted
// tells that the text stands in quotes, and is no number therefore.
func (f field) read(text string, quoted bool) (reflect.Value, bool) {
	switch f.kind {
	case reflect.TypeFor[Duration]():
		d, err := time.ParseDuration(text)
		if err != nil || !f.holdsDuration(d) {
			return reflect.Value{}, false
		}
		return reflect.ValueOf(Duration(d)), true
	case reflect.TypeFor[int]():
		n, err := strconv.Atoi(text)
		// 010 is eight for some readers of YAML and ten for others.
		if err != nil || quoted || strconv.Itoa(n) != text || !f.holdsNumber(float64(n)) {
			return reflect.Value{}, false
		}
		return reflect.ValueOf(n), true
	case reflect.TypeFor[float64]():
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || quoted || !f.holdsNumber(n) {
			return reflect.Value{}, false
		}
		return reflect.ValueOf(n), true
	}
	if f.tag.Get("form") != "" {
		return reflect.ValueOf(text), f.form().fits(text)
	}
	if !slices.Contains(strings.Fields(f.tag.Get("oneof")), text) {
		return reflect.Value{}, false
	}
	if f.kind.Kind() == reflect.Bool {
		return reflect.ValueOf(text == "true"), !quoted
	}
	return reflect.ValueOf(text).Convert(f.kind), true
}

func (f field) holdsDuration(d time.Duration) bool {
	if whole := f.tag.Get("whole"); whole != "" && d%f.duration("whole") != 0 {
		return false
	}
	return d >= f.duration("min") && d <= f.duration("max")
}

func (f field) duration(tag string) time.Duration {
	bound, err := time.ParseDuration(f.tag.Get(tag))
	if err != nil {
		panic(fmt.Sprintf("tag %s of field %s: %v", tag, f.name, err))
	}
	return bound
}

// holdsNumber is false for what is no number, too: it is neither less nor more.
func (f field) holdsNumber(n float64) bool {
	return n >= f.number("min") && n <= f.number("max")
}

func (f field) number(tag string) float64 {
	bound, err := strconv.ParseFloat(f.tag.Get(tag), 64)
	if err != nil {
		panic(fmt.Sprintf("tag %s of field %s: %v", tag, f.name, err))
	}
	return bound
}
