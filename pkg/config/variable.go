package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"
)

// Prefix begins the name of every variable.
const Prefix = "SICKBAY"

// Variable is one environment variable of a command.
type Variable struct {
	// Name is the variable's full name, for example SICKBAY_LOG_LEVEL.
	Name string
	// Description says what it is for.
	Description string
	// Default is the text that holds where the variable isn't set.
	Default string

	field  reflect.StructField
	prefix string
	// value is the field to fill; invalid in a listing.
	value reflect.Value
}

// Variables lists the variables of a command's struct, in the order of its fields.
func Variables(spec any) []Variable {
	value := reflect.ValueOf(spec)
	if value.Kind() == reflect.Pointer {
		value = value.Elem()
	}
	return variables(Prefix, value)
}

func variables(prefix string, spec reflect.Value) []Variable {
	var all []Variable
	for i := range spec.NumField() {
		field := spec.Type().Field(i)
		if field.Anonymous {
			all = append(all, variables(prefix, spec.Field(i))...)
			continue
		}
		name := nameOf(prefix, field)
		if field.Type.Kind() == reflect.Struct && !reflect.PointerTo(field.Type).Implements(reflect.TypeFor[envconfig.Decoder]()) {
			all = append(all, variables(name, spec.Field(i))...)
			continue
		}
		all = append(all, Variable{
			Name:        name,
			Description: field.Tag.Get("desc"),
			Default:     field.Tag.Get("default"),
			field:       field,
			prefix:      prefix,
			value:       spec.Field(i),
		})
	}
	return all
}

// nameOf asks envconfig what it would call the variable of a field. The fields
// have no `envconfig` tag: with one, envconfig also reads the name without the
// prefix, and an unrelated MODE in the environment would be taken for ours.
func nameOf(prefix string, field reflect.StructField) string {
	one := reflect.New(reflect.StructOf([]reflect.StructField{{Name: field.Name, Type: reflect.TypeFor[string](), Tag: field.Tag}}))
	var name strings.Builder
	if err := envconfig.Usagef(prefix, one.Interface(), &name, "{{range .}}{{usage_key .}}{{end}}"); err != nil {
		// The template is a constant of this function.
		panic(err)
	}
	return name.String()
}

// read fills the variable's field from the environment. envconfig stops at the
// first wrong value of a struct, so each field is given to it in a struct of its own.
func (v Variable) read() error {
	one := reflect.New(reflect.StructOf([]reflect.StructField{{Name: v.field.Name, Type: v.field.Type, Tag: v.field.Tag}}))
	if err := envconfig.Process(v.prefix, one.Interface()); err != nil {
		return v.refuse(err)
	}
	read := one.Elem().Field(0)
	if err := v.check(read); err != nil {
		return v.refuse(err)
	}
	v.value.Set(read)
	return nil
}

// useDefault fills the field as if the variable weren't set, so that checks that
// look at several fields can go on after one of them was refused.
func (v Variable) useDefault() {
	one := reflect.New(reflect.StructOf([]reflect.StructField{{Name: v.field.Name, Type: v.field.Type, Tag: v.field.Tag}}))
	// No name in the environment has an equals sign: only the default is found.
	if err := envconfig.Process(v.prefix+"=", one.Interface()); err == nil {
		v.value.Set(one.Elem().Field(0))
	}
}

// check holds a value against the field's tags.
func (v Variable) check(value reflect.Value) error {
	switch held := value.Interface().(type) {
	case time.Duration:
		return v.checkDuration(held)
	case DriverDurations:
		var errs []error
		for _, driver := range slices.Sorted(maps.Keys(held)) {
			if err := v.checkDuration(held[driver]); err != nil {
				if driver != "" {
					err = fmt.Errorf("%s: %s is %w", driver, held[driver], err)
				}
				errs = append(errs, err)
			}
		}
		return inOneLine(errs)
	case int:
		return v.checkNumber(float64(held))
	case float64:
		return v.checkNumber(held)
	case string:
		return v.checkText(held)
	}
	return nil
}

func (v Variable) checkDuration(held time.Duration) error {
	if low, ok := v.durationTag("min"); ok && held < low {
		return fmt.Errorf("less than %s", low)
	}
	if high, ok := v.durationTag("max"); ok && held > high {
		return fmt.Errorf("more than %s", high)
	}
	return nil
}

// inOneLine joins errors of one value: each variable is refused in a line of its own.
func inOneLine(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	return errors.New(strings.Join(texts, "; "))
}

func (v Variable) checkNumber(held float64) error {
	if math.IsNaN(held) {
		return errors.New("not a number")
	}
	if low, ok := v.numberTag("min"); ok && held < low {
		return fmt.Errorf("less than %v", low)
	}
	if high, ok := v.numberTag("max"); ok && held > high {
		return fmt.Errorf("more than %v", high)
	}
	return nil
}

func (v Variable) checkText(held string) error {
	if choices := strings.Fields(v.field.Tag.Get("oneof")); len(choices) > 0 {
		for _, choice := range choices {
			if held == choice {
				return nil
			}
		}
		return errors.New("no such value")
	}
	if held == "" && v.Default == "" {
		return nil
	}
	if form, ok := forms()[v.field.Tag.Get("form")]; ok {
		return form.check(held)
	}
	return nil
}

func (v Variable) durationTag(tag string) (time.Duration, bool) {
	text, ok := v.field.Tag.Lookup(tag)
	if !ok {
		return 0, false
	}
	bound, err := time.ParseDuration(text)
	if err != nil {
		panic(fmt.Sprintf("tag %s of %s: %v", tag, v.Name, err))
	}
	return bound, true
}

func (v Variable) numberTag(tag string) (float64, bool) {
	text, ok := v.field.Tag.Lookup(tag)
	if !ok {
		return 0, false
	}
	var bound float64
	if _, err := fmt.Sscan(text, &bound); err != nil {
		panic(fmt.Sprintf("tag %s of %s: %v", tag, v.Name, err))
	}
	return bound, true
}

// Allowed says in words what the variable may hold.
func (v Variable) Allowed() string {
	if choices := strings.Fields(v.field.Tag.Get("oneof")); len(choices) > 0 {
		return oneOf(choices)
	}
	switch v.field.Type {
	case reflect.TypeFor[time.Duration]():
		return "a duration such as 500ms, 30s, 5m or 1h30m" + v.bounds()
	case reflect.TypeFor[int]():
		return "a whole number" + v.bounds()
	case reflect.TypeFor[float64]():
		return "a number" + v.bounds()
	case reflect.TypeFor[bool]():
		return "true or false"
	}
	if described, ok := reflect.Zero(v.field.Type).Interface().(interface{ allowed() string }); ok {
		return described.allowed() + strings.TrimPrefix(v.bounds(), ",")
	}
	if form, ok := forms()[v.field.Tag.Get("form")]; ok {
		return form.allowed
	}
	return "a text"
}

func (v Variable) bounds() string {
	low, hasLow := v.field.Tag.Lookup("min")
	high, hasHigh := v.field.Tag.Lookup("max")
	switch {
	case hasLow && hasHigh:
		return fmt.Sprintf(", from %s to %s", low, high)
	case hasLow:
		return ", at least " + low
	case hasHigh:
		return ", at most " + high
	}
	return ""
}

func oneOf(choices []string) string {
	if len(choices) == 1 {
		return choices[0]
	}
	last := len(choices) - 1
	return strings.Join(choices[:last], ", ") + " or " + choices[last]
}

// WriteHelp writes the variables of a command's struct as its --help shows them.
func WriteHelp(out io.Writer, spec any) error {
	for _, v := range Variables(spec) {
		if _, err := fmt.Fprintf(out, "  %s\n      %s\n      %s", v.Name, v.Description, v.Allowed()); err != nil {
			return err
		}
		if v.Default != "" {
			if _, err := fmt.Fprintf(out, " (default %s)", v.Default); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintln(out); err != nil {
			return err
		}
	}
	return nil
}
